"""Smaller ops of language models against ONNX Runtime's kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import neurenix as nx
from neurenix.importers import from_onnx
from tests.importers.single import Array, agree, feeds, model_of, ours, theirs

RNG = np.random.default_rng(9)
DOMAIN = "com.microsoft"


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def below(limit: int, *shape: int, dtype: Any = np.uint8) -> Array:
    return RNG.integers(0, limit, shape).astype(dtype)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_gather_of_packed_rows(bits: int, zeros: bool, block: int, shape: tuple[int, ...]) -> None:
    rows, width = 7, 64
    inputs = {
        "data": below(256, rows, width * bits // 8),
        "indices": RNG.integers(-rows, rows, shape),
        "scales": RNG.uniform(0.1, 1, (rows, width // block)).astype(np.float32),
        "zeros": below(256, rows, width // block * bits // 8) if zeros else None,
    }
    constants = ["data", "scales", *(["zeros"] if zeros else [])]
    options = {"constants": constants, "bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
    agree("GatherBlockQuantized", inputs, domain=DOMAIN, **options)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("along", "blocks"), [(0, 1), (1, 0), (0, 0), (1, 2), (2, 1), (-1, -1)])
@pytest.mark.parametrize("zeros", [True, False])
def test_gather_of_integers_of_4_bits(dtype: Any, along: int, blocks: int, zeros: bool) -> None:
    shape = [32, 32, 32]
    parts = list(shape)
    parts[blocks] = 2
    low = -8 if dtype == ml_dtypes.int4 else 0
    inputs = {
        "data": RNG.integers(low, low + 16, shape).astype(dtype),
        "indices": RNG.integers(0, 32, (2, 3)),
        "scales": RNG.uniform(0.1, 1, parts).astype(np.float32),
        "zeros": RNG.integers(low, low + 16, parts).astype(dtype) if zeros else None,
    }
    constants = ["data", "scales", *(["zeros"] if zeros else [])]
    options = {"constants": constants, "block_size": 16, "quantize_axis": blocks, "gather_axis": along}
    agree("GatherBlockQuantized", inputs, domain=DOMAIN, **options)


def test_gather_of_rows_that_share_their_weights_with_a_product() -> None:
    """As exporters tie embeddings: the table is a reshaped constant of another layer."""
    inputs = {
        "data": below(256, 7, 2, 16), "indices": np.asarray([[3, 0]]),
        "scales": RNG.uniform(0.1, 1, (7, 2)).astype(np.float32),
    }  # fmt: skip
    whole = model_of(
        "GatherBlockQuantized", inputs | {"data": inputs["data"].reshape(7, 32)}, ["y"],
        ["data", "scales"], DOMAIN, block_size=32,
    )  # fmt: skip
    tied = model_of("GatherBlockQuantized", inputs, ["y"], ["data", "scales"], DOMAIN, block_size=32)
    tied.graph.initializer.append(numpy_helper.from_array(np.int64([7, 32]), "shape"))
    tied.graph.node.insert(0, helper.make_node("Reshape", ["data", "shape"], ["rows"]))
    tied.graph.node[1].input[0] = "rows"
    given = {"indices": inputs["indices"]}
    np.testing.assert_allclose(ours(tied, given)["y"], theirs(whole, given)["y"], rtol=1e-6)


@pytest.mark.parametrize("shape", [(6, 2), (1, 2), (6, 1), (1, 1)])
@pytest.mark.parametrize("block", [32, 0])
def test_gather_of_floats_of_8_bits(shape: tuple[int, int], block: int) -> None:
    if block == 0 and shape[1] == 2:
        return
    data = normal(6, 64 if shape[1] == 2 else 32).astype(ml_dtypes.float8_e4m3fn)
    inputs = {"data": data, "indices": RNG.integers(0, 6, (2, 3)), "scales": np.abs(normal(*shape)) + 0.5}
    options = {"constants": ["data", "scales"], "block_size": block}
    agree("GatherBlockQuantized", inputs, domain=DOMAIN, **options)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("block", [16, 64])
def test_matmul_of_4_bits_by_a_table(kind: int, block: int) -> None:
    rows, columns = 12, 64
    inputs = {
        "a": normal(3, columns),
        "b": below(256, rows * columns // 2),
        "scales": RNG.uniform(0.1, 1, rows * columns // block).astype(np.float32),
    }
    options = {"constants": ["b", "scales"], "quant_type": kind, "block_size": block, "N": rows, "K": columns}
    agree("MatMulBnb4", inputs, domain=DOMAIN, **options)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("neighbours", [0, 1])
@pytest.mark.parametrize("packed", [True, False])
def test_positions_in_three_directions(layout: int, neighbours: int, packed: bool) -> None:
    batch, heads, new, size = 2, 3, 5, 16
    inputs = {
        "x": normal(batch, new, heads * size) if packed else normal(batch, heads, new, size),
        "ids": RNG.integers(0, 20, (3, batch, new)),
        "cos": normal(20, size // 2),
        "sin": normal(20, size // 2),
    }
    options = {"mrope_section": [4, 2, 2], "mrope_layout": layout, "interleaved": neighbours, "num_heads": heads}
    agree("MRotaryEmbedding", inputs, domain=DOMAIN, **options)


@pytest.mark.parametrize("kind", ["silu", "swish", "sigmoid"])
@pytest.mark.parametrize("groups", [1, 4])
def test_gated_norm(kind: str, groups: int) -> None:
    inputs = {"x": normal(2, 3, groups * 8), "scale": normal(8), "gate": normal(2, 3, groups * 8)}
    agree("GatedRMSNorm", inputs, domain=DOMAIN, activation=kind, epsilon=1e-4)


@pytest.mark.parametrize(
    ("x", "scale", "attrs"),
    [
        ((2, 5, 3, 8), None, {}),
        ((2, 5, 3, 8), (3, 8), {}),
        ((2, 5, 3, 8), (8,), {}),
        ((2, 5, 24), (24,), {"num_branches": 3}),
        ((2, 5, 24), (8,), {"num_branches": 3}),
    ],
)
def test_norm_of_branches(x: tuple[int, ...], scale: tuple[int, ...] | None, attrs: dict[str, Any]) -> None:
    inputs = {"x": normal(*x), "scale": None if scale is None else normal(*scale)}
    agree("BranchwiseRMSNorm", inputs, domain=DOMAIN, **attrs)


def test_gates() -> None:
    agree("GatedAdd", {"x": normal(2, 3, 8), "z": normal(2, 3, 8), "gate": normal(2, 3, 1)}, domain=DOMAIN)
    agree("ScaledSiLU", {"x": normal(2, 3, 8)}, domain=DOMAIN, alpha=0.3)
    agree("ScaledSiLU", {"x": normal(2, 3, 8), "scale": normal()}, domain=DOMAIN)
    inputs = {"a": normal(2, 3, 4), "bias": normal(4), "scale": -np.abs(normal(4)), "b": normal(2, 3, 4)}
    agree("LinearAttentionGate", inputs, ("decay", "beta"), domain=DOMAIN)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("past", [True, False])
def test_linear_attention(rule: str, past: bool) -> None:
    batch, new, heads, shared, size = 2, 5, 4, 2, 8
    unit = normal(batch, new, shared, size)
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    inputs = {
        "q": normal(batch, new, heads * size),
        "k": unit.reshape(batch, new, -1),
        "v": normal(batch, new, shared * size),
        "past": normal(batch, shared, size, size) if past else None,
        "decay": -np.abs(normal(batch, new, shared)) if "gated" in rule else None,
        "beta": 1 / (1 + np.exp(-normal(batch, new, shared))) if "delta" in rule else None,
    }
    options = {"q_num_heads": heads, "kv_num_heads": shared, "update_rule": rule, "chunk_size": 32}
    agree("LinearAttention", inputs, ("y", "present"), domain=DOMAIN, **options)


@pytest.mark.parametrize("kind", ["none", "silu", "swish"])
@pytest.mark.parametrize("past", [True, False])
def test_causal_convolution(kind: str, past: bool) -> None:
    inputs = {"x": normal(2, 6, 5), "w": normal(6, 1, 4), "b": normal(6), "past": normal(2, 6, 3) if past else None}
    agree("CausalConvWithState", inputs, ("y", "present"), domain=DOMAIN, activation=kind)


def test_gemm_fast_gelu() -> None:
    """ONNX Runtime has it on GPUs alone."""
    inputs = {"x": normal(3, 4), "w": normal(4, 5), "b": normal(5)}
    model = model_of("GemmFastGelu", inputs, ["y"], domain=DOMAIN)
    x = inputs["x"] @ inputs["w"] + inputs["b"]
    want = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(ours(model, feeds(model, inputs))["y"], want, rtol=1e-5, atol=1e-6)


BNB4 = {"quant_type": 0, "N": 1, "K": 16, "block_size": 16}


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "text"),
    [
        ("CausalConvWithState", {"x": normal(1, 2, 3), "w": normal(2, 1, 2)}, {"channels_last": 1}, "channels_last"),
        ("GatedRMSNorm", {"x": normal(1, 8), "s": normal(8), "g": normal(1, 8)}, {"activation": "tanh"}, "activation"),
        ("GatedAdd", dict.fromkeys("xzgw", normal(1, 1)), {}, "projected"),
        ("MatMulBnb4", {"a": normal(1, 16), "b": below(9, 8), "s": normal(1)}, BNB4, "form"),
        ("GatherBlockQuantized", {"d": below(9, 2, 8), "i": np.int64([0]), "s": normal(2, 1)}, {"bits": 3}, "packed"),
    ],
)  # fmt: skip
def test_other_forms_are_refused_by_name(op: str, inputs: dict[str, Any], attrs: dict[str, Any], text: str) -> None:
    with pytest.raises(nx.UnsupportedError, match=text) as caught:
        from_onnx(model_of(op, inputs, ["y"], domain=DOMAIN, **attrs))
    assert caught.value.layer == f"node ({op})"
