"""Deformable convolution: the nodes that mmcv, mmdeploy and TensorRT's plugin library call by these names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import neurenix.hardware.tensorrt as trt
from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.layer import Scope

Pair = int | Sequence[int]


class DeformConv2d(trt.IPluginV2):
    """Version 1 of it: x [N, C, H, W], offset [N, 2 * groups * kH * kW, H', W'], weights [M, C / group, kH, kW],
    and perhaps a bias [M]; gives [N, M, H', W']. Offsets are (y, x) of each tap, as in torchvision.

    `groups` and `deform_groups` are mmcv's words, `group` and `deformable_group` TensorRT's. `padding` has one
    number, two (height, width), or four (height twice, then width twice), as mmdeploy writes them. float32, float16,
    bfloat16.
    """

    #: Whether there is a mask behind the offsets.
    masked = False

    def __init__(
        self,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        deform_groups: int = 1,
        *,
        group: int | None = None,
        deformable_group: int | None = None,
        bias: int = 0,
        im2col_step: int = 32,
    ) -> None:
        # What mmcv says of a bias, which a fourth input is, and of how it works tells nothing about the result.
        del bias, im2col_step
        begin, end = _padding(padding)
        self.attributes: dict[str, Any] = {
            "strides": _pair("stride", stride),
            "dilations": _pair("dilation", dilation),
            "pads": [*begin, *end],
            "group": int(groups if group is None else group),
            "offset_group": int(deform_groups if deformable_group is None else deformable_group),
        }

    def compose(self, layers: Scope, inputs: Sequence[Tensor]) -> list[Tensor]:
        """One layer that there is already, whose inputs have another order."""
        least = 4 if self.masked else 3
        if len(inputs) not in (least, least + 1):
            raise InvalidArgumentError(
                "a deformable convolution has other inputs",
                expected=("x, offset, mask" if self.masked else "x, offset") + ", weights, and perhaps a bias",
                got=f"{len(inputs)} inputs",
            )
        x, offset, *rest = inputs
        mask = rest.pop(0) if self.masked else None
        weights, bias = rest[0], rest[1] if len(rest) > 1 else None
        return [layers.add("DeformConv", x, weights, offset, bias, mask, **self.attributes)]


class ModulatedDeformConv2d(DeformConv2d):
    """Version 2 of it: as `DeformConv2d`, with a mask [N, groups * kH * kW, H', W'] behind the offsets, by which the
    taps are multiplied."""

    masked = True


def _pair(name: str, value: Pair) -> list[int]:
    values = [int(v) for v in ([value] if isinstance(value, int) else value)]
    if len(values) not in (1, 2):
        raise InvalidArgumentError(f"{name!r} has one number, or one for each axis", got=str(values))
    return values * (3 - len(values))


def _padding(value: Pair) -> tuple[list[int], list[int]]:
    values = [int(v) for v in ([value] if isinstance(value, int) else value)]
    if len(values) == 4:
        return values[::2], values[1::2]
    pair = _pair("padding", values)
    return pair, pair
