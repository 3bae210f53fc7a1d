"""Images of other sizes, of which tf2onnx writes scales: these do not always give the sizes that were asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.importers.tensorflow.writer import Writer

Array = np.ndarray[Any, Any]
#: The ops that Resize stands for.
MODES = {"ResizeNearestNeighbor": "nearest", "ResizeBilinear": "linear", "ResizeBicubic": "cubic"}
#: Axes of an image to channels first, and back.
TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def resize(context: Any, node: Any, name: str, args: Any) -> None:
    """ResizeNearestNeighbor, ResizeBilinear and ResizeBicubic, with the sizes of the images that they give."""
    make, sizes = Writer(context, node), _fixed_sizes(context, node)
    if node.type == "ResizeNearestNeighbor" and sizes:
        theirs, ours = zip(*(_nearest(*pair, *_kind(node)) for pair in sizes), strict=True)
        if any((a != b).any() for a, b in zip(theirs, ours, strict=True)):
            rows = make.add("Gather", node.input[0], make.const(theirs[0]), axis=1)
            make.replace("Gather", [rows, make.const(theirs[1])], axis=2)
            return
    image = make.add("Transpose", make.cast(node.input[0]), perm=TO_FIRST)
    resized = make.add("Resize", image, "", "", make.int64(node.input[1]), axes=[2, 3], **_attributes(node))
    make.back(resized, TO_LAST)


def _attributes(node: Any) -> dict[str, Any]:
    """Where the elements of the result lie among those of the image, and what is taken of these."""
    mode = MODES[node.type]
    corners, centers = _kind(node)
    place = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    attrs = {"mode": mode, "coordinate_transformation_mode": place}
    if mode == "nearest":
        # Of half pixels, the floor of a place that is not moved back by a half.
        return {**attrs, "nearest_mode": "round_prefer_ceil" if corners or centers else "floor"}
    if mode == "cubic":
        return {**attrs, "cubic_coeff_a": -0.5 if centers else -0.75, "exclude_outside": int(centers)}
    return attrs


def _kind(node: Any) -> tuple[bool, bool]:
    """Whether corners lie on corners, and whether elements lie in the middle of theirs."""
    return bool(node.get_attr_value("align_corners", False)), bool(node.get_attr_value("half_pixel_centers", False))


def _fixed_sizes(context: Any, node: Any) -> list[tuple[int, int]]:
    """The height and the width of the image, each with that of the result; none where only calls tell them."""
    shape = context.get_shape(node.input[0])
    if not shape or min(shape[1:3]) < 0 or not node.inputs[1].is_const():
        return []
    return list(zip(shape[1:3], node.inputs[1].get_tensor_value(), strict=True))


def _nearest(size: int, wanted: int, corners: bool, centers: bool) -> tuple[Array, Array]:
    """The nearest elements as TensorFlow finds them, and as Resize does, which may differ in the middle of two."""
    steps = (size - 1, wanted - 1) if corners and wanted > 1 else (size, wanted)
    step, to = np.float32(steps[0]) / np.float32(steps[1]), np.arange(wanted)
    half = 0.5 * centers
    places = (to.astype("float32") + np.float32(half)) * step
    exact = to * steps[0] / steps[1] if corners else (to + half) / (steps[1] / steps[0]) - half + half
    both = (np.floor(one + 0.5 * corners).astype(np.int64) for one in (places, exact))
    theirs, ours = (np.clip(one, 0, size - 1) for one in both)
    return theirs, ours


def resize_area(context: Any, node: Any, name: str, args: Any) -> None:
    """ResizeArea, as products with the shares that the elements of an image have in those of the result.

    Raises `ValueError` where a size is known to calls alone.
    """
    make, sizes = Writer(context, node), _fixed_sizes(context, node)
    if not sizes:
        raise ValueError("areas need images of fixed heights and widths: say them (input_shapes)")
    rows, columns = (_shares(*pair, _kind(node)[0]) for pair in sizes)
    image = make.add("Transpose", make.cast(node.input[0]), perm=TO_FIRST)
    narrow = make.add("MatMul", make.const(rows, make.numpy), image)
    resized = make.add("MatMul", narrow, make.const(columns.T, make.numpy))
    make.back(resized, TO_LAST)


def _shares(size: int, wanted: int, corners: bool) -> Array:
    """For each element of the result, how much each one of `size` elements makes of it."""
    step = (size - 1) / (wanted - 1) if corners and wanted > 1 else size / wanted
    starts = np.arange(wanted)[:, None] * step
    # What lies behind the last element is it once more.
    ends = np.array([*range(1, size), np.inf])
    common = np.minimum(starts + step, ends) - np.maximum(starts, np.arange(size))
    shares: Array = np.maximum(common, 0) / step
    return shares


def crop_and_resize(context: Any, node: Any, name: str, args: Any) -> None:
    """CropAndResize, as look-ups of the neighbours of all places of all boxes, where tf2onnx has a loop over boxes."""
    make = Writer(context, node)
    image, boxes, box_of, size = make.cast(node.input[0]), node.input[1], node.input[2], make.int64(node.input[3])
    extents = [make.pick(make.add("Shape", image), axis) for axis in range(4)]
    down, across = (_Places(make, boxes, size, extents[1 + axis], axis) for axis in range(2))
    first = make.add("Reshape", make.int64(box_of), make.const([-1, 1, 1]))
    flat = make.add("Reshape", image, make.add("Concat", make.const([-1]), extents[3], axis=0))

    def elements(y: str, x: str) -> str:
        """The elements of the image, with their channels, for rows and columns of each box."""
        rows = make.add("Add", make.add("Mul", first, extents[1]), make.add("Unsqueeze", y, make.const([2])))
        places = make.add("Add", make.add("Mul", rows, extents[2]), make.add("Unsqueeze", x, make.const([1])))
        return make.add("Gather", flat, places, axis=0)

    if node.get_attr_value("method", b"bilinear") == b"nearest":
        found = elements(down.nearest(), across.nearest())
    else:
        parts = [across.mixed([elements(y, x) for x in across.sides], [1, 3]) for y in down.sides]
        found = down.mixed(parts, [2, 3])
    inside = make.add("And", down.inside([2, 3]), across.inside([1, 3]))
    outside = make.const(node.get_attr_value("extrapolation_value", 0.0), make.numpy)
    make.replace("Where", [inside, found, outside])


def suppress(context: Any, node: Any, name: str, args: Any) -> None:
    """NonMaxSuppressionV5, as tf2onnx has it, if scores stay as they are.

    Raises `ValueError` where boxes lose a share of their scores instead.
    """
    from tf2onnx.onnx_opset.tensor import NonMaxSuppression

    sigma = node.inputs[5]
    if not sigma.is_const() or np.any(sigma.get_tensor_value(as_list=False) != 0):
        raise ValueError("soft_nms_sigma must be 0: boxes that lose a share of their scores are not supported")
    NonMaxSuppression.version_13(context, node)


class _Places:
    """Where the elements of the results of all boxes lie along one axis of their images: a list for each box."""

    def __init__(self, make: Writer, boxes: str, size: str, extent: str, axis: int) -> None:
        self.make = make
        start, end = (make.add("Gather", boxes, make.const([axis + i]), axis=1) for i in (0, 2))
        count, last = make.pick(size, axis), make.add("Sub", extent, make.const(1))
        self.last = make.add("Cast", last, to=make.dtype)
        steps = make.add("Cast", make.add("Sub", count, make.const(1)), to=make.dtype)
        numbers = make.add("Range", make.const(0), make.add("Squeeze", count), make.const(1))
        # The only element lies in the middle.
        single = make.add("Equal", steps, make.const(0, make.numpy))
        moved = make.add("Where", single, make.const(0.5, make.numpy), make.add("Cast", numbers, to=make.dtype))
        share = make.add("Div", moved, make.add("Max", steps, make.const(1, make.numpy)))
        along = make.add("Mul", make.add("Sub", end, start), share)
        self.places = make.add("Mul", make.add("Add", start, along), self.last)
        self.below = make.add("Floor", self.places)
        #: The elements on both sides of the places.
        self.sides = [self._index(self.below), self._index(make.add("Ceil", self.places))]

    def _index(self, places: str) -> str:
        """Places as indices; those outside of the image are the nearest inside."""
        zero = self.make.const(0, self.make.numpy)
        return self.make.int64(self.make.add("Min", self.make.add("Max", places, zero), self.last))

    def nearest(self) -> str:
        """The elements that are nearest, of two the upper."""
        half = self.make.const(0.5, self.make.numpy)
        return self._index(self.make.add("Floor", self.make.add("Add", self.places, half)))

    def mixed(self, sides: list[str], axes: list[int]) -> str:
        """What lies between elements of both sides; `axes` are those that the places lack."""
        share = self.make.add("Sub", self.places, self.below)
        share = self.make.add("Unsqueeze", share, self.make.const(axes))
        apart = self.make.add("Sub", sides[1], sides[0])
        return self.make.add("Add", sides[0], self.make.add("Mul", apart, share))

    def inside(self, axes: list[int]) -> str:
        """Whether the places lie in the image; `axes` are those that they lack."""
        first = self.make.add("GreaterOrEqual", self.places, self.make.const(0, self.make.numpy))
        kept = self.make.add("And", first, self.make.add("LessOrEqual", self.places, self.last))
        return self.make.add("Unsqueeze", kept, self.make.const(axes))
