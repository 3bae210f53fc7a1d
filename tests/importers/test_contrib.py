"""ONNX Runtime's own ops against its own kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import neurenix as nx
from neurenix.importers import from_onnx
from tests import exact_onnxruntime
from tests.conformance.providers import PROVIDERS
from tests.importers.single import Array, agree, feeds, model_of, ours, theirs

RNG = np.random.default_rng(11)
whole = partial(exact_onnxruntime.whole, RNG)
B, S, H, D = 2, 5, 4, 8
HIDDEN = H * D


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(low: int, high: int, *shape: int, dtype: str = "int32") -> Array:
    return RNG.integers(low, high, shape).astype(dtype)


def contrib(op: str, inputs: dict[str, Array | None], outputs: tuple[str, ...] = ("y",), **options: Any) -> None:
    agree(op, inputs, outputs, domain="com.microsoft", **options)


@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        ((2, 3, 4), (2, 4, 5), {"alpha": 0.25}),
        ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1}),
        ((3, 4), (4,), {}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((4, 2, 3), (5, 2, 4), {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}),
    ],
)
def test_fused_matmul(a: tuple[int, ...], b: tuple[int, ...], attrs: dict[str, Any]) -> None:
    contrib("FusedMatMul", {"a": normal(*a), "b": normal(*b)}, **attrs)


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "BiasGelu", "QuickGelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_gelus(op: str, bias: bool) -> None:
    if bias == (op in ("Gelu", "QuickGelu")):
        return
    contrib(op, {"x": normal(3, 4, 16), "b": normal(16) if bias else None} if bias else {"x": normal(3, 4, 16)})


def test_quick_gelu_with_alpha() -> None:
    contrib("QuickGelu", {"x": normal(5, 7)}, alpha=0.7)


@pytest.mark.parametrize(
    ("kind", "params"), [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.75]), ("HardSigmoid", [0.3, 0.4])]
)
def test_fused_conv(kind: str, params: list[float]) -> None:
    inputs = {"x": normal(1, 4, 6, 6), "w": normal(8, 4, 3, 3), "b": normal(8), "z": normal(1, 8, 6, 6)}
    contrib(
        "FusedConv", inputs, activation=kind, pads=[1, 1, 1, 1], **({"activation_params": params} if params else {})
    )


def test_fused_gemm() -> None:
    inputs = {"a": normal(3, 5), "b": normal(4, 5), "c": normal(4)}
    contrib("FusedGemm", inputs, transB=1, alpha=0.5, activation="LeakyRelu", activation_alpha=0.1)


def test_simplified_layer_normalization() -> None:
    agree("SimplifiedLayerNormalization", {"x": normal(3, 16), "scale": normal(16)}, axis=-1, epsilon=1e-6)


@pytest.mark.parametrize("beta", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("skip", [(2, 3, 16), (1, 3, 16), (3, 16)])
def test_skip_layer_normalization(beta: bool, bias: bool, skip: tuple[int, ...]) -> None:
    inputs = {"x": normal(2, 3, 16), "skip": normal(*skip), "gamma": normal(16)}
    last = {"bias": normal(16) if bias else None}
    contrib(
        "SkipLayerNormalization",
        {**inputs, "beta": normal(16) if beta else None, **last},
        ("y", "", "", "sum"),
        epsilon=1e-5,
    )
    contrib("SkipSimplifiedLayerNormalization", {**inputs, **last}, ("y", "", "", "sum"), epsilon=1e-5)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_embed_layer_normalization(segments: bool, masked: bool) -> None:
    inputs = {
        "ids": ints(0, 20, B, S),
        "segments": ints(0, 2, B, S) if segments else None,
        "words": normal(20, 16),
        "positions": normal(9, 16),
        "kinds": normal(2, 16) if segments else None,
        "gamma": normal(16),
        "beta": normal(16),
        "mask": ints(0, 2, B, S) if masked else None,
    }
    contrib("EmbedLayerNormalization", inputs, ("y", "mask_index", "sum"), epsilon=1e-12)


MASKS = {
    "none": None,
    "ends": np.asarray([3, 5], np.int32),
    "keys": np.asarray([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], np.int32),
    "pairs": np.tril(np.ones((B, S, S), np.int32)),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int) -> None:
    inputs = {"x": normal(B, S, 16), "w": normal(16, 3 * HIDDEN), "b": normal(3 * HIDDEN), "mask": MASKS[mask]}
    contrib("Attention", inputs, num_heads=H, unidirectional=causal)


@pytest.mark.parametrize("past", [True, False])
def test_attention_with_a_past_or_a_bias(past: bool) -> None:
    inputs = {
        "x": normal(B, S, 16),
        "w": normal(16, 3 * HIDDEN),
        "b": normal(3 * HIDDEN),
        "mask": None,
        "past": normal(2, B, H, 3, D) if past else None,
        "bias": None if past else normal(B, H, S, S),
    }
    outputs = ("y", "present") if past else ("y",)
    contrib("Attention", inputs, outputs, num_heads=H, unidirectional=1, constants=["w", "b"])


def test_attention_with_values_of_another_size() -> None:
    inputs = {"x": normal(B, S, 16), "w": normal(16, 2 * HIDDEN + 8), "b": normal(2 * HIDDEN + 8)}
    contrib("Attention", inputs, num_heads=H, qkv_hidden_sizes=[HIDDEN, HIDDEN, 8], scale=0.3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(bias: bool, masked: bool, causal: int) -> None:
    inputs = {
        "q": normal(B, S, HIDDEN),
        "k": normal(B, S, HIDDEN),
        "v": normal(B, S, HIDDEN),
        "bias": normal(3 * HIDDEN) if bias else None,
        "mask": MASKS["keys"] if masked else None,
        "more": normal(1, H, S, S),
    }
    contrib("MultiHeadAttention", inputs, num_heads=H, unidirectional=causal)


def test_multi_head_attention_with_a_past() -> None:
    inputs = {
        "q": normal(B, 1, HIDDEN),
        "k": normal(B, 1, HIDDEN),
        "v": normal(B, 1, HIDDEN),
        "bias": None,
        "mask": None,
        "more": None,
        "past_k": normal(B, H, 6, D),
        "past_v": normal(B, H, 6, D),
    }
    contrib("MultiHeadAttention", inputs, ("y", "k_out", "v_out"), num_heads=H)


def test_multi_head_attention_across() -> None:
    inputs = {"q": normal(B, S, HIDDEN), "k": normal(B, H, 7, D), "v": normal(B, H, 7, D)}
    contrib("MultiHeadAttention", inputs, num_heads=H)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(B, S, HIDDEN), (B, H, S, D)])
@pytest.mark.parametrize("first", [True, False])
def test_rotary_embedding(interleaved: int, shape: tuple[int, ...], first: bool) -> None:
    angles = RNG.uniform(-3, 3, (20, D // 2)).astype(np.float32)
    positions = np.asarray([4], np.int64) if first else ints(0, 20, B, S, dtype="int64")
    inputs = {"x": normal(*shape), "positions": positions, "cos": np.cos(angles), "sin": np.sin(angles)}
    contrib("RotaryEmbedding", inputs, interleaved=interleaved)


def test_rotary_embedding_of_a_part() -> None:
    angles = RNG.uniform(-3, 3, (20, D // 4)).astype(np.float32)
    inputs = {
        "x": normal(B, S, HIDDEN),
        "p": ints(0, 20, B, S, dtype="int64"),
        "c": np.cos(angles),
        "s": np.sin(angles),
    }
    contrib("RotaryEmbedding", inputs, num_heads=H, rotary_embedding_dim=D // 2)


def scale(value: float) -> Array:
    return np.asarray(value, np.float32)


def one(name: str, dtype: str, by: float, *shape: int) -> dict[str, Array]:
    """A quantized input with scale and zero point."""
    return {name: whole(dtype, *shape), f"{name}_scale": scale(by), f"{name}_zero": whole(dtype)}


def out(dtype: str, by: float) -> dict[str, Array]:
    """Scale and zero point of the output."""
    return {"y_scale": scale(by), "y_zero": whole(dtype)}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("op", "by"), [("QLinearAdd", 0.07), ("QLinearMul", 0.21)])
@pytest.mark.parametrize("shape", [(3, 4, 5), (5,), (4, 1)])
def test_qlinear_binary(op: str, by: float, dtype: str, shape: tuple[int, ...]) -> None:
    inputs = {**one("a", dtype, 0.031, 3, 4, 5), **one("b", dtype, 0.043, *shape), **out(dtype, by)}
    contrib(op, inputs, off_by=1)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("op", "by", "attrs"), [("QLinearSigmoid", 0.004, {}), ("QLinearLeakyRelu", 0.03, {"alpha": 0.2})]
)
def test_qlinear_unary(op: str, by: float, attrs: dict[str, Any], dtype: str) -> None:
    contrib(
        op,
        {**one("x", dtype, 0.037, 3, 40), **out(dtype, by)},
        off_by=1,
        constants=["x_scale", "x_zero", "y_scale", "y_zero"],
        **attrs,
    )


def test_qlinear_softmax() -> None:
    contrib(
        "QLinearSoftmax",
        {**one("x", "uint8", 0.02, 3, 9), **out("uint8", 1 / 256)},
        off_by=1,
        axis=-1,
        opset=13,
        constants=["x_scale", "x_zero", "y_scale", "y_zero"],
    )


@pytest.mark.parametrize("last", [0, 1])
def test_qlinear_pools(last: int) -> None:
    inputs = {**one("x", "uint8", 0.037, 2, 6, 8, 8), **out("uint8", 0.03)}
    contrib("QLinearGlobalAveragePool", inputs, off_by=1, channels_last=last)
    contrib("QLinearAveragePool", inputs, off_by=1, channels_last=last, kernel_shape=[2, 3], strides=[2, 1])


def test_qlinear_concat() -> None:
    inputs = {**out("uint8", 0.05), **one("a", "uint8", 0.04, 2, 3), **one("b", "uint8", 0.07, 2, 4)}
    contrib("QLinearConcat", inputs, off_by=1, axis=1, constants=[n for n in inputs if n not in ("a", "b")])


def test_qlinear_where() -> None:
    condition = {"c": RNG.integers(0, 2, (3, 4)).astype(np.bool_)}
    inputs = {**condition, **one("x", "uint8", 0.04, 3, 4), **one("z", "uint8", 0.07, 3, 4), **out("uint8", 0.06)}
    contrib("QLinearWhere", inputs, off_by=1, constants=[n for n in inputs if n not in ("c", "x", "z")])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("columns", [True, False])
def test_matmul_integer_to_float(bias: bool, columns: bool) -> None:
    inputs = {
        "a": whole("uint8", 2, 4, 60),
        "b": whole("int8", 60, 7),
        "a_scale": scale(0.02),
        "b_scale": RNG.uniform(0.01, 0.1, 7).astype(np.float32) if columns else scale(0.03),
        "a_zero": whole("uint8"),
        "b_zero": np.zeros(7, np.int8) if columns else whole("int8"),
        "bias": normal(7) if bias else None,
    }
    contrib("MatMulIntegerToFloat", inputs)


def test_dynamic_quantize_matmul() -> None:
    inputs = {
        "a": normal(3, 4, 30),
        "b": whole("int8", 30, 5),
        "scale": scale(0.03),
        "zero": whole("int8"),
        "bias": normal(5),
    }
    contrib("DynamicQuantizeMatMul", inputs)


@pytest.mark.parametrize("quantized", [True, False])
def test_qgemm(quantized: bool) -> None:
    inputs: dict[str, Array | None] = {
        **one("a", "uint8", 0.02, 4, 30),
        **one("b", "int8", 0.03, 6, 30),
        "c": ints(-5000, 5000, 6),
        **(out("uint8", 0.9) if quantized else {}),
    }
    contrib("QGemm", inputs, transB=1, alpha=1.0, off_by=1, constants=[n for n in inputs if n not in ("a",)])


@pytest.mark.parametrize("axes", [[1], [-1, 2]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_qlinear_reduce_mean(axes: list[int], keepdims: int) -> None:
    inputs = {"x": whole("uint8", 2, 3, 4, 5), "scale": scale(0.5), "zero": np.asarray(3, np.uint8)}
    inputs |= {"y_scale": scale(0.5), "y_zero": np.asarray(7, np.uint8)}
    model = model_of("QLinearReduceMean", inputs, ("y",), domain="com.microsoft", axes=axes, keepdims=keepdims)
    given = feeds(model, inputs)
    # ONNX Runtime declares this op and has no kernel for it.
    mean = inputs["x"].astype(np.float32).mean(tuple(axes), keepdims=bool(keepdims))
    np.testing.assert_array_equal(ours(model, given)["y"], np.clip(np.rint(mean - 3) + 7, 0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("bits", "zeros"), [(4, "none"), (4, "packed"), (4, "numbers"), (8, "none"), (8, "packed"), (2, "packed")]
)
def test_matmul_n_bits(bits: int, zeros: str) -> None:
    k, n, block = 80, 6, 32
    blocks = -(-k // block)
    given = {
        "none": None,
        "packed": whole("uint8", n * -(-blocks * bits // 8)),
        "numbers": RNG.integers(0, 16, (n, blocks)).astype(np.float32),
    }
    inputs = {
        "a": normal(2, 3, k),
        "b": whole("uint8", n, blocks, block * bits // 8),
        "scales": RNG.uniform(0.01, 0.1, n * blocks).astype(np.float32),
        "zeros": given[zeros],
    }
    held = [name for name in ("b", "scales", "zeros") if inputs[name] is not None]
    contrib("MatMulNBits", inputs, constants=held, K=k, N=n, bits=bits, block_size=block)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("rows", [1, 40])
def test_matmul_n_bits_at_an_accuracy_level(level: int, rows: int) -> None:
    k, n, block = 256, 64, 32
    inputs = {
        "a": normal(rows, k),
        "b": whole("uint8", n, k // block, block // 2),
        "scales": RNG.uniform(0.01, 0.1, n * k // block).astype(np.float32),
    }
    # Sums of 256 products of numbers around 4, whose activations both round alike.
    contrib("MatMulNBits", inputs, constants=["b", "scales"], K=k, N=n, bits=4, block_size=block, accuracy_level=level)


def quantized_lstm(weights: str, columns: bool, directions: int, hidden: int, width: int) -> dict[str, Array | None]:
    """Weights of 8 bits with their scales and zero points."""
    count = (directions, 4 * hidden) if columns else (directions,)
    middle = 0 if weights == "int8" else 128
    step = (RNG.uniform(0.5, 1.0, count) * 0.4 / 128).astype(np.float32)
    return {
        "w": whole(weights, directions, width, 4 * hidden),
        "r": whole(weights, directions, hidden, 4 * hidden),
        "b": normal(directions, 8 * hidden),
        "lengths": None,
        "h": None,
        "c": None,
        "p": None,
        "w_scale": step,
        "w_zero": np.full(count, middle, weights),
        "r_scale": step[::-1].copy(),
        "r_zero": np.full(count, middle, weights),
    }


@pytest.mark.parametrize("weights", ["int8", "uint8"])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_dynamic_quantize_lstm(weights: str, columns: bool, direction: str) -> None:
    directions = 2 if direction == "bidirectional" else 1
    inputs = {"x": normal(9, 1, 13), **quantized_lstm(weights, columns, directions, 24, 13)}
    held = [name for name, array in inputs.items() if array is not None and name != "x"]
    attrs = {"hidden_size": 24, "direction": direction}
    model = model_of("DynamicQuantizeLSTM", inputs, ("y", "yh", "yc"), domain="com.microsoft", constants=held, **attrs)
    given = feeds(model, inputs)
    got, want = ours(model, given), theirs(model, given)
    for name, expected in want.items():
        # A state that lies between two of its 255 steps may go to either.
        np.testing.assert_allclose(got[name], expected, atol=0.02 * np.abs(expected).max(), err_msg=name)
        assert np.abs(got[name] - expected).mean() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_quantized_attention(columns: bool, masked: bool) -> None:
    inputs = {
        "x": whole("uint8", B, S, 16),
        "w": whole("int8", 16, 3 * HIDDEN),
        "bias": normal(3 * HIDDEN),
        "x_scale": scale(0.01),
        "w_scale": RNG.uniform(0.005, 0.02, 3 * HIDDEN).astype(np.float32) if columns else scale(0.01),
        "mask": MASKS["ends"] if masked else None,
        "x_zero": whole("uint8"),
        "w_zero": np.zeros(3 * HIDDEN if columns else (), np.int8),
    }
    contrib("QAttention", inputs, num_heads=H, constants=["w", "bias", "w_scale", "w_zero"])


@pytest.mark.parametrize("dtype", ["int8", "uint16"])
def test_quantize_and_dequantize(dtype: str) -> None:
    zero = whole(dtype)
    contrib("QuantizeLinear", {"x": normal(4, 9), "scale": scale(0.013), "zero": zero})
    contrib("DequantizeLinear", {"x": whole(dtype, 4, 9), "scale": scale(0.013), "zero": zero})


def ranged(network: nx.Network) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    """An engine for a range of every symbol."""
    for symbol in network.symbols:
        network.set_range(symbol, 1, *((12, 18) if symbol == "all" else (6, 9)))
    return PROVIDERS["cpu"](network)


def test_symbolic_shapes_stay_so() -> None:
    inputs = {"x": normal(B, S, 16), "w": normal(16, 3 * HIDDEN), "b": normal(3 * HIDDEN), "mask": MASKS["keys"]}
    held = {"constants": ["w", "b"], "domain": "com.microsoft"}
    model = model_of("Attention", inputs, ("y",), **held, num_heads=H, unidirectional=1)
    shapes = {"x": ("n", "s", 16), "mask": ("n", "s")}
    network = from_onnx(model, input_shapes=shapes)
    assert [str(d) for d in network.outputs["y"].shape] == ["n", "s", str(HIDDEN)]
    given = feeds(model, inputs)
    got = ranged(network)(given)["y"]
    np.testing.assert_allclose(got, theirs(model, given)["y"], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [0, 1])
def test_onnx_attention_with_symbolic_shapes(causal: int) -> None:
    inputs = {
        "q": normal(B, 3, HIDDEN),
        "k": normal(B, 3, HIDDEN // 2),
        "v": normal(B, 3, HIDDEN // 2),
        "mask": RNG.integers(0, 2, (3, 5)).astype(np.bool_),
        "past_k": normal(B, H // 2, 2, D),
        "past_v": normal(B, H // 2, 2, D),
    }
    heads = {"q_num_heads": H, "kv_num_heads": H // 2, "is_causal": causal}
    model = model_of("Attention", inputs, ("y", "k_out", "v_out"), version=23, **heads)
    past = ("n", H // 2, "p", D)
    shapes = {"q": ("n", "s", HIDDEN), "k": ("n", "s", 16), "v": ("n", "s", 16), "mask": ("s", "all")}
    shapes |= {"past_k": past, "past_v": past}
    got = ranged(from_onnx(model, input_shapes=shapes))(inputs)
    want = ReferenceEvaluator(model).run(None, inputs)
    for answer, right in zip(got.values(), want, strict=True):
        np.testing.assert_allclose(answer, right, rtol=2e-5, atol=1e-5)


def test_what_is_not_there_is_refused() -> None:
    packed = model_of("MultiHeadAttention", {"q": normal(B, S, H, 4, D)}, ("y",), domain="com.microsoft", num_heads=H)
    with pytest.raises(nx.UnsupportedError, match="packed"):
        from_onnx(packed)
    unknown = model_of("FastGelo", {"x": normal(2)}, ("y",), domain="com.microsoft")
    with pytest.raises(nx.UnsupportedError, match="FastGelu"):
        from_onnx(unknown)


@pytest.mark.parametrize("packed", ["all", "keys"])
def test_multi_head_attention_of_packed_inputs(packed: str) -> None:
    q, k, v = (normal(B, S, H, D) for _ in range(3))
    apart = {name: t.reshape(B, S, HIDDEN) for name, t in (("q", q), ("k", k), ("v", v))}
    whole = {"q": np.stack([q, k, v], 3)} if packed == "all" else {"q": apart["q"], "k": np.stack([k, v], 3)}
    want = theirs(model_of("MultiHeadAttention", apart, ["y"], domain="com.microsoft", num_heads=H), apart)
    model = model_of("MultiHeadAttention", whole, ["y"], domain="com.microsoft", num_heads=H)
    np.testing.assert_allclose(ours(model, whole)["y"], want["y"], rtol=1e-5, atol=1e-5)


def channels_last(op: str, inputs: dict[str, Array], outputs: list[str], **attrs: Any) -> dict[str, Array]:
    """What an engine makes of an op that ONNX Runtime has no kernel of on the CPU."""
    return ours(model_of(op, inputs, outputs, domain="com.microsoft", **attrs), inputs)


def test_convolution_with_the_channels_last() -> None:
    x, w, b = normal(2, 9, 8, 6), normal(4, 3, 3, 3), normal(4)
    attrs = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": 2}
    apart = {"x": x.transpose(0, 3, 1, 2), "w": w.transpose(0, 3, 1, 2), "b": b}
    want = theirs(model_of("Conv", apart, ["y"], **attrs), apart)["y"]
    got = channels_last("NhwcConv", {"x": x, "w": w, "b": b}, ["y"], **attrs)["y"]
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


def grouped(x: Array, scale: Array, bias: Array, groups: int, silu: bool) -> Array:
    """The normalisation in double precision."""
    parts = x.astype(np.float64).reshape(x.shape[0], -1, groups, x.shape[3] // groups)
    parts = parts - parts.mean((1, 3), keepdims=True)
    parts /= np.sqrt(np.square(parts).mean((1, 3), keepdims=True) + 1e-5)
    y = parts.reshape(x.shape) * scale + bias
    return y / (1 + np.exp(-y)) if silu else y


@pytest.mark.parametrize("silu", [0, 1])
def test_group_norm(silu: int) -> None:
    inputs = {"x": normal(2, 3, 5, 8), "scale": normal(8), "bias": normal(8)}
    got = channels_last("GroupNorm", inputs, ["y"], groups=4, activation=silu)["y"]
    np.testing.assert_allclose(got, grouped(*inputs.values(), 4, bool(silu)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (2, 8), (2, 1, 1, 8)])
def test_skip_group_norm(shape: tuple[int, ...]) -> None:
    inputs = {"x": normal(2, 3, 5, 8), "scale": normal(8), "bias": normal(8), "skip": normal(*shape), "more": normal(8)}
    got = channels_last("SkipGroupNorm", inputs, ["y", "sum"], groups=2, activation=1)
    skip = inputs["skip"] if len(shape) == 4 else inputs["skip"][:, None, None]
    total = inputs["x"] + skip + inputs["more"]
    np.testing.assert_allclose(got["sum"], total, rtol=1e-6)
    np.testing.assert_allclose(got["y"], grouped(total, inputs["scale"], inputs["bias"], 2, True), rtol=1e-4, atol=1e-5)
