"""Random networks with symbols, called with every symbol also at 1, at 0 and at its greatest, behind guard pages."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

# Read when the first buffer is made; whoever sets it decides.
os.environ.setdefault("NEURENIX_GUARD_PAGES", "behind")

import numpy as np
import onnx

import neurenix as nx
from fuzz.children import Run, brief, main
from fuzz.generate import Array, Value, model_of, symbolic
from fuzz.networks import TIMED, Difference, around, differs, grow, is_refusal, minimise, outputs_of, save
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

#: The inputs of a network: for each dimension a number, or the name of its symbol.
Dims = dict[str, Sequence[int | str]]
#: The extent of each symbol.
Sizes = dict[str, int]


def corners(at: Sizes) -> Iterator[Sizes]:
    """The sizes that were given, those of one symbol at its ends, and those of all at theirs."""
    yield at
    for name, size in at.items():
        yield from ({**at, name: end} for end in (1, 0, 2 * size))
    for end in (1, 0):
        yield dict.fromkeys(at, end)
    yield {name: 2 * size for name, size in at.items()}


def resized(dims: Dims, sizes: Sizes, given: dict[str, Array]) -> dict[str, Array]:
    """The elements that were given, again and again, in the shapes that follow from the sizes."""
    shapes = {n: [sizes[d] if isinstance(d, str) else d for d in dims[n]] for n in given}
    return {name: np.resize(array, shapes[name]).astype(array.dtype) for name, array in given.items()}


def check(
    nodes: Sequence[onnx.NodeProto], values: dict[str, Value], opset: int, results: Sequence[str], seed: str
) -> int:
    """Runs some nodes at every corner and gives how many had a result; raises whatever error shows a defect."""
    rng = random.Random(seed)
    ports = model_of(nodes, values, opset, results).graph.input
    given = {port.name: values[port.name].array for port in ports}
    dims = symbolic(rng, values, list(given))
    pairs = [pair for name in given for pair in zip(dims[name], given[name].shape, strict=True)]
    at = {name: extent for name, extent in pairs if isinstance(name, str)}
    try:
        network = from_onnx(model_of(nodes, values, opset, results, dims))
    except nx.InternalError:
        raise
    except nx.Error:
        # What follows from a symbol can't be decided, and the import says so.
        return 0
    shapes = {port.name: around(port.shape, given[port.name].shape) for port in network.inputs}
    level = 3 if rng.randrange(TIMED) == 0 else 0
    backend = TensorRTBackend(threads=2, optimization_level=level, timing_cache=False, verify=False)
    try:
        model = backend.optimize_model(network, shapes)
    except nx.ShapeError as error:
        if is_refusal(error):
            return 0
        raise
    return sum(same(network, model, resized(dims, sizes, given), sizes) for sizes in corners(at))


def same(network: nx.Network, model: nx.OptimizedModel, given: dict[str, Array], sizes: Sizes) -> bool:
    """Whether there is a result, which must be that of the reference."""
    try:
        want = network.evaluate(given)
    except nx.InternalError:
        raise
    except nx.Error:
        want = None
    try:
        got = model.run(given)
    except nx.Error as error:
        # Of nothing some kernels compute nothing, and say so.
        empty = isinstance(error, nx.ShapeError) and 0 in sizes.values()
        if want is None or is_refusal(error) or empty:
            return False
        raise Difference(f"{sizes}: {brief(error)}") from error
    if want is None:
        return False
    for name, array in got.items():
        wrong = differs(array, want[name])
        if wrong is not None:
            raise Difference(f"{sizes}: {name}: {wrong}")
    return True


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
        path = out / f"corners-{seed}-{number}.onnx"
        save(path, network, network.nodes, results)
        found = problem(network.nodes, results)
        if found is not None:
            nodes, wanted = minimise(list(network.nodes), lambda n, w: problem(n, w) is not None, results)
            save(path, network, nodes, wanted)
            ops = " ".join(node.op_type for node in nodes)
            return f"bad: {ops}: {problem(nodes, wanted) or found}"
        path.unlink()
        path.with_suffix(".npz").unlink()
        return "fine"

    return case


if __name__ == "__main__":
    main("fuzz.corners", target, __doc__ or "")
