"""Functions of elements, and what many elements come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix.errors import UnsupportedError
from neurenix.nn.traced import promotion
from neurenix.nn.traced.base import Base

if TYPE_CHECKING:
    from neurenix.nn.traced import Traced


class Elements(Base):
    """Functions of each element."""

    __slots__ = ()

    def relu(self) -> Traced:
        """max(x, 0)."""
        return self._add("Relu")

    def sigmoid(self) -> Traced:
        """1 / (1 + exp(-x))."""
        return self._add("Sigmoid")

    def tanh(self) -> Traced:
        """The hyperbolic tangent."""
        return self._add("Tanh")

    def exp(self) -> Traced:
        """The exponential."""
        return self._add("Exp")

    def log(self) -> Traced:
        """The natural logarithm."""
        return self._add("Log")

    def sqrt(self) -> Traced:
        """The square root."""
        return self._add("Sqrt")

    def rsqrt(self) -> Traced:
        """1 / sqrt(x)."""
        return self._add("Sqrt")._add("Reciprocal")

    def reciprocal(self) -> Traced:
        """1 / x."""
        return self._add("Reciprocal")

    def square(self) -> Traced:
        """x * x."""
        return self._add("Mul", self.tensor)

    def abs(self) -> Traced:
        """|x|."""
        return self._add("Abs")

    def sign(self) -> Traced:
        """-1, 0 or 1."""
        return self._add("Sign")

    def sin(self) -> Traced:
        """The sine."""
        return self._add("Sin")

    def cos(self) -> Traced:
        """The cosine."""
        return self._add("Cos")

    def erf(self) -> Traced:
        """The error function."""
        return self._add("Erf")

    def floor(self) -> Traced:
        """The next integer below."""
        return self._add("Floor")

    def ceil(self) -> Traced:
        """The next integer above."""
        return self._add("Ceil")

    def round(self) -> Traced:
        """The nearest integer, the even one of two."""
        return self._add("Round")

    def trunc(self) -> Traced:
        """Without what is behind the point."""
        if promotion.kind(self.dtype) < 2:
            return self._as(self.dtype)
        return self._add("Sign")._add("Mul", self._add("Abs")._add("Floor"))

    def pow(self, exponent: Any) -> Traced:
        """x ** exponent."""
        base, exponent = self._pair(exponent)
        return base._add("Pow", exponent)

    def clamp(self, min: Any = None, max: Any = None) -> Traced:
        """min(max(x, min), max)."""
        x = self._as(self.dtype)
        for bound in (min, max):
            x = x if bound is None else x._pair(bound)[0]
        return x._add("Clip", *(None if bound is None else x._pair(bound)[1] for bound in (min, max)))

    clip = clamp

    def maximum(self, other: Any) -> Traced:
        """The greater of each pair of elements."""
        first, second = self._pair(other)
        return first._add("Max", second)

    def minimum(self, other: Any) -> Traced:
        """The lesser of each pair of elements."""
        first, second = self._pair(other)
        return first._add("Min", second)

    def logical_not(self) -> Traced:
        """Whether elements of bool are false."""
        return self._add("Not")

    def masked_fill(self, mask: Any, value: Any) -> Traced:
        """The value where the mask is true, x elsewhere."""
        return self._other(mask)._add("Where", self._other(value), self.tensor)

    def where(self, condition: Traced, other: Any) -> Traced:
        """x where the condition holds, `other` elsewhere."""
        first, second = self._pair(other)
        return condition._add("Where", first, second)

    def tril(self, diagonal: int = 0) -> Traced:
        """The lower triangles of the matrices in the last two dimensions, 0 above; `diagonal` moves it to the right."""
        return self._add("Trilu", self.trace.constant(np.array(diagonal, np.int64)), upper=0)

    def triu(self, diagonal: int = 0) -> Traced:
        """The upper triangles of the matrices in the last two dimensions, 0 below; `diagonal` moves it to the right."""
        return self._add("Trilu", self.trace.constant(np.array(diagonal, np.int64)), upper=1)

    def softmax(self, dim: int) -> Traced:
        """exp(x) / sum(exp(x)) along a dimension."""
        return self._add("Softmax", axis=dim)

    def matmul(self, other: Any) -> Traced:
        """The matrix product."""
        return self._add("MatMul", self._other(other))

    bmm = mm = matmul


class Reductions(Base):
    """What many elements come to; `dim` is one dimension, several, or None for all."""

    __slots__ = ()

    def _reduce(self, op: str, dim: Any, keepdim: bool) -> Traced:
        axes = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return self._add(op, axes=axes, keepdims=int(keepdim))

    def _summed(self) -> Traced:
        """In the dtype of sums: that of truths and integers is int64."""
        return self._as(self.dtype if promotion.kind(self.dtype) == 2 else np.int64)

    def mean(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The mean."""
        return self._reduce("ReduceMean", dim, keepdim)

    def sum(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The sum."""
        return self._summed()._reduce("ReduceSum", dim, keepdim)

    def prod(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The product."""
        return self._summed()._reduce("ReduceProd", dim, keepdim)

    def amax(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The greatest."""
        return self._reduce("ReduceMax", dim, keepdim)

    def amin(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The least."""
        return self._reduce("ReduceMin", dim, keepdim)

    def any(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """Whether one is other than 0."""
        return self._as(np.bool_)._as(np.int32)._reduce("ReduceMax", dim, keepdim)._as(np.bool_)

    def all(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """Whether each is other than 0."""
        return self._as(np.bool_)._as(np.int32)._reduce("ReduceMin", dim, keepdim)._as(np.bool_)

    def logsumexp(self, dim: Any, keepdim: bool = False) -> Traced:
        """log(sum(exp(x)))."""
        return self._reduce("ReduceLogSumExp", dim, keepdim)

    def max(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The greatest of all, or of a dimension with where it is."""
        return self.amax() if dim is None else (self.amax(dim, keepdim), self.argmax(dim, keepdim))

    def min(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The least of all, or of a dimension with where it is."""
        return self.amin() if dim is None else (self.amin(dim, keepdim), self.argmin(dim, keepdim))

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Traced:
        """Where the greatest is, the first of equal ones."""
        return self._arg("ArgMax", dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Traced:
        """Where the least is, the first of equal ones."""
        return self._arg("ArgMin", dim, keepdim)

    def _arg(self, op: str, dim: int | None, keepdim: bool) -> Traced:
        if dim is not None:
            return self._add(op, axis=dim, keepdims=int(keepdim))
        flat = self._add("Reshape", self.trace.constant(np.array([-1], np.int64)))
        return flat._add(op, axis=0, keepdims=0)

    def var(self, dim: Any = None, correction: int = 1, keepdim: bool = False, unbiased: bool | None = None) -> Traced:
        """The variance; `correction` is taken from the number of elements, which must be known unless it is 0.

        `unbiased` is a correction of 1, or of none.
        """
        correction = int(correction if unbiased is None else unbiased)
        centred = self._add("Sub", self.mean(dim, keepdim=True))
        squares = centred._add("Mul", centred)
        if correction == 0:
            return squares.mean(dim, keepdim)
        axes = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
        extents = [self.shape[axis] for axis in axes]
        if not all(isinstance(extent, int) for extent in extents):
            raise UnsupportedError(
                "the variance over a dynamic dimension is not supported",
                tensor=self.tensor.name,
                hint="give correction=0",
            )
        return squares.sum(dim, keepdim) / float(np.prod(extents) - correction)

    def std(self, dim: Any = None, correction: int = 1, keepdim: bool = False, unbiased: bool | None = None) -> Traced:
        """The deviation, as `var` has it."""
        return self.var(dim, correction, keepdim, unbiased).sqrt()

    def norm(self, p: float = 2.0, dim: Any = None, keepdim: bool = False) -> Traced:
        """The norm of order p; infinity is the greatest amount."""
        if p == float("inf"):
            return self._add("Abs").amax(dim, keepdim)
        if p in (1, 2):
            return self._reduce(f"ReduceL{int(p)}", dim, keepdim)
        return self._add("Abs").pow(p).sum(dim, keepdim).pow(1.0 / p)

    def cumsum(self, dim: int) -> Traced:
        """The sum up to each element along a dimension."""
        return self._summed()._add("CumSum", self.trace.constant(np.array(dim, np.int64)))
