"""uint64 is exact from 2^63 on, or the op is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import parser  # noqa: E402

X = np.array([0, 1, 7, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 2, 2**64 - 1], np.uint64)
Y = np.array([3, 2**63, 2, 5, 2**63, 2**64 - 1, 9, 1], np.uint64)


def network_of(body: str, result: str) -> nx.Network:
    text = f'<ir_version: 10, opset_import: ["" : 23]> m (uint64[n] x, uint64[n] y) => ({result}[] z) {{ {body} }}'
    return from_onnx(parser.parse_model(text))


#: Bounds of a Clip.
LOW, HIGH = np.uint64(5), np.uint64(2**63 + 2)
BOUNDS = (
    f"low = Constant<value = uint64 {{{LOW}}}>() high = Constant<value = uint64 {{{HIGH}}}>() "
    f"middle = Constant<value = uint64 {{{2**63}}}>()"
)


def scattered(function: Any) -> Any:
    """X, each update of Y combined with it at a place."""
    want = X.copy()
    for at, update in zip([7, 6, 5, 4, 3, 2, 1, 1], Y, strict=True):
        want[at] = function(want[at], update)
    return want


EXACT: dict[str, tuple[str, str, Any]] = {
    "Add": ("z = Add(x, y)", "uint64", X + Y),
    "Sub": ("z = Sub(x, y)", "uint64", X - Y),
    "Mul": ("z = Mul(x, y)", "uint64", X * Y),
    "a chain": ("a = Add(x, y) b = Mul(a, x) z = Sub(b, y)", "uint64", (X + Y) * X - Y),
    "Equal": ("z = Equal(x, y)", "bool", X == Y),
    "BitwiseXor": ("z = BitwiseXor(x, y)", "uint64", X ^ Y),
    "BitwiseNot": ("z = BitwiseNot(x)", "uint64", ~X),
    "BitShift": ('z = BitShift<direction = "RIGHT">(x, y)', "uint64", None),
    "Where": ("c = Equal(x, y) z = Where(c, x, y)", "uint64", np.where(X == Y, X, Y)),
    "Concat": ("z = Concat<axis = 0>(x, y)", "uint64", np.concatenate([X, Y])),
    "Gather": ("i = Constant<value = int64[2] {5, 7}>() z = Gather(x, i)", "uint64", X[[5, 7]]),
    "CumSum": ("i = Constant<value = int64 {0}>() z = CumSum(x, i)", "uint64", np.cumsum(X)),
    "ReduceSum": ("z = ReduceSum<keepdims = 0>(x)", "uint64", X.sum()),
    "to int64": ("z = Cast<to = 7>(x)", "int64", X.astype(np.int64)),
    "to int32": ("z = Cast<to = 6>(x)", "int32", X.astype(np.int32)),
    "to bool and back": ("b = Cast<to = 9>(x) z = Cast<to = 13>(b)", "uint64", (X != 0).astype(np.uint64)),
    "Div": ("z = Div(x, y)", "uint64", X // Y),
    "Mod": ("z = Mod(x, y)", "uint64", X % Y),
    "Max": ("z = Max(x, y)", "uint64", np.maximum(X, Y)),
    "Min": ("z = Min(x, y)", "uint64", np.minimum(X, Y)),
    "Less": ("z = Less(x, y)", "bool", X < Y),
    "LessOrEqual": ("z = LessOrEqual(x, y)", "bool", X <= Y),
    "Greater": ("z = Greater(x, y)", "bool", X > Y),
    "GreaterOrEqual": ("z = GreaterOrEqual(x, y)", "bool", X >= Y),
    "TopK": ("k = Constant<value = int64[1] {4}>() z, i = TopK(x, k)", "uint64", np.sort(X)[:3:-1]),
    "to float": ("z = Cast<to = 1>(x)", "float", X.astype(np.float32)),
    "to double": ("z = Cast<to = 11>(x)", "double", X.astype(np.float64)),
    "a chain that compares": (
        "a = Add(x, y) m = Max(a, x) d = Div(m, y) z = Cast<to = 1>(d)",
        "float",
        (np.maximum(X + Y, X) // Y).astype(np.float32),
    ),
    "Abs": ("z = Abs(x)", "uint64", X),
    "Sign": ("z = Sign(x)", "uint64", np.sign(X)),
    "PRelu": ("z = PRelu(x, y)", "uint64", X),
    "Clip": (f"{BOUNDS} z = Clip(x, low, high)", "uint64", np.clip(X, LOW, HIGH)),
    "Clip from below": (f"{BOUNDS} z = Clip(x, low)", "uint64", np.maximum(X, LOW)),
    "Clip from above": (f"{BOUNDS} z = Clip(x, , high)", "uint64", np.minimum(X, HIGH)),
    "Clip at 2^63": (f"{BOUNDS} z = Clip(x, , middle)", "uint64", np.minimum(X, np.uint64(2**63))),
    "a chain that clips": (f"{BOUNDS} a = Add(x, y) z = Clip(a, low, high)", "uint64", np.clip(X + Y, LOW, HIGH)),
    "Pow": ("z = Pow(x, y)", "uint64", X**Y),
    "Pow by 2": ("two = Constant<value = int64 {2}>() z = Pow(x, two)", "uint64", X * X),
    "Pow by less than 0": (
        "e = Constant<value = int64 {-1}>() one = Constant<value = uint64 {1}>() a = Max(x, one) z = Pow(a, e)",
        "uint64",
        (X < 2).astype(np.uint64),
    ),
    "Pow of int64": ("a = Cast<to = 7>(x) z = Pow(a, y)", "int64", (X**Y).astype(np.int64)),
    "Unique": ("j = Concat<axis = 0>(x, y) z, i, k, c = Unique(j)", "uint64", np.unique([*X, *Y])),
    "ArgMax": ("z = ArgMax<keepdims = 0>(x)", "int64", np.argmax(X)),
    "ArgMin": ("z = ArgMin<keepdims = 0>(y)", "int64", np.argmin(Y)),
    "ReduceMax": ("z = ReduceMax<keepdims = 0>(x)", "uint64", X.max()),
    "ReduceMin": ("z = ReduceMin<keepdims = 0>(y)", "uint64", Y.min()),
    "ReduceMin of great ones": (f"{BOUNDS} g = Max(x, high) z = ReduceMin<keepdims = 0>(g)", "uint64", HIGH),
    "ReduceMean": ("z = ReduceMean<keepdims = 0>(x)", "uint64", np.uint64(sum(map(int, X)) // len(X))),
    "ReduceL1": ("z = ReduceL1<keepdims = 0>(x)", "uint64", X.sum()),
    **{
        f"ScatterElements by {how}": (
            f"i = Constant<value = int64[8] {{7, 6, 5, 4, 3, 2, 1, 1}}>() "
            f'z = ScatterElements<reduction = "{how}">(x, i, y)',
            "uint64",
            scattered(function),
        )
        for how, function in (("max", np.maximum), ("min", np.minimum), ("add", np.add), ("mul", np.multiply))
    },
    "ScatterND by max": (
        'i = Constant<value = int64[8,1] {7, 6, 5, 4, 3, 2, 1, 1}>() z = ScatterND<reduction = "max">(x, i, y)',
        "uint64",
        scattered(np.maximum),
    ),
    "through int64": ("a = Cast<to = 7>(x) b = Neg(a) z = Cast<to = 13>(b)", "uint64", np.uint64(0) - X),
}


@pytest.mark.parametrize("name", EXACT)
def test_bits_are_kept(name: str) -> None:
    body, result, want = EXACT[name]
    if name == "BitShift":
        shifts = Y % np.uint64(64)
        network, given, want = network_of(body, result), {"x": X, "y": shifts}, X >> shifts
    else:
        network, given = network_of(body, result), {"x": X, "y": Y}
    model = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False).optimize_model(network)
    given = {port.name: given[port.name] for port in network.inputs}
    assert np.array_equal(network.evaluate(given)["z"], want)
    assert np.array_equal(model.run(given)["z"], want)


REFUSED = {
    "Gemm": "a = Constant<value_ints = [-1, 1]>() p = Reshape(x, a) z = Gemm<transA = 1>(p, p)",
    "Resize": "s = Constant<value_floats = [2.0]>() z = Resize(x, , s)",
}


@pytest.mark.parametrize("op", REFUSED)
def test_what_depends_on_the_sign_is_refused_by_name(op: str) -> None:
    with pytest.raises(nx.Error, match="would take numbers from 2\\^63 on for negative ones") as caught:
        network_of(REFUSED[op], "uint64")
    assert op in str(caught.value) and "Cast to int64" in str(caught.value)


def test_floats_become_it() -> None:
    """From 2^63 on too; what no integer of it holds is for the machine to say, as everywhere."""
    text = '<ir_version: 10, opset_import: ["" : 23]> m (float[n] x) => (uint64[] z) { z = Cast<to = 13>(x) }'
    network = from_onnx(parser.parse_model(text))
    x = np.array([0, 1.5, 2**31, 2**63, 1.5 * 2**63, 2**64 - 2**40], np.float32)
    model = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False).optimize_model(network)
    for got in (network.evaluate({"x": x})["z"], model.run({"x": x})["z"]):
        assert np.array_equal(got, x.astype(np.uint64))
