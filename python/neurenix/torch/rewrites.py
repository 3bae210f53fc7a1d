"""Operators that are written otherwise before torch's ONNX exporter sees them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import fx

from neurenix.importers.torch.bounds import within_dtype
from neurenix.torch.graphs import value

aten = torch.ops.aten

#: Makes nodes in a graph for a node of another one, whose arguments are given; None leaves it as it is.
Rewrite = Callable[[fx.Graph, fx.Node, tuple[Any, ...], dict[str, Any]], Any]


def rewritten(graph: fx.Graph, node: fx.Node, made: dict[fx.Node, Any]) -> Any:
    """What stands for a node in `graph`: a copy of it, or what `REWRITES` make of it."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), made.__getitem__)
    rewrite = REWRITES.get(node.target)
    result = rewrite(graph, node, tuple(args), dict(kwargs)) if rewrite is not None else None
    return graph.node_copy(node, made.__getitem__) if result is None else result


def is_part_of(node: fx.Node, made: dict[fx.Node, Any]) -> bool:
    """Whether a node takes one of several results that stand apart already."""
    return len(node.args) == 2 and isinstance(node.args[0], fx.Node) and isinstance(made.get(node.args[0]), tuple)


def _split(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Slices: the exporter would write a sequence of tensors."""
    axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
    extents = [part.shape[axis] for part in value(node)]
    if not all(isinstance(extent, int) for extent in extents):
        return None
    made, start = [], 0
    for extent in extents:
        made.append(graph.call_function(aten.slice.Tensor, (args[0], axis, start, start + extent)))
        start += extent
    return tuple(made)


def _unbind(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Selects: the exporter would write a sequence of tensors."""
    axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    places = range(len(value(node)))
    return tuple(graph.call_function(aten.select.int, (args[0], axis, place)) for place in places)


def _arange(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A running sum of ones where the length is dynamic: the size of ONNX's Range is one that depends on data."""
    found = value(node)
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    if isinstance(found.shape[0], int) or found.dtype != torch.int64 or start != 0 or step != 1:
        return None
    length = args[1] if len(args) > 1 else args[0]
    place = {name: given for name, given in kwargs.items() if name == "device"}
    ones = graph.call_function(aten.full.default, ([length], 1), {"dtype": torch.int64, **place})
    return graph.call_function(aten.sub.Tensor, (graph.call_function(aten.cumsum.default, (ones, 0)), 1))


def _greatest(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The greatest or least of all: the exporter wants the dimensions."""
    if len(args) > 1 or "dim" in kwargs:
        return None
    every = list(range(value(node.all_input_nodes[0]).ndim))
    return graph.call_function(cast("Callable[..., Any]", node.target), (args[0], every), kwargs)


def _clamp(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Bounds that the integers reach: the exporter lets others wrap around."""
    bounds = [*args[1:], *[None] * (3 - len(args))]
    bounds = [kwargs.get(name, bound) for name, bound in zip(("min", "max"), bounds, strict=True)]
    found = within_dtype(value(node).dtype, bounds)
    return None if found == bounds else graph.call_function(aten.clamp.default, (args[0], *found))


def _norm(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalisations of 16 bits with weights of 32, which torch computes in the latter."""
    types = {value(one).dtype for one in node.all_input_nodes if isinstance(value(one), torch.Tensor)}
    several = isinstance(value(node), (tuple, list))
    found = value(node)[0] if several else value(node)
    if len(types) < 2 or torch.float32 not in types or found.dtype == torch.float32:
        return None
    wide = graph.call_function(aten._to_copy.default, (args[0],), {"dtype": torch.float32})
    result = graph.call_function(cast("Callable[..., Any]", node.target), (wide, *args[1:]), kwargs)
    if not several:
        return graph.call_function(aten._to_copy.default, (result,), {"dtype": found.dtype})
    first = graph.call_function(operator.getitem, (result, 0))
    back = graph.call_function(aten._to_copy.default, (first,), {"dtype": found.dtype})
    return (back, *(graph.call_function(operator.getitem, (result, place)) for place in range(1, len(value(node)))))


def _attention_of_four(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Queries, keys and values of four dimensions, which the exporter wants."""
    found = value(node).ndim
    return None if found == 4 else (_with_batch if found < 4 else _with_one_batch)(graph, node, args, kwargs)


def _with_one_batch(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """All dimensions in front of the heads as one."""
    *lead, _, _, _ = value(node).shape
    operands = [one for one in node.args[:3] if isinstance(one, fx.Node)]
    if any(list(value(one).shape[:-3]) != lead for one in operands):
        return None
    mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
    sizes = [extent if isinstance(extent, int) else -1 for extent in lead]
    if (isinstance(mask, fx.Node) and value(mask).ndim > 3) or sizes.count(-1) > 1:
        return None
    last = len(lead) - 1
    inputs = [graph.call_function(aten.flatten.using_ints, (one, 0, last)) for one in args[:3]]
    result = graph.call_function(aten.scaled_dot_product_attention.default, (*inputs, *args[3:]), kwargs)
    return graph.call_function(aten.unflatten.int, (result, 0, sizes))


def _with_batch(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A batch and heads of 1 in front."""
    lacking = 4 - value(node).ndim
    operands = [one for one in node.args[:3] if isinstance(one, fx.Node)]
    if any(value(one).ndim != value(node).ndim for one in operands):
        return None

    def wide(one: fx.Node, given: Any) -> Any:
        for _ in range(4 - value(one).ndim):
            given = graph.call_function(aten.unsqueeze.default, (given, 0))
        return given

    mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
    if isinstance(mask, fx.Node):
        given = wide(mask, args[3] if len(args) > 3 else kwargs["attn_mask"])
        args, kwargs = (*args[:3], given, *args[4:]), {n: v for n, v in kwargs.items() if n != "attn_mask"}
    inputs = [wide(one, given) for one, given in zip(operands, args[:3], strict=True)]
    result = graph.call_function(aten.scaled_dot_product_attention.default, (*inputs, *args[3:]), kwargs)
    for _ in range(lacking):
        result = graph.call_function(aten.squeeze.dim, (result, 0))
    return result


REWRITES: dict[Any, Rewrite] = {
    aten.scaled_dot_product_attention.default: _attention_of_four,
    aten.amax.default: _greatest,
    aten.clamp.default: _clamp,
    aten.amin.default: _greatest,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.unbind.int: _unbind,
    aten.arange.default: _arange,
    aten.arange.start: _arange,
    aten.arange.start_step: _arange,
    aten.layer_norm.default: _norm,
    aten.native_layer_norm.default: _norm,
    aten.group_norm.default: _norm,
    aten.native_group_norm.default: _norm,
    aten.instance_norm.default: _norm,
    aten._native_batch_norm_legit_no_training.default: _norm,
}


def encoder_layer(
    source: torch.Tensor,
    width: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    projection_weight: torch.Tensor,
    projection_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    weight_1: torch.Tensor,
    bias_1: torch.Tensor,
    weight_2: torch.Tensor,
    bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """What `aten::_transformer_encoder_layer_fwd` computes, torch's fast path of `nn.TransformerEncoderLayer`."""

    def attention(given: torch.Tensor) -> torch.Tensor:
        joined = F.linear(given, qkv_weight, qkv_bias)
        return F.linear(_attention(joined, heads, mask, mask_type), projection_weight, projection_bias)

    def feed_forward(given: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(given, weight_1, bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), weight_2, bias_2)

    def norm_1(given: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(given, (width,), norm_weight_1, norm_bias_1, eps)

    def norm_2(given: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(given, (width,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        state = source + attention(norm_1(source))
        return state + feed_forward(norm_2(state))
    state = norm_1(source + attention(source))
    return norm_2(state + feed_forward(state))


def _attention(joined: torch.Tensor, heads: int, mask: torch.Tensor | None, mask_type: int | None) -> torch.Tensor:
    batch, length, triple = joined.shape
    width = triple // 3
    query, key, value_ = (
        part.reshape(batch, length, heads, width // heads).transpose(1, 2) for part in torch.split(joined, width, -1)
    )
    if mask is None:
        found = F.scaled_dot_product_attention(query, key, value_)
    else:
        # Of type 0 it is (length, length), of type 1 (batch, length), of type 2 it has all four dimensions.
        hidden = (mask[:, None, None, :] if mask_type == 1 else mask).bool()
        scores = query @ key.transpose(2, 3) / math.sqrt(width // heads)
        # Here a query that sees no key gives NaN.
        found = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value_
    return found.transpose(1, 2).reshape(batch, length, width)
