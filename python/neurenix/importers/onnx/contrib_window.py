"""Caches of keys and values that hold the last tokens alone: GroupQueryAttention with `sliding_window_cache`."""

from __future__ import annotations

from dataclasses import dataclass

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx import attention as att
from neurenix.importers.onnx.node import Node


@dataclass
class Rows:
    """Where the new keys and values of each sample stand among all of it."""

    #: How many tokens there are before and behind them: int64[batch].
    starts: Tensor
    ends: Tensor
    #: The position of each: int64[batch, sequence].
    places: Tensor

    @classmethod
    def of(cls, node: Node, q: Tensor) -> Rows:
        """By `seqlens_k` (the ends, less one) and `query_seqlens`, without which all that fit are new."""
        one = node.integers(1)
        ends = node.add("Add", node.add("Reshape", node.add("Cast", node[5], to="int64"), node.integers([-1])), one)
        if node.has(16):
            new = node.add("Cast", node[16], to="int64")
        else:
            new = node.add("Min", ends, att.extent(node, q, 1))
        starts = node.add("Sub", ends, new)
        first = node.add("Unsqueeze", starts, axes=[1])
        return cls(starts, ends, node.add("Add", first, att.places(node, q, 1)))


def windows(node: Node, scores: att.Scores, rows: Rows, k: Tensor, v: Tensor) -> list[Tensor]:
    """Keys and values to attend to, and the caches behind the step.

    What the step reads are the rows of the cache and the new ones behind them; `scores` learns which of them a query
    sees. The first rows of a cache hold the last tokens, in their order.
    """
    window = node.attr("local_window_size", -1)
    if window < 1 or not node.has(3):
        raise InvalidArgumentError(
            "a cache as long as the window wants a window and a cache", got=f"local_window_size {window}"
        )
    if node.has(10):
        raise UnsupportedError("a bias for keys in a cache as long as the window is not supported")
    capacity = att.extent(node, node[3], 2)
    held = [_resident(node, tokens, capacity, window) for tokens in (rows.starts, rows.ends)]
    slots = node.add("Unsqueeze", att.places(node, node[3], 2), axes=[1])
    # What nobody wrote may be NaN, which no mask would keep out of the sums.
    means, none = node.add("Less", slots, att.per_batch(node, held[0])), node.like(0.0, k)
    pairs = [(node.add("Where", means, node[index], none), new) for index, new in ((3, k), (4, v))]
    whole = [node.add("Concat", old, new, axis=2) for old, new in pairs]
    _mask(node, scores, rows, held[0], window)
    source = _source(node, rows, held, capacity)
    caches = []
    for rows_of_all in whole:
        shape = node.add("Concat", *(_size(node, x, axis) for x, axis in _shape(node, rows_of_all)), axis=0)
        index = node.add("Expand", node.add("Unsqueeze", source, axes=[1, 3]), shape)
        caches.append(node.add("GatherElements", rows_of_all, index, axis=2))
    return [*whole, *caches]


def _shape(node: Node, x: Tensor) -> list[tuple[Tensor, int]]:
    return [(x, 0), (x, 1), (node[3], 2), (x, 3)]


def _size(node: Node, x: Tensor, axis: int) -> Tensor:
    return node.add("Shape", x, start=axis, end=axis + 1)


def _resident(node: Node, tokens: Tensor, capacity: Tensor, window: int) -> Tensor:
    """How many of so many tokens a cache holds, int64[batch].

    When it is full, it loses as many at once as leave the window: L(T) = T - G * ceil((T - C) / G) with G = C - W + 1.
    """
    lost = node.add("Sub", capacity, node.integers(window - 1))
    over = node.add("Sub", tokens, capacity)
    steps = node.add("Div", node.add("Add", over, node.add("Sub", lost, node.integers(1))), lost)
    fits = node.add("LessOrEqual", tokens, capacity)
    return node.add("Where", fits, tokens, node.add("Sub", tokens, node.add("Mul", steps, lost)))


def _mask(node: Node, scores: att.Scores, rows: Rows, held: Tensor, window: int) -> None:
    """A query sees the rows that hold a token up to its own position, from the window's first on."""
    first, held = (node.add("Unsqueeze", x, axes=[1]) for x in (node.add("Sub", rows.starts, held), held))
    slots = att.places(node, node[3], 2)
    old, means = node.add("Add", first, slots), node.add("Less", slots, held)
    # A row that holds nothing stands behind all of them.
    far = node.integers(1 << 40)
    positions = node.add("Concat", node.add("Where", means, old, far), rows.places, axis=1)
    keys, own = node.add("Unsqueeze", positions, axes=[1, 2]), node.add("Unsqueeze", rows.places, axes=[1, 3])
    scores.keep(node.add("LessOrEqual", keys, own))
    scores.keep(node.add("Greater", keys, node.add("Sub", own, node.integers(window))))


def _source(node: Node, rows: Rows, held: list[Tensor], capacity: Tensor) -> Tensor:
    """For each row of the new cache the row of the old one with the new tokens behind it: int64[batch, cache]."""
    starts, ends, before, after = (
        node.add("Unsqueeze", x, axes=[1]) for x in (rows.starts, rows.ends, held[0], held[1])
    )
    position = node.add("Add", node.add("Sub", ends, after), att.places(node, node[3], 2))
    # Rows behind the end mean nothing: they repeat the last token.
    position = node.add("Min", position, node.add("Sub", ends, node.integers(1)))
    new = node.add("Add", node.add("Sub", position, starts), capacity)
    old = node.add("Sub", position, node.add("Sub", starts, before))
    return node.add("Where", node.add("GreaterOrEqual", position, starts), new, old)
