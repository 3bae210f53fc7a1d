"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.nn import checks
from neurenix.nn import functional as F
from neurenix.nn.functional.common import per_batch
from neurenix.nn.module import Module
from neurenix.nn.traced import Traced


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class _Affine(Module):
    """With weight and bias of a shape, or neither."""

    weight: Any
    bias: Any

    def __init__(self, shape: tuple[int, ...], eps: float | None, affine: bool, bias: bool = True) -> None:
        checks.at_least(0, shape=shape)
        super().__init__()
        self.eps: Any = eps
        self.register_parameter("weight", np.ones(shape, np.float32) if affine else None)
        self.register_parameter("bias", np.zeros(shape, np.float32) if affine and bias else None)

    def _describe(self) -> str:
        return f"eps={self.eps}" + ("" if self.weight is None else f", {list(self.weight.shape)}")


class _Tracking(_Affine):
    """With mean and variance of each channel as training saw them, or neither."""

    running_mean: Any
    running_var: Any
    #: How many dimensions the input may have; any where there are none.
    ranks: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self, num_features: int, eps: float, affine: bool, track_running_stats: bool, bias: bool = True
    ) -> None:
        checks.at_least(0, num_features=num_features)
        super().__init__((num_features,), eps, affine, bias)
        self.num_features, self.track_running_stats = num_features, track_running_stats
        for name, make in (("running_mean", np.zeros), ("running_var", np.ones)):
            self.register_buffer(name, make(num_features, np.float32) if track_running_stats else None)

    def _checked(self, x: Traced) -> Traced:
        if self.ranks and x.ndim not in self.ranks:
            raise ShapeError(
                f"the input of {type(self).__name__} has another number of dimensions",
                layer=x.trace.path[-1] or None,
                tensor=x.tensor.name,
                expected=" or ".join(map(str, self.ranks)),
                got=str(list(x.shape)),
            )
        return x


class BatchNorm(_Tracking):
    """(x - running_mean) / sqrt(running_var + eps) * weight + bias for each channel of [N, C, ...].

    Without `track_running_stats` mean and variance are those of x itself, as PyTorch's are.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        super().__init__(num_features, eps, affine, track_running_stats, bias)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, ...]."""
        stats = (self.running_mean, self.running_var)
        return F.batch_norm(
            self._checked(x), *stats, self.weight, self.bias, not self.track_running_stats, eps=self.eps
        )


class BatchNorm1d(BatchNorm):
    """BatchNorm of [N, C] or [N, C, L]."""

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """BatchNorm of [N, C, H, W]."""

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """BatchNorm of [N, C, D, H, W]."""

    ranks = (5,)


class SyncBatchNorm(BatchNorm):
    """BatchNorm: inference has nothing to bring together."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias, device, dtype)


class InstanceNorm(_Tracking):
    """Normalisation over the spatial dimensions of each channel of [N, C, spatial...].

    With `track_running_stats` mean and variance are those that training saw.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        super().__init__(num_features, eps, affine, track_running_stats, bias)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...] or [C, spatial...]."""
        stats = (self.running_mean, self.running_var)

        def compute(x: Traced) -> Traced:
            return F.instance_norm(x, *stats, self.weight, self.bias, not self.track_running_stats, eps=self.eps)

        x = self._checked(x)
        return per_batch(x, self.ranks[-1] - 2, compute) if self.ranks else compute(x)


class InstanceNorm1d(InstanceNorm):
    """InstanceNorm of [N, C, L] or [C, L]."""

    ranks = (2, 3)


class InstanceNorm2d(InstanceNorm):
    """InstanceNorm of [N, C, H, W] or [C, H, W]."""

    ranks = (3, 4)


class InstanceNorm3d(InstanceNorm):
    """InstanceNorm of [N, C, D, H, W] or [C, D, H, W]."""

    ranks = (4, 5)


class LocalResponseNorm(Module):
    """x by a power of the mean of squares in `size` channels around."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.arguments = (size, alpha, beta, k)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, ...]."""
        return F.local_response_norm(x, *self.arguments)


class LayerNorm(_Affine):
    """Normalisation over the last dimensions."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        self.normalized_shape = _shape(normalized_shape)
        super().__init__(self.normalized_shape, eps, elementwise_affine, bias)

    def forward(self, x: Traced) -> Traced:
        """x [..., normalized_shape...]."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(_Affine):
    """x / sqrt(mean(x * x) + eps) * weight over the last dimensions."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        self.normalized_shape = _shape(normalized_shape)
        super().__init__(self.normalized_shape, eps, elementwise_affine, bias=False)

    def forward(self, x: Traced) -> Traced:
        """x [..., normalized_shape...]."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(_Affine):
    """Normalisation over groups of channels and all spatial dimensions of [N, C, ...]."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        if num_groups < 1 or num_channels % num_groups:
            raise InvalidArgumentError(
                "channels do not divide into the groups", got=f"{num_channels} in {num_groups} groups"
            )
        super().__init__((num_channels,), eps, affine, bias)
        self.num_groups = num_groups

    def forward(self, x: Traced) -> Traced:
        """x [N, C, ...]."""
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
