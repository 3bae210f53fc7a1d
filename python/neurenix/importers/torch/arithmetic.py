"""Arithmetic that torch's ONNX exporter writes otherwise than torch does it: of integers, signs of zeros, and what is
not to be read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional

import torch

aten = torch.ops.aten

Translation = Callable[..., Any]


def translations() -> dict[Any, Translation]:
    """What writes these operators in place of torch's own exporter."""
    own = {aten.atan2.default: _angle(), aten.div.Tensor_mode: _quotient(), aten.signbit.default: _sign_bit()}
    return own | _without_self()


def _quotient() -> Translation:
    """Integers are divided as such: the exporter would do it in float32, and not alike in all of its versions."""
    from onnxscript import ir
    from onnxscript import opset18 as op
    from onnxscript.function_libs.torch_lib.ops import core

    narrow = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
    wide = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT32, ir.DataType.UINT64)

    def whole(self: Any, other: Any, dtype: Any, floors: bool) -> Any:
        # ONNX's division of integers truncates.
        quotient = op.Div(self, other)
        if not floors:
            return quotient
        # onnxscript takes its own tensors as well as ONNX's.
        tensors: Any = [ir.tensor(number, dtype=dtype) for number in (0, 1)]
        zero, one = (op.Constant(value=tensor) for tensor in tensors)
        rest = op.Sub(self, op.Mul(quotient, other))
        apart = op.Xor(op.Less(rest, zero), op.Less(other, zero))
        return op.Where(op.And(op.Not(op.Equal(rest, zero)), apart), op.Sub(quotient, one), quotient)

    def divided(self: Any, other: Any, rounding_mode: Optional[str] = None) -> Any:  # noqa: UP045
        floors = rounding_mode == "floor"
        if rounding_mode is None or self.dtype not in (*narrow, *wide):
            return core.aten_div_mode(self, other, rounding_mode)
        if self.dtype in wide:
            return whole(self, other, self.dtype, floors)
        a, b = (op.Cast(operand, to=ir.DataType.INT32) for operand in (self, other))
        return op.Cast(whole(a, b, ir.DataType.INT32, floors), to=self.dtype)

    return divided


def _is_negative(given: Any, zero: Any) -> Any:
    """Of numbers below zero, and of the zero whose reciprocal is."""
    from onnxscript import opset18 as op

    return op.Or(op.Less(given, zero), op.Less(op.Reciprocal(given), zero))


def _sign_bit() -> Translation:
    """Zeros have a sign too; that of NaN is not told."""
    from onnxscript import ir
    from onnxscript import opset18 as op
    from onnxscript.function_libs.torch_lib.ops import core

    def sign_bit(self: Any) -> Any:
        if not self.dtype.is_floating_point():
            return core.aten_signbit(self)
        # onnxscript takes its own tensors as well as ONNX's.
        tensor: Any = ir.tensor(0.0, dtype=self.dtype)
        return _is_negative(self, op.Constant(value=tensor))

    return sign_bit


def _angle() -> Translation:
    """Of magnitudes, then mirrored by the signs, which zeros have too."""
    from onnxscript import ir
    from onnxscript import opset18 as op

    def angle(self: Any, other: Any) -> Any:
        def number(given: float) -> Any:
            # onnxscript takes its own tensors as well as ONNX's.
            tensor: Any = ir.tensor(given, dtype=self.dtype)
            return op.Constant(value=tensor)

        zero = number(0.0)

        y, x = op.Abs(self), op.Abs(other)
        # Two zeros, and two infinities, have no quotient.
        steep = op.Where(op.Equal(y, x), op.Where(op.Equal(y, zero), zero, number(math.pi / 4)), op.Atan(op.Div(y, x)))
        turned = op.Where(_is_negative(other, zero), op.Sub(number(math.pi), steep), steep)
        return op.Where(_is_negative(self, zero), op.Neg(turned), turned)

    return angle


def _without_self() -> dict[Any, Translation]:
    """Sums that leave out what beta=0 multiplies: torch does not read it, such as memory that nobody wrote."""
    from onnxscript import ir
    from onnxscript import opset18 as op
    from onnxscript.function_libs.torch_lib.ops import core

    def of(exporter: Any) -> Translation:
        def added(self: Any, first: Any, second: Any, beta: float = 1.0, alpha: float = 1.0) -> Any:
            if beta == 0:
                tensor: Any = ir.tensor(0, dtype=first.dtype)
                self, beta = op.Constant(value=tensor), 1.0
            return exporter(self, first, second, beta, alpha)

        return added

    return {
        aten.addbmm.default: of(core.aten_addbmm),
        aten.addmv.default: of(core.aten_addmv),
        aten.addr.default: of(core.aten_addr),
        aten.baddbmm.default: of(core.aten_baddbmm),
    }
