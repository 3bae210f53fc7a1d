"""What layers lose alone, and precision="mixed": the fastest within a budget."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import quantization
from neurenix.hardware import get_backend
from tests.machine import HAS_INT8

SHAPE = (4, 3, 12, 12)
QUICK = {"optimization_level": 0, "timing_cache": False, "threads": 2}


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def network() -> nx.Network:
    """Three convolutions; the middle one has a channel with weights that hide the others behind one scale."""
    given = rng()
    made = nx.Network("outlier")
    x = made.add_input("x", np.float32, SHAPE)
    for at, (inputs, outputs) in enumerate([(3, 16), (16, 16), (16, 8)]):
        weights = given.normal(size=(outputs, inputs, 3, 3)).astype(np.float32) / np.sqrt(9 * inputs)
        if at == 1:
            # What 8 bits of a channel hold goes to one weight, whose input is nearly nothing.
            weights[:, 0] *= 300
        if at == 0:
            weights[0] /= 300
        tensors = [x, made.add_constant(f"w{at}", weights.astype(np.float32))]
        x = made.add_layer("Conv", tensors, {"pads": [1, 1, 1, 1]}, name=f"conv{at}")[0]
        x = made.add_layer("Relu", [x], {}, name=f"relu{at}")[0] if at < 2 else x
    made.mark_output(x, "y")
    return made


def batches(count: int = 4) -> list[Any]:
    given = rng()
    return [given.normal(size=SHAPE).astype(np.float32) for _ in range(count)]


def decibels(got: Any, want: Any) -> float:
    return float(10 * np.log10(np.mean(np.asarray(want) ** 2) / np.mean((np.asarray(got) - want) ** 2)))


def test_the_layer_with_an_outlier_is_found() -> None:
    found = quantization.sensitivity(network(), batches())
    assert found[0].layer == "conv1" and len(found) == 3
    assert found[0].decibels < 15 < 30 < found[1].decibels <= found[2].decibels
    # What it says is what keeping the layer gains.
    model = get_backend("cpu").optimize_model(quantization.calibrate(network(), batches(), keep=["conv1"]), **QUICK)
    exact = get_backend("cpu").optimize_model(network(), **QUICK)
    x = batches(1)[0]
    assert decibels(model(x), exact(x)) > 28
    kept = get_backend("cpu").optimize_model(
        network(), precision="int8", calibration=batches(), keep=["conv1"], strict=HAS_INT8, **QUICK
    )
    np.testing.assert_array_equal(kept(x), model(x))


def layers(model: Any) -> list[str]:
    return [layer for kernel in model.report()["kernels"] for layer in kernel["layers"]]


def test_what_a_node_became_is_kept_by_the_node_s_name() -> None:
    helper = pytest.importorskip("onnx").helper
    weights = rng().normal(size=(2, 32, 32)).astype(np.float32)
    tensors = [pytest.importorskip("onnx").numpy_helper.from_array(w, f"w{at}") for at, w in enumerate(weights)]
    nodes = [
        helper.make_node("Gemm", [f"x{at}", f"w{at}"], [f"x{at + 1}"], name=f"node{at}", alpha=2.0) for at in (0, 1)
    ]
    ends = [helper.make_tensor_value_info(name, 1, [4, 32]) for name in ("x0", "x2")]
    graph = helper.make_graph(nodes, "gemms", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = [rng().normal(size=(4, 32)).astype(np.float32)]
    made = get_backend("cpu").optimize_model(model, precision="int8", calibration=data, keep=["node0"], **QUICK)
    rounded = [layer for layer in layers(made) if "weight.dequantize" in layer]
    assert rounded and all(layer.startswith("node1") for layer in rounded)


@pytest.mark.parametrize("precision", ["int8", "int8+bf16", "fp8", "mixed"])
def test_what_is_to_be_kept_is_in_floats(precision: str) -> None:
    given = batches() if precision != "fp8" else None
    budget = {"accuracy_budget": 0} if precision == "mixed" else {}
    made = get_backend("cpu").optimize_model(
        network(), precision=precision, calibration=given, keep=["conv1"], verify=False, **budget, **QUICK
    )
    rounded = {layer.partition(".weight")[0] for layer in layers(made) if "weight.dequantize" in layer}
    # Which form is the fastest is for the clock to say.
    assert rounded == {"conv0", "conv2"} or (precision == "mixed" and not rounded)


@pytest.mark.parametrize(
    ("keep", "precision", "text"),
    [
        (["conv7"], "int8", "did you mean 'conv"),
        (["conv7"], "mixed", "no layer 'conv7' to keep"),
        ("conv1", "int8", "a list of names"),
        ([1], "int8", "a list of names"),
        (["conv1"], "bf16", 'precision="mixed"'),
    ],
)
def test_what_cannot_be_kept(keep: Any, precision: str, text: str) -> None:
    given = batches() if precision != "bf16" else None
    with pytest.raises(nx.InvalidArgumentError, match=text):
        get_backend("cpu").optimize_model(network(), precision=precision, calibration=given, keep=keep, **QUICK)


@pytest.mark.parametrize("budget", [1.0, 28.0, 200.0])
def test_what_is_taken_is_within_the_budget(budget: float) -> None:
    backend = get_backend("cpu")
    model = backend.optimize_model(network(), None, "mixed", calibration=batches(), accuracy_budget=budget, **QUICK)
    exact = backend.optimize_model(network(), **QUICK)
    x = batches(1)[0]
    assert decibels(model(x), exact(x)) >= budget - 1
    notes = [note for note in model.report()["notes"] if note.startswith("mixed: ")]
    assert any("float32: " in note for note in notes) and notes[0].endswith(", which was taken")
    names = " ".join(notes)
    assert ("int8: " in names) == (budget == 1) and ("int8 with 1 of 3 products in float32 (conv1)" in names) == (
        budget == 28
    )
    times = [float(ms) for ms in re.findall(r"([\d.]+) ms", names)]
    assert times == sorted(times)


def test_no_product_is_tried_alone_where_all_in_8_bits_are_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("the losses were asked for")

    monkeypatch.setattr("neurenix.quantization.mixed.losses", asked)
    given: dict[str, Any] = {"calibration": batches(), **QUICK}
    model = get_backend("cpu").optimize_model(network(), None, "mixed", accuracy_budget=1.0, **given)
    assert any("mixed: int8: " in note for note in model.report()["notes"])
    with pytest.raises(AssertionError, match="losses"):
        get_backend("cpu").optimize_model(network(), None, "mixed", accuracy_budget=28.0, **given)


def test_the_caller_s_metric_decides() -> None:
    given = rng().normal(size=SHAPE).astype(np.float32)
    exact = get_backend("cpu").optimize_model(network(), **QUICK)(given)
    asked = 0

    def metric(run: Any) -> float:
        nonlocal asked
        asked += 1
        return -float(np.mean((run({"x": given})["y"] - exact) ** 2))

    model = get_backend("cpu").optimize_model(
        network(), None, "mixed", calibration=batches(), metric=metric, accuracy_budget=1e-12, **QUICK
    )
    assert asked >= 3 and "metric" in model.report()["notes"][0]
    np.testing.assert_allclose(model(given), exact, atol=1e-5)


def test_what_can_not_be_mixed(tmp_path: Path) -> None:
    def build(**options: Any) -> None:
        get_backend("cpu").optimize_model(network(), None, "mixed", **options, **QUICK)

    with pytest.raises(nx.InvalidArgumentError, match="there is none"):
        build()
    with pytest.raises(nx.InvalidArgumentError, match="a number that is not negative"):
        build(calibration=batches(), accuracy_budget=-3)
    with pytest.raises(nx.InvalidArgumentError, match="`accuracy_budget` is for other precisions"):
        get_backend("cpu").optimize_model(network(), None, "bf16", accuracy_budget=20)
    file = tmp_path / "m.cache"
    quantization.calibrate(network(), quantization.MinMaxCalibrator(batches(), file))
    with pytest.raises(nx.InvalidArgumentError, match="no batch to judge by"):
        build(calibration=quantization.MinMaxCalibrator(cache_file=file))
    with pytest.raises(nx.InvalidArgumentError, match="nothing to mix"):
        model = quantization.calibrate(network(), batches())
        get_backend("cpu").optimize_model(model, None, "mixed", calibration=batches(), **QUICK)


def joined() -> nx.Network:
    """The sum of two convolutions, as where a residual network halves its pictures."""
    given = rng()
    made = nx.Network("joined")
    x = made.add_input("x", np.float32, SHAPE)

    def conv(source: Any, extent: int, name: str) -> Any:
        shape = (8, source.shape[1], extent, extent)
        weights = made.add_constant(f"{name}.w", given.normal(size=shape).astype(np.float32) / 5)
        return made.add_layer("Conv", [source, weights], {"pads": [extent // 2] * 4}, name=name)[0]

    inner = made.add_layer("Relu", [conv(x, 3, "first")], {})[0]
    made.mark_output(made.add_layer("Add", [conv(x, 1, "down"), conv(inner, 1, "second")], {}, name="add")[0], "y")
    return made


def test_either_product_of_a_sum_may_stay_in_floating_point(tmp_path: Path) -> None:
    found = quantization.sensitivity(joined(), batches())
    assert {loss.layer for loss in found} == {"first", "down", "second"} and min(loss.decibels for loss in found) > 20
    budget = min(loss.decibels for loss in found) + 1
    build = get_backend("cpu").optimize_model
    model = build(joined(), None, "mixed", calibration=batches(), accuracy_budget=budget, **QUICK)
    exact = build(joined(), **QUICK)
    x = batches(1)[0]
    assert decibels(model(x), exact(x)) >= budget - 1
    # A cache is enough whatever is kept; one of a search by somebody else may have no more than what is quantized.
    file = tmp_path / "joined.cache"
    whole = quantization.calibrate(joined(), quantization.EntropyCalibrator(batches(), file))
    quantization.calibrate(joined(), quantization.EntropyCalibrator(cache_file=file), keep=["second"])
    cache = quantization.CalibrationCache.read(file)
    del cache.scales["second"]
    cache.write(file)
    again = quantization.calibrate(joined(), quantization.EntropyCalibrator(cache_file=file))
    np.testing.assert_array_equal(build(again, **QUICK)(x), build(whole, **QUICK)(x))


def test_nothing_is_looked_for_that_may_not_be_timed() -> None:
    model = get_backend("cpu").optimize_model(
        network(), precision="mixed", accuracy_budget=10.0, calibration=batches(), strict=True, threads=2
    )
    forms = [note for note in model.report()["notes"] if note.startswith("mixed: ")]
    assert any("int8" in note for note in forms)
    assert not any("where that is faster" in note or "strict" in note for note in forms)
