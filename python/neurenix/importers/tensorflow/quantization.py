"""Fake quantization as TensorFlow nudges its ranges: zero is one of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.importers.tensorflow.writer import Writer

Array = np.ndarray[Any, Any]
OPS = ("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
#: The bits of the integers that there are layers for.
BYTE = 8


def fake_quant(context: Any, node: Any, name: str, args: Any) -> None:
    """FakeQuantWithMinMaxArgs and its kin => QuantizeLinear, DequantizeLinear, which int8 kernels are found by.

    Halves are rounded to even ones there, and up in TensorFlow. Integers of other bits are steps of floats.
    Raises `ValueError` for ranges that are no constants, or nothing but zero.
    """
    make = Writer(context, node)
    low, high = _range(node)
    bits, least = int(node.get_attr_value("num_bits", BYTE)), int(bool(node.get_attr_value("narrow_range", False)))
    scale, zero = _nudged(low, high, least, 2**bits - 1)
    if bits != BYTE:
        _stepped(make, node.input[0], scale, (least - zero) * scale, (2**bits - 1 - zero) * scale)
        return
    x = node.input[0]
    if least:
        x = make.add("Max", x, make.const((least - zero) * scale, make.numpy))
    given = [make.const(scale, make.numpy), make.const(zero, np.uint8)]
    axis = {"axis": context.get_rank(node.input[0]) - 1} if scale.ndim else {}
    make.replace("DequantizeLinear", [make.add("QuantizeLinear", x, *given, **axis), *given], **axis)


def _range(node: Any) -> tuple[Array, Array]:
    if node.type == OPS[0]:
        values = [node.get_attr_value("min", -6.0), node.get_attr_value("max", 6.0)]
    elif not all(given.is_const() for given in node.inputs[1:3]):
        raise ValueError("the range of a fake quantization must be constant")
    else:
        values = [given.get_tensor_value(as_list=False) for given in node.inputs[1:3]]
    low, high = (np.asarray(value, "float32") for value in values)
    if (low >= high).any():
        raise ValueError("the range of a fake quantization is empty")
    return low, high


def _nudged(low: Array, high: Array, least: int, most: int) -> tuple[Array, Array]:
    """The size of a step and the integer for zero, by TensorFlow's arithmetic in float32."""
    scale = np.asarray((high - low) / np.float32(most - least), "float32")
    place = np.asarray(np.float32(least) - low / scale, "float32")
    # Halves are rounded away from zero.
    zero: Array = np.clip(np.trunc(place + np.copysign(np.float32(0.5), place)), least, most)
    return scale, zero.astype("float32")


def _stepped(make: Writer, x: str, scale: Array, low: Array, high: Array) -> None:
    kind = make.numpy
    inside = make.add("Max", make.add("Min", x, make.const(high, kind)), make.const(low, kind))
    from_zero = make.add("Div", inside, make.const(scale, kind))
    steps = make.add("Floor", make.add("Add", from_zero, make.const(0.5, kind)))
    make.replace("Mul", [steps, make.const(scale, kind)])
