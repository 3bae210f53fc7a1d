"""Preprocessing and postprocessing as layers of the network: what comes in is what a camera gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurenix import shapes
from neurenix._native import Network, Tensor
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.importers.dispatch import to_network
from neurenix.importers.onnx import around
from neurenix.inference.adding import Adder
from neurenix.inference.suppression import SuppressionLayers
from neurenix.names import hint
from neurenix.shapes import Shape

#: What inputs may be, and numpy's names of that.
DTYPES = {"u8": "uint8", "uint8": "uint8", "fp32": "float32", "float32": "float32", "fp16": "float16",
          "float16": "float16", "u16": "uint16", "uint16": "uint16"}  # fmt: skip
LAYOUTS = ("NCHW", "NHWC")
COLOURS = ("RGB", "BGR")
#: What integers are divided by.
GREATEST = {"uint8": 255, "uint16": 65535}
#: What postprocess= may say of an axis.
BEHIND = ("softmax", "argmax")

Size = tuple[int, int]


@dataclass(frozen=True)
class InputLayers:
    """What `preprocess=dict(...)` may say.

    - `dtype`: of what comes in: "u8", "u16" (which become 0 to 1), "fp32", "fp16".
    - `layout`: "NHWC" or "NCHW", of what comes in.
    - `color`: "RGB" or "BGR"; the model gets RGB.
    - `resize`: (height, width) that the picture is stretched to, `letterbox`: that it is put into in its own
      proportions, with `pad_value` (114, in the numbers that come in) around it. Bilinear, as `torch.nn.functional.
      interpolate` and OpenCV do it; with `antialias=True` as Pillow.
    - `scale`: what the numbers are multiplied with, in place of 1/255 of u8 and 1/65535 of u16.
    - `mean`, `std`: one number, or one for each channel, taken off and divided by after that.
    """

    dtype: str = "fp32"
    layout: str = "NCHW"
    color: str = "RGB"
    resize: Size | None = None
    letterbox: Size | None = None
    pad_value: float = 114
    antialias: bool = False
    scale: float | None = None
    mean: Any = None
    std: Any = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> InputLayers:
        """From what a caller gives; raises `InvalidArgumentError` for unknown words and values."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidArgumentError(
                    f"preprocess has no {name!r}", expected=", ".join(known), hint=hint(name, known)
                )
        found = cls(**given)
        for name, value, words in (
            ("dtype", found.dtype, list(DTYPES)),
            ("layout", found.layout, LAYOUTS),
            ("color", found.color, COLOURS),
        ):
            if value not in words:
                raise InvalidArgumentError(f"preprocess: {name} is unknown", expected=", ".join(words), got=repr(value))
        for name in ("resize", "letterbox"):
            size = getattr(found, name)
            if size is not None and not _is_size(size):
                raise InvalidArgumentError(f"preprocess: {name} is a size", expected="(height, width)", got=repr(size))
        if found.resize and found.letterbox:
            raise InvalidArgumentError("preprocess: the picture is stretched, or put into a box", got="both")
        for name, needs in (("pad_value", ("letterbox",)), ("antialias", ("resize", "letterbox"))):
            if name in given and not any(getattr(found, one) for one in needs):
                raise InvalidArgumentError(
                    f"preprocess: nothing reads {name}", expected=f"{name} beside {' or '.join(needs)}",
                    got=f"{name}={given[name]!r} alone",
                )  # fmt: skip
        for name in ("pad_value", "scale", "mean", "std"):
            value = getattr(found, name)
            if value is not None and not np.isfinite(np.asarray(value, np.float32)).all():
                raise InvalidArgumentError(f"preprocess: {name} is finite", got=repr(value))
        if found.std is not None and not np.all(np.asarray(found.std, np.float32) > 0):
            raise InvalidArgumentError("preprocess: std is above 0", got=repr(found.std))
        return found

    @property
    def is_last(self) -> bool:
        """Whether channels come last."""
        return self.layout == "NHWC"

    def model_shape(self, given: Sequence[int]) -> tuple[int, ...]:
        """The shape of the model's input for one of what comes in."""
        if len(given) != 4:
            raise ShapeError("preprocess is for pictures", expected=f"a shape of {self.layout}", got=str(tuple(given)))
        batch, *rest = given
        channels, size = (rest[2], rest[:2]) if self.is_last else (rest[0], rest[1:])
        return (batch, channels, *(self.resize or self.letterbox or size))

    def in_front(self, network: Network, name: str, dtype: Any, shape: Sequence[int | str], size: Size) -> Tensor:
        """Adds the input, and the layers from it to what the model reads, whose dtype and shape are given."""
        if len(shape) != 4 or np.dtype(dtype).kind not in "fV":
            raise ShapeError(
                "preprocess is for models of pictures", tensor=name, expected="floats [batch, channels, height, width]",
                got=f"{np.dtype(dtype).name}{list(shape)}",
            )  # fmt: skip
        batch, channels, *target = shape
        if not isinstance(channels, int):
            raise ShapeError("preprocess wants to know the channels of the model", tensor=name, got=str(list(shape)))
        wanted = self.resize or self.letterbox or size
        if any(isinstance(t, int) and t != w for t, w in zip(target, wanted, strict=True)):
            raise ShapeError(
                "the pictures do not have the size of the model's input", tensor=name, expected=str(target),
                got=str(wanted), hint=f"preprocess=dict(resize={tuple(target)}, ...), or letterbox=",
            )  # fmt: skip
        incoming = (batch, *size, channels) if self.is_last else (batch, channels, *size)
        x = network.add_input(name, DTYPES[self.dtype], incoming)
        adder = Adder(network, f"{name}/preprocess")
        x = adder.add("Cast", x, to="float32")
        if self.is_last:
            x = adder.add("Transpose", x, perm=[0, 3, 1, 2])
        if self.color == "BGR" and channels == 3:
            x = adder.add("Gather", x, adder.constant([2, 1, 0], np.int64), axis=1)
        x = self._fitted(adder, x, size)
        factor, offset = self._line(channels)
        if not (factor == 1).all():
            x = adder.add("Mul", x, adder.constant(factor, np.float32))
        if (offset != 0).any():
            x = adder.add("Add", x, adder.constant(offset, np.float32))
        return x if np.dtype(dtype) == np.float32 else adder.add("Cast", x, to=np.dtype(dtype).name)

    def _fitted(self, adder: Adder, x: Tensor, size: Size) -> Tensor:
        """The picture in the size of the model's input."""
        wanted = self.resize or self.letterbox
        if wanted is None or wanted == size:
            return x
        share = (1.0, 1.0) if self.letterbox is None else (min(w / s for w, s in zip(wanted, size, strict=True)),) * 2
        inner = wanted if self.resize else tuple(max(round(s * z), 1) for s, z in zip(size, share, strict=True))
        if inner != size:
            x = adder.add(
                "Resize", x, None, None, adder.constant(inner, np.int64), mode="linear", axes=[2, 3],
                coordinate_transformation_mode="half_pixel", antialias=int(self.antialias),
                exclude_outside=int(self.antialias),
            )  # fmt: skip
        if inner == wanted:
            return x
        before = [(w - i) // 2 for w, i in zip(wanted, inner, strict=True)]
        after = [w - i - b for w, i, b in zip(wanted, inner, before, strict=True)]
        pads = adder.constant([0, 0, *before, 0, 0, *after], np.int64)
        return adder.add("Pad", x, pads, adder.constant(self.pad_value, np.float32))

    def _line(self, channels: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Factor and offset of each channel: (x * scale - mean) / std in one multiplication and one addition."""
        scale = self.scale if self.scale is not None else 1 / GREATEST.get(DTYPES[self.dtype], 1)
        mean, std = (
            np.asarray(default if value is None else value, np.float64)
            for value, default in ((self.mean, 0.0), (self.std, 1.0))
        )
        for name, value in (("mean", mean), ("std", std)):
            if value.ndim > 1 or value.size not in (1, channels):
                raise InvalidArgumentError(
                    f"preprocess: {name} is one number, or one for each channel", expected=str(channels), got=str(value)
                )
        factor = np.broadcast_to(scale / std, channels).reshape(channels, 1, 1)
        offset = np.broadcast_to(-mean / std, channels).reshape(channels, 1, 1)
        return factor.astype(np.float32), offset.astype(np.float32)


@dataclass(frozen=True)
class Around:
    """Layers in front of a model and behind it."""

    front: InputLayers | None
    #: "softmax" or "argmax" and its axis, or suppression of boxes.
    behind: tuple[str, int] | SuppressionLayers | None

    @classmethod
    def of(cls, preprocess: Any, postprocess: Any) -> Around | None:
        """From the arguments of an engine; None where they say nothing of layers.

        Raises `InvalidArgumentError` for unknown words.
        """
        front = InputLayers.of(preprocess) if isinstance(preprocess, Mapping) else None
        behind = _layers_of(postprocess) if isinstance(postprocess, (str, Mapping)) else None
        return cls(front, behind) if front or behind else None

    def network(self, model: Any, wanted: Any) -> tuple[Network, Any]:
        """The model with these layers, and the shapes of what comes in.

        Raises `ShapeError` where the model takes no pictures, or the shapes are not said, and as the importers do.
        """
        if isinstance(model, Network) or _is_ours(model):
            raise UnsupportedError(
                "layers are put in front of models of ONNX and PyTorch alone", got=type(model).__name__,
                hint="write them into the module",
            )  # fmt: skip
        name, incoming = _only(wanted) if self.front else (None, None)
        inner = self._inner(incoming) if self.front and incoming is not None else wanted
        if self.front and name is not None:
            inner = {name: inner}
        seen: list[str] = []

        def front(network: Network, own: str, dtype: Any, shape: Sequence[int | str]) -> Tensor:
            if self.front is None or incoming is None or seen or (name is not None and own != name):
                return network.add_input(own, dtype, shape)
            seen.append(own)
            rest = incoming.opt[1:]
            size = rest[:2] if self.front.is_last else rest[1:]
            return self.front.in_front(network, own, dtype, shape, (int(size[0]), int(size[1])))

        with around.layers(front, self._behind if self.behind else None):
            network = to_network(model, inner)
        if self.front and not seen:
            raise InvalidArgumentError("the model has no such input", got=str(name))
        return network, {seen[0]: incoming} if seen else wanted

    def _inner(self, incoming: Shape) -> Shape:
        assert self.front is not None
        for low, high in zip(incoming.min[1:], incoming.max[1:], strict=True):
            if low != high:
                raise ShapeError("preprocess wants pictures of one size; the batch alone may vary", got=str(incoming))
        return Shape(*(self.front.model_shape(dims) for dims in (incoming.min, incoming.opt, incoming.max)))

    def _behind(self, network: Network, name: str, tensor: Tensor) -> Tensor:
        assert self.behind is not None
        adder = Adder(network, f"{name}/postprocess")
        if isinstance(self.behind, SuppressionLayers):
            return self.behind.behind(adder, name, tensor)
        word, axis = self.behind
        if word == "softmax":
            return adder.add("Softmax", tensor, axis=axis)
        return adder.add("ArgMax", tensor, axis=axis, keepdims=0)


def _layers_of(postprocess: str | Mapping[str, Any]) -> tuple[str, int] | SuppressionLayers:
    """What becomes a layer behind each output."""
    if postprocess == "nms":
        return SuppressionLayers()
    words = {postprocess: 1} if isinstance(postprocess, str) else dict(postprocess)
    if set(words) == {"nms"}:
        return SuppressionLayers.of(words["nms"])
    if len(words) != 1 or not set(words) <= set(BEHIND) or not all(type(v) is int for v in words.values()):
        raise InvalidArgumentError(
            "postprocess is unknown",
            expected='"softmax", "argmax", "nms", dict(argmax=AXIS), dict(softmax=AXIS), dict(nms=dict(...)), or a '
            "function",
            got=repr(postprocess),
        )
    return next(iter(words.items()))


def _only(wanted: Any) -> tuple[str | None, Shape]:
    """The name, if it is said, and the shape of what comes in."""
    if shapes.is_by_name(wanted) and len(wanted) == 1:
        name, value = next(iter(wanted.items()))
        return name, shapes.shape(value, name)
    if wanted is None or isinstance(wanted, (Mapping, str)):
        raise ShapeError(
            "preprocess wants to know the shape of what comes in", expected="input_shape=(1, 1080, 1920, 3)",
            got=repr(wanted),
        )  # fmt: skip
    return None, shapes.shape(wanted)


def _is_size(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(type(n) is int and n > 0 for n in value)


def _is_ours(model: Any) -> bool:
    from neurenix import nn

    return isinstance(model, nn.Module)
