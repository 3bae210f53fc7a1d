"""Grid sampling, bicubic too, as mmcv and mmdeploy export `torch.nn.functional.grid_sample`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import neurenix.hardware.tensorrt as trt
from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.layer import Scope

#: By torch's numbers.
MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")


class GridSampler(trt.IPluginV2):
    """x [N, C, H, W] read at the places of a grid [N, H', W', 2], whose (x, y) run from -1 to 1: [N, C, H', W'].

    `interpolation_mode`: 0 bilinear, 1 nearest, 2 bicubic; `padding_mode`: 0 zeros, 1 border, 2 reflection. Images of
    one and of three axes are sampled too, which TensorRT's layer does not do. float32, float16, bfloat16.
    """

    def __init__(self, interpolation_mode: int = 0, padding_mode: int = 0, align_corners: int = 0) -> None:
        self.attributes: dict[str, Any] = {
            "mode": _chosen("interpolation_mode", interpolation_mode, MODES),
            "padding_mode": _chosen("padding_mode", padding_mode, PADDINGS),
            "align_corners": int(bool(align_corners)),
        }
        # Where ONNX and torch differ: what lies behind the border is read tap by tap in torch.
        if MODES[interpolation_mode] == "cubic" and PADDINGS[padding_mode] == "border":
            self.attributes["clamp_taps"] = 1

    def compose(self, layers: Scope, inputs: Sequence[Tensor]) -> list[Tensor]:
        """One layer that there is already: TensorRT, the processor and the GPU each have it."""
        return [layers.add("GridSample", *inputs, **self.attributes)]


def _chosen(name: str, value: int, words: Sequence[str]) -> str:
    if not 0 <= value < len(words):
        known = ", ".join(f"{number} ({word})" for number, word in enumerate(words))
        raise InvalidArgumentError(f"{name!r} is none of the known ones", expected=known, got=str(value))
    return words[value]
