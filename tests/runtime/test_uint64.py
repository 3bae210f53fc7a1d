"""uint64 is exact from 2^63 on, and other integers of 64 bits from 2^53 on."""

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


def folded(x: Any) -> Any:
    """Columns of 2x2 blocks, three places in a row of 4, added up."""
    image, (a, b, c, d) = np.zeros((1, 1, 2, 4), x.dtype), x.T.reshape(4, 3)
    for block, (row, column) in zip((a, b, c, d), [(0, 0), (0, 1), (1, 0), (1, 1)], strict=True):
        image[0, 0, row, column : column + 3] += block
    return image


def sampled(x: Any) -> Any:
    """The corners, and nothing outside."""
    return np.array([x[0, 0], x[2, 3], x[2, 0], 0], x.dtype).reshape(1, 1, 1, 4)


def shrunk(x: Any) -> Any:
    return np.where(x > 2, x - x.dtype.type(3), x.dtype.type(0))


#: Of a matrix x of three rows and four columns.
MATRICES: dict[str, tuple[str, Any]] = {
    "Gemm": ("z = Gemm<transB = 1>(x, x)", lambda x: x @ x.T),
    "Gemm by numbers": (
        "c = Constant<value_ints = [7]>() d = CastLike(c, x) z = Gemm<transB = 1, alpha = -3.0, beta = 2.0>(x, x, d)",
        lambda x: x.dtype.type(0) - (x @ x.T) * x.dtype.type(3) + x.dtype.type(14),
    ),
    "Gemm by fractions": (
        "m = Constant<value_ints = [1000]>() n = CastLike(m, x) r = Mod(x, n) z = Gemm<transB = 1, alpha = 0.5>(r, r)",
        lambda x: (x % 1000) @ (x % 1000).T // 2,
    ),
    "Einsum": ('z = Einsum<equation = "ij,kj->ik">(x, x)', lambda x: x @ x.T),
    "Einsum with sums": ('z = Einsum<equation = "ij,kj->i">(x, x)', lambda x: (x @ x.T).sum(1)),
    "Resize": (
        "s = Constant<value_floats = [1.0, 2.0]>() "
        'z = Resize<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, , s)',
        lambda x: x.repeat(2, axis=1),
    ),
    "Resize beyond the edges": (
        "s = Constant<value_floats = [1.0, 1.5]>() r = Constant<value_floats = [0.0, 0.0, 1.0, 2.0]>() "
        'z = Resize<coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 9.0>(x, r, s)',
        lambda x: np.concatenate([x[:, [0, 1, 2]], np.full_like(x[:, :3], 9)], 1),
    ),
    "Col2Im": (
        "p = Transpose(x) s = Constant<value_ints = [1, 4, 3]>() c = Reshape(p, s) i = Constant<value_ints = [2, 4]>() "
        "b = Constant<value_ints = [2, 2]>() z = Col2Im(c, i, b)",
        folded,
    ),
    "GridSample": (
        "s = Constant<value_ints = [1, 1, 3, 4]>() i = Reshape(x, s) t = Constant<value_ints = [1, 1, 4, 2]>() "
        "p = Constant<value_floats = [-1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 5.0, 0.0]>() g = Reshape(p, t) "
        'z = GridSample<mode = "nearest", align_corners = 1>(i, g)',
        sampled,
    ),
    "Shrink": ("z = Shrink<lambd = 2.5, bias = 3.0>(x)", shrunk),
    "ReduceL2": (
        "m = Constant<value_ints = [1000]>() n = CastLike(m, x) r = Mod(x, n) z = ReduceL2<keepdims = 0>(r)",
        lambda x: np.sqrt(np.sum(np.square((x % 1000).astype(np.float64)))),
    ),
}


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


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("dtype", [np.uint64, np.int64, np.int32])
def test_integers_are_exact_in_what_mostly_takes_floats(name: str, dtype: Any) -> None:
    """No element goes through float64 on its way, however large: not in the reference, nor in an engine."""
    body, result = MATRICES[name]
    x = np.random.default_rng().integers(0, np.iinfo(dtype).max, (3, 4), dtype, endpoint=True)
    kind = x.dtype.name
    text = f'<ir_version: 10, opset_import: ["" : 23]> m ({kind}[n, 4] x) => ({kind}[] z) {{ {body} }}'
    network = from_onnx(parser.parse_model(text.replace("DTYPE", kind)))
    model = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False).optimize_model(network)
    want = result(x).astype(dtype)
    np.testing.assert_array_equal(network.evaluate({"x": x})["z"], want)
    np.testing.assert_array_equal(model.run({"x": x})["z"], want)


def test_floats_become_it() -> None:
    """From 2^63 on too; what no integer of it holds is for the machine to say, as everywhere."""
    text = '<ir_version: 10, opset_import: ["" : 23]> m (float[n] x) => (uint64[] z) { z = Cast<to = 13>(x) }'
    network = from_onnx(parser.parse_model(text))
    x = np.array([0, 1.5, 2**31, 2**63, 1.5 * 2**63, 2**64 - 2**40], np.float32)
    model = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False).optimize_model(network)
    for got in (network.evaluate({"x": x})["z"], model.run({"x": x})["z"]):
        assert np.array_equal(got, x.astype(np.uint64))
