"""Weights that alone are quantized: packed in memory, in files, in refitted engines, at open sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from neurenix.hardware import get_backend

Array = NDArray[Any]
K, N, BLOCK = 128, 48, 32
PACKED = "MatMul of 4-bit weights"


def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    """A float32 tensor."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def standard(seed: int = 0, transposed: bool = False) -> tuple[onnx.ModelProto, Array]:
    """DequantizeLinear of int4 in blocks in front of a product, and the weights in double precision."""
    rng, axis = np.random.default_rng(seed), 1 if transposed else 0
    shape, grid = ((N, K), (N, K // BLOCK)) if transposed else ((K, N), (K // BLOCK, N))
    codes = rng.integers(-8, 8, shape)
    scales = rng.uniform(0.01, 0.02, grid).astype(np.float32)
    held = [
        helper.make_tensor("codes", TensorProto.INT4, shape, codes.ravel().tolist()),
        numpy_helper.from_array(scales, "scales"),
    ]
    last = {"transB": 1} if transposed else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scales"], ["w"], axis=axis, block_size=BLOCK),
        helper.make_node("Gemm" if transposed else "MatMul", ["x", "w"], ["y"], **last),
    ]
    graph = helper.make_graph(nodes, "standard", [value("x", "m", K)], [value("y", "m", N)], held)
    weights = codes * np.repeat(scales.astype(np.float64), BLOCK, axis)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, weights.T if transposed else weights


def contrib(seed: int = 0) -> tuple[onnx.ModelProto, dict[str, Array], Array]:
    """A MatMulNBits, what it holds, and the weights in double precision."""
    rng, blocks = np.random.default_rng(seed), K // BLOCK
    held = {
        "b": rng.integers(0, 256, (N, blocks, BLOCK // 2)).astype(np.uint8),
        "scales": rng.uniform(0.01, 0.02, (N, blocks)).astype(np.float32),
    }
    attrs = {"K": K, "N": N, "bits": 4, "block_size": BLOCK}
    node = helper.make_node("MatMulNBits", ["x", "b", "scales"], ["y"], domain="com.microsoft", **attrs)
    constants = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph([node], "contrib", [value("x", "m", K)], [value("y", "m", N)], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    halves = np.stack([held["b"] & 15, held["b"] >> 4], -1).reshape(N, blocks, BLOCK).astype(np.float64) - 8
    weights = (halves * held["scales"].astype(np.float64)[..., None]).reshape(N, K).T
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), held, weights


def engine(model: onnx.ModelProto, precision: str = "fp32", **options: Any) -> Any:
    """An engine for the processor, for one row to 64."""
    shapes = {"x": ((1, K), (1, K), (64, K))}
    return get_backend("cpu").optimize_model(model, shapes, precision, **options)


def check(model: Any, weights: Array, allowed: float = 2e-6) -> None:
    """Answers for one row and for many."""
    for rows in (1, 5, 40):
        x = np.random.default_rng(rows).normal(size=(rows, K)).astype(np.float32)
        want = x.astype(np.float64) @ weights
        np.testing.assert_allclose(np.asarray(model(x)), want, rtol=0, atol=allowed * np.abs(want).max())


def test_an_infinite_number_stays_one() -> None:
    """Weights with zero points: these are taken off behind the products, times sums of what is infinite."""
    rng, blocks = np.random.default_rng(0), K // BLOCK
    held = {
        "b": rng.integers(0, 256, (N, blocks, BLOCK // 2)).astype(np.uint8),
        "scales": np.full((N, blocks), 0.25, np.float32),
        "zeros": np.full((N, blocks // 2), 0x55, np.uint8),
    }
    node = helper.make_node(
        "MatMulNBits", ["x", *held], ["y"], domain="com.microsoft", K=K, N=N, bits=4, block_size=BLOCK
    )
    constants = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph([node], "zeros", [value("x", "m", K)], [value("y", "m", N)], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    built = engine(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    codes = np.stack([held["b"] & 15, held["b"] >> 4], -1).reshape(N, K).astype(np.float64) - 5
    met = codes[:, 7] != 0
    for rows in (1, 5, 40):
        x = rng.normal(size=(rows, K)).astype(np.float32)
        x[0, 7] = np.inf
        got = np.asarray(built(x))
        np.testing.assert_array_equal(got[0, met], np.sign(codes[met, 7]) * np.inf)
        np.testing.assert_allclose(got[1:], x[1:].astype(np.float64) @ codes.T / 4, rtol=1e-4, atol=1e-4)


def is_packed(model: Any) -> bool:
    """Whether the weights stay in 4 bits."""
    kernels = [kernel["kernel"] for kernel in model.report()["kernels"]]
    return PACKED in kernels


@pytest.mark.parametrize("transposed", [False, True])
def test_the_standards_blocks_are_packed(transposed: bool) -> None:
    model, weights = standard(transposed=transposed)
    built = engine(model)
    check(built, weights)
    assert is_packed(built)
    assert built.report()["arithmetic_per_dtype"] == {"float32 with int4 weights": 1.0}


def test_files_hold_them_packed_and_open_the_same(tmp_path: Path) -> None:
    model, _, weights = contrib()
    built = engine(model)
    built.save(tmp_path / "packed.engine")
    opened = get_backend("cpu").load(tmp_path / "packed.engine")
    check(opened, weights)
    assert is_packed(opened)


def test_new_weights_are_packed_anew() -> None:
    model, _, weights = contrib()
    built = engine(model, refittable=True)
    check(built, weights)
    _, held, weights = contrib(seed=1)
    built.update_weights(held)
    check(built, weights)
    assert is_packed(built)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits(precision: str) -> None:
    model, _, weights = contrib()
    # What is rounded are the activations, and in bf16 the results.
    check(engine(model, precision, verify=False), weights, allowed=0.02)
