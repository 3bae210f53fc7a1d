"""Slices that lie in their input: what is written beside them, in them, or behind them changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware import get_backend
from neurenix.importers import from_onnx

parser = pytest.importorskip("onnx").parser

X = np.random.default_rng(11).standard_normal((2, 40, 5)).astype(np.float32)


def outputs(body: str, arrays: dict[str, Any], given: str, results: str, profile: Any = None) -> list[Any]:
    """What a network gives, as its hazard checker sees nothing wrong with it."""
    text = f'<ir_version: 8, opset_import: ["" : 20]> m ({given}) => ({results}) {{ {body} }}'
    shapes = profile or {name: array.shape for name, array in arrays.items()}
    model = get_backend("cpu", fallback=False).optimize_model(
        from_onnx(parser.parse_model(text)), shapes, threads=1, timing_cache=False
    )
    found = []
    for turn in range(2):
        # The second call meets the memory of the first.
        found = list(model.run({name: array * (2 - turn) for name, array in arrays.items()}).values())
    assert any(kernel["kernel"] == "Slice" for kernel in model.report()["kernels"])
    return found


def cut(name: str, x: str, first: int, end: int, axis: int = 1) -> str:
    at = f"{name}f = Constant<value_ints = [{first}]>() {name}e = Constant<value_ints = [{end}]>() "
    return f"{at}{name}a = Constant<value_ints = [{axis}]>() {name} = Slice({x}, {name}f, {name}e, {name}a) "


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan is proven to be free of hazards."""
    monkeypatch.setenv("NEURENIX_VERIFY", "1")


def test_parts_that_overlap_and_are_written_to() -> None:
    body = "t = Exp(x) " + cut("a", "t", 0, 24) + cut("b", "t", 8, 40) + "p = Relu(a) q = Neg(b) y = Softsign(t)"
    p, q, y = outputs(body, {"x": X}, "float[2,40,5] x", "float[] p, float[] q, float[] y")
    t = np.exp(X)
    np.testing.assert_allclose(p, t[:, :24], rtol=1e-6)
    np.testing.assert_allclose(q, -t[:, 8:], rtol=1e-6)
    np.testing.assert_allclose(y, t / (1 + t), rtol=1e-6)


def test_parts_that_are_joined_in_another_order() -> None:
    body = "t = Exp(x) " + cut("a", "t", 1, 17) + cut("b", "t", 17, 40) + "y = Concat<axis = 1>(b, a, t)"
    (y,) = outputs(body, {"x": X}, "float[2,40,5] x", "float[] y")
    t = np.exp(X)
    np.testing.assert_allclose(y, np.concatenate([t[:, 17:], t[:, 1:17], t], 1), rtol=1e-6)


def test_parts_of_parts_of_the_callers_array_are_results() -> None:
    body = cut("a", "x", 1, 2, 0) + cut("y", "a", 3, 9) + "z = Neg(y)"
    before = X.copy()
    y, z = outputs(body, {"x": X}, "float[2,40,5] x", "float[] y, float[] z")
    np.testing.assert_array_equal(y, X[1:2, 3:9])
    np.testing.assert_array_equal(z, -X[1:2, 3:9])
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("rows", [5, 3, 2, 1])
def test_a_part_behind_the_end_is_empty(rows: int) -> None:
    body = "t = Relu(x) " + cut("u", "t", 2, 9, 0) + cut("v", "u", 1, 9, 0) + "y = Neg(v)"
    x = np.ones((rows, 3), np.float32)
    (y,) = outputs(body, {"x": x}, "float[n,3] x", "float[m,3] y", {"x": nx.Shape((1, 3), (4, 3), (5, 3))})
    np.testing.assert_array_equal(y, -x[3:])
