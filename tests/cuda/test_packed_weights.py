"""Weights that stay in few bits on a GPU: at open sizes, refitted, behind files, with what has no end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neurenix import _native
from neurenix.hardware import get_backend

MISSING = dict(_native.provider_states())["cuda"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(MISSING is not None, reason=f"no GPU for the CUDA provider: {MISSING}"),
]

K, N, BLOCK, MOST = 256, 200, 64, 700


def model(seed: int = 0, middle: int = 5) -> tuple[onnx.ModelProto, dict[str, Any], Any]:
    """A MatMulNBits with zero points, what it holds, and the weights in double precision."""
    rng, blocks = np.random.default_rng(seed), K // BLOCK
    held = {
        "b": rng.integers(0, 256, (N, blocks, BLOCK // 2)).astype(np.uint8),
        "scales": rng.uniform(0.01, 0.02, (N, blocks)).astype(np.float32),
        "zeros": np.full((N, blocks // 2), middle * 0x11, np.uint8),
    }
    node = helper.make_node(
        "MatMulNBits", ["x", *held], ["y"], domain="com.microsoft", K=K, N=N, bits=4, block_size=BLOCK
    )
    constants = [numpy_helper.from_array(array, name) for name, array in held.items()]
    value = helper.make_tensor_value_info
    ends = [value("x", TensorProto.FLOAT, ["m", K])], [value("y", TensorProto.FLOAT, ["m", N])]
    graph = helper.make_graph([node], "packed", *ends, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    codes = np.stack([held["b"] & 15, held["b"] >> 4], -1).reshape(N, blocks, BLOCK).astype(np.float64) - middle
    weights = (codes * held["scales"].astype(np.float64)[..., None]).reshape(N, K).T
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), held, weights


def engine(given: onnx.ModelProto, precision: str = "fp32", **options: Any) -> Any:
    """An engine for one row to many, made for one."""
    backend = get_backend("cuda", fallback=False)
    return backend.optimize_model(given, {"x": ((1, K), (1, K), (MOST, K))}, precision, **options)


def check(built: Any, weights: Any, allowed: float = 2e-6) -> None:
    """Answers for few rows, by codes, and for many, by weights that are written out."""
    for rows in (1, 7, 50, MOST):
        x = np.random.default_rng(rows).normal(size=(rows, K)).astype(np.float32)
        want = x.astype(np.float64) @ weights
        np.testing.assert_allclose(np.asarray(built(x)), want, rtol=0, atol=allowed * np.abs(want).max())


def test_any_number_of_rows() -> None:
    given, _, weights = model()
    built = engine(given)
    check(built, weights)
    assert built.report()["arithmetic_per_dtype"] == {"float32 with int4 weights": 1.0}


@pytest.mark.parametrize(("precision", "allowed"), [("fp16", 2e-3), ("bf16", 1.6e-2)])
def test_16_bits(precision: str, allowed: float) -> None:
    given, _, weights = model()
    check(engine(given, precision), weights, allowed)


def test_files_and_new_weights(tmp_path: Path) -> None:
    given, _, weights = model()
    built = engine(given, refittable=True)
    built.save(tmp_path / "packed.engine")
    opened = get_backend("cuda").load(tmp_path / "packed.engine")
    check(opened, weights)
    _, held, weights = model(seed=1)
    opened.update_weights(held)
    check(opened, weights)


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_what_has_no_end_stays_in_its_row(number: float) -> None:
    given, _, weights = model()
    built = engine(given)
    for rows in (1, 7, 50):
        x = np.random.default_rng(rows).normal(size=(rows, K)).astype(np.float32)
        x[0, 9] = number
        got = np.asarray(built(x))
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(got[0], x[0, 9] * weights[9])
        want = x[1:].astype(np.float64) @ weights
        np.testing.assert_allclose(got[1:], want, rtol=0, atol=2e-6 * np.abs(weights).sum(0).max())
