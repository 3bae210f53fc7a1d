"""Makes an engine file of a model; `--benchmark` measures it and `--verify` compares it with the original."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from neurenix import shapes
from neurenix.cli import hydra_config, impact, peers, progress, triton
from neurenix.cli.common import (
    ANY_SIZE,
    Arrays,
    add_accuracy,
    add_build_arguments,
    add_json,
    amount,
    as_asked,
    attained,
    budget,
    count,
    given_shapes,
    optimize,
    random_inputs,
    write_json,
)
from neurenix.cli.common import options as build_options
from neurenix.cli.measure import Times, measure
from neurenix.cli.models import add_model, input_ports, is_engine, load_given, load_weights
from neurenix.cli.outputs import keep_apart
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware import get_backend
from neurenix.hardware.optimized import OptimizedModel
from neurenix.hardware.options import PRECISIONS, WORDS, check, computed, eight_bits_of, is_among
from neurenix.importers.files import check_engine_name
from neurenix.shapes import Shape

#: What a model that was exported without a word about it computes in.
PRECISION = "fp16"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_model(parser, optional=True)
    parser.add_argument(
        "--allow", action="append", default=[], metavar="PACKAGE",
        help="without MODEL: a package whose classes --config FILE.yaml (with _target_) may make",
    )  # fmt: skip
    parser.add_argument(
        "--resolver", action="append", default=[], metavar="NAME=PACKAGE.FUNCTION",
        help="of that package, for interpolations ${NAME:...} that a project registers itself",
    )  # fmt: skip
    parser.add_argument(
        "--forward-arguments", metavar="JSON",
        help='what the config\'s object is called with besides its inputs: {"run_heads": ["signal"]}',
    )  # fmt: skip
    parser.add_argument(
        "--submodule", metavar="NAME", help="of the config's object, in place of it: net, model.encoder"
    )
    parser.add_argument("--output", "-o", metavar="FILE", help="the engine file (the model's name with .engine)")
    parser.add_argument("--shapes", metavar="NAME:SHAPE,...", help="of the inputs: input:1x3x224x224,mask:1x128")
    parser.add_argument(
        "--input-shape",
        nargs="+",
        metavar="N",
        help="the same with spaces: 1 3 224 224, or input:1x3x224x224 mask:1x128",
    )
    parser.add_argument(
        "--precision", metavar="NAME",
        help=f"of float32 layers: {', '.join(WORDS)}. Without it {PRECISION}, or "
        "float32 where this machine has no such arithmetic; what is asked for and can't be had is an error",
    )  # fmt: skip
    parser.add_argument("--workspace-size", type=float, default=4.0, metavar="GB", help="of a GPU's kernels (4)")
    parser.add_argument(
        "--dynamic-shapes", action="store_true",
        help="the first dimension of each input may vary from --min-batch to --max-batch; it is fastest at --opt-batch",
    )  # fmt: skip
    parser.add_argument("--min-batch", type=count, metavar="N", help="the least batch (1)")
    parser.add_argument("--max-batch", type=count, metavar="N", help="the greatest batch (16)")
    parser.add_argument("--opt-batch", type=count, metavar="N", help="where the speed is wanted (4)")
    for word in ("min", "opt", "max"):
        parser.add_argument(f"--{word}-shapes", f"--{word}Shapes", metavar="NAME:SHAPE,...", help="as trtexec has it")
    parser.add_argument(
        "--calibration-data",
        metavar="DIR",
        help="for 8 bits and mixed: a folder of images, .npy or .npz (DIR may be one such file)",
    )
    parser.add_argument(
        "--num-calibration-samples", type=count, metavar="N", help="how many files of it are read at most"
    )
    parser.add_argument(
        "--accuracy-budget",
        type=float,
        metavar="DB",
        help="for mixed: the least signal-to-noise ratio (30)",
    )
    add_accuracy(parser)
    parser.add_argument("--benchmark", action="store_true", help="measure the engine")
    parser.add_argument("--benchmark-iterations", type=count, default=100, metavar="N", help="timed calls (100)")
    parser.add_argument("--plot", metavar="FILE.svg", help="for --benchmark: draw how often each latency was seen")
    parser.add_argument(
        "--verify", action="store_true",
        help="open the file and compare it with the original (torch, TensorFlow, else ONNX Runtime, else ONNX's "
        "reference)",
    )  # fmt: skip
    parser.add_argument("--tolerance", type=amount, metavar="X", help="for --verify: relative to the greatest value")
    add_build_arguments(parser)
    triton.add_arguments(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the file; 1 when the precision that was asked for is not there or `--verify` finds it wrong."""
    if triton.built_already(arguments):
        return triton.copy(arguments)
    source = _source(arguments)
    given = _input_shapes(arguments, source)
    target = None if arguments.triton else Path(arguments.output or f"{_stem(arguments.model)}.engine")
    if target is not None:
        arguments.output = str(target)
        keep_apart(arguments)
    precision = _precision(arguments)
    begin = time.perf_counter()
    model = optimize(
        arguments, source, input_shapes=given, precision=precision,
        workspace_size=int(arguments.workspace_size * 2**30), **_calibration(arguments),
    )  # fmt: skip
    built = time.perf_counter() - begin
    report = model.report()
    chosen = report["precision"]
    got = chosen if attained(model, chosen) else chosen.partition("+")[2] or "fp32"
    if arguments.precision and not as_asked(model, arguments.precision):
        reason = "; ".join(report["notes"]) or "a model without such layers"
        raise _unattained(arguments.precision, reason, ["fp32"])
    written = None
    if target is None:
        written = triton.save(arguments, model)
        target = written.model
    else:
        model.save(target)
    content: dict[str, Any] = {
        "model": arguments.model,
        "output": str(target),
        "bytes": target.stat().st_size,
        "precision": {"asked": arguments.precision, "got": got, "why": _why(arguments.precision, precision, got)},
        "inputs": {port.name: {"dtype": port.dtype.name, "shape": list(port.shape)} for port in model.inputs},
        "outputs": {port.name: {"dtype": port.dtype.name, "shape": list(port.shape)} for port in model.outputs},
        "profiles": model.profiles,
        "build_s": built,
        "notes": report["notes"],
        "passed": True,
    }
    if written is not None:
        content["triton"] = triton.record(written)
    inputs = random_inputs(model.inputs, {name: a.shape for name, a in model.example().items()}, arguments.seed)
    if arguments.verify:
        content["verify"] = _verify(arguments, source, target, inputs, got)
        content["passed"] = content["verify"]["passed"]
    times = _measure(arguments, model, inputs) if arguments.benchmark else None
    table = None
    if times is not None:
        content["benchmark"] = {"throughput_qps": times.throughput_qps, "latency_ms": times.latency_ms}
        table = impact.measured(source, model, got, inputs, arguments)
        content["benchmark"]["configurations"] = table.records()
    if not write_json(arguments.json, content):
        _print(content, times)
        if table is not None:
            print(table)
        if written is not None:
            print(triton.text(written))
    return 0 if content["passed"] else 1


def _calibration(arguments: argparse.Namespace) -> dict[str, Any]:
    """What int8 is calibrated on and by which tools it gets nearer, and what a mix may lose."""
    given: dict[str, Any] = {}
    if arguments.accuracy_budget is not None:
        given["accuracy_budget"] = arguments.accuracy_budget
    if arguments.accuracy is not None:
        given["accuracy"] = arguments.accuracy
    if arguments.keep:
        given["keep"] = arguments.keep
    if arguments.calibration_data is not None:
        from neurenix.quantization import EntropyCalibrator

        given["calibration"] = EntropyCalibrator(arguments.calibration_data, limit=arguments.num_calibration_samples)
    return given


def _source(arguments: argparse.Namespace) -> Any:
    """The model, after a look at what can't be had."""
    described = arguments.config if arguments.model is None else None
    if described is None and arguments.model is None:
        raise InvalidArgumentError(
            "there is no model", expected="MODEL, or --config FILE.yaml with _target_", got="neither"
        )
    if described is None:
        _check(arguments)
        return load_given(arguments)
    if not hydra_config.is_config(described):
        raise InvalidArgumentError(
            "the arguments of a factory are of no use without it", expected="MODEL, or a config that ends with .yaml",
            got=described,
        )  # fmt: skip
    # It stands for the model in what is printed, and gives the file its name.
    arguments.model = described
    _check(arguments)
    module = hydra_config.build(described, arguments.allow, arguments.submodule, arguments.resolver)
    if arguments.forward_arguments:
        hydra_config.call_with(module, arguments.forward_arguments)
    if arguments.ckpt:
        load_weights(module, arguments.ckpt)
    return module


def _precision(arguments: argparse.Namespace) -> str:
    """What is built: what was asked for, else `PRECISION`, or float32 where nothing here has arithmetic for that."""
    providers = get_backend(arguments.backend).native_options(**build_options(arguments))["providers"]
    found = {precision for provider in providers for precision in computed(provider)}
    asked = arguments.precision
    if asked and not is_among(asked, found):
        raise _unattained(asked, f"{', '.join(providers)} has no arithmetic for it here", found)
    return asked or (PRECISION if PRECISION in found else "fp32")


def _unattained(precision: str, reason: str, others: Collection[str]) -> UnsupportedError:
    return UnsupportedError(
        f"no layer computes in {precision}, and no file was written",
        got=reason,
        hint=f"leave --precision out, or ask for another: {', '.join(p for p in PRECISIONS if p in others)}",
    )


def _why(asked: str | None, chosen: str, got: str) -> str:
    """Where the precision of the file comes from."""
    if asked and got != asked:
        return f"every product is faster in floats than in {asked}"
    if asked:
        return "as asked for"
    if got == PRECISION:
        return "the default of export; --precision fp32 keeps float32"
    if chosen != PRECISION:
        return f"the default of export is {PRECISION}, for which this machine has no arithmetic"
    return f"no layer computes in {PRECISION}, the default of export"


def _check(arguments: argparse.Namespace) -> None:
    """Refuses what can't be had, before anything is read."""
    if arguments.output:
        check_engine_name(Path(arguments.output))
    if is_engine(arguments.model):
        raise InvalidArgumentError("the model is an engine file already", got=arguments.model)
    if arguments.precision:
        arguments.precision = check("precision", arguments.precision)
    for name in ("calibration_data", "num_calibration_samples"):
        if getattr(arguments, name) is not None and eight_bits_of(arguments.precision or "fp32") is None:
            raise InvalidArgumentError(
                f"--{name.replace('_', '-')} is for a precision of 8 bits", hint="add --precision int8"
            )
    if arguments.num_calibration_samples is not None and arguments.calibration_data is None:
        raise InvalidArgumentError("--num-calibration-samples counts files of --calibration-data", hint="add it")
    if not 0 <= arguments.workspace_size < math.inf:
        raise InvalidArgumentError(
            "the workspace has a negative size, or none", expected="0 or more", got=f"{arguments.workspace_size} GB"
        )
    batches = [name for name in ("min_batch", "max_batch", "opt_batch") if getattr(arguments, name) is not None]
    if batches and not arguments.dynamic_shapes:
        raise InvalidArgumentError(
            f"--{batches[0].replace('_', '-')} means something with --dynamic-shapes alone", hint="add --dynamic-shapes"
        )


def _input_shapes(arguments: argparse.Namespace, source: Any) -> Any:
    """The profile that the arguments ask for."""
    given = given_shapes(arguments)
    words = {word: getattr(arguments, f"{word}_shapes") for word in ("min", "opt", "max")}
    if any(words.values()):
        if given is not None or arguments.dynamic_shapes or not all(words.values()):
            raise InvalidArgumentError(
                "the ranges of the inputs are not whole, or given twice",
                expected="--min-shapes, --opt-shapes and --max-shapes, and no other word on shapes",
            )
        return _ranges({word: shapes.parse(text) for word, text in words.items()})
    if not arguments.dynamic_shapes:
        return given
    low, high = _or(arguments.min_batch, 1), _or(arguments.max_batch, 16)
    opt = _or(arguments.opt_batch, min(max(4, low), high))
    ports = input_ports(source)
    if given is None:
        given = _known(ports)
    elif not isinstance(given, dict):
        name = next(iter(ports), "input")
        given = {name: given}
    return {name: Shape((low, *dims[1:]), (opt, *dims[1:]), (high, *dims[1:])) for name, dims in given.items() if dims}


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _ranges(given: Mapping[str, Mapping[str, tuple[int, ...]]]) -> dict[str, Shape]:
    names = list(given["opt"])
    for word, found in given.items():
        if set(found) != set(names):
            raise InvalidArgumentError(
                f"--{word}-shapes names other inputs", expected=", ".join(names), got=", ".join(found)
            )
    return {name: Shape(given["min"][name], given["opt"][name], given["max"][name]) for name in names}


def _known(ports: Mapping[str, list[Any]]) -> dict[str, tuple[int, ...]]:
    """The shapes that the model fixes, but for the batch."""
    open_ones = [name for name, dims in ports.items() if any(isinstance(d, str) for d in dims[1:])]
    if open_ones or not ports:
        raise InvalidArgumentError(
            "--dynamic-shapes is about the batch; the other dimensions must be known",
            tensor=open_ones[0] if open_ones else None,
            hint="say them: --input-shape 1 3 224 224, or input:1x3x224x224; ranges of them: --min-shapes, "
            "--opt-shapes and --max-shapes",
        )
    return {name: (1, *dims[1:]) if dims else () for name, dims in ports.items()}


def _stem(model: str) -> str:
    return model.rpartition(":")[2] if ":" in model and not Path(model).exists() else Path(model).stem


def _verify(arguments: argparse.Namespace, source: Any, target: Path, inputs: Arrays, precision: str) -> dict[str, Any]:
    """The file as another process would open it, beside what it was made of."""
    opened = get_backend(arguments.backend).load(target, **build_options(arguments))
    outputs = opened(inputs)
    with progress.step("verifying"), peers.reference_of(source, inputs, arguments) as peer:
        errors = {
            name: peers.relative_error(array, other)
            for (name, array), other in zip(outputs.items(), peer.outputs(), strict=True)
        }
    most = budget(precision) if arguments.tolerance is None else arguments.tolerance
    passed = all(error <= most for error in errors.values())
    return {"reference": f"{peer.name} {peer.version}", "errors": errors, "tolerance": most, "passed": passed}


def _measure(arguments: argparse.Namespace, model: OptimizedModel, inputs: Arrays) -> Times:
    with progress.step("measuring") as tell:
        times = measure({"neurenix": lambda: model(inputs)}, 0.2, 0, max(1, arguments.benchmark_iterations), tell)
    batch = next((array.shape[0] for array in inputs.values() if array.ndim), 1)
    return Times.of(times["neurenix"], batch)


def _range(name: str, sizes: tuple[int, int, int]) -> str:
    low, opt, high = sizes
    span = str(low) if low == high else f"{low} to {high}" if high < ANY_SIZE else "of any size"
    return f"{name} {span}" + ("" if low == high else f", best at {opt}")


def _print(content: Mapping[str, Any], times: Times | None) -> None:
    precision = content["precision"]
    print(f"Engine built in {content['build_s']:.3f} sec.")
    print(f"Created engine with size: {content['bytes'] / 2**20:.4g} MiB")
    for kind in ("inputs", "outputs"):
        for name, port in content[kind].items():
            print(f"{kind[:-1]} {name}: {port['dtype']}[{', '.join(map(str, port['shape']))}]")
    for profile in filter(None, content["profiles"]):
        print("profile: " + ", ".join(map(_range, profile, profile.values())))
    print(f"precision: {precision['got']} ({precision['why']})")
    if verify := content.get("verify"):
        for name, error in verify["errors"].items():
            print(f"{name}: differs from {verify['reference']} by {error:.2e}, at most {verify['tolerance']:.0e}")
        print("verified" if verify["passed"] else "FAILED: the engine departs from the model; the file was kept")
    if times is not None:
        print("\n".join(times.summary()))
    print(f"written: {content['output']}")
