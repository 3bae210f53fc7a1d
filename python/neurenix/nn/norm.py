"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.nn import functional as F
from neurenix.nn.module import Module
from neurenix.nn.tracing import Traced


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class _Affine(Module):
    """With weight and bias of a shape, or neither."""

    weight: Any
    bias: Any

    def __init__(self, shape: tuple[int, ...], eps: float, affine: bool, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.register_parameter("weight", np.ones(shape, np.float32) if affine else None)
        self.register_parameter("bias", np.zeros(shape, np.float32) if affine and bias else None)

    def _describe(self) -> str:
        return f"eps={self.eps}" + ("" if self.weight is None else f", {list(self.weight.shape)}")


class BatchNorm(_Affine):
    """(x - running_mean) / sqrt(running_var + eps) * weight + bias for each channel of [N, C, ...]."""

    running_mean: Any
    running_var: Any

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True) -> None:
        super().__init__((num_features,), eps, affine)
        self.register_buffer("running_mean", np.zeros(num_features, np.float32))
        self.register_buffer("running_var", np.ones(num_features, np.float32))

    def forward(self, x: Traced) -> Traced:
        """x [N, C, ...]."""
        weight = np.ones_like(self.running_var) if self.weight is None else self.weight
        bias = np.zeros_like(self.running_mean) if self.bias is None else self.bias
        return F.batch_norm(x, self.running_mean, self.running_var, weight, bias, self.eps)


class BatchNorm1d(BatchNorm):
    """BatchNorm of [N, C] or [N, C, L]."""


class BatchNorm2d(BatchNorm):
    """BatchNorm of [N, C, H, W]."""


class BatchNorm3d(BatchNorm):
    """BatchNorm of [N, C, D, H, W]."""


class InstanceNorm(_Affine):
    """Normalisation over the spatial dimensions of each channel of [N, C, spatial...]."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False) -> None:
        super().__init__((num_features,), eps, affine)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
        return F.instance_norm(x, self.weight, self.bias, self.eps)


class InstanceNorm1d(InstanceNorm):
    """InstanceNorm of [N, C, L]."""


class InstanceNorm2d(InstanceNorm):
    """InstanceNorm of [N, C, H, W]."""


class InstanceNorm3d(InstanceNorm):
    """InstanceNorm of [N, C, D, H, W]."""


class LayerNorm(_Affine):
    """Normalisation over the last dimensions."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.normalized_shape = _shape(normalized_shape)
        super().__init__(self.normalized_shape, eps, elementwise_affine, bias)

    def forward(self, x: Traced) -> Traced:
        """x [..., normalized_shape...]."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(_Affine):
    """x / sqrt(mean(x * x) + eps) * weight over the last dimensions."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        self.normalized_shape = _shape(normalized_shape)
        eps = float(np.finfo(np.float32).eps) if eps is None else eps
        super().__init__(self.normalized_shape, eps, elementwise_affine, bias=False)

    def forward(self, x: Traced) -> Traced:
        """x [..., normalized_shape...]."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(_Affine):
    """Normalisation over groups of channels and all spatial dimensions of [N, C, ...]."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise InvalidArgumentError(
                "channels do not divide into the groups", got=f"{num_channels} in {num_groups} groups"
            )
        super().__init__((num_channels,), eps, affine)
        self.num_groups = num_groups

    def forward(self, x: Traced) -> Traced:
        """x [N, C, ...]."""
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
