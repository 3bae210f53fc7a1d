"""ONNX Runtime's attention of language models: keys and values in a cache, queries in groups of heads."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx import attention as att
from neurenix.importers.onnx import contrib_window
from neurenix.importers.onnx.contrib_window import Rows
from neurenix.importers.onnx.node import Node, Rule

#: What attributes must be, where they would ask for a cache of another form.
PLAIN = {"k_quant_type": "NONE", "v_quant_type": "NONE"}
#: Inputs that only such caches have, and the scores as an output.
SCALES = (12, 13)
SCORES = 3


def group_query_attention(node: Node) -> list[Tensor | None]:
    """GroupQueryAttention: new keys and values, perhaps turned by their positions, go into the cache first.

    Rows behind the end of a sample are 0 in the cache, and mean nothing in the output.
    """
    _refuse(node)
    heads, groups = node.need("num_heads"), node.need("kv_num_heads")
    q, k, v = _parts(node, heads, groups)
    rows = Rows.of(node, q)
    q, k, v = (att.heads_first(node, x, count) for x, count in ((q, heads), (k, groups), (v, groups)))
    if node.has(14):
        q, k = (_normalized(node, x, index, name) for x, index, name in ((q, 14, "q"), (k, 15, "k")))
    if node.attr("do_rotary", 0):
        q, k = _turned(node, rows, [q, k])
    scores = att.Scores(node, q)
    if node.attr("sliding_window_cache", 0):
        k, v, *caches = contrib_window.windows(node, scores, rows, k, v)
    else:
        if node.has(3):
            k, v = (_cached(node, node[index], new, rows) for index, new in ((3, k), (4, v)))
        caches = [k, v]
        _mask(node, scores, rows, k)
    given = (node, q, k, v, scores)
    y = _with_sink(*given) if node.has(11) or node.attr("smooth_softmax", 0) else _attended(*given)
    return [att.heads_last(node, y), *caches]


def _refuse(node: Node) -> None:
    """Raises `UnsupportedError` for caches of quantized numbers, and for scores as an output."""
    for name, plain in PLAIN.items():
        node.refuse(name, plain)
    asked = [f"input {index}" for index in SCALES if node.has(index)]
    if len(node.outputs) > SCORES and node.outputs[SCORES]:
        asked.append(f"output {SCORES}")
    if asked:
        raise UnsupportedError(
            "a cache of quantized keys and values, and the scores as an output, are not supported",
            expected="a cache of the queries' dtype, and three outputs at most",
            got=", ".join(asked),
        )


def _parts(node: Node, heads: int, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, which may lie behind one another in the first input."""
    if node.has(1):
        return node[0], node[1], node[2]
    size = att.known(node[0], 2, "the hidden size") // (heads + 2 * groups)
    q, k, v = node.add_all("Split", [node[0]], axis=2, split=[heads * size, groups * size, groups * size])
    return q, k, v


def _normalized(node: Node, x: Tensor, weight: int, name: str) -> Tensor:
    """Each head by its own root mean square."""
    epsilon = node.attr(f"{name}_norm_epsilon", node.attr("qk_norm_epsilon", 1e-6))
    return node.add("RMSNormalization", x, node[weight], axis=-1, epsilon=float(epsilon))


def _turned(node: Node, rows: Rows, given: list[Tensor]) -> list[Tensor]:
    """Heads turned by the positions of their tokens, or by those that the node names."""
    positions = _given(node, rows) if node.has(9) else rows.places
    if node.has(16):
        # Rows that only fill the chunk up may lie behind the end of the tables.
        last = node.add("Sub", att.extent(node, node[7], 0), node.integers(1))
        positions = node.add("Min", positions, last)
    cos, sin = (node.add("Gather", node[index], positions, axis=0) for index in (7, 8))
    width, neighbours = 2 * att.known(cos, 2, "the width of the tables"), bool(node.attr("rotary_interleaved", 0))
    return [att.rotated(node, x, cos, sin, 0, width, neighbours) for x in given]


def _given(node: Node, rows: Rows) -> Tensor:
    """The positions that the node names; in a first prompt the kernels count on from the first of them."""
    given = node[9]
    first = node.add("Slice", given, *(node.integers([at] * 2) for at in (0, 1)), node.integers([0, 1]))
    new = att.extent(node, rows.places, 1)
    counted = node.add("Add", first, att.places(node, rows.places, 1))
    total = node.add("Reshape", node.add("Cast", node[6], to="int64"), node.integers([]))
    return node.add("Where", node.add("Equal", total, new), counted, given)


def _cached(node: Node, past: Tensor, new: Tensor, rows: Rows) -> Tensor:
    """The cache with new rows, [batch, heads, cache, size]; it grows to the length of the longest sample."""
    total = node.add("Reshape", node.add("Cast", node[6], to="int64"), node.integers([1]))
    end = node.add("Max", total, node.add("Shape", past, start=2, end=3))
    # What stands where the cache grows is written below, or means nothing: there are never more rows than these.
    rows_of_all = node.add("Concat", past, new, axis=2)
    cache = node.add("Slice", rows_of_all, node.integers([0]), end, node.integers([2]))
    places = node.add("Expand", node.add("Unsqueeze", rows.places, axes=[1, 3]), node.add("Shape", new))
    cache = node.add("ScatterElements", cache, places, new, axis=2)
    # What nobody wrote may be NaN, which no mask would keep out of the sums.
    numbers = node.add("Unsqueeze", att.places(node, cache, 2), axes=[1])
    written = node.add("Less", numbers, att.per_batch(node, rows.ends))
    return node.add("Where", written, cache, node.like(0.0, cache))


def _mask(node: Node, scores: att.Scores, rows: Rows, k: Tensor) -> None:
    """Which keys a query sees: those up to its own row, from the window's first on, or all of its sample."""
    window = node.attr("local_window_size", -1)
    if node.has(10):
        scores.add(_as_wide(node, node[10], k))
    if not node.attr("causal", 1):
        ends = att.per_batch(node, rows.ends)
        scores.keep(node.add("Less", att.places(node, k, 2), ends))
        return
    if window < 0 and not node.has(3):
        # New keys alone: their rows are numbered as the queries are.
        scores.causal = True
        return
    keys, own = att.places(node, k, 2), node.add("Unsqueeze", rows.places, axes=[1, 3])
    scores.keep(node.add("LessOrEqual", keys, own))
    if window >= 0:
        scores.keep(node.add("Greater", keys, node.add("Sub", own, node.integers(window))))


def _as_wide(node: Node, bias: Tensor, k: Tensor) -> Tensor:
    """A bias with a column for each row of the cache, which may have room behind the longest sample."""
    if bias.shape[-1] == k.shape[2]:
        return bias
    rank = len(bias.shape)
    room = node.add("Sub", node.add("Shape", k, start=2, end=3), node.add("Shape", bias, start=rank - 1, end=rank))
    pads = node.add("Concat", node.integers([0] * (2 * rank - 1)), room, axis=0)
    return node.add("Pad", bias, pads, node.like(0.0, bias))


def _attended(node: Node, q: Tensor, k: Tensor, v: Tensor, scores: att.Scores) -> Tensor:
    return att.attend(node, q, k, v, node.attr("scale", 0.0), scores, node.attr("softcap", 0.0))


def _with_sink(node: Node, q: Tensor, k: Tensor, v: Tensor, scores: att.Scores) -> Tensor:
    """Attention with one more term in the sum of each softmax: the bias of a key of zeros, whose value is 0."""
    heads = att.known(q, 1, "the number of heads")
    if scores.causal:
        scores.keep(att.visible(node, q, k, node.integers(0), -1, 0))
        scores.causal = False
    bias = scores.mask()
    assert bias is not None
    if bias.dtype == bool:
        bias = node.add("Where", bias, *(node.like(number, q) for number in (0.0, float("-inf"))))
    # [batch, heads, queries, keys], with the column of the sink behind the keys.
    whole = [node.add("Shape", x, start=at, end=at + 1) for x, at in ((q, 0), (q, 1), (q, 2), (k, 2))]
    bias = node.add("Expand", bias, node.add("Concat", *whole, axis=0))
    sink = node.add("Reshape", node[11], node.integers([1, heads, 1, 1])) if node.has(11) else node.like(0.0, q)
    column = node.add("Expand", sink, node.add("Concat", *whole[:3], node.integers([1]), axis=0))
    scores.bias, scores.seen = node.add("Concat", bias, column, axis=3), None
    k, v = (node.add("Pad", x, node.integers([0, 0, 0, 0, 0, 0, 1, 0]), node.like(0.0, x)) for x in (k, v))
    return _attended(node, q, k, v, scores)


RULES: dict[str, Rule] = {"GroupQueryAttention": group_query_attention}
