"""Matrix products and tables of rows."""

from __future__ import annotations

import math
from typing import Any

from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.log import LOG
from neurenix.nn.functional.common import traced
from neurenix.nn.traced import Traced

#: The layers that said that they flatten.
warned: set[str] = set()


def linear(x: Traced, weight: Any, bias: Any = None) -> Traced:
    """x @ weight.T + bias; trailing dimensions of x are flattened when only that fits, which the log says once."""
    weight, bias = traced(weight, bias)
    features = weight.shape[1]
    if x.ndim > 2 and x.shape[-1] != features:
        x = _fitted(x, int(features))
    if x.ndim == 2:
        return x.trace.add("Gemm", x, weight, bias, transB=1)
    product = x.trace.add("MatMul", x, weight, transB=1)
    return product if bias is None else product + bias


def _fitted(x: Traced, features: int) -> Traced:
    for first in range(x.ndim - 1, 0, -1):
        tail = x.shape[first:]
        sizes = [d for d in tail if isinstance(d, int)]
        if len(sizes) == len(tail) and math.prod(sizes) == features:
            layer = x.trace.path[-1]
            if layer not in warned:
                warned.add(layer)
                LOG.info("Linear %r: its input %s is flattened to %d features", layer, list(x.shape), features)
            return x.flatten(first)
    raise ShapeError(
        "the input of a Linear does not have its features",
        layer=x.trace.path[-1] or None,
        tensor=x.tensor.name,
        expected=f"{features} features in the last dimension, or in the last ones together",
        got=str(list(x.shape)),
    )


def bilinear(input1: Traced, input2: Traced, weight: Any, bias: Any = None) -> Traced:
    """input1 @ weight[o] @ input2 for each output feature o: [..., in1] and [..., in2], weight [out, in1, in2]."""
    weight, bias = traced(weight, bias)
    out, first, second = weight.shape
    columns = weight.permute(1, 0, 2).reshape(first, out * second)
    rows: Traced = (input1 @ columns).reshape(*input1.shape[:-1], out, second)
    product: Traced = (rows @ input2.unsqueeze(-1)).squeeze(-1)
    return product if bias is None else product + bias


def matmul(a: Traced, b: Any) -> Traced:
    """The matrix product."""
    return a.matmul(b)


bmm = mm = matmul


def einsum(equation: str, *operands: Traced) -> Traced:
    """Products summed up as the equation says: "bij,bjk->bik"."""
    return operands[0].trace.add("Einsum", *operands, equation=equation)


def embedding(indices: Traced, weight: Any, padding_idx: int | None = None) -> Traced:
    """Rows of `weight` by number. `padding_idx` matters to training alone."""
    if indices.dtype.kind not in "iu":
        raise InvalidArgumentError(
            "an Embedding takes integers",
            tensor=indices.tensor.name,
            got=str(indices.dtype),
            hint="say the dtype by an example: input_shapes={'ids': numpy.zeros((1, 128), numpy.int64)}",
        )
    (weight,) = traced(weight)
    return indices.trace.add("Gather", weight, indices, axis=0)


def embedding_bag(
    indices: Traced,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    padding_idx: int | None = None,
) -> Traced:
    """The sum, mean or greatest of the rows in each bag: indices [bags, length] to [bags, embedding_dim].

    Rows of `padding_idx` do not count. Raises `UnsupportedError` for bags by `offsets`.
    """
    if offsets is not None or indices.ndim != 2:
        raise UnsupportedError(
            "bags of different lengths, by offsets, are not supported",
            expected="indices [bags, length]",
            got=str(list(indices.shape)),
            hint="fill shorter bags with padding_idx",
        )
    if mode not in ("sum", "mean", "max"):
        raise InvalidArgumentError("the mode is unknown", expected="sum, mean or max", got=repr(mode))
    if per_sample_weights is not None and mode != "sum":
        raise InvalidArgumentError("per_sample_weights are for mode='sum'", got=repr(mode))
    rows = embedding(indices, weight)
    if per_sample_weights is not None:
        rows = rows * traced(per_sample_weights)[0].unsqueeze(-1)
    if padding_idx is None:
        return {"sum": rows.sum, "mean": rows.mean, "max": rows.amax}[mode](1)
    return _counted(rows, indices != padding_idx % traced(weight)[0].shape[0], mode)


def _counted(rows: Traced, counts: Traced, mode: str) -> Traced:
    """The rows of each bag that count, as one; zeros where none does."""
    one = counts.to(rows.dtype)
    number = one.sum(1, keepdim=True)
    if mode == "max":
        greatest = rows.masked_fill(counts.unsqueeze(-1).logical_not(), float("-inf")).amax(1)
        return greatest.masked_fill(number == 0, 0.0)
    total = (rows * one.unsqueeze(-1)).sum(1)
    return total if mode == "sum" else total / number.clamp(min=1.0)
