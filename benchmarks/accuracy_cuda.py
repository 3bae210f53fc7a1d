"""How far ours and PyTorch's eager mode are from double precision on the GPU: models, levels and precisions.

    python -m benchmarks.accuracy_cuda --models zoo more long --jobs 10 --budget 300

Errors are the root of the mean square over an output, as a share of that of the exact numbers, of the worst output; the
mean over some seeds of the inputs counts. Ours must be within 1.1 times PyTorch's in the same precision, and in fp32
within 5e-6 or 1.5 times PyTorch's. Where PyTorch can't run a model in a precision, its autocast stands in.

Ours is verified as users have it. Where that keeps layers in float32 or leaves a kernel out, ours is measured without
verification too: it was a false alarm if that is within the limits. `--no-verify` measures the precision alone. Models
are those of the zoo but for detectors, of `more_models.MORE`, and of `more_models.LONG`, whose sizes are dynamic.

`NAME@2` is a model with its weights in another order, the second of many. How errors of rounded weights add up in one
model of random weights is chance: a ratio tells of the precision where it is the mean over orders (the last lines).

A unit is a model, a level and a precision. Results join those in benchmarks/results/accuracy_levels.json after each;
units whose result of the same version of ours is there are left out, so that the same command resumes a run.
`--device cpu --small` is a look without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_cuda import rms
from benchmarks.workers import Again, Job, Pool, preload
from benchmarks.zoo import DETECTORS, export_entry, profile_of, unlogged

#: The dtype of PyTorch's layers in each precision, and whether it may round float32 to tf32.
PRECISIONS = {
    "fp32": ("float32", False),
    "tf32": ("float32", True),
    "fp16": ("float16", False),
    "bf16": ("bfloat16", False),
}
#: In fp32 the greatest error, or the greatest share of PyTorch's if that is more; the share in other precisions.
WITHIN = 5e-6
RATIO_FP32 = 1.5
RATIO = 1.1
#: What a precision may lose where PyTorch has no finite number: as much as verification lets pass.
ALLOWED = {"fp32": WITHIN, "tf32": 2**-7, "fp16": 2**-7, "bf16": 2**-4}
OPSET = 17
#: The file of the results, and the packages that workers have in common.
NAME = "accuracy_levels"
PRELOAD = ["torch", "torchvision", "timm", "transformers.modeling_utils", "onnxscript", "benchmarks.more_models"]
#: What a note of the report says where verification changed the engine.
LIFTED = ("stay float32", "went back to float32")
ALARMS = (*LIFTED, "was excluded", "though each kernel computes")
#: The key of PyTorch's errors among what is found about a model.
TORCH = "torch_eager"


def groups() -> dict[str, dict[str, Any]]:
    """The tables of models; detectors are left out: how many boxes they find, and in which order, is rounding."""
    from benchmarks.more_models import LONG, MORE
    from benchmarks.zoo_models import ZOO

    return {"zoo": {name: ZOO[name] for name in ZOO if name not in DETECTORS}, "more": MORE, "long": LONG}


def chosen(given: list[str]) -> list[str]:
    """Names of models and of tables as names of models; what ours refuses only where it is named."""
    from benchmarks.more_models import REFUSED

    tables = groups()
    known = [name for table in tables.values() for name in table]
    unknown = [name for name in given if name.partition("@")[0] not in (*tables, *known)]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: there are {', '.join(tables)}, {', '.join(known)}")
    found = [[each for each in tables[name] if each not in REFUSED] if name in tables else [name] for name in given]
    return list(dict.fromkeys(each for names in found for each in names))


def exported(module: Any, given: dict[str, Any]) -> bytes:
    """The model as ONNX at these shapes, out of the older exporter, or the newer one where that can't."""
    import torch

    def written(**options: Any) -> bytes:
        file = io.BytesIO()
        torch.onnx.export(module, tuple(given.values()), file, input_names=list(given), **options)
        return file.getvalue()

    with quiet():
        try:
            return written(dynamo=False, opset_version=OPSET)
        except Exception:
            return written(dynamo=True, external_data=False)


def exported_dynamic(entry: Any, module: Any) -> bytes:
    """The model as ONNX at any size, out of the older exporter, or the newer one where that can't."""
    import torch

    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "model.onnx"
        try:
            export_entry(entry, module, False, path, torch)
        except Exception:
            export_entry(entry, module, True, path, torch)
        return path.read_bytes()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters print."""
    said = io.StringIO()
    with unlogged(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def outputs(result: Any) -> list[Any]:
    """All outputs of a model."""
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, (tuple, list)) else [result]


def error(got: list[Any], exact: list[Any]) -> float:
    """The error of the worst output; integers do not count."""
    if len(got) != len(exact) or any(a.shape != b.shape for a, b in zip(got, exact, strict=True)):
        raise ValueError(f"shapes {[tuple(a.shape) for a in got]} are not {[tuple(b.shape) for b in exact]}")
    return max(rms(a.to(b.device), b) for a, b in zip(got, exact, strict=True) if b.is_floating_point())


def attempt(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call gives, or what it fails with."""
    try:
        return call()
    except Exception as failure:
        return {"failed": f"{type(failure).__name__}: {failure}"[:500]}


def rounded(number: float) -> float | None:
    """Four digits, none where it is not finite."""
    return float(f"{number:.4g}") if np.isfinite(number) else None


def reordered(module: Any, number: int) -> Any:
    """A model with the numbers of each of its matrices in another order."""
    import torch

    generator = torch.Generator().manual_seed(number)
    for weights in module.parameters():
        if weights.dim() > 1:
            order = torch.randperm(weights.numel(), generator=generator)
            weights.data = weights.data.flatten()[order].view_as(weights)
    return module


class Subject:
    """A model with its inputs and exact answers, for each size and seed."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        import torch

        tables = groups()
        name, _, order = name.partition("@")
        entry = next(table[name] for table in tables.values() if name in table)
        self.entry = entry.sibling() if options.small else entry
        self.device = options.device
        dynamic = name in tables["long"]
        self.module = reordered(self.entry.build(), int(order)) if order else self.entry.build()
        sizes = self.entry.sizes if dynamic else self.entry.sizes[:1]
        self.inputs = [[self.entry.fill(each, seed) for seed in range(options.seeds)] for each in sizes]
        self.model = exported_dynamic(self.entry, self.module) if dynamic else exported(self.module, self.inputs[0][0])
        self.profile = (
            profile_of([(given[0], []) for given in self.inputs])
            if dynamic
            else {key: tuple(x.shape) for key, x in self.inputs[0][0].items()}
        )
        exact = copy.deepcopy(self.module).double().to(self.device)
        with torch.inference_mode():
            self.exact = self.each(lambda given: exact(*self.cast(given, torch.float64)))

    def each(self, call: Callable[[dict[str, Any]], Any]) -> list[list[list[Any]]]:
        """What a model gives, by size and seed."""
        return [[outputs(call(given)) for given in seeds] for seeds in self.inputs]

    def cast(self, given: dict[str, Any], dtype: Any) -> list[Any]:
        """The inputs as PyTorch takes them, numbers in a dtype."""
        return [x.to(self.device, dtype if x.is_floating_point() else None) for x in given.values()]

    def of_torch(self, precision: str) -> dict[str, Any]:
        """PyTorch's error; with its autocast where layers in the precision don't fit together."""
        import torch

        name, rounds = PRECISIONS[precision]
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounds
        dtype = getattr(torch, name)

        def plain() -> dict[str, Any]:
            module = copy.deepcopy(self.module).to(self.device, dtype)
            return self.errors(self.each(lambda given: module(*self.cast(given, dtype))))

        def automatic() -> dict[str, Any]:
            module = copy.deepcopy(self.module).to(self.device)
            with torch.autocast(self.device, dtype):
                found = self.errors(self.each(lambda given: module(*self.cast(given, torch.float32))))
            return found | {"autocast": True}

        with torch.inference_mode():
            found = attempt(plain)
            return attempt(automatic) if "failed" in found and name != "float32" else found

    def of_ours(self, precision: str, level: int, verify: bool) -> dict[str, Any]:
        """Our error, and who ran what."""
        import neurenix as nx

        start = time.perf_counter()
        options: dict[str, Any] = {"precision": precision, "optimization_level": level}
        options |= {} if verify else {"verify": False}
        backend = nx.hardware.get_backend(self.device, fallback=False)
        model = backend.optimize_model(self.model, self.profile, **options)
        seconds = round(time.perf_counter() - start, 1)
        found = self.each(lambda given: model.run({key: x.to(self.device) for key, x in given.items()}))
        report = model.report()
        return self.errors(found) | {
            "build_s": seconds,
            "layers_per_dtype": {dtype: round(share, 3) for dtype, share in report["layers_per_dtype"].items()},
            "in_tf32": sum("tf32" in row["implementation"] for row in report["kernels"]),
            "on_cpu": sorted({row["kernel"] for row in report["kernels"] if row["provider"] == "cpu"})[:8],
            "notes": [note[:500] for note in report["notes"]],
        }

    def of_unit(self, unit: str) -> dict[str, Any]:
        """Ours in a unit; without verification too, if that changed the engine."""
        level, precision, verify = parts_of(unit)
        ours = attempt(lambda: self.of_ours(precision, level, verify))
        if alarmed(ours):
            alone = attempt(lambda: self.of_ours(precision, level, False))
            ours["unverified"] = {key: alone[key] for key in ("rms", "sizes", "failed") if key in alone}
        return ours

    def errors(self, found: list[list[list[Any]]]) -> dict[str, Any]:
        """The mean error over the seeds at the worst size, none where something is not finite, and that of each.

        What a call takes over from the one before it shows in the later ones. `sizes` has the mean at each size.
        """
        errors = [
            [error(got, exact) for got, exact in zip(*pair, strict=True)]
            for pair in zip(found, self.exact, strict=True)
        ]
        means = [rounded(float(np.mean(each))) for each in errors]
        finite = [mean for mean in means if mean is not None]
        worst = max(finite) if len(finite) == len(means) else None
        return {"rms": worst, "sizes": means, "each": [rounded(x) for each in errors for x in each]}


def alarmed(ours: dict[str, Any]) -> bool:
    """Whether verification found something."""
    return any(sign in note for note in ours.get("notes", []) for sign in ALARMS)


def unit_of(level: int, precision: str, verify: bool) -> str:
    """The key of a result."""
    return f"{level}/{precision}" + ("" if verify else "/unverified")


def parts_of(unit: str) -> tuple[int, str, bool]:
    """Level, precision and whether it is verified."""
    level, precision, *rest = unit.split("/")
    return int(level), precision, not rest


def ratio_of(ours: dict[str, Any], theirs: dict[str, Any]) -> float | None:
    """Our error as a share of PyTorch's, at the size where that is greatest."""
    pairs = list(zip(ours.get("sizes") or [None], theirs.get("sizes") or [None], strict=False))
    if any(mine is None or not other for mine, other in pairs):
        return None
    return round(max(mine / other for mine, other in pairs), 3)


def right(precision: str, ours: dict[str, Any], theirs: dict[str, Any]) -> bool | None:
    """Whether an error is what it must be; none where neither has a finite number or PyTorch fails."""
    mine, ratio = ours.get("rms"), ratio_of(ours, theirs)
    if mine is None:
        return None if theirs.get("rms", 0) is None and "rms" in ours else False
    # What is as exact as fp32 must be is right in tf32 as well, where nothing of a model may be rounded.
    if PRECISIONS[precision][0] == "float32" and mine <= WITHIN:
        return True
    if ratio is None:
        return mine <= ALLOWED[precision] if theirs.get("rms", 0) is None else None
    return ratio <= (RATIO_FP32 if precision == "fp32" else RATIO)


def judged(precision: str, ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Ours with its share of PyTorch's error, whether that is right, and what verification did."""
    found = ours | {"ratio": ratio_of(ours, theirs), "right": right(precision, ours, theirs)}
    found["lifted"] = any(sign in note for note in ours.get("notes", []) for sign in LIFTED)
    if "unverified" in ours:
        found["false_alarm"] = right(precision, ours["unverified"], theirs) is True
    return found


def start(number: int, options: argparse.Namespace) -> None:
    """Makes a worker ready: its GPU, and its share of the processor."""
    os.environ["NEURENIX_THREADS"] = str(options.threads)
    if options.device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = options.gpus[number % len(options.gpus)]
    import torch

    torch.set_num_threads(options.threads)
    if options.device == "cuda":
        torch.cuda.init()


def work(job: Job, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """PyTorch's errors where they are not known, then ours in each unit."""
    import torch

    subject = Subject(job.name, options)
    wanted = dict.fromkeys(parts_of(unit)[1] for unit in job.units)
    known = job.known if job.known.get("version") == torch.__version__ else {"version": torch.__version__}
    yield TORCH, known | {p: subject.of_torch(p) for p in wanted if p not in known}
    for unit in list(job.units):
        yield unit, subject.of_unit(unit)
        gc.collect()
        if options.device == "cuda":
            usable()


def usable() -> None:
    """Gives memory back; a kernel that failed leaves the process without a GPU."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except Exception as failure:
        raise Again from failure


def version(commit: str | None) -> str:
    """Neurenix's version and commit."""
    import neurenix as nx

    if not commit:
        command = ["git", "rev-parse", "--short=12", "HEAD"]
        with contextlib.suppress(OSError):
            commit = subprocess.run(command, capture_output=True, text=True, cwd=measure.RESULTS.parent).stdout.strip()
    return f"{nx.__version__}+{commit}" if commit else nx.__version__


def left_of(results: dict[str, Any], name: str, options: argparse.Namespace) -> list[str]:
    """The units of a model that have no result of this version."""
    units = [unit_of(level, p, options.verify) for level in options.levels for p in options.precisions]
    found = results.get(name, {}).get("neurenix", {})

    def there(unit: str) -> bool:
        if options.again == "all" or unit not in found or found[unit].get("version") != options.version:
            return False
        return options.again != "failed" or "failed" not in found[unit]

    return [unit for unit in units if not there(unit)]


def row(name: str, unit: str, ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """A line of the table."""

    def said(side: dict[str, Any]) -> str:
        if not side or "failed" in side:
            return "failed" if side else "-"
        return f"{side['rms']:.2e}" if side.get("rms") is not None else "not finite"

    ratio = f"{ours['ratio']:6.2f}" if ours["ratio"] is not None else "     -"
    verdict = {True: "right", False: "WRONG", None: "?"}[ours["right"]]
    remarks = [text for key, text in (("lifted", "lifted"), ("false_alarm", "FALSE ALARM")) if ours.get(key)]
    remarks += [side["failed"][:160] for side in (ours, theirs) if "failed" in side]
    return f"{name:24} {unit:10} {said(ours):>10} {said(theirs):>10} {ratio}  {verdict} {' '.join(remarks)}".rstrip()


class Results:
    """The file of the results, and what this run adds to it."""

    def __init__(self, name: str | None, settings: dict[str, Any]) -> None:
        self.name, self.settings = name, settings
        self.models: dict[str, Any] = {}
        self.units: list[dict[str, Any]] = []
        file = measure.RESULTS / f"{name}.json"
        if name and file.exists():
            record = json.loads(file.read_text())
            if record["settings"] != settings:
                raise SystemExit(f"{file} has results with {record['settings']}, not {settings}: give another --output")
            self.models = record["results"]

    def add(self, name: str, unit: str, found: dict[str, Any], version: str) -> None:
        """Writes one result down."""
        model = self.models.setdefault(name, {TORCH: {}, "neurenix": {}})
        if unit == TORCH:
            model[TORCH] = found
        else:
            precision = parts_of(unit)[1]
            theirs = model[TORCH].get(precision, {})
            model["neurenix"][unit] = judged(precision, found, theirs) | {"version": version}
            self.units.append(model["neurenix"][unit])
            print(row(name, unit, model["neurenix"][unit], theirs), flush=True)
        if self.name:
            measure.write(self.name, self.models, self.settings)

    def over_orders(self) -> Iterator[str]:
        """The mean ratio of a model over the orders of its weights, for each unit that has some."""
        of: dict[tuple[str, str], list[float]] = {}
        for name, model in self.models.items():
            for unit, found in model["neurenix"].items():
                if found.get("ratio"):
                    of.setdefault((name.partition("@")[0], unit), []).append(found["ratio"])
        for (name, unit), ratios in of.items():
            if len(ratios) > 1:
                mean = float(np.exp(np.mean(np.log(ratios))))
                yield f"{name:24} {unit:10} {mean:6.2f} over {len(ratios)} orders of its weights"

    def summary(self) -> str:
        """How many were right."""
        verdicts = [found["right"] for found in self.units]
        alarms = sum(bool(found.get("false_alarm")) for found in self.units)
        return (
            f"{verdicts.count(True)} of {len(verdicts)} right, {verdicts.count(False)} wrong, "
            f"{verdicts.count(None)} without a number, {alarms} false alarms"
        )

    def failed(self) -> bool:
        """Whether something was not as it must be."""
        return any(found["right"] is False or found.get("false_alarm") for found in self.units)


def arguments(given: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=["zoo"], help="names of models, or zoo, more, long")
    parser.add_argument("--levels", nargs="+", type=int, default=[0, 1, 3], help="optimization_level of ours")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=list(PRECISIONS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="the models' small siblings; nothing is written")
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="ours as the precision alone makes it")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once, spread over the GPUs")
    parser.add_argument("--timeout", type=float, default=240, help="seconds for each unit")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds for all; the rest is left")
    parser.add_argument("--commit", default=os.environ.get("NEURENIX_COMMIT"), help="of ours; git's unless given")
    parser.add_argument(
        "--again", nargs="?", const="all", choices=["all", "failed"], help="units that have a result, or that failed"
    )
    parser.add_argument("--output", help=f"the file in benchmarks/results; {NAME} for a GPU")
    options = parser.parse_args(given)
    try:
        options.models = chosen(options.models)
    except ValueError as unknown:
        parser.error(str(unknown))
    if options.output is None and options.device == "cuda" and not options.small:
        options.output = NAME
    options.threads = max(options.threads // options.jobs, 1)
    options.version = version(options.commit)
    return options


def main(given: list[str] | None = None) -> int:
    """Runs the units that have no result yet; 1 if something is wrong."""
    began = time.monotonic()
    preload(PRELOAD)
    options = arguments(given)
    import torch

    from benchmarks.more_models import REFUSED, missing

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    options.gpus = visible.split(",") if visible else [str(gpu) for gpu in range(torch.cuda.device_count())]
    device = torch.cuda.get_device_name() if options.device == "cuda" else "processor"
    results = Results(options.output, {"seeds": options.seeds, "device": device, "small": options.small})
    absent = missing(options.models)
    for package, names in absent.items():
        print(f"left out, {package} is not installed: {' '.join(names)}")
    for name, why in REFUSED.items():
        print("" if name in options.models else f"left out, refused: {name}, {why}\n", end="")
    names = [name for name in options.models if not any(name in lost for lost in absent.values())]
    jobs = [
        Job(name, units, results.models.get(name, {}).get(TORCH, {}))
        for name in names
        if (units := left_of(results.models, name, options))
    ]
    print(f"{options.version}, {sum(len(job.units) for job in jobs)} units of {len(jobs)} models", flush=True)
    print(f"{'model':24} {'unit':10} {'ours':>10} {'torch':>10} {'ratio':>6}", flush=True)
    pool = Pool(start, work, options)
    for job, unit, found in pool.run(jobs, options.jobs, options.timeout, began + options.budget):
        if unit == TORCH:
            job.known = found
        results.add(job.name, unit, found, options.version)
    print(*results.over_orders(), results.summary(), sep="\n", flush=True)
    left = [f"{job.name} ({len(job.units)})" for job in jobs if job.units]
    if left:
        print(f"no time for {len(left)} models: {' '.join(left)}")
    return int(results.failed())


if __name__ == "__main__":
    sys.exit(main())
