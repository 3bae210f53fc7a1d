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
    "Clip": "z = Clip(x)",
    "Pow": "z = Pow(x, y)",
    "ReduceMax": "z = ReduceMax(x)",
    "ReduceMean": "z = ReduceMean(x)",
    "ArgMax": "z = ArgMax(x)",
    "Unique": "z = Unique(x)",
    "ScatterElements": "i = Constant<value = int64[1] {1}>() u = Gather(y, i) "
    'z = ScatterElements<reduction = "max">(x, i, u)',
}  # fmt: skip


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
