"""ONNX Runtime's smaller ops of language models: gates, norms by head, positions in three directions, packed tables."""

from __future__ import annotations

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx import attention as att
from neurenix.importers.onnx import quantized
from neurenix.importers.onnx.contrib_quantized import unpacked
from neurenix.importers.onnx.node import Array, Node, Rule
from neurenix.importers.onnx.same import ANY, Same

#: What 4 bits stand for in MatMulBnb4: a float of 4 bits, and quantiles of the normal distribution.
FP4 = [0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4]
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip
CODES = {0: [*FP4, *(-value for value in FP4)], 1: NF4}


def gather_block_quantized(node: Node) -> Tensor:
    """GatherBlockQuantized: the rows are chosen first, and become numbers then, so that the table stays as it is."""
    data, scales, zeros, indices = node[0], node[2], node.get(3), node[1]
    rank, bits = len(data.shape), node.attr("bits", 4)
    along, blocks = node.attr("gather_axis", 0) % rank, node.attr("quantize_axis", 1) % rank
    if data.dtype == np.uint8 and (bits not in (2, 4, 8) or (bits < 8 and along == rank - 1)):
        raise UnsupportedError(
            "packed rows are not supported in this form",
            expected="2, 4 or 8 bits, and another gather_axis than the last",
            got=f"{bits} bits, gather_axis {along}",
        )
    if data.dtype != np.uint8:
        bits = 8
    extent = att.known(data, blocks, "the extent along quantize_axis") * (8 // bits if blocks == rank - 1 else 1)
    block = node.attr("block_size", 128) or extent
    if along == blocks:
        # An index chooses a place within a block: each place gets its own scale and zero point.
        given = [quantized.per_block(node, one, data, blocks, block) for one in (scales, zeros) if one is not None]
        scales, zeros = given[0], given[1] if zeros is not None else None
    x = _bits(node, node.add("Gather", data, indices, axis=along), bits)
    axis = blocks if blocks <= along else blocks + len(indices.shape) - 1
    y = node.add("Cast", x, to=scales.dtype)
    parameters = [(scales, _chosen(node, scales, data, along))]
    if zeros is not None:
        parameters.append((zeros, _bits(node, _chosen(node, zeros, data, along), bits)))
    wide = []
    for whole, parameter in parameters:
        if along != blocks:
            parameter = _first(node, parameter, axis, att.known(scales, blocks, "the number of blocks"))
            parameter = quantized.per_block(node, parameter, x, axis, block)
        wide.append(parameter if whole is scales else node.add("Cast", parameter, to=scales.dtype))
    if zeros is not None:
        y = node.add("Sub", y, wide[1])
    elif data.dtype == np.uint8:
        y = node.add("Sub", y, node.like(1 << (bits - 1), y))
    return node.add("Mul", y, wide[0])


def _chosen(node: Node, parameter: Tensor, data: Tensor, along: int) -> Tensor:
    """The scales or zero points of the rows that are chosen, or the ones that all rows share."""
    if parameter.shape[along] == data.shape[along]:
        return node.add("Gather", parameter, node[1], axis=along)
    ones = [1] * len(node[1].shape)
    behind = [att.known(parameter, axis, "the shape of the scales") for axis in range(len(parameter.shape))]
    return node.add("Reshape", parameter, node.integers([*behind[:along], *ones, *behind[along + 1 :]]))


def _bits(node: Node, x: Tensor, bits: int) -> Tensor:
    """Bytes along the last axis as the integers of some bits each that share them, the first in the lowest bits."""
    if bits == 8:
        return x
    mask, last = node.constant((1 << bits) - 1, np.uint8), len(x.shape)
    shifted = [
        node.add("BitShift", x, node.constant(at, np.uint8), direction="RIGHT") if at else x for at in range(0, 8, bits)
    ]
    parts = [node.add("Unsqueeze", node.add("BitwiseAnd", part, mask), axes=[last]) for part in shifted]
    pairs = node.add("Concat", *parts, axis=last)
    width = att.known(x, -1, "the width of packed rows") * len(parts)
    return node.add("Reshape", pairs, node.integers([*[0] * (last - 1), width]))


def _first(node: Node, x: Tensor, axis: int, count: int) -> Tensor:
    """So many places along an axis: what is behind them fills a byte up."""
    if x.shape[axis] == count:
        return x
    return node.add("Slice", x, node.integers([0]), node.integers([count]), node.integers([axis]))


def matmul_bnb4(node: Node) -> Tensor:
    """MatMulBnb4: the weights, indices of 4 bits into a table and scales of blocks, are written out as numbers."""
    packed, scales = node.array(1), node.array(2)
    kind = node.need("quant_type")
    if packed is None or scales is None or kind not in CODES:
        raise UnsupportedError(
            "MatMulBnb4 is not supported in this form",
            expected="constant weights and scales, quant_type 0 or 1",
            got=f"quant_type {kind}",
        )
    rows, columns, block = node.need("N"), node.need("K"), node.need("block_size")
    # The first of two stands in the upper bits.
    pairs = unpacked(packed.reshape(-1, 1), 4)[:, ::-1].reshape(-1)[: rows * columns]
    each = np.repeat(scales.reshape(-1).astype(np.float32), block)[: rows * columns]
    weights = (np.asarray(CODES[kind], np.float32)[pairs] * each).reshape(rows, columns)
    return node.add("MatMul", node[0], node.constant(weights, node[0].dtype), transB=node.attr("transB", 1))


def multimodal_rotary_embedding(node: Node) -> Tensor:
    """MRotaryEmbedding: each pair is turned by one of three positions (time, height, width), as its place says."""
    node.refuse("is_packed_batching", 0)
    node.refuse("scale", 1.0)
    x, half = node[0], att.known(node[2], 1, "the width of the tables")
    which = _directions(node, half)
    cos, sin = (_by_direction(node, node.add("Gather", node[index], node[1], axis=0), which) for index in (2, 3))
    wide, heads = node.attr("rotary_embedding_dim", 0), node.attr("num_heads", 0)
    if len(x.shape) == 3 and not heads:
        raise InvalidArgumentError("num_heads must be given for an input of three dimensions")
    return att.rotated(node, x, cos, sin, heads, wide, bool(node.attr("interleaved", 0)))


def _directions(node: Node, half: int) -> Array:
    """Which position turns each pair."""
    sections = node.need("mrope_section")
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != half:
        raise InvalidArgumentError(
            "the sections of the positions do not fill the tables",
            expected=f"three of {half} in all",
            got=str(sections),
        )
    if not node.attr("mrope_layout", 0):
        return np.repeat(np.arange(3), sections)
    which = np.zeros(half, np.int64)
    for direction in (1, 2):
        which[direction : 3 * sections[direction] : 3] = direction
    return which


def _by_direction(node: Node, turns: Tensor, which: Array) -> Tensor:
    """[3, batch, sequence, half] as [batch, sequence, half]."""
    parts = [node.add("Gather", turns, node.integers(direction), axis=0) for direction in range(3)]
    for direction in (1, 2):
        parts[0] = node.add("Where", node.constant(which == direction), parts[direction], parts[0])
    return parts[0]


def gated_rms_norm(node: Node) -> Tensor:
    """GatedRMSNorm: groups of elements by their root mean square, times a gate."""
    x, scale, kind = node[0], node[1], node.attr("activation", "silu")
    if kind not in ("silu", "swish", "sigmoid"):
        raise UnsupportedError("the activation of the gate is not supported", expected="silu or sigmoid", got=kind)
    groups = node.add("Reshape", x, node.integers([*[0] * (len(x.shape) - 1), -1, att.known(scale, 0, "the scale")]))
    y = node.add("RMSNormalization", groups, scale, axis=-1, epsilon=float(node.attr("epsilon", 1e-5)))
    gate = node.add("Sigmoid" if kind == "sigmoid" else "Silu", node[2])
    return node.add("Mul", node.add("Reshape", y, node.add("Shape", x)), gate)


def branchwise_rms_norm(node: Node) -> Tensor:
    """BranchwiseRMSNorm: each branch by its own root mean square."""
    x, count = node[0], node.attr("num_branches", 0)
    width = att.known(x, -1, "the last extent") // (count or 1)
    branches = x
    if count:
        branches = node.add("Reshape", x, node.integers([*[0] * (len(x.shape) - 1), count, width]))
    ones = node.constant(np.ones(width), x.dtype)
    y = node.add("RMSNormalization", branches, ones, axis=-1, epsilon=float(node.attr("epsilon", 1e-5)))
    if node.has(1):
        scale = node.add("Cast", node[1], to=x.dtype)
        flat = len(scale.shape) == 1 and scale.shape[0] != width
        y = node.add("Mul", y, node.add("Reshape", scale, node.integers([-1, width])) if flat else scale)
    return node.add("Reshape", y, node.add("Shape", x)) if count else y


def gated_add(node: Node) -> Tensor:
    """GatedAdd: the second input, times a number for each row, on top of the first."""
    if node.has(3):
        raise UnsupportedError("a gate that is projected is not supported", expected="no gate_weight")
    return node.add("Add", node[0], node.add("Mul", node[1], node[2]))


def scaled_silu(node: Node) -> Tensor:
    """ScaledSiLU: Silu of the input times a number."""
    x, alpha = node[0], node.attr("alpha", 1.0)
    if node.has(1):
        return node.add("Silu", node.add("Mul", x, node[1]))
    return node.add("Silu", x if alpha == 1.0 else node.add("Mul", x, node.like(alpha, x)))


def linear_attention_gate(node: Node) -> list[Tensor | None]:
    """LinearAttentionGate: decay and rate of updates from their projections."""
    a, dtype = node[0], node[1].dtype
    decay = node.add("Softplus", node.add("Add", node.add("Cast", a, to=dtype), node[1]))
    decay = node.add("Cast", node.add("Mul", decay, node[2]), to=a.dtype)
    return [decay, node.add("Sigmoid", node[3]) if node.has(3) else None]


def causal_conv(node: Node) -> list[Tensor]:
    """CausalConvWithState, in the form that ONNX has."""
    plain = {"dilation": 1, "ndim": 1, "channels_last": 0, "state_window": 0, "state_update_capacity": 0,
             "state_channels_last": -1, "state_length": 0, "input_channel_offset": 0, "input_channels": 0}  # fmt: skip
    for name, value in plain.items():
        node.refuse(name, value)
    return att.causal_conv_with_state(node)


def gemm_fast_gelu(node: Node) -> Tensor:
    """GemmFastGelu: a product, a bias, Gelu by tanh."""
    y = node.add("MatMul", node[0], node[1])
    return node.add("Gelu", node.add("Add", y, node[2]) if node.has(2) else y, approximate="tanh")


RULES: dict[str, Rule] = {
    "BranchwiseRMSNorm": branchwise_rms_norm,
    "CausalConvWithState": causal_conv,
    "GatedAdd": gated_add,
    "GatedRMSNorm": gated_rms_norm,
    "GatherBlockQuantized": gather_block_quantized,
    "GemmFastGelu": gemm_fast_gelu,
    "LinearAttention": Same(ignore={"chunk_size": ANY, "state_window": 0}),
    "LinearAttentionGate": linear_attention_gate,
    "MRotaryEmbedding": multimodal_rotary_embedding,
    "MatMulBnb4": matmul_bnb4,
    "ScaledSiLU": scaled_silu,
}
