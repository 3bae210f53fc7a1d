"""Random networks in 8 bits and fewer: files by ONNX Runtime's quantizers, and ours, against ONNX Runtime.

    python -m fuzz.quantized --cases 1000

A network is quantized by ONNX Runtime (Q/DQ, QOperator, dynamically, weights of 4 and 8 bits alone, with random
settings), or by our calibration, which is written as ONNX. ONNX Runtime runs it without its optimisations. Each part
between two quantized tensors, fed with ONNX Runtime's own, must give its integers within one step on at most one in a
thousand elements, those next to half a step aside; the whole must come close, of one sample too.
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime import quantization

import neurenix as nx
from fuzz.children import Run, main
from fuzz.quantized_networks import Array, Net, grow
from neurenix.hardware.tensorrt import TensorRTBackend

#: Nodes whose results are integers, bit for bit where they stand alone.
EXACT = ("QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")
#: Where the scale of a result stands among the inputs, where not at 1.
SCALE_AT = {"QLinearConv": 6, "QLinearMatMul": 6, "QLinearAdd": 6, "QLinearMul": 6, "QGemm": 7, "QLinearConcat": 0}
OTHER_SCALE_AT = 3
#: Elements that may be a step off; the root mean square of an error beside that of the result: of the whole, of a part.
SHARE, MOST, MOST_OF_PART = 1e-3, 0.2, 1e-5
#: What 16 bits may be off by: sums in float32 have no more digits.
STEPS_OF_16_BITS = 2
#: So many parts of a network are looked at.
PARTS = 8
CALIBRATORS = ("EntropyCalibrator", "MinMaxCalibrator", "PercentileCalibrator", "MSECalibrator")
Values = dict[str, Array]


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Batches, as ONNX Runtime's quantizer takes them."""

    def __init__(self, batches: list[Values]) -> None:
        self.left = iter(batches)

    def get_next(self) -> Any:
        return next(self.left, None)


def static(net: Net, source: Path, to: Path) -> str:
    choose, types = net.random.choice, quantization.QuantType
    form = choose(["QDQ", "QDQ", "QOperator"])
    kinds = ["QUInt8", "QUInt8", "QInt8"] + ["QUInt16", "QInt16"] * (form == "QDQ" and net.maybe(0.2))
    weights = ["QInt8", "QInt8", "QUInt8"] + ["QInt4", "QUInt4"] * (form == "QDQ" and net.maybe(0.3))
    settings = {
        "per_channel": net.maybe(0.5),
        "reduce_range": net.maybe(0.3),
        "activation_type": types[choose(kinds)],
        "weight_type": types[choose(weights)],
    }
    flags = ("ActivationSymmetric", "WeightSymmetric", "DedicatedQDQPair", "MatMulConstBOnly", "AddQDQPairToWeight")
    extra = {flag: net.maybe(0.3) for flag in flags}
    if form == "QOperator":
        # It wants to know the type of each tensor.
        quantization.quant_pre_process(source, source, skip_symbolic_shape=True, skip_optimization=True)
    batches = Reader([net.data() for _ in range(2)])
    form_of = getattr(quantization.QuantFormat, form)
    quantization.quantize_static(source, to, batches, quant_format=form_of, extra_options=extra, **settings)
    return form


def dynamic(net: Net, source: Path, to: Path) -> str:
    weights = net.random.choice(["QInt8", "QUInt8"])
    # ONNX Runtime has no ConvInteger of int8 weights on the processor.
    ops = ["MatMul", "Gemm"] if weights == "QInt8" else ["MatMul", "Gemm", "Conv"]
    quantization.quantize_dynamic(
        source, to, op_types_to_quantize=ops, per_channel=net.maybe(0.5), reduce_range=net.maybe(0.3),
        weight_type=quantization.QuantType[weights],
    )  # fmt: skip
    return "dynamic"


def packed(net: Net, source: Path, to: Path) -> str:
    """Weights alone; levels at which activations are not rounded."""
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    form, choose = net.random.choice(["QDQ", "QOperator"]), net.random.choice
    config = nbits.DefaultWeightOnlyQuantConfig(
        block_size=choose([16, 32, 64, 128]), is_symmetric=net.maybe(0.5), accuracy_level=choose([None, 0, 1]),
        bits=choose([4, 4, 8]) if form == "QOperator" else 4, quant_format=quantization.QuantFormat[form],
    )  # fmt: skip
    quantizer = nbits.MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(to))
    return "packed"


def ours(net: Net, source: Path, to: Path) -> str:
    """By our calibration. Raises `UnsupportedError` for ops that are not written as ONNX."""
    calibrator = getattr(nx.quantization, net.random.choice(CALIBRATORS))
    tools = [tool for tool in ("equalisation", "smooth", "gptq", "bias_correction") if net.maybe(0.15)]
    network = nx.quantization.calibrate(
        source, calibrator([net.data() for _ in range(2)]), shapes(net), accuracy=tools, threads=1
    )
    nx.quantization.to_onnx(network, to)
    return "ours"


def shapes(net: Net) -> Any:
    """Of one sample to a few more than the usual number, where the size is open."""
    extents = [(rows, *net.shape) for rows in (1, net.rows, net.rows + 3)]
    return {"x": nx.Shape(*extents)} if net.batch == "n" else None


def run(model: onnx.ModelProto, given: Values, names: Sequence[str] | None = None) -> Values:
    """What ONNX Runtime gives, unoptimised."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = names or [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


def constants(model: onnx.ModelProto) -> set[str]:
    """Constants, and what is made of such alone."""
    found = {"", *(tensor.name for tensor in model.graph.initializer)}
    for node in model.graph.node:
        if found.issuperset(node.input):
            found.update(node.output)
    return found


def everything(model: onnx.ModelProto, given: Values) -> Values:
    """Every tensor of a call but for constants, some of which have 4 bits, which numpy has not."""
    told = onnx.ModelProto()
    told.CopyFrom(model)
    known = constants(model) | {port.name for port in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name not in known]
    told.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    return run(told, given) | given


def is_quantized(node: onnx.NodeProto) -> bool:
    return node.op_type in (*EXACT, "QGemm") or node.op_type.startswith("QLinear")


def part(model: onnx.ModelProto, results: Sequence[str], cuts: set[str], values: Values) -> onnx.ModelProto:
    """What makes tensors out of others of `cuts` and of inputs, as a model of its own."""
    made = {name: at for at, node in enumerate(model.graph.node) for name in node.output}
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: set[int] = set()
    ports: dict[str, Array] = {}
    held: dict[str, onnx.TensorProto] = {}
    left, seen = list(results), {""}
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in weights:
            held[name] = weights[name]
        elif name not in made or (name in cuts and name not in results):
            ports[name] = values[name]
        else:
            nodes.add(made[name])
            left += model.graph.node[made[name]].input
    info = {
        name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in {**ports, **{name: values[name] for name in results}}.items()
    }
    graph = helper.make_graph(
        [model.graph.node[at] for at in sorted(nodes)], "part", [info[name] for name in ports],
        [info[name] for name in results], list(held.values()),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def parts(model: onnx.ModelProto, rng: random.Random) -> list[tuple[list[str], set[str]]]:
    """The results of some parts, and where they end in front."""
    held = constants(model)
    nodes = [node for node in model.graph.node if is_quantized(node) and node.input[0] not in held]
    cuts = {name for node in nodes for name in node.output}
    found = [([name for name in node.output if name], cuts) for node in nodes]
    outputs = [port.name for port in model.graph.output if port.name not in cuts]
    # From the floats that one product quantizes to those that the next one does.
    floats = [node.input[0] for node in nodes if node.op_type == "DynamicQuantizeLinear"]
    found += [([name], set(floats) or cuts) for name in dict.fromkeys([*outputs, *floats])]
    return rng.sample(found, min(PARTS, len(found)))


def beside_halves(model: onnx.ModelProto, given: Values, name: str, want: Array) -> tuple[Array, Array]:
    """The least and the greatest integer that ONNX Runtime gives where the scale of a result is a little off."""
    low = high = want.astype(np.int64)
    for factor in (1 - 1e-5, 1 - 3e-6, 1 + 3e-6, 1 + 1e-5):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        node = next(node for node in other.graph.node if name in node.output)
        at = 1 if node.op_type == "QuantizeLinear" else SCALE_AT.get(node.op_type, OTHER_SCALE_AT)
        scales = [tensor for tensor in other.graph.initializer if tensor.name in node.input[at : at + 1]]
        if not scales:
            break
        array = numpy_helper.to_array(scales[0]) * np.float32(factor)
        other.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), "other_scale"))
        node.input[at] = "other_scale"
        got = run(other, given, [name])[name].astype(np.int64)
        low, high = np.minimum(low, got), np.maximum(high, got)
    return low, high


def wrong(model: onnx.ModelProto, given: Values, name: str, got: Array, want: Array) -> str | None:
    """What is wrong with a result of a part."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
    if want.dtype.kind == "f":
        worst, size = np.max(np.abs(got - want), initial=0), np.max(np.abs(want), initial=1e-30)
        return None if worst <= MOST_OF_PART * size else f"floats are off by {worst / size:.1e}"
    steps = np.abs(got.astype(np.int64) - want.astype(np.int64))
    ops = [node.op_type for node in model.graph.node]
    if not steps.any():
        return None
    if ops[0] in EXACT and len(ops) == 1:
        return f"{np.mean(steps > 0):.2%} of the integers are others, by up to {steps.max()}"
    low, high = beside_halves(model, given, name, want)
    steps[(got >= low) & (got <= high)] = 0
    most = STEPS_OF_16_BITS if want.dtype.itemsize == 2 else 1
    allowed = steps.size if want.dtype.itemsize == 2 else max(2, SHARE * steps.size)
    if steps.max() <= most and np.count_nonzero(steps) <= allowed:
        return None
    return f"{np.mean(steps > 0):.2%} of the integers are off, by up to {steps.max()}"


def engine(model: onnx.ModelProto, profiles: Any, level: int) -> nx.OptimizedModel:
    backend = TensorRTBackend(providers=["cpu"], optimization_level=level, timing_cache=False, threads=1)
    return backend.optimize_model(model, profiles)


def findings(net: Net, model: onnx.ModelProto, allowed: float) -> list[str]:
    """What is wrong with a quantized file."""
    given, found, level = net.data(), [], net.random.choice([0, 1, 2, 3])
    whole = engine(model, shapes(net), level)
    for call in [given, {"x": given["x"][:1]}][: 1 + (net.batch == "n")]:
        got = whole.run(call)
        for name, want in run(model, call).items():
            spread = np.sqrt(np.mean((want - want.mean()) ** 2)) + 1e-2 * np.abs(want).max() + 1e-9
            error = np.sqrt(np.mean((got[name] - want) ** 2)) / spread
            found += [] if error <= allowed else [f"{name} of {len(call['x'])} departs by {error:.1%}, level {level}"]
    values = everything(model, given)
    for results, cuts in parts(model, net.random):
        piece = part(model, results, cuts, values)
        fed = {port.name: values[port.name] for port in piece.graph.input}
        if not fed or not piece.graph.node:
            continue
        got, wanted = engine(piece, None, level).run(fed), run(piece, fed)
        words = [(name, wrong(piece, fed, name, got[name], want)) for name, want in wanted.items()]
        ops = " ".join(node.op_type for node in piece.graph.node)
        found += [f"{ops}: {name}: {word}" for name, word in words if word]
    return found


def quantized(net: Net, model: onnx.ModelProto) -> tuple[str, onnx.ModelProto] | None:
    """How a network was quantized, and what came of it; none where a quantizer does not take it."""
    how = net.random.choice([static, static, dynamic, packed, ours, ours])
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        source, to = Path(folder) / "source.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, source)
        try:
            kind = how(net, source, to)
        except nx.UnsupportedError:
            return None
        except nx.Error:
            raise
        except Exception:
            return None
        return kind, onnx.load(to)


def target(seed: int) -> Run:
    """The function that checks a case."""
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(4)

    def case(number: int, out: Path) -> str:
        grown = grow(f"{seed} {number}")
        made = quantized(*grown) if grown else None
        if grown is None or made is None:
            return "passed over"
        kind, model = made
        # Written before it runs: a crash leaves no time.
        path = out / f"quantized-{seed}-{number}.onnx"
        onnx.save(model, path)
        found = findings(grown[0], model, 2e-4 if kind == "packed" else MOST)
        if found:
            return f"bad: {kind}: " + "; ".join(found)
        path.unlink()
        return kind

    return case


if __name__ == "__main__":
    main("fuzz.quantized", target, __doc__ or "")
