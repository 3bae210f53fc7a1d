"""Control flow: If and Scan. The graphs inside become networks that their layers hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx import packed
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.packed import Packed
from neurenix.importers.onnx.values import (
    AppendedSequence,
    AppendOnlyError,
    Given,
    Ports,
    Shape,
    form,
    is_list,
    kind,
    rebuilt,
)

if TYPE_CHECKING:
    from neurenix.importers.onnx.graph import Graph


def if_(node: Node) -> list[Given]:
    """If: both branches as networks, or, where the condition is known, one of them in its place."""
    holds = node.truth(0)
    if holds is None:
        return _either(node)
    branch = node.need(_BRANCHES[not holds])
    node.graph.add_initializers(branch.initializer, branch.sparse_initializer)
    node.graph.add_nodes(branch.node)
    return [node.graph.given(output.name) for output in branch.output]


_BRANCHES = ("then_branch", "else_branch")


def _either(node: Node) -> list[Given]:
    """Both branches, which must give the same number of tensors in the same roles."""
    branches = {name: node.graph.body(f"{node.name}.{name}", node.need(name), []) for name in _BRANCHES}
    results = [branch.results for branch in branches.values()]
    for index, pair in enumerate(zip(*results, strict=False)):
        grown = [given for given in pair if isinstance(given, AppendedSequence)]
        if grown:
            # What was appended to it in a branch tells most of its elements.
            most = max(grown, key=lambda given: len(given.elements))
            raise AppendOnlyError(most.owner, "If", packed.kinds(most))
        if form(pair[0]) != form(pair[1]):
            for side, value in enumerate(_of_one_form(node, index, list(branches.values()), pair)):
                results[side][index] = value
    for branch, given in zip(branches.values(), results, strict=True):
        branch.mark([tensor for value in given for tensor in branch.tensors_of(value)])
    if not any(branch.network.outputs for branch in branches.values()):
        # Empty sequences, or optional values without an element.
        return list(results[0])
    tensors = iter(add(node, "If", [node[0]], branches))
    return [rebuilt(value, tensors) for value in results[0]]


def _of_one_form(node: Node, index: int, branches: Sequence[Graph], pair: Sequence[Given]) -> list[Packed]:
    """What the branches give, sequences of different lengths, in tensors of which each has as many."""
    lists = [value for value in pair if is_list(value)]
    name = node.outputs[index] if index < len(node.outputs) else node.name
    if len(lists) < len(pair):
        raise UnsupportedError(
            "the branches give optional values of which one is empty",
            tensor=name,
            expected="the same number of tensors from both branches",
            got=" and ".join(map(kind, pair)),
            hint=f"make the condition known: {packed.FIX}",
        )
    like = [one for value in lists for one in packed.kinds(value)]
    inside = [f"{node.name}.{branch}/" for branch in _BRANCHES]
    return [packed.pack(packed.Layers(b, node.name), v, like, inside) for b, v in zip(branches, lists, strict=True)]


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
    slices = [one_tensor(t, _without(t.shape, axis)) for t, axis in zip(scanned, lists["input_axes"], strict=True)]
    states = [one_tensor(tensor, tensor.shape) for tensor in initial]
    body = node.graph.body(node.name, node.need("body"), [*states, *slices])
    body.mark([body.tensor_of(given) for given in body.results])
    return add(node, "Scan", [*initial, *scanned], {"body": body}, states=len(initial), **lists)


def one_tensor(like: Tensor, shape: Shape) -> Ports:
    """One input of the dtype of another tensor."""
    return Ports(like, [(like.dtype, shape)])


def _without(shape: Shape, axis: int) -> Shape:
    return tuple(dim for at, dim in enumerate(shape) if at != axis % len(shape))


def add(node: Node, op: str, inputs: Sequence[Tensor | None], bodies: dict[str, Graph], **attrs: Any) -> list[Tensor]:
    """Adds a layer that holds networks."""
    held = {name: (body.network, body.captures) for name, body in bodies.items()}
    return node.graph.network.add_control(op, list(inputs), held, attrs, node.name)


RULES: dict[str, Rule] = {"If": if_, "Scan": scan}
