"""Mixtures of experts against ONNX Runtime's kernels, and numpy where its kernels for processors lack a form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.importers import from_onnx
from tests.importers.single import Array, agree, feeds, model_of, ours

RNG = np.random.default_rng(7)
TOKENS, HIDDEN, INNER, EXPERTS = 5, 32, 32, 6


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def inputs(fused: int = 1, bias: bool = True, **more: Array | None) -> dict[str, Array | None]:
    return {
        "x": normal(TOKENS, HIDDEN),
        "router": normal(TOKENS, EXPERTS),
        "w1": normal(EXPERTS, fused * INNER, HIDDEN) / 4,
        "b1": normal(EXPERTS, fused * INNER) if bias else None,
        "w2": normal(EXPERTS, HIDDEN, INNER) / 4,
        "b2": normal(EXPERTS, HIDDEN) if bias else None,
        **more,
    }


@pytest.mark.parametrize("kind", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("chosen", [1, 3])
@pytest.mark.parametrize("scaled", [0, 1])
def test_experts(kind: str, chosen: int, scaled: int) -> None:
    options = {"k": chosen, "activation_type": kind, "normalize_routing_weights": scaled}
    agree("MoE", inputs(bias=scaled == 0), domain="com.microsoft", **options)


@pytest.mark.parametrize("attrs", [{}, {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}])
def test_experts_with_a_gate(attrs: dict[str, Any]) -> None:
    given = inputs(2)
    given["x"] = normal(1, TOKENS, HIDDEN)
    agree("MoE", given, domain="com.microsoft", k=2, activation_type="swiglu", swiglu_fusion=1, **attrs)


@pytest.mark.parametrize("layout", [0, 2])
def test_other_layouts_of_gates(layout: int) -> None:
    """The halves taken apart, or behind one another, give what they give interleaved."""
    given = inputs(2)
    whole = model_of(
        "MoE", given, ["y"], domain="com.microsoft", k=2, activation_type="swiglu", swiglu_fusion=1, activation_beta=1.0
    )
    want = ours(whole, feeds(whole, given))["y"]
    w, b = given["w1"], given["b1"]
    assert w is not None and b is not None
    other = dict(given)
    if layout == 2:
        other |= {"w1": np.concatenate([w[:, ::2], w[:, 1::2]], 1), "b1": np.concatenate([b[:, ::2], b[:, 1::2]], 1)}
    else:
        other |= {"w1": w[:, ::2], "b1": b[:, ::2], "w3": w[:, 1::2], "b3": b[:, 1::2]}
    model = model_of(
        "MoE",
        other,
        ["y"],
        domain="com.microsoft",
        k=2,
        activation_type="swiglu",
        swiglu_fusion=layout,
        activation_beta=1.0,
    )
    np.testing.assert_allclose(ours(model, feeds(model, other))["y"], want, rtol=1e-5, atol=1e-5)


def test_a_third_layer_is_a_factor() -> None:
    """As Mixtral's experts are: silu(x w1) * (x w3), then w2."""
    given = inputs(bias=False, w3=normal(EXPERTS, INNER, HIDDEN) / 4)
    model = model_of(
        "MoE", given, ["y"], domain="com.microsoft", k=1, activation_type="silu", normalize_routing_weights=1
    )
    x, router, w1, _, w2, _, w3 = given.values()
    assert x is not None and router is not None and w1 is not None and w2 is not None and w3 is not None
    best = router.argmax(1)
    gate = np.einsum("th,toh->to", x, w1[best])
    wide = gate / (1 + np.exp(-gate)) * np.einsum("th,toh->to", x, w3[best])
    want = np.einsum("to,tho->th", wide, w2[best])
    np.testing.assert_allclose(ours(model, feeds(model, given))["y"], want, rtol=1e-5, atol=1e-5)


def packed(bits: int, outputs: int, inputs: int, block: int, zeros: bool) -> list[Array | None]:
    """Weights, scales and zero points, as QMoE has them."""
    each = 8 // bits

    def whole(values: Array) -> Array:
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % each)])
        return np.bitwise_or.reduce([values[..., i::each] << np.uint8(bits * i) for i in range(each)])

    rows = (EXPERTS, outputs, inputs // block) if block else (EXPERTS, outputs)
    values, points = (
        RNG.integers(0, 1 << bits, shape).astype(np.uint8) for shape in ((EXPERTS, outputs, inputs), rows)
    )
    scales = RNG.uniform(0.01, 0.05, rows).astype(np.float32)
    return [whole(values), scales, whole(points) if zeros else None]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("weights", [True, False])
def test_quantized_experts(bits: int, block: int, zeros: bool, weights: bool) -> None:
    if bits == 8 and block:
        pytest.skip("ONNX Runtime rounds the inputs of such experts to 8 bits")
    w1, s1, z1 = packed(bits, 2 * INNER, HIDDEN, block, zeros)
    w2, s2, z2 = packed(bits, HIDDEN, INNER, block, zeros)
    given = {
        "x": normal(TOKENS, HIDDEN), "router": normal(TOKENS, EXPERTS), "w1": w1, "s1": s1,
        "b1": normal(EXPERTS, 2 * INNER), "w2": w2, "s2": s2, "b2": normal(EXPERTS, HIDDEN), "w3": None, "s3": None,
        "b3": None, "z1": z1, "z2": z2, "z3": None, "weights": np.abs(normal(TOKENS, EXPERTS)) if weights else None,
    }  # fmt: skip
    constants = [name for name in ("w1", "s1", "w2", "s2", "z1", "z2") if given[name] is not None]
    attrs = {"block_size": block} if block else {}
    options = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": bits, **attrs}
    agree("QMoE", given, domain="com.microsoft", constants=constants, **options)


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"use_sparse_mixer": 1}, "attribute 'use_sparse_mixer' is not supported"),
        ({"activation_type": "geglu"}, "the activation of the experts is not supported"),
        ({"activation_type": "swiglu", "swiglu_fusion": 0}, "in this layout"),
    ],
)
def test_other_forms_are_refused_by_name(attrs: dict[str, Any], text: str) -> None:
    with pytest.raises(nx.UnsupportedError, match=text) as caught:
        from_onnx(model_of("MoE", inputs(2), ["y"], domain="com.microsoft", k=2, **attrs))
    assert caught.value.layer == "node (MoE)"
