"""An op that tf2onnx does not know is a plugin of its name, if one is registered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware import tensorrt as trt
from tests.importers.tensorflow.models import alive, check, keras, needs_tensorflow, tf

pytestmark = needs_tensorflow


class NthElement(trt.IPluginV2):
    """The n-th smallest element of each row, or the n-th greatest."""

    devices = ("cpu",)

    def __init__(self, reverse: int) -> None:
        super().__init__()
        self.reverse = reverse

    def get_output_shape(self, input_shapes: Any) -> Any:
        return input_shapes[0][:-1]

    def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
        ordered = np.sort(inputs[0], axis=-1)
        outputs[0][...] = (ordered[..., ::-1] if self.reverse else ordered)[..., int(inputs[1])]


class Bucketize(trt.IPluginV2):
    """The number of boundaries that each element has reached."""

    devices = ("cpu",)

    def __init__(self, boundaries: Any) -> None:
        super().__init__()
        self.boundaries = boundaries

    def get_output_shape(self, input_shapes: Any) -> Any:
        return input_shapes[0]

    def get_output_dtypes(self, input_dtypes: Any) -> Any:
        return [np.dtype(np.int32)]

    def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
        outputs[0][...] = np.searchsorted(self.boundaries, inputs[0], side="right")


class WrongBucketize(Bucketize):
    """Leaves the dtype to be that of the input."""

    def get_output_dtypes(self, input_dtypes: Any) -> Any:
        return list(input_dtypes)


class HistogramFixedWidth(trt.IPluginV2):
    """How many elements lie in each of 5 parts of a range."""

    devices = ("cpu",)

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.dtype = dtype

    def get_output_shape(self, input_shapes: Any) -> Any:
        return (5,)

    def get_output_dtypes(self, input_dtypes: Any) -> Any:
        return [np.dtype(self.dtype)]

    def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
        first, last = inputs[1]
        outputs[0][...] = np.histogram(np.clip(inputs[0], first, last), 5, (first, last))[0]


@pytest.fixture(autouse=True)
def plugins(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is registered is registered for one test."""
    yield
    for name in ("NthElement", "Bucketize", "HistogramFixedWidth"):
        if ("1", "") in {(one.plugin_version, one.plugin_namespace) for one in _creators(name)}:
            trt.deregister_plugin(name)


def _creators(name: str) -> list[Any]:
    return [one for one in trt.get_plugin_registry().all_creators if one.name == name]


def nth(x: Any) -> Any:
    """The second greatest element of each row, twice."""
    return tf.raw_ops.NthElement(input=x, n=1, reverse=True) * 2.0


def test_in_a_function() -> None:
    trt.register_plugin("NthElement", NthElement)
    function = tf.function(nth, input_signature=[tf.TensorSpec((None, 6), name="x")])
    x = np.random.default_rng(0).normal(size=(5, 6)).astype("float32")
    check(function, {"output": function(x)}, {"x": x})


def test_in_a_keras_model_and_a_loop() -> None:
    trt.register_plugin("NthElement", NthElement)

    class Layer(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + nth(x)[:, None]), [0, x])[1]

    x = keras.Input((6,), name="x")
    model = alive(keras.Model(x, keras.layers.Dense(3, name="y")(Layer()(x))))
    given = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    check(model, {"y": model(given)}, {"x": given})


def test_attributes_and_dtypes() -> None:
    trt.register_plugin("Bucketize", Bucketize)
    trt.register_plugin("HistogramFixedWidth", HistogramFixedWidth)

    @tf.function(input_signature=[tf.TensorSpec((None,), name="x")])
    def function(x: Any) -> Any:
        bounds = tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, -0.25, 0.5])
        counts = tf.histogram_fixed_width(x, [-2.0, 2.0], nbins=5, dtype=tf.int64)
        return {"bounds": bounds, "counts": counts}

    x = np.random.default_rng(0).normal(size=50).astype("float32")
    check(function, dict(function(x)), {"x": x})


def test_another_dtype_than_the_op_gives() -> None:
    trt.register_plugin("Bucketize", WrongBucketize)
    function = tf.function(
        lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[0.0]), input_signature=[tf.TensorSpec((4,))]
    )
    with pytest.raises(nx.PluginError, match="Bucketize gives another dtype") as caught:
        nx.importers.from_tensorflow(function)
    assert (caught.value.expected, caught.value.got) == ("int32", "float32") and caught.value.hint


def test_without_a_plugin_the_hint_names_the_way_out() -> None:
    function = tf.function(nth, input_signature=[tf.TensorSpec((None, 6), name="x")])
    with pytest.raises(nx.UnsupportedError) as caught:
        nx.importers.from_tensorflow(function)
    assert "NthElement" in caught.value.message
    assert "trt.register_plugin('NthElement', YourClass)" in str(caught.value.hint)
