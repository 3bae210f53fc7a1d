"""Quantized tensors: integers with a scale and a zero point."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx.node import Node, Rule

#: The attributes of convolutions.
WINDOW = ("auto_pad", "dilations", "group", "pads", "strides")
#: The dtype of scales that are powers of two.
POWERS = np.dtype(ml_dtypes.float8_e8m0fnu)


def number(node: Node, parameter: Tensor) -> Tensor:
    """A scale or zero point of one element as a tensor of rank 0; others as they are."""
    return node.add("Squeeze", parameter, axes=[0]) if parameter.shape == (1,) else parameter


def _from_front(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise InvalidArgumentError(
            "the axis of a scale is out of range", expected=f"{-rank} to {rank - 1}", got=str(axis)
        )
    return axis % rank


def per_axis(node: Node, parameter: Tensor, rank: int, axis: int) -> Tensor:
    """A scale or zero point that is one number, or has one for each place along an axis, shaped to be broadcast."""
    parameter = number(node, parameter)
    if len(parameter.shape) != 1:
        return parameter
    behind = rank - _from_front(axis, rank) - 1
    return node.add("Unsqueeze", parameter, axes=list(range(1, 1 + behind))) if behind else parameter


def per_block(node: Node, parameter: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point with a number for each block of places along an axis, with each repeated."""
    rank = len(x.shape)
    axis = _from_front(axis, rank)
    extent = x.shape[axis]
    if len(parameter.shape) != rank or block < 1:
        raise UnsupportedError(
            "the shape of the scale does not fit",
            expected=f"one number, one for each place along axis {axis}, or one for each block and a block_size",
            got=f"{tuple(parameter.shape)} with block_size {block}",
        )
    if not isinstance(extent, int) or parameter.shape[axis] != -(-extent // block):
        raise UnsupportedError(
            "a scale for each block needs to know the extent of its axis",
            expected=f"{parameter.shape[axis]} blocks of {block}",
            got=f"{extent} at axis {axis}",
            hint="fix that dimension of the input",
        )
    return node.add("Gather", parameter, node.integers(np.arange(extent) // block), axis=axis)


def granular(node: Node, parameter: Tensor | None, x: Tensor) -> Tensor | None:
    """A scale or zero point of QuantizeLinear and DequantizeLinear, shaped to be broadcast to their input."""
    if parameter is None:
        return None
    axis, block = node.attr("axis", 1), node.attr("block_size", 0)
    if len(parameter.shape) > 1 or (block > 0 and len(parameter.shape) == len(x.shape) == 1):
        return per_block(node, parameter, x, axis, block)
    return per_axis(node, parameter, len(x.shape), axis)


def dtype_at(node: Node, name: str) -> Any:
    """The dtype that an attribute says, None where it says none."""
    from neurenix.importers.onnx.graph import dtype_of

    given = node.attr(name, 0)
    return dtype_of(given) if given else None


def quantize_linear(node: Node) -> Tensor:
    """QuantizeLinear: the zero point, or else `output_dtype`, says the dtype."""
    x, scale, zero = node[0], node[1], node.get(2)
    wanted, precision = dtype_at(node, "output_dtype"), dtype_at(node, "precision")
    if zero is not None and wanted is not None and zero.dtype != wanted:
        raise InvalidArgumentError(
            "output_dtype is not that of the zero point", expected=str(zero.dtype), got=str(wanted)
        )
    if precision is not None:
        x = node.add("Cast", x, to=precision)
    elif scale.dtype == POWERS:
        precision = np.dtype(np.float32) if x.dtype == np.int32 else x.dtype
    if precision is not None:
        scale = node.add("Cast", scale, to=precision)
    to = np.dtype(zero.dtype if zero is not None else wanted or np.uint8)
    shaped, saturate = (granular(node, scale, x), granular(node, zero, x)), node.attr("saturate", 1)
    return node.add("QuantizeLinear", x, *shaped, to=to, saturate=saturate)


def dequantize_linear(node: Node) -> Tensor:
    """DequantizeLinear; constants of narrow dtypes are widened here, so that they fold with what follows."""
    constant = node.array(0) is not None and (not node.has(2) or node.array(2) is not None)
    x, zero = (widened(node, i) if constant else node.get(i) for i in (0, 2))
    scale, to = node[1], dtype_at(node, "output_dtype")
    assert x is not None
    if to is not None:
        scale = node.add("Cast", scale, to=to)
    elif scale.dtype == POWERS:
        raise InvalidArgumentError(
            "the output can't have the dtype of the scale", got=str(POWERS), hint="say output_dtype"
        )
    shaped = granular(node, scale, x), granular(node, zero, x)
    if x.dtype != np.float32:
        return node.add("DequantizeLinear", x, *shaped)
    # Numbers of 8 bits or fewer are exact in float32; what they are multiplied by says the dtype.
    numbers = x if shaped[1] is None else node.add("Sub", x, shaped[1])
    return node.add("Mul", node.add("Cast", numbers, to=scale.dtype), shaped[0])


def widened(node: Node, index: int) -> Tensor | None:
    """An input; a constant of fewer than 8 bits as int8 or uint8, one of 8-bit floats as float32."""
    array = node.array(index)
    name = "" if array is None else array.dtype.name
    if array is None or not name.startswith(("int2", "int4", "uint2", "uint4", "float4", "float8")):
        return node.get(index)
    to = "float32" if name.startswith("float") else name.rstrip("24") + "8"
    return node.constant(array.astype(to))


def dynamic_quantize_linear(node: Node) -> list[Tensor]:
    """DynamicQuantizeLinear."""
    return dynamically(node, node[0])


def dynamically(node: Node, x: Tensor) -> list[Tensor]:
    """A tensor as uint8 by the range of its elements, with scale and zero point."""
    return node.add_all("DynamicQuantizeLinear", [x])


def per_row(node: Node, parameter: Tensor | None) -> Tensor | None:
    """A scale or zero point of the left side of a matrix product: one number, or one for each row."""
    if parameter is None or len(parameter.shape) != 1:
        return parameter
    return per_axis(node, parameter, 2, 0)


def per_column(node: Node, parameter: Tensor | None) -> Tensor | None:
    """A scale or zero point of the right side of a matrix product: one number, or one for each column."""
    return None if parameter is None else number(node, parameter)


def matmul_integer(node: Node) -> Tensor:
    """MatMulInteger."""
    return node.add("MatMulInteger", node[0], node[1], per_row(node, node.get(2)), per_column(node, node.get(3)))


def convolved(node: Node, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None) -> Tensor:
    """ConvInteger with the attributes of the node."""
    zeros = [
        None if x_zero is None else number(node, x_zero),
        None if w_zero is None else per_axis(node, w_zero, len(w.shape), 0),
    ]
    return node.add("ConvInteger", x, w, *zeros, **{n: node.attrs[n] for n in WINDOW if n in node.attrs})


def conv_integer(node: Node) -> Tensor:
    """ConvInteger."""
    return convolved(node, node[0], node[1], node.get(2), node.get(3))


def single(node: Node, x: Tensor) -> Tensor:
    """A tensor as float32."""
    return x if x.dtype == np.float32 else node.add("Cast", x, to="float32")


def requantized(node: Node, total: Tensor, scales: list[Tensor], y_scale: Tensor, y_zero: Tensor) -> Tensor:
    """The sums of a quantized product as quantized numbers."""
    scale = node.add("Mul", *(single(node, s) for s in scales))
    scale = node.add("Div", scale, single(node, y_scale))
    y = node.add("Mul", single(node, total), scale)
    return node.add("QuantizeLinear", y, node.like(1.0, y), y_zero, to=np.dtype(y_zero.dtype))


def qlinear_matmul(node: Node) -> Tensor:
    """QLinearMatMul: a product between Dequantize and Quantize layers."""
    a_scale, a_zero, y_scale, y_zero = (per_row(node, node[i]) for i in (1, 2, 6, 7))
    b_scale, b_zero = (per_column(node, node[i]) for i in (4, 5))
    assert a_scale is not None and b_scale is not None and y_scale is not None and y_zero is not None
    a = node.add("DequantizeLinear", node[0], single(node, a_scale), a_zero)
    b = node.add("DequantizeLinear", node[3], single(node, b_scale), b_zero)
    y = node.add("MatMul", a, b)
    return node.add("QuantizeLinear", y, single(node, y_scale), y_zero, to=np.dtype(y_zero.dtype))


def qlinear_conv(node: Node) -> Tensor:
    """QLinearConv: a convolution between Dequantize and Quantize layers; the scale of the bias is that of the
    products."""
    rank = len(node[0].shape)
    x_scale, w_scale, y_scale = (single(node, number(node, node[i])) for i in (1, 4, 6))
    x = node.add("DequantizeLinear", node[0], x_scale, number(node, node[2]))
    stored = per_axis(node, w_scale, rank, 0), per_axis(node, node[5], rank, 0)
    w = node.add("DequantizeLinear", node[3], *stored)
    bias = None
    if node.has(8):
        bias = node.add("DequantizeLinear", node[8], node.add("Mul", x_scale, w_scale))
    y = node.add("Conv", x, w, bias, **{n: node.attrs[n] for n in WINDOW if n in node.attrs})
    zero = number(node, node[7])
    return node.add("QuantizeLinear", y, y_scale, zero, to=np.dtype(zero.dtype))


RULES: dict[str, Rule] = {
    "ConvInteger": conv_integer,
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "MatMulInteger": matmul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize_linear,
}
