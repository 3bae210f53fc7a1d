"""ONNX Runtime's own ops (domain com.microsoft), which its optimiser and some exporters write."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx import attention as att
from neurenix.importers.onnx import (
    contrib_cache,
    contrib_channels_last,
    contrib_experts,
    contrib_language,
    contrib_quantized,
    quantized,
)
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.same import Same


def fused_matmul(node: Node) -> Tensor:
    """FusedMatMul: `alpha` times the product, either side transposed; TransposeMatMul is its old name."""
    sides = [batch_transposed(node, node[i], node.attr(f"transBatch{side}", 0)) for i, side in enumerate("AB")]
    # A vector has nothing to transpose.
    swaps = {f"trans{s}": node.attr(f"trans{s}", 0) for s, t in zip("AB", sides, strict=True) if len(t.shape) > 1}
    return scaled(node, node.add("MatMul", *sides, **swaps), node.attr("alpha", 1.0))


def batch_transposed(node: Node, x: Tensor, transposed: int) -> Tensor:
    """The first dimension, if so wanted, moved behind those of the batch."""
    rank = len(x.shape)
    if not transposed or rank < 3:
        return x
    return node.add("Transpose", x, perm=[*range(1, rank - 1), 0, rank - 1])


def scaled(node: Node, x: Tensor, factor: float) -> Tensor:
    """A tensor times a number."""
    return x if factor == 1.0 else node.add("Mul", x, node.like(factor, x))


def gelu(approximate: str) -> Rule:
    """Gelu after a bias, which may be left out."""

    def rule(node: Node) -> Tensor:
        x = node.add("Add", node[0], node[1]) if node.has(1) else node[0]
        return node.add("Gelu", x, approximate=approximate)

    return rule


def quick_gelu(node: Node) -> Tensor:
    """QuickGelu: x * sigmoid(alpha * x)."""
    return node.add("Mul", node[0], node.add("Sigmoid", scaled(node, node[0], node.attr("alpha", 1.702))))


def bias_add(node: Node) -> Tensor:
    """BiasAdd: input, bias and residual."""
    return node.add("Add", node.add("Add", node[0], node[1]), node[2])


def bias_split_gelu(node: Node) -> Tensor:
    """BiasSplitGelu: the first half of the last axis opened by the second, through Gelu."""
    x = node.add("Add", node[0], node[1])
    half = att.known(x, -1, "the last extent") // 2
    left, right = node.add_all("Split", [x], axis=-1, split=[half, half])
    return node.add("Mul", left, node.add("Gelu", right))


def activated(node: Node, y: Tensor, alpha: float | None, beta: float | None) -> Tensor:
    """A tensor after the `activation` of a fused op, with its parameters."""
    kind = node.attr("activation", "")
    given = {name: v for name, v in (("alpha", alpha), ("beta", beta)) if v is not None}
    if kind == "":
        return y
    if kind == "Clip":
        return node.add("Clip", y, *(None if v is None else node.like(v, y) for v in (alpha, beta)))
    if kind in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "HardSwish"):
        return node.add(kind, y)
    if kind in ("LeakyRelu", "Elu", "ThresholdedRelu"):
        return node.add(kind, y, **{n: v for n, v in given.items() if n == "alpha"})
    if kind == "HardSigmoid":
        return node.add(kind, y, **given)
    raise UnsupportedError("the fused activation is not supported", got=repr(kind))


def fused_conv(node: Node) -> Tensor:
    """FusedConv: Conv, a residual, an activation."""
    names = ("auto_pad", "dilations", "group", "pads", "strides")
    y = node.add("Conv", node[0], node[1], node.get(2), **{n: node.attrs[n] for n in names if n in node.attrs})
    if node.has(3):
        y = node.add("Add", y, node[3])
    given = list(node.attr("activation_params", []))
    return activated(node, y, given[0] if given else None, given[1] if len(given) > 1 else None)


def fused_gemm(node: Node) -> Tensor:
    """FusedGemm: Gemm and an activation."""
    names = ("alpha", "beta", "transA", "transB")
    y = node.add("Gemm", node[0], node[1], node.get(2), **{n: node.attrs[n] for n in names if n in node.attrs})
    return activated(node, y, node.attr("activation_alpha"), node.attr("activation_beta"))


def simplified_layer_normalization(node: Node) -> list[Tensor | None]:
    """SimplifiedLayerNormalization: RMSNormalization under another name; it stands in ONNX's own domain."""
    return [node.add("RMSNormalization", node[0], node[1], axis=node.attr("axis", -1), epsilon=epsilon(node, 1e-5))]


def epsilon(node: Node, default: float) -> float:
    """What keeps a variance away from zero."""
    return float(node.attr("epsilon", default))


def skip_layer_normalization(node: Node) -> list[Tensor | None]:
    """SkipLayerNormalization: the sum of input, skip and bias, normalised."""
    total = skipped(node, node.get(4))
    y = node.add("LayerNormalization", total, node[2], node.get(3), epsilon=epsilon(node, 1e-12))
    return [y, None, None, total]


def skip_simplified_layer_normalization(node: Node) -> list[Tensor | None]:
    """SkipSimplifiedLayerNormalization: the same with the root mean square alone."""
    total = skipped(node, node.get(3))
    return [node.add("RMSNormalization", total, node[2], epsilon=epsilon(node, 1e-12)), None, None, total]


def skipped(node: Node, bias: Tensor | None) -> Tensor:
    """The sum of input, skip and bias."""
    x, skip = node[0], node[1]
    if len(skip.shape) < len(x.shape) or tuple(skip.shape) == tuple(x.shape) or skip.shape[0] == 1:
        total = node.add("Add", x, skip)
    else:
        raise UnsupportedError(
            "the skip has another shape than the input", expected=str(tuple(x.shape)), got=str(tuple(skip.shape))
        )
    return total if bias is None else node.add("Add", total, bias)


def embed_layer_normalization(node: Node) -> list[Tensor | None]:
    """EmbedLayerNormalization: the sum of the embeddings of words, positions and segments, normalised."""
    ids = node[0]
    total = node.add("Gather", node[2], ids, axis=0)
    positions = node[8] if node.has(8) else att.places(node, ids, 1)
    total = node.add("Add", total, node.add("Gather", node[3], positions, axis=0))
    if node.has(1) and node.has(4):
        total = node.add("Add", total, node.add("Gather", node[4], node[1], axis=0))
    y = node.add("LayerNormalization", total, node[5], node[6], epsilon=epsilon(node, 1e-12))
    return [y, mask_index(node, ids), total]


def mask_index(node: Node, ids: Tensor) -> Tensor | None:
    """How many words of each sample count; without a mask ONNX Runtime gives zeros."""
    if len(node.outputs) < 2 or node.outputs[1] == "":
        return None
    if node.has(7):
        return node.add("ReduceSum", node.add("Cast", node[7], to="int32"), axes=[1], keepdims=0)
    zeros = node.add("Cast", node.add("Mul", ids, node.like(0, ids)), to="int32")
    return node.add("ReduceSum", zeros, axes=[1], keepdims=0)


def key_mask(node: Node, scores: att.Scores, mask: Tensor, q: Tensor, k: Tensor) -> None:
    """A mask of ONNX Runtime's attention: the number of keys that count, or which do, for each sample (and query)."""
    rank, batch = len(mask.shape), q.shape[0]
    if rank == 1 and mask.shape[0] == batch:
        seen = node.add("Less", att.places(node, k, 2), att.per_batch(node, mask))
    elif rank in (2, 3):
        axes = [1, 2] if rank == 2 else [1]
        seen = node.add("Unsqueeze", node.add("Greater", mask, node.like(0, mask)), axes=axes)
    else:
        raise UnsupportedError(
            "a mask of this shape is not supported",
            expected="[batch], [batch, keys] or [batch, queries, keys]",
            got=f"{list(mask.shape)} where the batch is {batch}",
        )
    scores.keep(seen, node.attr("mask_filter_value", -10000.0))


def finish(
    node: Node, q: Tensor, k: Tensor, v: Tensor, offset: Tensor | None, mask: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Attention as ONNX Runtime has it, given its masks, and how many keys come before the queries, if any."""
    scores = att.Scores(node, q)
    if mask is not None:
        key_mask(node, scores, mask, q, k)
    if bias is not None:
        scores.add(bias)
    if offset is None:
        scores.causal = bool(node.attr("unidirectional", 0))
    elif node.attr("unidirectional", 0):
        scores.keep(att.visible(node, q, k, offset, -1, 0))
    return att.heads_last(node, att.attend(node, q, k, v, node.attr("scale", 0.0), scores))


def attention(node: Node) -> list[Tensor | None]:
    """Attention: projections to queries, keys and values come first."""
    projected = node.add("MatMul", node[0], node[1])
    if node.has(2):
        projected = node.add("Add", projected, node[2])
    return attended(node, projected, node.get(3), node.get(4), node.get(5))


def quantized_attention(node: Node) -> list[Tensor | None]:
    """QAttention: the same with a quantized projection."""
    scales, zeros = [quantized.number(node, node[i]) for i in (3, 4)], [node.get(6), node.get(7)]
    zeros = [None if zero is None else quantized.number(node, zero) for zero in zeros]
    projected = contrib_quantized.scaled(node, [node[0], node[1]], zeros, scales, node[2])
    return attended(node, projected, node.get(5), node.get(8), None)


def attended(
    node: Node, projected: Tensor, mask: Tensor | None, past: Tensor | None, bias: Tensor | None
) -> list[Tensor | None]:
    """Attention of projections that lie behind one another, with what came before."""
    for name in ("do_rotary", "past_present_share_buffer"):
        node.refuse(name, 0)
    third = att.known(projected, 2, "the size of the projections") // 3
    sizes = node.attr("qkv_hidden_sizes") or [third] * 3
    parts = node.add_all("Split", [projected], axis=2, split=sizes)
    q, k, v = (att.heads_first(node, part, node.need("num_heads")) for part in parts)
    offset = None
    if past is not None:
        offset = att.extent(node, past, 3)
        before = [node.add("Gather", past, node.integers(i), axis=0) for i in (0, 1)]
        k, v = (node.add("Concat", old, new, axis=2) for old, new in zip(before, (k, v), strict=True))
    present = None
    if len(node.outputs) > 1 and node.outputs[1]:
        present = node.add("Concat", *(node.add("Unsqueeze", t, axes=[0]) for t in (k, v)), axis=0)
    return [finish(node, q, k, v, offset, mask, bias), present]


def multi_head_attention(node: Node) -> list[Tensor | None]:
    """MultiHeadAttention: queries, keys and values are given, with a bias for each."""
    if node.has(8) or node.has(9):
        raise UnsupportedError(
            "a cache that is shared between beams is not supported",
            expected="no past_sequence_length and no cache_indirection",
            got=", ".join(f"input {i}" for i in range(len(node)) if node.has(i)),
        )
    heads, given = node.need("num_heads"), unpacked(node)
    if node.has(3):
        sizes = [width(t) for t in given]
        parts = node.add_all("Split", [node[3]], axis=0, split=sizes)
        given = [biased(node, t, part) for t, part in zip(given, parts, strict=True)]
    q, k, v = (t if len(t.shape) == 4 else att.heads_first(node, t, heads) for t in given)
    offset = None
    if node.has(6):
        offset = att.extent(node, node[6], 2)
        k, v = (node.add("Concat", node[past], new, axis=2) for past, new in ((6, k), (7, v)))
    return [finish(node, q, k, v, offset, node.get(4), node.get(5)), k, v]


def unpacked(node: Node) -> list[Tensor]:
    """Queries, keys and values of MultiHeadAttention: [B, S, H, 3, D] holds all, [B, S, H, 2, D] keys and values."""
    if node.has(2):
        return [node[0], node[1], node[2]]
    packed = node[1] if node.has(1) else node[0]
    count = 2 if node.has(1) else 3
    if len(packed.shape) != 5 or packed.shape[3] != count:
        raise UnsupportedError(
            "packed queries, keys and values have another shape",
            expected=f"[batch, sequence, heads, {count}, size]",
            got=str(list(packed.shape)),
        )
    hidden = att.known(packed, 2, "the number of heads") * att.known(packed, 4, "the size of a head")
    parts = [node.add("Gather", packed, node.integers(i), axis=3) for i in range(count)]
    flat = [node.add("Reshape", part, node.integers([0, 0, hidden])) for part in parts]
    return [node[0], *flat] if node.has(1) else flat


def width(x: Tensor) -> int:
    """The hidden size of queries, keys or values."""
    if len(x.shape) == 4:
        return att.known(x, 1, "the number of heads") * att.known(x, 3, "the size of a head")
    return att.known(x, 2, "the hidden size")


def biased(node: Node, x: Tensor, bias: Tensor) -> Tensor:
    """The sum with a bias; keys and values that come in heads have theirs already."""
    return x if len(x.shape) == 4 else node.add("Add", x, bias)


def rotary_embedding(node: Node) -> Tensor:
    """RotaryEmbedding: positions come before the caches, and one position may be the first of all."""
    node.refuse("is_packed_batching", 0)
    node.refuse("scale", 1.0)
    x, positions = node[0], node[1]
    axis = 1 if len(x.shape) == 3 else 2
    if tuple(positions.shape) == (1,):
        positions = node.add("Add", node.add("Cast", positions, to="int64"), att.places(node, x, axis))
    cos, sin = (node.add("Gather", node[i], positions, axis=0) for i in (2, 3))
    wide, heads = node.attr("rotary_embedding_dim", 0), node.attr("num_heads", 0)
    if len(x.shape) == 3 and not heads:
        if wide:
            raise InvalidArgumentError("num_heads must be given with rotary_embedding_dim")
        heads = att.known(x, 2, "the hidden size") // (2 * att.known(cos, -1, "the width of the caches"))
    return att.rotated(node, x, cos, sin, heads, wide, bool(node.attr("interleaved", 0)))


def expand_dims(node: Node) -> Tensor:
    """ExpandDims."""
    return node.add("Unsqueeze", node[0], axes=node.ints(1))


RULES: dict[str, Rule] = {
    **contrib_cache.RULES,
    **contrib_channels_last.RULES,
    **contrib_experts.RULES,
    **contrib_language.RULES,
    **contrib_quantized.RULES,
    "Attention": attention,
    "BiasAdd": bias_add,
    "BiasGelu": gelu("none"),
    "BiasSplitGelu": bias_split_gelu,
    "EmbedLayerNormalization": embed_layer_normalization,
    "ExpandDims": expand_dims,
    "FastGelu": gelu("tanh"),
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "Gelu": gelu("none"),
    "MultiHeadAttention": multi_head_attention,
    "QAttention": quantized_attention,
    "QuickGelu": quick_gelu,
    "RotaryEmbedding": rotary_embedding,
    "SkipLayerNormalization": skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_simplified_layer_normalization,
    "TransposeMatMul": fused_matmul,
    "Trilu": Same(),
}
#: Ops that ONNX Runtime adds to ONNX's own domain.
OWN: dict[str, Rule] = {"SimplifiedLayerNormalization": simplified_layer_normalization}
