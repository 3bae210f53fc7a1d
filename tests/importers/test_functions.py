"""The functions of a model, and weights that are inputs too, as ONNX's specification has them."""

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import parser  # noqa: E402

X = np.float32([[1, -2, 3], [-4, 5, -6]])


def parsed(main: str, *functions: str, opset: int = 18) -> Any:
    head = f'<ir_version: 10, opset_import: ["" : {opset}, "local" : 1, "other" : 1]>'
    text = f"{head} m (float[2,3] x) => (float[] y) {{ {main} }}"
    return parser.parse_model(text + "".join(functions))


def function(body: str, domain: str = "local", opset: int = 18) -> str:
    return f'<domain: "{domain}", opset_import: ["" : {opset}, "local" : 1, "other" : 1]> {body}'


def soft(x: Any, axis: int) -> Any:
    e = np.exp(x.astype(np.float64))
    return e / e.sum(axis, keepdims=True)


#: A model, and what it computes.
CASES: dict[str, tuple[Any, Any]] = {
    "nested": (
        parsed(
            "y = local.outer(x)",
            function("outer (a) => (b) { c = local.inner(a) b = local.inner(c) }"),
            function("inner (a) => (b) { c = Neg(a) b = Abs(c) }"),
        ),
        np.abs(X),
    ),
    "an attribute that refers to the caller's": (
        parsed("y = local.soft<axis = 0>(x)", function("soft <axis> (a) => (b) { b = Softmax<axis: int = @axis>(a) }")),
        soft(X, 0),
    ),
    "an attribute handed through two functions": (
        parsed(
            "y = local.outer<k = 0>(x)",
            function("outer <k> (a) => (b) { b = local.soft<axis: int = @k>(a) }"),
            function("soft <axis> (a) => (b) { b = Softmax<axis: int = @axis>(a) }"),
        ),
        soft(X, 0),
    ),
    "an attribute with a default": (
        parsed(
            "z = local.soft(x) y = local.soft<axis = 1>(z)",
            function("soft <axis: int = 0> (a) => (b) { b = Softmax<axis: int = @axis>(a) }"),
        ),
        soft(soft(X, 0), 1),
    ),
    "names that clash with those of the graph": (
        parsed(
            "t = Neg(x) a = Abs(x) z = local.f(t) w = local.f(a) y = Sub(z, w)",
            function("f (x) => (y) { t = Relu(x) a = Exp(t) y = Add(t, a) }"),
        ),
        np.maximum(-X, 0) + np.exp(np.maximum(-X, 0)) - np.abs(X) - np.exp(np.abs(X)),
    ),
    "one name in two domains": (
        parsed(
            "z = local.f(x) y = other.f(z)",
            function("f (a) => (b) { b = Neg(a) }"),
            function("f (a) => (b) { b = Exp(a) }", domain="other"),
        ),
        np.exp(-X),
    ),
    "an input that is left out": (
        parsed("y = local.f(x)", function("f (a, low) => (b) { b = Clip(a, low) }")),
        X,
    ),
    "two outputs": (
        parsed("p, q = local.f(x) y = Sub(q, p)", function("f (a) => (b, c) { b = Neg(a) c = Exp(a) }")),
        np.exp(X) + X,
    ),
    "a branch that calls": (
        parsed(
            "c = Constant<value = bool {1}>() y = If (c) <then_branch = t () => (float[2,3] p) { p = local.f(x) },"
            " else_branch = e () => (float[2,3] q) { q = Abs(x) }>",
            function("f (a) => (b) { b = Neg(a) }"),
        ),
        -X,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_mean_what_onnx_says(name: str) -> None:
    model, want = CASES[name]
    np.testing.assert_allclose(from_onnx(model).evaluate({"x": X})["y"], want, rtol=1e-6, atol=1e-5)


def test_a_function_in_an_older_opset_is_converted() -> None:
    """ReduceMean has its axes as an attribute up to opset 17."""
    model = parsed("y = local.f(x)", function("f (a) => (b) { b = ReduceMean<axes = [1]>(a) }", opset=13))
    assert np.allclose(from_onnx(model).evaluate({"x": X})["y"], X.mean(1, keepdims=True))


def test_two_overloads_of_a_function() -> None:
    model = parsed("z = local.f(x) y = local.f(z)", function("f (a) => (b) { b = Neg(a) }"))
    other = model.functions.add()
    other.CopyFrom(model.functions[0])
    other.overload, other.node[0].op_type = "exp", "Exp"
    model.graph.node[1].overload = "exp"
    assert np.allclose(from_onnx(model).evaluate({"x": X})["y"], np.exp(-X))


def with_default(ir_version: int) -> Any:
    model = parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["" : 18]> m (float[2,3] x, float[3] w) => (float[] y)'
        " <float[3] w = {1.0, 2.0, 3.0}> { y = Mul(x, w) }"
    )
    if "w" not in {port.name for port in model.graph.input}:
        model.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [3]))
    return model


@pytest.mark.parametrize("ir_version", [3, 8])
def test_a_weight_that_is_an_input_is_a_constant(ir_version: int) -> None:
    network = from_onnx(with_default(ir_version))
    assert [port.name for port in network.inputs] == ["x"]
    assert np.array_equal(network.evaluate({"x": X})["y"], X * [1, 2, 3])


@pytest.mark.parametrize("ir_version", [3, 8])
def test_the_caller_may_give_another_value_for_it(ir_version: int) -> None:
    network = from_onnx(with_default(ir_version), input_values={"w": np.float32([4, 5, 6])})
    assert np.array_equal(network.evaluate({"x": X})["y"], X * [4, 5, 6])


def test_naming_its_shape_makes_an_input_of_it() -> None:
    network = from_onnx(with_default(8), input_shapes={"w": (3,)})
    assert [port.name for port in network.inputs] == ["x", "w"]
    assert np.array_equal(network.evaluate({"x": X, "w": np.float32([4, 5, 6])})["y"], X * [4, 5, 6])


def test_before_the_fourth_version_of_the_format_every_weight_was_listed_as_an_input() -> None:
    with pytest.raises(nx.InvalidArgumentError, match="the model has no input 'w'"):
        from_onnx(with_default(3), input_shapes={"w": (3,)})
