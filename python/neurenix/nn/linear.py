"""Matrix products, tables of rows, and distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurenix import arrays, random
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.nn import checks
from neurenix.nn import functional as F
from neurenix.nn.module import Module, Parameter
from neurenix.nn.traced import Traced


class Linear(Module):
    """x @ weight.T + bias over the last dimension; flattens trailing dimensions when only that fits."""

    bias: Any

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        checks.at_least(0, in_features=in_features, out_features=out_features)
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(random.kaiming_uniform((out_features, in_features), in_features))
        self.register_parameter("bias", random.kaiming_uniform((out_features,), in_features) if bias else None)

    def forward(self, x: Traced) -> Traced:
        """x [..., in_features]."""
        return F.linear(x, self.weight, self.bias)

    def _describe(self) -> str:
        return f"{self.weight.shape[1]} -> {self.weight.shape[0]}"


class Bilinear(Module):
    """x1 @ weight[o] @ x2 + bias[o] for each output feature o."""

    bias: Any

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        checks.at_least(1, in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        super().__init__()
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(random.kaiming_uniform(shape, in1_features))
        self.register_parameter("bias", random.kaiming_uniform((out_features,), in1_features) if bias else None)

    def forward(self, x1: Traced, x2: Traced) -> Traced:
        """x1 [..., in1_features], x2 [..., in2_features]."""
        return F.bilinear(x1, x2, self.weight, self.bias)


class Embedding(Module):
    """Rows of a table by number: integers [...] to [..., embedding_dim]. The row of `padding_idx` starts as zeros.

    Raises `UnsupportedError` for `max_norm`, which changes the table while it is read.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        super().__init__()
        self.weight = Parameter(_table(num_embeddings, embedding_dim, padding_idx, max_norm))
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx

    @classmethod
    def from_pretrained(cls, embeddings: ArrayLike, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """A table of these rows, [num_embeddings, embedding_dim]. Raises `ShapeError` for what is no matrix."""
        rows = arrays.to_numpy(embeddings)
        if rows.ndim != 2:
            raise ShapeError("a table has two dimensions", got=str(list(rows.shape)))
        made = cls(rows.shape[0], rows.shape[1], padding_idx)
        made.weight = Parameter(rows)
        return made

    def forward(self, x: Traced) -> Traced:
        """x: integers."""
        return F.embedding(x, self.weight)

    def _describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class EmbeddingBag(Module):
    """The sum, mean or greatest of the rows in each bag: integers [bags, length] to [bags, embedding_dim].

    Raises `UnsupportedError` for `max_norm` and, when it is traced, for bags by `offsets`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        checks.one_of(("sum", "mean", "max"), mode=mode)
        super().__init__()
        rows = _table(num_embeddings, embedding_dim, padding_idx, max_norm) if _weight is None else _weight
        self.weight = Parameter(rows)
        self.mode, self.padding_idx = mode, padding_idx

    def forward(self, x: Traced, offsets: Any = None, per_sample_weights: Any = None) -> Traced:
        """x: integers [bags, length]; `per_sample_weights`, for the sum, is of the same shape."""
        return F.embedding_bag(x, self.weight, offsets, self.mode, per_sample_weights, self.padding_idx)


def _table(rows: int, columns: int, padding_idx: int | None, max_norm: float | None) -> np.ndarray[Any, Any]:
    if max_norm is not None:
        raise UnsupportedError("max_norm changes the table while it is read", hint="scale its rows once, before")
    checks.at_least(0, num_embeddings=rows, embedding_dim=columns)
    table = random.randn(rows, columns)
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise InvalidArgumentError(
                "padding_idx is the number of a row", expected=f"{-rows} to {rows - 1}", got=str(padding_idx)
            )
        table[padding_idx] = 0
    return table


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along a dimension."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Traced, x2: Traced) -> Traced:
        """Of one shape, or of two that broadcast."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The norm of x1 - x2 along the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Traced, x2: Traced) -> Traced:
        """Of one shape, or of two that broadcast."""
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)
