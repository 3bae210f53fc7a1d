"""Attention, and what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.quantized import dtype_at
from neurenix.importers.onnx.same import ANY, Same


def known(x: Tensor, axis: int, what: str) -> int:
    """An extent that must be known when the model is imported."""
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise UnsupportedError(f"{what} must be known", got=f"{extent} at axis {axis}", hint="fix that dimension")
    return extent


def heads_first(node: Node, x: Tensor, heads: int) -> Tensor:
    """[batch, sequence, heads * size] as [batch, heads, sequence, size]."""
    hidden = known(x, 2, "the hidden size")
    if heads < 1 or hidden % heads:
        raise InvalidArgumentError("the hidden size does not divide into heads", got=f"{hidden} and {heads} heads")
    return node.add(
        "Transpose", node.add("Reshape", x, node.integers([0, 0, heads, hidden // heads])), perm=[0, 2, 1, 3]
    )


def heads_last(node: Node, y: Tensor) -> Tensor:
    """[batch, heads, sequence, size] as [batch, sequence, heads * size]."""
    hidden = known(y, 1, "the number of heads") * known(y, 3, "the size of a head")
    return node.add("Reshape", node.add("Transpose", y, perm=[0, 2, 1, 3]), node.integers([0, 0, hidden]))


def extent(node: Node, x: Tensor, axis: int) -> Tensor:
    """An extent as an int64 tensor of rank 0."""
    size = x.shape[axis]
    if isinstance(size, int):
        return node.integers(size)
    return node.add("Gather", node.add("Shape", x), node.integers(axis % len(x.shape)))


def places(node: Node, x: Tensor, axis: int) -> Tensor:
    """The numbers of the places along an axis: an int64 vector."""
    return node.add("Range", node.integers(0), extent(node, x, axis), node.integers(1))


def per_batch(node: Node, numbers: Tensor) -> Tensor:
    """One integer for each sample of the batch, [batch], as int64[batch, 1, 1, 1]."""
    return node.add("Unsqueeze", node.add("Cast", numbers, to="int64"), axes=[1, 2, 3])


def visible(node: Node, q: Tensor, k: Tensor, offset: Tensor, left: int, right: int) -> Tensor:
    """Which keys a query sees: those from `left` before its own place, which `offset` shifts, to `right` behind."""
    own = node.add("Add", node.add("Unsqueeze", places(node, q, 2), axes=[1]), offset)
    keys = places(node, k, 2)
    seen = None
    if right >= 0:
        seen = node.add("LessOrEqual", keys, node.add("Add", own, node.integers(right)))
    if left >= 0:
        near = node.add("GreaterOrEqual", keys, node.add("Sub", own, node.integers(left)))
        seen = near if seen is None else node.add("And", seen, near)
    assert seen is not None
    return seen


@dataclass
class Scores:
    """Which keys a query sees, and what is added to their scores before the softmax."""

    node: Node
    #: A tensor of the dtype of the scores.
    like: Tensor
    #: Numbers to add.
    bias: Tensor | None = None
    #: Truth values.
    seen: Tensor | None = None
    #: Whether no query sees a key behind its own place.
    causal: bool = False
    #: Whether there may be a query that sees no key, which gives zeros then.
    may_be_blind: bool = False

    def add(self, bias: Tensor) -> None:
        """Adds numbers."""
        self.bias = bias if self.bias is None else self.node.add("Add", self.bias, bias)

    def keep(self, seen: Tensor, otherwise: float = -np.inf) -> None:
        """Adds a number to the scores of keys that are not seen."""
        if otherwise != -np.inf:
            numbers = [self.node.like(v, self.like) for v in (0.0, otherwise)]
            self.add(self.node.add("Where", seen, *numbers))
        else:
            self.seen = seen if self.seen is None else self.node.add("And", self.seen, seen)

    def mask(self) -> Tensor | None:
        """The mask of the op Attention."""
        if self.bias is None or self.seen is None:
            return self.seen if self.bias is None else self.bias
        return self.node.add("Where", self.seen, self.bias, self.node.like(-np.inf, self.bias))


def attend(
    node: Node, q: Tensor, k: Tensor, v: Tensor, scale: float | None, scores: Scores, softcap: float = 0.0
) -> Tensor:
    """softmax(q k^T * scale + bias) v of [batch, heads, sequence, size], keys and values shared by groups of heads."""
    attrs = {"is_causal": int(scores.causal), "softcap": softcap, "nan_if_blind": int(not scores.may_be_blind)}
    return node.add("Attention", q, k, v, scores.mask(), scale=scale or 0.0, **attrs)


@dataclass
class Attended:
    """What attention gives, and what it goes through."""

    y: Tensor
    raw: Tensor
    capped: Tensor
    biased: Tensor
    weights: Tensor


def per_head(node: Node, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values for each head of the queries: groups of heads share them."""
    heads, shared = known(q, 1, "the number of heads"), known(k, 1, "the number of heads")
    if shared == heads:
        return k, v
    if heads % shared:
        raise InvalidArgumentError("the heads do not divide into groups", got=f"{heads} and {shared} heads")
    each = node.integers(np.repeat(np.arange(shared), heads // shared))
    return node.add("Gather", k, each, axis=1), node.add("Gather", v, each, axis=1)


def attend_openly(
    node: Node,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    scores: Scores,
    softcap: float = 0.0,
    precision: object = None,
) -> Attended:
    """As [`attend`], in pieces: for models that want the scores too, or a softmax in double precision."""
    if not scale:
        scale = float(known(q, 3, "the size of a head") ** -0.5)
    k, v = per_head(node, q, k, v)
    raw = node.add("MatMul", node.add("Mul", q, node.like(scale, q)), k, transB=1)
    capped = raw
    if softcap > 0:
        cap = node.like(softcap, raw)
        capped = node.add("Mul", node.add("Tanh", node.add("Div", raw, cap)), cap)
    if scores.causal:
        scores.keep(visible(node, q, k, node.integers(0), -1, 0))
    bias = scores.mask()
    if bias is not None and bias.dtype == np.bool_:
        bias = node.add("Where", bias, *(node.like(v, raw) for v in (0.0, -np.inf)))
    biased = capped if bias is None else node.add("Add", capped, bias)
    wide = biased if precision is None else node.add("Cast", biased, to=precision)
    weights = node.add("Softmax", wide, axis=-1)
    if precision is not None:
        weights = node.add("Cast", weights, to=raw.dtype)
    if bias is not None and scores.may_be_blind:
        best = node.add("ReduceMax", bias, axes=[-1], keepdims=1)
        blind = node.add("Equal", best, node.like(-np.inf, best))
        weights = node.add("Where", blind, node.like(0.0, weights), weights)
    return Attended(node.add("MatMul", weights, v), raw, capped, biased, weights)


def attention(node: Node) -> list[Tensor | None]:
    """Attention."""
    q, k, v = node[0], node[1], node[2]
    packed = len(q.shape) == 3
    if packed:
        q = heads_first(node, q, node.need("q_num_heads"))
        k, v = (heads_first(node, t, node.need("kv_num_heads")) for t in (k, v))
    offset = node.integers(0)
    if node.has(4):
        offset = extent(node, node[4], 2)
        k, v = (node.add("Concat", node[past], new, axis=2) for past, new in ((4, k), (5, v)))
    valid = per_batch(node, node[6]) if node.has(6) else None
    if valid is not None and not node.has(4):
        offset = node.add("Sub", valid, extent(node, q, 2))
    scores = Scores(node, q)
    mask(node, scores, k)
    left, right = node.attr("left_window_size", -1), node.attr("right_window_size", -1)
    if node.attr("is_causal", 0):
        right = 0
    if right == 0 and left < 0 and valid is None and not node.has(4):
        scores.causal = True
    elif left >= 0 or right >= 0:
        scores.keep(visible(node, q, k, offset, left, right))
        scores.may_be_blind |= left >= 0 or valid is not None
    if valid is not None:
        scores.keep(node.add("Less", places(node, k, 2), valid))
        scores.may_be_blind = True
    scale, softcap = node.attr("scale"), node.attr("softcap", 0.0)
    precision = dtype_at(node, "softmax_precision")
    shows = len(node.outputs) > 3 and node.outputs[3] != ""
    shown = None
    # The op computes its softmax in float32 at least.
    if shows or (precision == np.float64 and q.dtype != np.float64):
        done = attend_openly(node, q, k, v, scale, scores, softcap, precision)
        shown = [done.raw, done.capped, done.biased, done.weights][node.attr("qk_matmul_output_mode", 0)]
        y = done.y
    else:
        y = attend(node, q, k, v, scale, scores, softcap)
    return [heads_last(node, y) if packed else y, k, v, shown]


def mask(node: Node, scores: Scores, k: Tensor) -> None:
    """The mask of Attention: truth values or numbers to add; keys beyond its end are not seen."""
    if not node.has(3):
        return
    given = node[3]
    truths = given.dtype == np.bool_
    width, keys = given.shape[-1], k.shape[2]
    if isinstance(width, int) and isinstance(keys, int) and width < keys:
        pads = [0] * (2 * len(given.shape) - 1) + [keys - width]
        given = node.add("Pad", given, node.integers(pads), node.like(0 if truths else -np.inf, given))
    (scores.keep if truths else scores.add)(given)
    scores.may_be_blind = True


def rotary_embedding(node: Node) -> Tensor:
    """RotaryEmbedding: the positions, where there are some, choose rows of the caches."""
    x = node[0]
    cos, sin = node[1], node[2]
    if node.has(3):
        cos, sin = (node.add("Gather", cache, node[3], axis=0) for cache in (cos, sin))
    neighbours = bool(node.attr("interleaved", 0))
    return rotated(node, x, cos, sin, node.attr("num_heads", 0), node.attr("rotary_embedding_dim", 0), neighbours)


def rotated(node: Node, x: Tensor, cos: Tensor, sin: Tensor, heads: int, width: int, neighbours: bool) -> Tensor:
    """Pairs of elements of [batch, heads, sequence, size], or [batch, sequence, heads * size], turned by angles.

    The first `width` elements of a head are turned, all for 0. Pairs are neighbours, or half of these apart.
    """
    packed = len(x.shape) == 3
    parts = x
    if packed:
        hidden = known(x, 2, "the hidden size")
        if heads < 1 or hidden % heads:
            raise InvalidArgumentError("the hidden size does not divide into heads", got=f"{hidden} and {heads} heads")
        parts = node.add("Reshape", x, node.integers([0, 0, heads, hidden // heads]))
    size = known(parts, 3, "the size of a head")
    # [..., sequence, half] meets [batch, heads, sequence, half] or [batch, sequence, heads, half].
    axis = len(cos.shape) - (1 if packed else 2)
    cos, sin = (node.add("Unsqueeze", cache, axes=[axis]) for cache in (cos, sin))
    rest = None
    if 0 < width < size:
        parts, rest = node.add_all("Split", [parts], axis=3, split=[width, size - width])
    turned = turn(node, parts, cos, sin, neighbours)
    result = turned if rest is None else node.add("Concat", turned, rest, axis=3)
    return node.add("Reshape", result, node.integers([0, 0, hidden])) if packed else result


def turn(node: Node, x: Tensor, cos: Tensor, sin: Tensor, neighbours: bool) -> Tensor:
    """Pairs along the last axis turned; the pairs are neighbours, or half of the axis apart."""
    size = known(x, 3, "the size of a head")
    if neighbours:
        axes, steps = node.integers([3]), node.integers([2])
        first, second = (
            node.add("Slice", x, node.integers([start]), node.integers([size]), axes, steps) for start in (0, 1)
        )
    else:
        first, second = node.add_all("Split", [x], axis=3, split=[size // 2, size // 2])
    real = node.add("Sub", node.add("Mul", first, cos), node.add("Mul", second, sin))
    imaginary = node.add("Add", node.add("Mul", first, sin), node.add("Mul", second, cos))
    if not neighbours:
        return node.add("Concat", real, imaginary, axis=3)
    pairs = node.add("Concat", *(node.add("Unsqueeze", t, axes=[4]) for t in (real, imaginary)), axis=4)
    return node.add("Reshape", pairs, node.integers([0, 0, 0, size]))


def causal_conv_with_state(node: Node) -> list[Tensor]:
    """CausalConvWithState: each channel by itself, behind what came before."""
    x, w = node[0], node[1]
    before, channels = known(w, 2, "the extent of the kernel") - 1, known(w, 0, "the number of channels")
    if node.has(3):
        x = node.add("Concat", node[3], x, axis=2)
    else:
        x = node.add("Pad", x, node.integers([0, 0, before, 0, 0, 0]), node.like(0.0, x))
    y = node.add("Conv", x, w, node.get(2), group=channels)
    activation = node.attr("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise InvalidArgumentError("the activation is unknown", expected="none, silu or swish", got=activation)
    end = np.iinfo(np.int64).max
    state = node.add("Slice", x, *(node.integers([v]) for v in (-before if before else end, end, 2)))
    return [y if activation == "none" else node.add("Silu", y), state]


def swiglu(node: Node) -> Tensor:
    """SwiGLU: the first input, through Swish, opens the second."""
    gate, alpha = node[0], node.attr("alpha", 1.0)
    if alpha == 1.0:
        return node.add("Mul", node.add("Silu", gate), node[1])
    swish = node.add("Mul", gate, node.add("Sigmoid", node.add("Mul", gate, node.like(alpha, gate))))
    return node.add("Mul", swish, node[1])


RULES: dict[str, Rule] = {
    "Attention": attention,
    "CausalConvWithState": causal_conv_with_state,
    # How many tokens others work on at a time.
    "LinearAttention": Same(ignore={"chunk_size": ANY}),
    "RotaryEmbedding": rotary_embedding,
    "SwiGLU": swiglu,
}
