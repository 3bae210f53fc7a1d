"""Ops that tf2onnx gives other values to than TensorFlow: choices, divisions, repeated indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.importers.tensorflow.models import keras, needs_tensorflow, tf

pytestmark = needs_tensorflow

RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def signed(make: Any, *given: Array) -> Any:
    """A function with the shapes and dtypes of what it is given for its signature."""
    specs = [tf.TensorSpec(array.shape, array.dtype, name=f"x{index}") for index, array in enumerate(given)]
    return tf.function(make, input_signature=specs, autograph=False)


def same(make: Any, *given: Array, bound: float = 0) -> None:
    """What an engine gives is what TensorFlow gives, NaNs included."""
    function = signed(make, *given)
    inputs = {f"x{index}": array for index, array in enumerate(given)}
    agree(function, inputs, np.asarray(function(*given)), bound)


def agree(source: Any, inputs: dict[str, Array], wanted: Array, bound: float = 0) -> None:
    """As `same`, for any source."""
    engine = nx.optimize(source, {name: array.shape for name, array in inputs.items()}, verify=False)
    (found,) = engine(inputs).values()
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found.astype("float64"), wanted.astype("float64"), rtol=bound, atol=bound)


def as_tflite(make: Any, path: Path, *given: Array) -> tuple[Path, Array]:
    """The file of a function, and what TensorFlow Lite's interpreter gives of it."""
    function = signed(make, *given)
    data = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function).convert()
    path.write_bytes(data)
    return path, np.asarray(function(*given))


VALUES = np.array([-2, -1, 0, 1, 2, np.inf, -np.inf, np.nan], "float32")
CHOICES = {
    "log": lambda x: tf.where(x > 0, tf.math.log(x), 0.0),
    "reciprocal": lambda x: tf.where(tf.equal(x, 0.0), x, 1 / x),
    "rows": lambda x: tf.compat.v1.where(x[:4] > 0, tf.tile(x[:4, None], (1, 3)) / 0.0, tf.ones((4, 3))),
    "integers": lambda x: tf.where(x > 0, tf.constant(3), tf.range(8)),
    "booleans": lambda x: tf.where(x > 0, x > 1, x < -1),
}


@pytest.mark.parametrize("kind", CHOICES)
def test_what_is_not_chosen_leaves_no_trace(kind: str) -> None:
    same(CHOICES[kind], VALUES, bound=1e-6)


def test_choices_and_divisions_of_tflite(tmp_path: Path) -> None:
    for make, given in (
        (lambda x: tf.where(x > 0, tf.math.log(x), tf.zeros_like(x)), VALUES[:5]),
        (lambda x: x // tf.constant([4, -3, 2, -4, 5]) * 10 + x % tf.constant([4, -3, 2, -4, 5]), NUMBERS[:5]),
        (lambda x: tf.scatter_nd([[1], [3], [1], [0]], x, [4]), VALUES[:4]),
    ):
        path, wanted = as_tflite(make, tmp_path / "model.tflite", given)
        (name,) = (port.name for port in nx.importers.from_tensorflow(path).inputs)
        agree(path, {name: given}, wanted, 1e-6)


NUMBERS = np.array([-7, -5, -1, 0, 5, 7, 100, -128], "int32")
DIVISORS = np.array([4, -4, 3, -3, 4, -2, -7, 3], "int32")
DIVISIONS = ("floordiv", "floormod", "truncatediv", "truncatemod")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32", "float32"])
def test_divisions(dtype: str) -> None:
    kinds = DIVISIONS
    a, b = NUMBERS.astype(dtype), DIVISORS.astype(dtype)
    if dtype.startswith("u"):
        kinds, a, b = DIVISIONS[:2], NUMBERS.view("uint32").astype(dtype), np.abs(DIVISORS).astype(dtype)
    if dtype in ("int8", "int16"):
        kinds = DIVISIONS[:2] + DIVISIONS[2:3]
    for kind in kinds:
        op = getattr(tf, kind, None) or getattr(tf.math, kind)
        same(op, a, b)


def test_divisions_of_sizes_keep_shapes_open() -> None:
    function = tf.function(
        lambda x: tf.reshape(x, [tf.shape(x)[0] // 2, 2, tf.shape(x)[1] - tf.shape(x)[1] % 2]),
        input_signature=[tf.TensorSpec((None, None), name="x")],
    )
    x = RNG.normal(size=(6, 4)).astype("float32")
    engine = nx.optimize(function, {"x": {"min": (2, 2), "opt": (6, 4), "max": (8, 8)}}, verify=False)
    np.testing.assert_array_equal(engine({"x": x})["output"], function(x))


def test_indices_of_scatters_that_come_again() -> None:
    indices = np.array([[1], [3], [1], [0]], "int32")
    same(lambda x, i: tf.scatter_nd(i, x, [4]), VALUES[:4], indices)
    same(lambda x, i: tf.scatter_nd(i, x, [5, 3]), RNG.integers(0, 9, (4, 3)).astype("int32"), indices)


def test_saturations() -> None:
    image = RNG.uniform(-0.2, 1, (4, 5, 3)).astype("float32")
    image[0, 0] = 0.3
    for factor in (0.0, 0.4, 3.0):
        same(lambda x, by=factor: tf.image.adjust_saturation(x, by), image, bound=1e-5)


# Halves of steps would be rounded up by the one, and to even ones by the other.
STEPS = np.random.default_rng(1).uniform(-8, 8, 240).astype("float32")


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("narrow", [False, True])
def test_fake_quantization(bits: int, narrow: bool) -> None:
    options = {"num_bits": bits, "narrow_range": narrow}
    for low, high in ((-1, 1), (0, 6), (-1.7, 3.3), (1, 4)):
        same(
            lambda x, a=low, b=high: tf.quantization.fake_quant_with_min_max_args(x, a, b, **options), STEPS, bound=1e-6
        )
    ranges = [-1.0, 0.0, -0.5], [1.0, 3.0, 2.5]
    rows = STEPS.reshape(80, 3)
    same(lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -2.0, 1.3, **options), rows, bound=1e-6)
    same(lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(x, *ranges, **options), rows, bound=1e-6)


def test_boxes_that_lose_a_share_of_their_scores() -> None:
    def function(boxes: Any, scores: Any) -> Any:
        return tf.image.non_max_suppression_with_scores(boxes, scores, 3, 0.5, soft_nms_sigma=0.3)

    boxes, scores = np.zeros((3, 4), "float32"), np.zeros(3, "float32")
    with pytest.raises(nx.UnsupportedError, match="soft_nms_sigma must be 0"):
        nx.importers.from_tensorflow(signed(function, boxes, scores))


SMALL = np.array([-0.9, -1e-3, -1e-8, 0, 1e-30, 1e-7, 0.3, 4, np.inf, np.nan], "float32")
PAIRS = np.array([0, np.nan, 2, np.inf, 0, 3, 0, 2, 1, 0], "float32")
FUNCTIONS = {
    "log1p": lambda x: tf.math.log1p(x),
    "expm1": lambda x: tf.math.expm1(x),
    "xlogy": lambda x: tf.math.xlogy(PAIRS, x) + tf.math.xdivy(PAIRS, x),
    "mul_no_nan": lambda x: tf.math.multiply_no_nan(x, PAIRS),
    "bucketize": lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1e-3, 0.0, 0.3, 5]),
    "norms": lambda x: tf.nn.l2_loss(x[:6]) + tf.math.reduce_euclidean_norm(tf.reshape(x[:8], (2, 4)), 1),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions(kind: str) -> None:
    same(FUNCTIONS[kind], SMALL, bound=1e-6)


ROWS = np.array([[3, -0.0, 0.0, 3, np.inf], [-2, -0.0, -1, 0.0, -0.0]], "float32")
PLACES = {
    "diagonal": lambda x: tf.linalg.diag(x),
    "diagonal in others": lambda x: tf.linalg.set_diag(tf.ones((2, 3, 5)), x[:, :3]),
    "tall": lambda x: tf.linalg.set_diag(tf.ones((2, 7, 5)), x),
    "update": lambda x: keras.ops.slice_update(x, [0, 1], x[:, :2]),
    "update moved": lambda x: keras.ops.slice_update(x, tf.cast([x[0, 0], x[0, 3]], tf.int32), x[:1, :3]),
    "argmax": lambda x: keras.ops.argmax(x, -1) * 10 + keras.ops.argmin(x, -1),
}


@pytest.mark.parametrize("kind", PLACES)
def test_places(kind: str) -> None:
    same(PLACES[kind], ROWS)
