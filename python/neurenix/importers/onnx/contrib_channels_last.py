"""ONNX Runtime's own ops on images with the channels last, which its optimiser writes for diffusion models."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.node import Node, Rule

CONV = ("auto_pad", "dilations", "group", "pads", "strides")


def _first(node: Node, x: Tensor) -> Tensor:
    """[N, spatial..., C] as [N, C, spatial...]."""
    rank = len(x.shape)
    return node.add("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])


def _last(node: Node, x: Tensor) -> Tensor:
    """[N, C, spatial...] as [N, spatial..., C]."""
    return node.add("Transpose", x, perm=[0, *range(2, len(x.shape)), 1])


def conv(node: Node) -> Tensor:
    """NhwcConv: the weight is [M, spatial..., C/group]."""
    attrs = {name: node.attrs[name] for name in CONV if name in node.attrs}
    return _last(node, node.add("Conv", _first(node, node[0]), _first(node, node[1]), node.get(2), **attrs))


def group_norm(node: Node) -> Tensor:
    """GroupNorm, with SiLU behind it if the node says so."""
    return _normalized(node, node[0])


def skip_group_norm(node: Node) -> list[Tensor]:
    """SkipGroupNorm: the sum of input, skip and bias, normalised; the sum itself is a result too."""
    x, skip = node[0], node[3]
    if len(skip.shape) == 2:
        skip = node.add("Unsqueeze", skip, axes=[1, 2])
    total = node.add("Add", x, skip)
    if node.has(4):
        total = node.add("Add", total, node[4])
    return [_normalized(node, total), total]


def _normalized(node: Node, x: Tensor) -> Tensor:
    last, activation = node.attr("channels_last", 1), node.need("activation")
    if activation not in (0, 1) or (node.op == "SkipGroupNorm" and not last):
        raise UnsupportedError(
            "this form is not supported",
            expected="activation 0 (none) or 1 (SiLU); for SkipGroupNorm channels_last 1",
            got=f"activation {activation}, channels_last {last}",
        )
    scale, bias = (node.add("Cast", node[i], to=x.dtype) for i in (1, 2))
    attrs = {"num_groups": node.need("groups"), "epsilon": node.attr("epsilon", 1e-5)}
    y = node.add("GroupNormalization", _first(node, x) if last else x, scale, bias, **attrs)
    y = node.add("Silu", y) if activation else y
    return _last(node, y) if last else y


RULES: dict[str, Rule] = {"GroupNorm": group_norm, "NhwcConv": conv, "SkipGroupNorm": skip_group_norm}
