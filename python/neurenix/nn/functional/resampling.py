"""Resampling, padding, and what moves channels to pixels and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.nn.functional.common import Ints, spread
from neurenix.nn.functional.pooling import adaptive_avg_pool
from neurenix.nn.traced import Traced

#: PyTorch's modes: ONNX's, where places come from, how many spatial dimensions they are for (0: any).
_MODES = {
    "nearest": ("nearest", "asymmetric", 0),
    "nearest-exact": ("nearest", "half_pixel", 0),
    "linear": ("linear", "half_pixel", 1),
    "bilinear": ("linear", "half_pixel", 2),
    "trilinear": ("linear", "half_pixel", 3),
    "bicubic": ("cubic", "half_pixel", 2),
}


def interpolate(
    x: Traced,
    size: Ints | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Traced:
    """Resampling of the spatial dimensions to `size` or by `scale_factor`."""
    rank = x.ndim - 2
    check_resampling(size, scale_factor, mode)
    if align_corners and "linear" not in mode and mode != "bicubic":
        raise InvalidArgumentError(f"align_corners is not for mode {mode!r}")
    factors = None if scale_factor is None else _spread(scale_factor, rank)
    if factors is not None and (recompute_scale_factor or mode == "area"):
        extents = [extent for extent in x.shape[2:] if isinstance(extent, int)]
        if len(extents) != rank:
            raise InvalidArgumentError("scales are computed again from fixed sizes alone", got=str(list(x.shape)))
        size, factors = [int(extent * factor) for extent, factor in zip(extents, factors, strict=True)], None
    if mode == "area":
        assert size is not None
        return adaptive_avg_pool(rank, x, size)
    word, place, only = _MODES[mode]
    if only not in (0, rank):
        raise InvalidArgumentError(f"mode {mode!r} is for {only} spatial dimensions", got=str(list(x.shape)))
    scales = None if factors is None else x.trace.constant(np.array(factors, np.float32))
    sizes = None if size is None or factors is not None else x.trace.constant(np.array(spread(size, rank), np.int64))
    return x.trace.add(
        "Resize",
        x,
        None,
        scales,
        sizes,
        mode=word,
        axes=list(range(2, x.ndim)),
        coordinate_transformation_mode="align_corners" if align_corners else place,
        nearest_mode="floor" if mode == "nearest" else "round_prefer_ceil",
        # PyTorch's other cubic is the one of Pillow.
        **({"antialias": 1, "cubic_coeff_a": -0.5} if antialias else {}),
    )


upsample = interpolate


def check_resampling(size: Any, scale_factor: Any, mode: str) -> None:
    """Raises `InvalidArgumentError` unless one of size and factor is given, above 0, and the mode is known."""
    if (size is None) == (scale_factor is None):
        raise InvalidArgumentError("give either size or scale_factor", got=f"size={size}, scale_factor={scale_factor}")
    if mode not in (*_MODES, "area"):
        raise InvalidArgumentError("the mode is unknown", expected=", ".join([*_MODES, "area"]), got=repr(mode))
    if not np.all(np.asarray(scale_factor if size is None else size) > 0):
        raise InvalidArgumentError("the size of an image is above 0", got=f"size={size}, scale_factor={scale_factor}")


def _spread(value: float | Sequence[float], rank: int) -> list[float]:
    return [float(value)] * rank if isinstance(value, (int, float)) else [float(v) for v in value]


def pixel_shuffle(x: Traced, upscale_factor: int) -> Traced:
    """Channels to blocks of pixels: [..., C r r, H, W] to [..., C, H r, W r]."""
    return _of_images(x, "DepthToSpace", upscale_factor)


def pixel_unshuffle(x: Traced, downscale_factor: int) -> Traced:
    """Blocks of pixels to channels: [..., C, H r, W r] to [..., C r r, H, W]."""
    return _of_images(x, "SpaceToDepth", downscale_factor)


def _of_images(x: Traced, op: str, blocksize: int) -> Traced:
    if x.ndim == 4:
        return x.trace.add(op, x, blocksize=blocksize, mode="CRD")
    if x.ndim < 3:
        raise ShapeError("this is no image", tensor=x.tensor.name, expected="[..., C, H, W]", got=str(list(x.shape)))
    images = x.unsqueeze(0) if x.ndim == 3 else x.flatten(0, -4)
    made = images.trace.add(op, images, blocksize=blocksize, mode="CRD")
    return made.squeeze(0) if x.ndim == 3 else made.reshape(*x.shape[:-3], *made.shape[1:])


def channel_shuffle(x: Traced, groups: int) -> Traced:
    """Channels of `groups` groups in turns: [N, C, ...]."""
    parts = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    return parts.transpose(1, 2).reshape(*x.shape)


def grid_sample(
    x: Traced,
    grid: Traced,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Traced:
    """x [N, C, spatial...] at the places of `grid` [N, ..., rank], each from -1 to 1, the last dimension of x first.

    Raises `UnsupportedError` for "bicubic" with "border".
    """
    words = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
    if mode not in words:
        raise InvalidArgumentError("the mode is unknown", expected=", ".join(words), got=repr(mode))
    if (mode, padding_mode) == ("bicubic", "border"):
        # The op keeps the place within the border, PyTorch each of the pixels around it.
        raise UnsupportedError("bicubic sampling with padding_mode='border' is not supported", expected="another one")
    return x.trace.add(
        "GridSample", x, grid, mode=words[mode], padding_mode=padding_mode, align_corners=int(bool(align_corners))
    )


def affine_grid(theta: Traced, size: Sequence[int], align_corners: bool | None = None) -> Traced:
    """A grid for `grid_sample` to an output of `size`, by the matrices theta [N, rank, rank + 1]."""
    sizes = theta.trace.constant(np.array(size, np.int64))
    return theta.trace.add("AffineGrid", theta, sizes, align_corners=int(bool(align_corners)))


def pad(x: Traced, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Traced:
    """Padding of the last dimensions, last first: (left, right, top, bottom, ...); what is negative is cut off."""
    words = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in words or len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise InvalidArgumentError("the padding is not understood", expected=f"pairs, and a mode of {', '.join(words)}",
                                   got=f"{list(pad)}, {mode!r}")  # fmt: skip
    _check_wrapped(x, pad, mode)
    pads = np.zeros((2, x.ndim), np.int64)
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        pads[:, -1 - place] = before, after
    fill = x.trace.constant(np.array(value or 0.0, x.dtype)) if mode == "constant" else None
    return x.trace.add("Pad", x, x.trace.constant(pads.reshape(-1)), fill, mode=words[mode])


def _check_wrapped(x: Traced, pad: Sequence[int], mode: str) -> None:
    """Raises `ShapeError` where what is mirrored or repeated would be more than there is."""
    more = {"reflect": 1, "circular": 0}.get(mode)
    if more is None:
        return
    for place, widest in enumerate(map(max, pad[::2], pad[1::2])):
        extent = x.shape[-1 - place]
        if isinstance(extent, int) and widest + more > extent:
            raise ShapeError(
                f"padding of mode {mode!r} is wider than the input",
                layer=x.trace.path[-1] or None,
                tensor=x.tensor.name,
                expected=f"at most {extent - more} at dimension {x.ndim - 1 - place} of {list(x.shape)}",
                got=str(list(pad)),
            )
