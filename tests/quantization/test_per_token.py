"""Matrix products with a scale for each token, against exact integer arithmetic."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware import get_backend
from neurenix.quantization import apply, calibrate, sensitivity, to_onnx
from neurenix.quantization.calibrate import without_ranges
from tests.machine import HAS_INT8, needs_int8

Array = np.ndarray[Any, Any]
#: Nothing is timed: all products have 8 bits.
QUICK = {"optimization_level": 0, "timing_cache": False, "verify": False}
TOKENS = {"accuracy": "per_token", **QUICK}


def integers(x: Array) -> tuple[Array, Array]:
    """Tokens as integers, and their scales."""
    with np.errstate(invalid="ignore"):
        scale = np.maximum(np.abs(x).max(-1, keepdims=True) * np.float32(1 / 127), np.finfo(np.float32).tiny)
        found = np.rint(x * (np.float32(1) / scale))
    finite = np.isfinite(scale)
    return np.where(finite, found, 0).astype(np.int64), np.where(finite, scale, np.nan).astype(np.float64)


def product(x: Array, weights: Array) -> Array:
    """The product in 8 bits: sums of integers, scaled in double precision."""
    rows, of_rows = integers(x)
    of_columns = np.abs(weights).max(0) / np.float32(127)
    columns = np.rint(weights / of_columns).astype(np.int64)
    found: Array = (rows @ columns) * of_rows * of_columns.astype(np.float64)
    return found


def linear(shape: Any, weights: Array, bias: Array | None = None, then: str | None = None) -> nx.Network:
    """One product."""
    network = nx.Network("linear")
    y = network.add_input("x", np.float32, shape)
    y = network.add_layer("MatMul", [y, network.add_constant("w", weights)], {}, name="product")[0]
    if bias is not None:
        y = network.add_layer("Add", [y, network.add_constant("b", bias)], {}, name="bias")[0]
    if then is not None:
        y = network.add_layer(then, [y], {}, name="then")[0]
    network.mark_output(y, "y")
    return network


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def spread(seed: int, *shape: int) -> Array:
    """Tokens of very different magnitudes."""
    tokens = np.random.default_rng(seed).uniform(-3, 3, (*shape[:-1], 1))
    return (normal(seed, *shape) * 10**tokens).astype(np.float32)


def near(got: Array, want: Array) -> None:
    """Equal but for the rounding of a few operations."""
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want[np.isfinite(want)]).max(initial=0))


@pytest.mark.parametrize("shape", [(1, 64), (5, 7), (2, 3, 33), (2, 3, 4, 16), (3, 1), (1, 1, 130), (9, 5), (130, 96)])
@pytest.mark.parametrize("columns", [1, 3, 64])
def test_products_are_those_of_integers(shape: tuple[int, ...], columns: int) -> None:
    weights, x = normal(1, shape[-1], columns), spread(2, *shape)
    network = linear(shape, weights)
    model = get_backend("cpu").optimize_model(network, shape, "int8", threads=1, **TOKENS)
    want = product(x, weights)
    got = model(x).astype(np.float64)
    # Each row within the rounding of its own numbers; sums of floats within that of what they add up.
    terms = 0 if HAS_INT8 else product(np.abs(x), np.abs(weights))
    assert np.all(np.abs(got - want) <= 1e-5 * np.abs(want) + 1e-6 * terms)
    assert model.report()["arithmetic_per_dtype"].get("int8", 0) > 0


@pytest.mark.parametrize("then", [None, "Gelu", "Relu"])
def test_a_bias_and_what_follows_are_done_with_the_product(then: str | None) -> None:
    weights, bias, x = normal(1, 48, 40), normal(2, 40), spread(3, 6, 48)
    network = linear((6, 48), weights, bias, then)
    model = get_backend("cpu").optimize_model(network, (6, 48), "int8", **TOKENS)
    sums = product(x, weights) + bias
    if then == "Relu":
        sums = np.maximum(sums, 0)
    if then == "Gelu":
        sums = sums * (1 + np.vectorize(math.erf)(sums / np.sqrt(2))) / 2
    near(model(x), sums)


def test_a_residual_stays_float_and_products_of_one_tensor_share_its_integers() -> None:
    network = nx.Network("residual")
    x = network.add_input("x", np.float32, (2, 5, 32))
    weights = [normal(at, 32, 32) for at in range(3)]
    sums = x
    for at, each in enumerate(weights):
        y = network.add_layer("MatMul", [x, network.add_constant(f"w{at}", each)], {}, name=f"product{at}")[0]
        sums = network.add_layer("Add", [sums, y], {}, name=f"add{at}")[0]
    network.mark_output(sums, "y")
    given = spread(4, 2, 5, 32)
    near(
        get_backend("cpu").optimize_model(network, (2, 5, 32), "int8", **TOKENS)(given),
        given + sum(product(given, each) for each in weights),
    )
    placed = calibrate(network, accuracy="per_token")
    assert [layer.op for layer in placed.layers].count("DynamicQuantizePerToken") == 1


def test_sizes_that_a_call_brings() -> None:
    weights, bias = normal(1, 24, 10), normal(2, 10)
    network = linear(("batch", "tokens", 24), weights, bias)
    ranges = {"x": ((1, 1, 24), (2, 8, 24), (4, 64, 24))}
    model = get_backend("cpu").optimize_model(network, ranges, "int8", **TOKENS)
    for batch, tokens in [(2, 8), (1, 1), (4, 63), (3, 17)]:
        x = spread(batch, batch, tokens, 24)
        near(model(x), product(x, weights) + bias)


def test_a_token_that_is_not_finite_is_nan_alone_and_zeros_give_the_bias() -> None:
    weights, bias, x = normal(1, 16, 8), normal(2, 8), normal(3, 6, 16)
    model = get_backend("cpu").optimize_model(linear((6, 16), weights, bias), (6, 16), "int8", **TOKENS)
    clean = model(x)
    x[0], x[2, 3], x[4, 5], x[5, 1] = 0, np.nan, np.inf, -np.inf
    found = model(x)
    assert np.array_equal(found[0], bias)
    assert np.isnan(found[[2, 4, 5]]).all()
    assert np.array_equal(found[[1, 3]], clean[[1, 3]])


@needs_int8
@pytest.mark.parametrize("rest", ["bf16", "fp16"])
def test_all_else_in_16_bits(rest: str) -> None:
    network = nx.Network("rest")
    x = network.add_input("x", np.float32, (4, 12, 32))
    given = [x, network.add_constant("scale", np.ones(32, np.float32))]
    y = network.add_layer("RMSNormalization", given, {"axis": -1}, name="norm")[0]
    y = network.add_layer("MatMul", [y, network.add_constant("w", normal(1, 32, 48))], {}, name="up")[0]
    y = network.add_layer("Gelu", [y], {}, name="gelu")[0]
    y = network.add_layer("MatMul", [y, network.add_constant("v", normal(2, 48, 32))], {}, name="down")[0]
    network.mark_output(network.add_layer("Add", [y, x], {}, name="add")[0], "y")
    backend, x = get_backend("cpu"), normal(3, 4, 12, 32)
    model = backend.optimize_model(network, (4, 12, 32), f"int8+{rest}", **TOKENS)
    exact = backend.optimize_model(network, (4, 12, 32), **QUICK)(x)
    noise = np.sqrt(np.mean((model(x) - exact) ** 2) / np.mean(exact**2))
    assert noise < 0.02
    assert model.report()["arithmetic_per_dtype"]["int8"] > 0.5


def test_new_weights_are_quantized_anew() -> None:
    first, other, x = normal(1, 32, 24), 3 * normal(7, 32, 24), spread(2, 5, 32)
    model = get_backend("cpu").optimize_model(linear((5, 32), first), (5, 32), "int8", refittable=True, **TOKENS)
    near(model(x), product(x, first))
    model.update_weights({"w": other})
    near(model(x), product(x, other))


def test_files_give_the_same(tmp_path: Path) -> None:
    weights, x = normal(1, 32, 24), spread(2, 5, 32)
    model = get_backend("cpu").optimize_model(linear((5, 32), weights), (5, 32), "int8", **TOKENS)
    model.save(tmp_path / "tokens.nrx")
    assert np.array_equal(nx.load(tmp_path / "tokens.nrx")(x), model(x))


def test_onnx_runtime_gives_the_same() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    weights, bias, x = normal(1, 32, 24), normal(2, 24), spread(3, 2, 5, 32)
    x[0, 0] = 0
    network = calibrate(linear((2, 5, 32), weights, bias, "Gelu"), accuracy="per_token")
    session = onnxruntime.InferenceSession(to_onnx(network).SerializeToString(), providers=["CPUExecutionProvider"])
    near(session.run(None, {"x": x})[0], get_backend("cpu").optimize_model(network, (2, 5, 32), **QUICK)(x))
    x[1, 2, 3] = np.inf
    assert np.isnan(session.run(None, {"x": x})[0][1, 2]).all()


@pytest.mark.parametrize("way", ["level", "basic", "default"])
def test_onnx_runtime_rounds_again_unless_it_is_told(way: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    weights, x = normal(1, 64, 64), spread(3, 2, 5, 64)
    options = onnxruntime.SessionOptions()
    if way == "level":
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    elif way == "basic":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    network = calibrate(linear((2, 5, 64), weights), accuracy="per_token")
    model = to_onnx(network).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found, want = session.run(None, {"x": x})[0], product(x, weights)
    rows = np.abs(want).max(-1, keepdims=True)
    assert np.all(np.abs(found - want) <= (2e-2 if way == "default" else 1e-5) * rows)


def image_and_tokens() -> nx.Network:
    """A convolution, whose result is seen as tokens, and a product."""
    network = nx.Network("image")
    x = network.add_input("x", np.float32, (2, 3, 8, 8))
    w = network.add_constant("kernel", normal(1, 16, 3, 3, 3))
    x = network.add_layer("Conv", [x, w], {"pads": [1] * 4}, name="conv")[0]
    x = network.add_layer("Transpose", [x], {"perm": [0, 2, 3, 1]}, name="last")[0]
    x = network.add_layer("MatMul", [x, network.add_constant("w", normal(2, 16, 12))], {}, name="product")[0]
    network.mark_output(x, "y")
    return network


@needs_int8
def test_beside_calibrated_convolutions() -> None:
    network, batches = image_and_tokens(), [normal(at, 2, 3, 8, 8) for at in range(4)]
    model = get_backend("cpu").optimize_model(network, (2, 3, 8, 8), "int8", calibration=batches, **TOKENS)
    assert model.report()["arithmetic_per_dtype"]["int8"] > 0.5
    placed = calibrate(network, batches, accuracy="per_token")
    assert [layer.op for layer in placed.layers].count("QuantizeLinear") == 1
    kept = calibrate(network, batches, accuracy="per_token", keep=["product"])
    assert "DynamicQuantizePerToken" not in [layer.op for layer in kept.layers]
    assert {loss.layer for loss in sensitivity(network, batches, accuracy="per_token")} == {"conv", "product"}


def test_without_calibration_all_others_stay_in_floats() -> None:
    model = get_backend("cpu").optimize_model(image_and_tokens(), (2, 3, 8, 8), "int8", **TOKENS)
    notes = " ".join(model.report()["notes"])
    assert "1 of 2 products have a scale for each token" in notes
    assert "1 other products stay in floats" in notes


def test_what_is_quantized_already_stays() -> None:
    network = calibrate(linear((5, 32), normal(1, 32, 24)), accuracy="per_token")
    with pytest.raises(InvalidArgumentError, match="says itself what is quantized"):
        calibrate(network, accuracy="per_token")


def test_with_other_tools() -> None:
    batches = [normal(at, 64, 32) for at in range(4)]
    weights, bias = normal(1, 32, 24), normal(2, 24)
    network = linear((64, 32), weights, bias)
    tools = ("smooth", "per_token", "gptq", "bias_correction")
    model = get_backend("cpu").optimize_model(
        network, (64, 32), "int8", calibration=batches, **QUICK | {"accuracy": tools}
    )
    notes = " ".join(model.report()["notes"])
    assert "gptq: 1 of 1 products" in notes and "bias_correction: 1 products" in notes
    exact = batches[0].astype(np.float64) @ weights + bias
    near_rows = np.linalg.norm(model(batches[0]) - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
    assert near_rows.max() < 0.05


def test_other_tools_want_a_calibration() -> None:
    network = linear((5, 32), normal(1, 32, 24))
    with pytest.raises(InvalidArgumentError, match="goes with a calibration"):
        get_backend("cpu").optimize_model(network, (5, 32), "int8", accuracy=("per_token", "smooth"))


def test_a_provider_without_the_kernel_says_so(caplog: pytest.LogCaptureFixture) -> None:
    network, options = linear((5, 32), normal(1, 32, 24)), {"refittable": False, "strict": False}
    found = without_ranges(network, {**options, "providers": ["tensorrt"]})
    assert found.per_token == () and "tensorrt has no kernel" in caplog.text
    with pytest.raises(UnsupportedError, match="tensorrt has no kernel"):
        without_ranges(network, {**options, "providers": ["tensorrt"], "strict": True})


def test_a_token_that_is_larger_costs_others_nothing() -> None:
    planted = pytest.importorskip("benchmarks.planted")
    network, draw = planted.PLANTED["per_token"]()
    random, backend = np.random.default_rng(1), get_backend("cpu")
    batches = [draw(random) for _ in range(8)]
    exact = backend.optimize_model(network, batches[0].shape, **QUICK)
    lost = {}
    for accuracy in ((), "smooth", "per_token"):
        options = {**QUICK, "accuracy": accuracy, "calibration": batches[:4]}
        model = backend.optimize_model(network, batches[0].shape, "int8", **options)
        want, got = (np.stack([engine(x) for x in batches[4:]]) for engine in (exact, model))
        lost[accuracy] = 10 * np.log10(np.sum(want**2) / np.sum((got - want) ** 2))
    assert lost["per_token"] > 30
    assert lost["per_token"] > 15 + max(lost[()], lost["smooth"])


def test_regions_that_lose_stay_in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is that of calibrated products."""
    seen: list[Any] = []
    monkeypatch.setattr(apply, "slower_in_8_bits", lambda found, *_: (seen.append(found), (["product"], ["slow"]))[1])
    network = linear((5, 32), normal(1, 32, 24))
    model = get_backend("cpu").optimize_model(network, (5, 32), "int8", **TOKENS)
    assert seen[0].per_token == ("product",)
    assert "int8" not in model.report()["arithmetic_per_dtype"] and "slow" in model.report()["notes"]
