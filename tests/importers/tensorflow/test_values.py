"""Ops whose values ONNX's op of the name does not have: negative classes and ids, empty segments, sizes of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.importers.tensorflow.models import check, keras, needs_tensorflow, tf

pytestmark = needs_tensorflow

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(5, 3)).astype("float32")
IMAGES = RNG.normal(size=(3, 9, 7, 2)).astype("float32")
BYTES = RNG.integers(0, 256, (3, 9, 7, 2)).astype("uint8")
CLASSES = np.array([[-1, 0, 3, 9], [-5, -2, 1, 4]], "int32")
BOXES = [[0.1, 0, 0.9, 1.2], [0, 0, 1, 1], [0.8, 0.9, 0.2, -0.1], [0.3, 0.3, 0.3, 0.7]]
BOX_OF = [0, 2, 1, 2]


def same(make: Any, x: np.ndarray[Any, Any], bound: float = 1e-5, open_batch: bool = True) -> Any:
    """What an engine gives for a function is what TensorFlow gives."""
    shape = (None, *x.shape[1:]) if open_batch else x.shape
    function = tf.function(make, input_signature=[tf.TensorSpec(shape, x.dtype, name="x")], autograph=False)
    return check(function, {"output": function(x)}, {"x": x}, bound)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_negative_classes_are_none(axis: int, dtype: str) -> None:
    on, off = (True, False) if dtype == "bool" else (5, -1)
    same(lambda x: tf.one_hot(x, 4, on, off, axis, dtype), CLASSES)


def test_classes_of_keras_and_of_one_number() -> None:
    same(lambda x: keras.ops.one_hot(x, 4), CLASSES)
    same(lambda x: tf.one_hot(x[0, 2], 4), CLASSES)
    same(lambda x: tf.one_hot(x[0, 0], 4) + tf.one_hot(x[0, 1], 4), CLASSES)
    same(lambda x: tf.one_hot(x, tf.shape(x)[1]), CLASSES)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "mean", "sqrt_n"])
def test_segments_without_order(kind: str) -> None:
    function = getattr(tf.math, f"unsorted_segment_{kind}")
    # The extremes of no elements would be the measure of all errors.
    alive = tf.math.tanh if kind in ("max", "min") else tf.identity
    same(lambda x: alive(function(x, [0, -1, 2, 2, 0], 4)), ROWS, open_batch=False)
    same(lambda x: alive(function(x, tf.cast(x[:, 0] * 2, tf.int64), 4)), ROWS)
    ids = [[0, -1, 2], [2, 0, 3], [0, 0, 0], [-1, -1, 5], [1, 1, 1]]
    same(lambda x: alive(function(x, ids, 7)), ROWS, open_batch=False)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_the_extremes_of_no_elements(kind: str) -> None:
    function = getattr(tf.math, f"unsorted_segment_{kind}")
    for rows in (ROWS, (ROWS * 9).astype("int32")):
        same(lambda x: function(x, [0, -1, 2, 2, 0], 4), rows, open_batch=False)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "mean"])
def test_segments_in_order_may_be_empty(kind: str) -> None:
    function = getattr(tf.math, f"segment_{kind}")
    same(lambda x: function(x, [0, 0, 2, 5, 5]), ROWS, open_batch=False)
    if kind != "mean":
        same(lambda x: function(x, [1, 2, 2, 5, 5]), (ROWS * 9).astype("int32"), open_batch=False)


# TensorFlow takes the weights of a cubic from a table with 1024 places between two elements.
@pytest.mark.parametrize(("method", "bound"), [("nearest", 0), ("bilinear", 1e-5), ("bicubic", 2e-3), ("area", 1e-5)])
@pytest.mark.parametrize("size", [(13, 5), (4, 3), (18, 14)])
def test_sizes_of_images(method: str, bound: float, size: tuple[int, int]) -> None:
    same(lambda x: tf.image.resize(x, size, method), IMAGES, bound)
    same(lambda x: tf.image.resize(x, size, method), BYTES, bound)


@pytest.mark.parametrize("op", ["ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic", "ResizeArea"])
@pytest.mark.parametrize("corners", [True, False])
def test_sizes_of_images_as_before_half_pixels(op: str, corners: bool) -> None:
    resize, bound = getattr(tf.raw_ops, op), 2e-3 if op == "ResizeBicubic" else 1e-5
    same(lambda x: resize(images=x, size=(13, 5), align_corners=corners), IMAGES, bound)


@pytest.mark.parametrize("sizes", [(14, 9), (6, 37), (14, 18), (2, 41)])
@pytest.mark.parametrize("how", ["half_pixel_centers", "align_corners", None])
def test_the_nearest_in_the_middle_of_two(sizes: tuple[int, int], how: str | None) -> None:
    given, wanted = sizes
    x = np.arange(given * 2, dtype="float32").reshape(1, given, 2, 1)
    options = {how: True} if how else {}
    same(lambda x: tf.raw_ops.ResizeNearestNeighbor(images=x, size=(wanted, 3), **options), x, 0)


def test_sizes_of_images_that_calls_tell() -> None:
    same(lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2 - 3), IMAGES)
    same(lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2 - 3, "nearest"), IMAGES, 0)
    function = tf.function(
        lambda x: tf.image.resize(x, (4, 4), "area"), input_signature=[tf.TensorSpec((1, None, None, 3), name="x")]
    )
    with pytest.raises(nx.UnsupportedError, match="fixed heights and widths"):
        nx.importers.from_tensorflow(function)
    assert nx.importers.from_tensorflow(function, input_shapes={"x": (1, 6, 6, 3)})


def test_resizing_of_keras() -> None:
    x = keras.Input((5, 6, 3), name="x")
    model = keras.Model(x, keras.layers.Resizing(7, 3, interpolation="nearest", name="y")(x))
    given = RNG.normal(size=(2, 5, 6, 3)).astype("float32")
    check(model, {"y": model(given)}, {"x": given}, 0)


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(4, 3), (1, 5), (1, 1), (18, 13)])
def test_crops(method: str, size: tuple[int, int]) -> None:
    same(lambda x: tf.image.crop_and_resize(x, BOXES, BOX_OF, size, method, 3.0), IMAGES)


def test_crops_of_one_box_of_bytes_and_of_boxes_that_a_call_tells() -> None:
    same(lambda x: tf.image.crop_and_resize(x, BOXES[:1], [2], (4, 3)), IMAGES)
    same(lambda x: tf.image.crop_and_resize(x, BOXES, BOX_OF, (4, 3)), BYTES)
    ids = tf.constant([0, 1, 1, 0])
    same(lambda x: tf.image.crop_and_resize(x, tf.abs(x[0, :4, :4, 0]) / 3, ids, (4, 4)), IMAGES)
