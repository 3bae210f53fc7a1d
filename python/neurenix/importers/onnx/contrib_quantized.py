"""ONNX Runtime's own quantized ops: between dequantized numbers and quantized ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx import quantized
from neurenix.importers.onnx.node import Array, Node, Rule


def read(node: Node, index: int) -> Tensor:
    """A quantized input, followed by its scale and zero point, as numbers."""
    scale, zero = quantized.number(node, node[index + 1]), node.get(index + 2)
    zero = None if zero is None else quantized.number(node, zero)
    return node.add("DequantizeLinear", node[index], scale, zero)


def write(node: Node, y: Tensor, index: int, dtype: Any) -> Tensor:
    """Numbers quantized by the scale and the zero point of an output, or to a dtype."""
    scale, zero = quantized.number(node, node[index]), node.get(index + 1)
    zero = None if zero is None else quantized.number(node, zero)
    to = dtype if zero is None else zero.dtype
    return node.add("QuantizeLinear", y, scale, zero, to=np.dtype(to))


def binary(op: str) -> Rule:
    """An op on two quantized tensors."""

    def rule(node: Node) -> Tensor:
        return write(node, node.add(op, read(node, 0), read(node, 3)), 6, node[0].dtype)

    return rule


def sigmoid(node: Node) -> Tensor:
    """QLinearSigmoid."""
    return write(node, node.add("Sigmoid", read(node, 0)), 3, node[0].dtype)


def leaky_relu(node: Node) -> Tensor:
    """QLinearLeakyRelu."""
    return write(node, node.add("LeakyRelu", read(node, 0), alpha=node.attr("alpha", 0.01)), 3, node[0].dtype)


def softmax(node: Node) -> Tensor:
    """QLinearSoftmax: `opset` says which Softmax is meant."""
    x, axis, rank = read(node, 0), node.attr("axis", -1), len(node[0].shape)
    if node.attr("opset", 13) < 13 and axis not in (-1, rank - 1):
        raise UnsupportedError("a Softmax of an opset before 13 over more than the last axis is not supported")
    return write(node, node.add("Softmax", x, axis=axis), 3, node[0].dtype)


def global_average_pool(node: Node) -> Tensor:
    """QLinearGlobalAveragePool."""
    x, rank = read(node, 0), len(node[0].shape)
    axes = list(range(1, rank - 1)) if node.attr("channels_last", 0) else list(range(2, rank))
    return write(node, node.add("ReduceMean", x, axes=axes, keepdims=1), 3, node[0].dtype)


def average_pool(node: Node) -> Tensor:
    """QLinearAveragePool."""
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    attrs = {n: node.attrs[n] for n in names if n in node.attrs}
    x, rank = read(node, 0), len(node[0].shape)
    last = node.attr("channels_last", 0)
    if last:
        x = node.add("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    y = node.add("AveragePool", x, **attrs)
    if last:
        y = node.add("Transpose", y, perm=[0, *range(2, rank), 1])
    return write(node, y, 3, node[0].dtype)


def concat(node: Node) -> Tensor:
    """QLinearConcat: scale and zero point of the output come first, then the inputs with theirs."""
    parts = [read(node, i) for i in range(2, len(node), 3)]
    return write(node, node.add("Concat", *parts, axis=node.need("axis")), 0, node[2].dtype)


def where(node: Node) -> Tensor:
    """QLinearWhere."""
    return write(node, node.add("Where", node[0], read(node, 1), read(node, 4)), 7, node[1].dtype)


def matmul_to_float(node: Node) -> Tensor:
    """MatMulIntegerToFloat: the sums as numbers, with a bias."""
    a_scale, a_zero = (quantized.per_row(node, node.get(i)) for i in (2, 4))
    b_scale, b_zero = (quantized.per_column(node, node.get(i)) for i in (3, 5))
    assert a_scale is not None and b_scale is not None
    return scaled(node, [node[0], node[1]], [a_zero, b_zero], [a_scale, b_scale], node.get(6))


def dynamic_matmul(node: Node) -> Tensor:
    """DynamicQuantizeMatMul: the left side is quantized by its range first."""
    a, a_scale, a_zero = quantized.dynamically(node, node[0])
    b_scale, b_zero = (quantized.per_column(node, node.get(i)) for i in (2, 3))
    assert b_scale is not None
    return scaled(node, [a, node[1]], [a_zero, b_zero], [a_scale, b_scale], node.get(4))


def scaled(
    node: Node, sides: list[Tensor], zeros: list[Tensor | None], scales: list[Tensor], bias: Tensor | None
) -> Tensor:
    """The product of two quantized matrices as numbers."""
    total = node.add("MatMulInteger", *sides, *zeros)
    scale = node.add("Mul", *scales)
    y = node.add("Mul", node.add("Cast", total, to=scale.dtype), scale)
    return y if bias is None else node.add("Add", y, bias)


def gemm(node: Node) -> Tensor:
    """QGemm: the bias is one of the sums; without a scale for the output, they come as numbers."""
    flags = [node.attr("transA", 0), node.attr("transB", 0)]
    a, b = (node.add("Transpose", t, perm=[1, 0]) if f else t for t, f in zip((node[0], node[3]), flags, strict=True))
    a_scale, a_zero = (quantized.per_row(node, node[i]) for i in (1, 2))
    b_scale, b_zero = (quantized.per_column(node, node[i]) for i in (4, 5))
    assert a_scale is not None and b_scale is not None
    total = node.add("MatMulInteger", a, b, a_zero, b_zero)
    if node.has(6):
        total = node.add("Add", total, node[6])
    scale = node.add("Mul", a_scale, b_scale)
    alpha = node.attr("alpha", 1.0)
    if alpha != 1.0:
        scale = node.add("Mul", scale, node.like(alpha, scale))
    if not node.has(7):
        return node.add("Mul", node.add("Cast", total, to=scale.dtype), scale)
    y_zero = quantized.number(node, node[8]) if node.has(8) else node.constant(0, node[0].dtype)
    return quantized.requantized(node, total, [scale, node.like(1.0, scale)], quantized.number(node, node[7]), y_zero)


def reduce_mean(node: Node) -> Tensor:
    """QLinearReduceMean."""
    axes = node.attr("axes", list(range(len(node[0].shape))))
    return write(
        node, node.add("ReduceMean", read(node, 0), axes=axes, keepdims=node.attr("keepdims", 1)), 3, node[0].dtype
    )


def matmul_n_bits(node: Node) -> Tensor:
    """MatMulNBits: the weights, some bits each, stay as they are."""
    bits = node.attr("bits", 4)
    node.refuse("weight_prepacked", 0)
    held = [i for i in (1, 2, 3) if node.has(i)]
    if bits not in (2, 4, 8) or any(node.array(i) is None for i in held) or node.has(4):
        raise UnsupportedError(
            "MatMulNBits is not supported in this form",
            expected="2, 4 or 8 bits, constant weights, scales and zero points, no g_idx",
            got=f"{bits} bits",
        )
    sizes = {name: node.need(name) for name in ("K", "N", "block_size")}
    level = node.attr("accuracy_level", 0)
    y = node.add("MatMulNBits", node[0], node[1], node[2], node.get(3), bits=bits, accuracy_level=level, **sizes)
    return node.add("Add", y, node[5]) if node.has(5) else y


def dynamic_lstm(node: Node) -> list[Tensor]:
    """DynamicQuantizeLSTM: what an LSTM has too stands in front of the scales, and the zero points may be left out."""
    parameters = []
    for weights, scale, zero in ((1, 8, 9), (2, 10, 11)):
        held = node.get(zero)
        if held is None:
            shape = node[scale].shape
            held = node.constant(np.zeros([int(d) for d in shape], node[weights].dtype))
        parameters += [node[scale], held]
    attrs = dict(node.attrs)
    if "activations" in attrs:
        attrs["activations"] = ",".join(attrs["activations"])
    rest = [node.get(i) for i in range(3, 8)]
    inputs = [node[0], node[1], node[2], *parameters, *rest]
    return list(node.add_all("DynamicQuantizeLSTM", inputs, **attrs))[: len(node.outputs)]


def unpacked(packed: Array, bits: int) -> Array:
    """Integers of some bits each that lie in bytes, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    digits: Array = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return digits.reshape(*packed.shape[:-1], -1)


RULES: dict[str, Rule] = {
    "DequantizeLinear": quantized.dequantize_linear,
    "DynamicQuantizeLSTM": dynamic_lstm,
    "DynamicQuantizeMatMul": dynamic_matmul,
    "MatMulIntegerToFloat": matmul_to_float,
    "MatMulNBits": matmul_n_bits,
    "QGemm": gemm,
    "QLinearAdd": binary("Add"),
    "QLinearAveragePool": average_pool,
    "QLinearConcat": concat,
    "QLinearGlobalAveragePool": global_average_pool,
    "QLinearLeakyRelu": leaky_relu,
    "QLinearMul": binary("Mul"),
    "QLinearReduceMean": reduce_mean,
    "QLinearSigmoid": sigmoid,
    "QLinearSoftmax": softmax,
    "QLinearWhere": where,
    "QuantizeLinear": quantized.quantize_linear,
}
