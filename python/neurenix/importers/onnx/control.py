"""Control flow: If, Loop and Scan. The graphs inside become networks that their layers hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.node import Node, Rule

if TYPE_CHECKING:
    from neurenix.importers.onnx.graph import Graph

Shape = tuple[int | str, ...]


def if_(node: Node) -> list[Tensor]:
    """If: both branches as networks, or, where the condition is known, one of them in its place."""
    holds = _known(node)
    if holds is None:
        branches = {name: node.graph.body(f"{node.name}.{name}", node.need(name), []) for name in _BRANCHES}
        return _add(node, "If", [node[0]], branches)
    branch = node.need(_BRANCHES[not holds])
    node.graph.add_initializers(branch.initializer)
    node.graph.add_nodes(branch.node)
    return [node.graph.tensor(output.name) for output in branch.output]


_BRANCHES = ("then_branch", "else_branch")


def _known(node: Node) -> bool | None:
    """The condition, where constants and fixed shapes tell it."""
    condition = node.array(0)
    if condition is not None:
        return bool(condition.reshape(-1)[0])
    value = node[0].value
    return bool(value[0]) if value and isinstance(value[0], int) else None


def loop(node: Node) -> list[Tensor]:
    """Loop: shapes that differ from step to step become symbols of the body."""
    carried = [node[index] for index in range(2, len(node))]
    shapes: list[Shape] = [tensor.shape for tensor in carried]
    while True:
        ports = [(tensor.dtype, shape) for tensor, shape in zip(carried, shapes, strict=True)]
        body = node.graph.body(node.name, node.need("body"), [(np.int64, ()), (np.bool_, ()), *ports])
        results = list(body.network.outputs.values())[1 : 1 + len(carried)]
        wider = [_common(node, i, have, r.shape) for i, (have, r) in enumerate(zip(shapes, results, strict=False))]
        if wider == shapes:
            return _add(node, "Loop", [node.get(0), node.get(1), *carried], {"body": body}, carried=len(carried))
        shapes = wider


def _common(node: Node, index: int, have: Shape, given: Shape) -> Shape:
    """The shape that holds for what a step takes and what it gives."""
    if len(have) != len(given):
        raise UnsupportedError(
            f"what the loop carries as number {index} changes its number of dimensions",
            expected=f"{len(have)} dimensions",
            got=f"{len(given)} dimensions",
        )
    own = [f"'{node.name}.{index}.{axis}'" for axis in range(len(have))]
    return tuple(h if h in (g, o) else o for h, g, o in zip(have, given, own, strict=True))


def scan(node: Node) -> list[Tensor]:
    """Scan from opset 9 on."""
    if node.version < 9:
        raise UnsupportedError(
            "Scan of opset 8 is not supported",
            expected="opset 9 or newer",
            hint="convert the model: onnx.version_converter.convert_version(model, 13)",
        )
    count = node.need("num_scan_inputs")
    initial = [node[index] for index in range(len(node) - count)]
    scanned = [node[index] for index in range(len(node) - count, len(node))]
    results = len(node.outputs) - len(initial)
    lists = {
        "input_axes": node.attr("scan_input_axes", [0] * count),
        "input_directions": node.attr("scan_input_directions", [0] * count),
        "output_axes": node.attr("scan_output_axes", [0] * results),
        "output_directions": node.attr("scan_output_directions", [0] * results),
    }
    slices = [(t.dtype, _without(t.shape, axis)) for t, axis in zip(scanned, lists["input_axes"], strict=True)]
    states = [(tensor.dtype, tensor.shape) for tensor in initial]
    body = node.graph.body(node.name, node.need("body"), [*states, *slices])
    return _add(node, "Scan", [*initial, *scanned], {"body": body}, states=len(initial), **lists)


def _without(shape: Shape, axis: int) -> Shape:
    return tuple(dim for at, dim in enumerate(shape) if at != axis % len(shape))


def _add(node: Node, op: str, inputs: Sequence[Tensor | None], bodies: dict[str, Graph], **attrs: Any) -> list[Tensor]:
    """Adds the layer."""
    held = {name: (body.network, body.captures) for name, body in bodies.items()}
    return node.graph.network.add_control(op, list(inputs), held, attrs, node.name)


RULES: dict[str, Rule] = {"If": if_, "Loop": loop, "Scan": scan}
