"""Random well-typed networks: each way to run them gives the same, and so do ONNX Runtime and ONNX's evaluator."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import neurenix as nx
from fuzz.children import Run, brief, main
from fuzz.generate import Array, Network, Rejected, Value, model_of, symbolic
from fuzz.recipes import RECIPES
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

#: How far a result may be off, as a share of the greatest one: a whole network rounds often.
TOLERANCE = {"float64": 1e-4, "float32": 1e-3, "float16": 4e-2, "bfloat16": 2e-1}
#: A network has so many nodes.
NODES = (1, 2, 3, 5, 8, 12, 20)
#: One case of so many is also built with kernels timed.
TIMED = 6


class Difference(Exception):
    """Two ways to run a network give different results."""


def grow(seed: str, ops: Sequence[str] = tuple(RECIPES)) -> Network:
    """A random network; it has a node at least."""
    rng = random.Random(seed)
    network = Network(rng, rng.choice((21, 21, 21, 22, 23, 26, 28)))
    wanted = rng.choice(NODES)
    for _ in range(60):
        if len(network.nodes) >= wanted:
            break
        op = rng.choice(ops)
        # What a recipe wants may not be there, or can't be; nodes that it added before stay.
        with contextlib.suppress(Rejected, IndexError, ValueError):
            RECIPES[op](network)
    if not network.nodes:
        network.add("Relu", network.new((2, 3), "float32", held=False))
    return network


def differs(got: Array, want: Array) -> str | None:
    """What is wrong with a result; None if nothing is."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if "float" not in want.dtype.name:
        wrong = got != want
        return f"{got[wrong][:4]} for {want[wrong][:4]}" if wrong.any() else None
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(b)
        scale = max(1.0, float(np.max(np.abs(b[finite]), initial=0)))
        near = np.abs(a - b) <= TOLERANCE[want.dtype.name] * scale
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | near
        # What nearly overflows may do so.
        edge = 0.9 * float(np.finfo(np.float16).max) if want.dtype == np.float16 else 1e38
        same |= (np.abs(a) > edge) & (np.abs(b) > edge) & (np.sign(a) == np.sign(b))
    return None if same.all() else f"{got[~same].reshape(-1)[:4]} for {want[~same].reshape(-1)[:4]}"


def compare(way: str, got: dict[str, Array], values: dict[str, Value]) -> None:
    for name, array in got.items():
        wrong = differs(array, values[name].array)
        if wrong is not None:
            raise Difference(f"{way}: {name}: {wrong}")


def check(
    nodes: Sequence[onnx.NodeProto], values: dict[str, Value], opset: int, results: Sequence[str], seed: str
) -> None:
    """Runs some nodes in every way of ours; raises `Difference`, or whatever error shows a defect."""
    rng = random.Random(seed)
    model = model_of(nodes, values, opset, results)
    given = {port.name: values[port.name].array for port in model.graph.input}
    network = from_onnx(model)
    compare("the reference", network.evaluate(given), values)
    run("level 0", network, given, values, 0)
    refitted(model, given, values)
    dims = symbolic(rng, values, list(given))
    try:
        dynamic = from_onnx(model_of(nodes, values, opset, results, dims))
    except nx.InternalError:
        raise
    except nx.Error:
        # What follows from a symbol can't be decided, and the import says so.
        dynamic = None
    if dynamic is not None:
        try:
            compare("the reference, dynamic", dynamic.evaluate(given), values)
            run("level 0, dynamic", dynamic, given, values, 0, dynamic=True)
        except nx.ShapeError as error:
            if not is_refusal(error):
                raise
    if rng.randrange(TIMED) == 0:
        run("level 3", network, given, values, 3)


def is_refusal(error: nx.Error) -> bool:
    """Whether shapes are refused because two symbols were taken to be equal, or a broadcast not to be one."""
    refusals = ("do not go together", "would be negative at these input shapes")
    return isinstance(error, nx.ShapeError) and any(text in str(error) for text in refusals)


def around(dims: Sequence[int | str], shape: Sequence[int]) -> nx.Shape:
    """A range around a shape in the dimensions that are symbols, as a user would give it."""
    fixed = [isinstance(dim, int) for dim in dims]
    low = tuple(d if f or d < 2 else 1 for d, f in zip(shape, fixed, strict=True))
    high = tuple(d if f else 2 * d for d, f in zip(shape, fixed, strict=True))
    return nx.Shape(min=low, opt=tuple(shape), max=high)


def run(
    way: str, network: nx.Network, given: dict[str, Array], values: dict[str, Value], level: int, dynamic: bool = False
) -> None:
    backend = TensorRTBackend(threads=2, optimization_level=level, timing_cache=False, verify=False)
    try:
        shapes = {port.name: around(port.shape, given[port.name].shape) for port in network.inputs}
        model = backend.optimize_model(network, shapes if dynamic else None)
        compare(way, model.run(given), values)
        # What a first run left behind must not matter.
        compare(f"{way}, again", model.run(given), values)
    except nx.Error as error:
        if is_refusal(error):
            raise
        raise Difference(f"{way}: {brief(error)}") from error


def refitted(model: onnx.ModelProto, given: dict[str, Array], values: dict[str, Value]) -> None:
    """An engine that was built with other floats as weights, and then got these."""
    weights = {proto.name: numpy_helper.to_array(proto) for proto in model.graph.initializer}
    floats = {name: array for name, array in weights.items() if "float" in array.dtype.name and array.size}
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for proto in other.graph.initializer:
        if proto.name in floats:
            moved = (floats[proto.name].astype(np.float32) * 0.75 + 0.125).astype(floats[proto.name].dtype)
            proto.CopyFrom(numpy_helper.from_array(moved, proto.name))
    backend = TensorRTBackend(threads=2, optimization_level=0, timing_cache=False, verify=False)
    try:
        engine = backend.optimize_model(from_onnx(other), refittable=True)
        shapes = {name: array.shape for name, array in engine.run(given).items()}
        held = {name for name, _, _ in engine._engine.weights}
    except nx.Error:
        # Some weights decide shapes, or what an op takes.
        return
    if floats and floats.keys() <= held and all(values[name].shape == shape for name, shape in shapes.items()):
        try:
            engine.update_weights(floats)
        except nx.InvalidArgumentError as error:
            # Those of a tensor between, which a reduction hides.
            if "decide shapes" in str(error):
                return
            raise
        compare("level 0, refitted", engine.run(given), values)


def minimise(
    nodes: list[onnx.NodeProto], fails: Callable[[list[onnx.NodeProto], list[str]], bool], results: list[str]
) -> tuple[list[onnx.NodeProto], list[str]]:
    """As few nodes and results as still fail."""
    for name in list(results):
        rest = [r for r in results if r != name]
        if rest and fails(nodes, rest):
            results = rest
    at = 0
    while at < len(nodes) and len(nodes) > 1:
        rest_of = nodes[:at] + nodes[at + 1 :]
        kept = leaves(rest_of, results)
        if kept and fails(rest_of, kept):
            nodes, results, at = rest_of, kept, 0
        else:
            at += 1
    return nodes, results


def leaves(nodes: Sequence[onnx.NodeProto], wanted: Sequence[str]) -> list[str]:
    """What some nodes give: what was wanted, and what nobody reads any more."""
    read = {name for node in nodes for name in node.input}
    made = [name for node in nodes for name in node.output if name]
    return [name for name in made if name in wanted or name not in read]


def outputs_of(network: Network) -> list[str]:
    """What nobody reads, and some of the rest."""
    read = {name for node in network.nodes for name in node.input}
    made = [name for node in network.nodes for name in node.output]
    return [name for name in made if name not in read or network.rng.random() < 0.15]


def foreign(network: Network) -> str | None:
    """What ONNX Runtime says of each node alone, where it differs from us."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    for node in network.nodes:
        model = model_of([node], network.values, network.opset)
        given = {port.name: network.values[port.name].array for port in model.graph.input}
        names = [port.name for port in model.graph.output]
        if network.opset > NEWEST_FOREIGN or any(a.dtype.name == "bfloat16" for a in given.values()):
            return None
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options)
            got = session.run(names, given)
        except Exception:
            # It does not have the op in this dtype.
            continue
        for name, array in zip(names, got, strict=True):
            wrong = differs(array, network.values[name].array)
            if wrong is not None:
                return f"{node.op_type} of {', '.join(f'{a.dtype}{list(a.shape)}' for a in given.values())}: {wrong}"
    return None


#: The newest opset that ONNX Runtime knows.
NEWEST_FOREIGN = 23


def target(seed: int) -> Run:
    """A function that runs the case of a number."""
    warnings.simplefilter("ignore")

    def case(number: int, out: Path) -> str:
        name = f"{seed} {number}"
        network = grow(name)
        results = outputs_of(network)

        def problem(nodes: Sequence[onnx.NodeProto], wanted: Sequence[str]) -> str | None:
            try:
                check(nodes, network.values, network.opset, wanted, name)
            except Exception as error:
                return brief(error)
            return None

        # Written before it runs: a crash leaves no time.
        path = out / f"network-{seed}-{number}.onnx"
        save(path, network, network.nodes, results)
        found = problem(network.nodes, results)
        if found is not None:
            nodes, wanted = minimise(list(network.nodes), lambda n, w: problem(n, w) is not None, results)
            save(path, network, nodes, wanted)
            ops = " ".join(node.op_type for node in nodes)
            return f"bad: {ops}: {problem(nodes, wanted) or found}"
        path.unlink()
        path.with_suffix(".npz").unlink()
        other = foreign(network)
        return f"fine, another than ONNX Runtime: {other}" if other else "fine"

    return case


def save(path: Path, network: Network, nodes: Sequence[onnx.NodeProto], results: Sequence[str]) -> None:
    """The model, and the arrays of its inputs and results."""
    model = model_of(nodes, network.values, network.opset, results)
    path.write_bytes(model.SerializeToString())
    names = [port.name for port in (*model.graph.input, *model.graph.output)]
    # numpy's files know no bfloat16.
    arrays: dict[str, Any] = {n: network.values[n].array for n in names}
    np.savez(
        path.with_suffix(".npz"), **{n: a.astype(np.float32) if "bf" in a.dtype.name else a for n, a in arrays.items()}
    )


if __name__ == "__main__":
    main("fuzz.networks", target, __doc__ or "")
