"""Attention with a mask, as torch computes it: torch's ONNX exporter hides keys with the least finite number.

A query to which a mask shows no key then gets the mean of all values, or NaN where the mask has numbers to add; torch
gives zeros. Rows of padding are such queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional

import torch


def translations() -> dict[Any, Callable[..., Any]]:
    """What writes operators in place of torch's own exporter."""
    from onnxscript import ir
    from onnxscript import opset18 as op
    from onnxscript.function_libs.torch_lib.ops.nn import aten_scaled_dot_product_attention as of_exporter

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Optional[float] = None,  # noqa: UP045
        enable_gqa: bool = False,
    ) -> Any:
        if attn_mask is None or any(len(one.shape) != 4 for one in (query, key, value)):
            return of_exporter(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

        def number(given: float) -> Any:
            # onnxscript takes its own tensors as well as ONNX's.
            tensor: Any = ir.tensor(given, dtype=query.dtype)
            return op.Constant(value=tensor)

        def whole(given: list[int]) -> Any:
            return op.Constant(value_ints=given)

        def repeated(given: Any) -> Any:
            # Each head of keys and values is that of several of the queries.
            heads, own = query.shape[1], given.shape[1]
            wide = op.Expand(op.Unsqueeze(given, whole([2])), whole([1, 1, heads // own, 1, 1]))
            return op.Reshape(wide, op.Concat(whole([0, heads]), op.Shape(given, start=2), axis=0))

        if enable_gqa and key.shape[1] != query.shape[1]:
            key, value = repeated(key), repeated(value)
        zero, hidden = number(0.0), number(-math.inf)
        if attn_mask.dtype == ir.DataType.BOOL:
            attn_mask = op.Where(attn_mask, zero, hidden)
        if scale is None:
            size = op.CastLike(op.Shape(query, start=3), query)
            root = sign = op.Sqrt(op.Div(number(1.0), op.Sqrt(size)))
        else:
            root = number(math.sqrt(abs(scale)))
            sign = number(math.copysign(math.sqrt(abs(scale)), scale))
        scores = op.MatMul(op.Mul(query, sign), op.Mul(op.Transpose(key, perm=[0, 1, 3, 2]), root))
        weights = op.Softmax(op.Add(scores, attn_mask), axis=-1)
        blind = op.Equal(op.ReduceMax(attn_mask, whole([-1]), keepdims=1), hidden)
        return op.MatMul(op.Where(blind, zero, weights), value)

    return {torch.ops.aten.scaled_dot_product_attention.default: attention}
