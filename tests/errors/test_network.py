"""What the Network API refuses, word for word."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest

import neurenix as nx


def network() -> tuple[nx.Network, nx.Tensor]:
    made = nx.Network("m")
    return made, made.add_input("x", "float32", ["batch", 3, 8, 8])


def unknown_op() -> None:
    made, x = network()
    made.add_layer("Conf", [x], name="stem")


def unknown_attribute() -> None:
    made, x = network()
    made.add_layer("Relu", [x], {"alpha": 1.0})


def wrong_attribute() -> None:
    made, x = network()
    made.add_layer("Relu", [x], {"alpha": None})


def foreign_tensor() -> None:
    _, x = network()
    nx.Network("other").add_layer("Relu", [x])


def unknown_dtype() -> None:
    nx.Network().add_input("x", "complex64", [1])


def bad_dimension() -> None:
    nx.Network().add_input("x", "float32", ["a +"])


def wrong_dtype() -> None:
    made, x = network()
    made.mark_output(x, "y")
    made.evaluate({"x": np.zeros((1, 3, 8, 8))})


def no_outputs() -> None:
    network()[0].verify()


CASES: list[tuple[Callable[[], None], type[nx.Error], type[Exception], str]] = [
    (
        unknown_op,
        nx.UnsupportedError,
        NotImplementedError,
        """there is no op "Conf"
  layer: stem
  hint: the nearest name is "Conv\"""",
    ),
    (
        unknown_attribute,
        nx.InvalidArgumentError,
        ValueError,
        """unknown attribute "alpha"
  layer: Relu (Relu) of float32[batch, 3, 8, 8]
  expected: no attributes""",
    ),
    (
        wrong_attribute,
        nx.InvalidArgumentError,
        ValueError,
        """attribute "alpha" has a value that no attribute can have
  expected: an integer, a number, a text, a dtype, or a list of integers, numbers or dimensions
  got: None""",
    ),
    (
        foreign_tensor,
        nx.InvalidArgumentError,
        ValueError,
        """the tensor belongs to another network
  tensor: x""",
    ),
    (
        unknown_dtype,
        nx.DTypeError,
        TypeError,
        """unknown dtype "complex64"
  expected: float32, float64, float16, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, uint64, bool, \
float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float4_e2m1fn, int4, uint4, int2, uint2
  hint: cast the array to one of these first""",
    ),
    (
        bad_dimension,
        nx.ShapeError,
        ValueError,
        """dimension "a +" can't be read at character 3
  expected: a number or a name
  hint: write for example 8, 'batch' or '2*width + 1'""",
    ),
    (
        wrong_dtype,
        nx.DTypeError,
        TypeError,
        """the array has the wrong dtype
  tensor: x
  expected: float32
  got: float64
  hint: convert it first, for example with x.astype("float32")""",
    ),
    (
        no_outputs,
        nx.InvalidArgumentError,
        ValueError,
        """the network has no outputs
  hint: mark at least one tensor as an output""",
    ),
]


@pytest.mark.parametrize(("call", "kind", "builtin", "text"), CASES, ids=lambda c: getattr(c, "__name__", ""))
def test_message(call: Callable[[], None], kind: type[nx.Error], builtin: type[Exception], text: str) -> None:
    with pytest.raises(builtin) as caught:
        call()
    assert type(caught.value) is kind
    assert str(caught.value) == text


def test_an_error_survives_pickling() -> None:
    error = nx.ShapeError("shapes differ", tensor="x", expected="[2]", got="[1]")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is nx.ShapeError
    assert str(copy) == str(error)
