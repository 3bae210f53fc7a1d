"""The tools that lower the error of 8 bits: what each gains, what stays the same, and what is refused."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from benchmarks.planted import PLANTED
from neurenix import quantization
from neurenix.hardware import get_backend
from neurenix.quantization import accuracy
from neurenix.quantization.accuracy import bias, equalisation
from neurenix.quantization.calibrate import Calibrated, float_network, found_ranges
from tests import exact_onnxruntime
from tests.quantization import mixtures

QUICK: dict[str, Any] = {"optimization_level": 0, "timing_cache": False, "threads": 2}
#: The least gain on each outlier of the tool that it is planted for, in dB.
GAINS = {
    "equalisation": 25.0, "smooth": 15.0, "per_token": 20.0, "smooth, depthwise": 10.0, "gptq": 3.5,
    "bias_correction": 5.0,
}  # fmt: skip
#: The tools of tensors that have one scale.
ONE_SCALE = tuple(tool for tool in accuracy.TOOLS if tool != accuracy.PER_TOKEN)


def decibels(got: Any, want: Any) -> float:
    wide = np.asarray(want, np.float64)
    return float(10 * np.log10(np.sum(wide**2) / np.sum((np.asarray(got, np.float64) - wide) ** 2)))


def drawn(planted: str, count: int, seed: int) -> tuple[nx.Network, list[Any]]:
    network, draw = PLANTED[planted]()
    random = np.random.default_rng(seed)
    return network, [draw(random) for _ in range(count)]


def calibrated(network: nx.Network, batches: Any, tools: Any) -> Calibrated:
    plain, options = float_network(network, None, 2)
    return found_ranges(plain, quantization.Calibrator(batches), options, accuracy=accuracy.read(tools))


@pytest.mark.parametrize("planted", PLANTED)
def test_each_tool_gains_on_the_outlier_that_it_is_there_for(planted: str) -> None:
    reference_of = pytest.importorskip("onnx.reference").ReferenceEvaluator
    tool = planted.partition(",")[0]
    network, batches = drawn(planted, 12, seed=3)
    reference = reference_of(quantization.to_onnx(network))
    _, fresh = drawn(planted, 4, seed=4)
    want = np.stack([reference.run(None, {"x": x})[0] for x in fresh])
    found = {}
    together = accuracy.TOOLS if tool == accuracy.PER_TOKEN else ONE_SCALE
    for tools in ((), (tool,), together):
        model = get_backend("cpu").optimize_model(
            network, None, "int8", calibration=batches, accuracy=tools, verify=False, **QUICK
        )
        found[tools] = decibels(np.stack([model(x) for x in fresh]), want)
        notes = " ".join(model.report()["notes"])
        assert [name for name in accuracy.TOOLS if f"accuracy: {name}: " in notes] == list(tools)
    assert found[(tool,)] > found[()] + GAINS[planted]
    assert found[together] > found[()] + 0.9 * GAINS[planted]


@pytest.mark.parametrize("name", mixtures.NETWORKS)
@pytest.mark.parametrize("tools", ["equalisation", {"smooth": {"alpha": 0.6}}, "equalisation,smooth:alpha=0.4"])
def test_what_is_scaled_computes_the_same(name: str, tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equalisation, "WORTH", math.inf)
    network, batches, changed = mixtures.NETWORKS[name]()
    found = calibrated(network, batches, tools)
    want, got = (each.evaluate({"x": batches[0]})["y"] for each in (network, found.full))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    assert found.tools is not None
    asked = [tool for tool in ("equalisation", "smooth") if tool in found.tools.asked]
    assert bool(found.tools.suffix) == any(changed[tool] for tool in asked)
    for tool in asked:
        assert any(note.startswith(f"accuracy: {tool}: {changed[tool]} ") for note in found.notes()), found.notes()


def test_products_beside_another_reader_of_a_norm_share_one_tensor_of_8_bits() -> None:
    network, batches, _ = mixtures.gated()
    made = quantization.calibrate(network, batches, accuracy={"smooth": {"alpha": 0.5}})
    scaled = [layer for layer in made.layers if layer.op == "Mul" and layer.name.endswith(".smooth")]
    readers = [layer for layer in made.layers if scaled[0].outputs[0] in layer.inputs]
    assert len(scaled) == 1 and [layer.op for layer in readers] == ["QuantizeLinear"]


def test_pairs_that_gain_nothing_stay_as_they_are() -> None:
    network, batches, _ = mixtures.convolutions()
    found = calibrated(network, batches, "equalisation")
    random = np.random.default_rng(1)
    made = nx.Network()
    x = made.add_input("x", np.float32, (2, 16, 8, 8))
    for _ in range(2):
        weights = made.add_constant("", random.normal(size=(16, 16, 3, 3)).astype(np.float32))
        x = made.add_layer("Conv", [x, weights])[0]
    made.mark_output(x, "y")
    plain = calibrated(made, [random.normal(size=(2, 16, 8, 8)).astype(np.float32)], "equalisation")
    assert plain.notes() == ["accuracy: equalisation: 0 pairs of products"] and plain.tools.suffix == ""
    assert found.notes() != plain.notes()


def test_a_correction_that_harms_the_outputs_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    network, batches = drawn("bias_correction", 4, seed=16)
    exact = bias.corrections
    monkeypatch.setattr(bias, "corrections", lambda *given: {n: -v for n, v in exact(*given).items()})
    harmed = quantization.calibrate(network, batches, accuracy="bias_correction")
    assert harmed.dump() == quantization.calibrate(network, batches).dump()


def test_biases_are_corrected_so_that_means_are_those_of_float32() -> None:
    network, batches = drawn("bias_correction", 6, seed=5)
    exact = get_backend("cpu").optimize_model(network, **QUICK)

    def shift(tools: Any) -> Any:
        made = quantization.calibrate(network, batches, accuracy=tools)
        model = get_backend("cpu").optimize_model(made, **QUICK)
        return np.abs(np.mean([model(x) - exact(x) for x in batches], (0, 1, 3, 4))).max()

    assert shift("bias_correction") < 0.02 * shift(())


@pytest.mark.parametrize("name", mixtures.NETWORKS)
def test_all_tools_together_on_networks_of_all_kinds(name: str, tmp_path: Path) -> None:
    network, batches, _ = mixtures.NETWORKS[name]()
    backend = get_backend("cpu")
    want = backend.optimize_model(network, **QUICK)(batches[-1])
    found = {}
    for tools in ((), accuracy.TOOLS):
        model = backend.optimize_model(network, None, "int8", calibration=batches, accuracy=tools, **QUICK)
        found[tools] = decibels(model(batches[-1]), want)
    assert found[accuracy.TOOLS] > max(found[()] - 0.5, 15)
    model.save(tmp_path / "int8.engine")
    np.testing.assert_array_equal(backend.load(tmp_path / "int8.engine")(batches[-1]), model(batches[-1]))


def test_onnxruntime_gives_the_same(tmp_path: Path) -> None:
    network, batches = drawn("equalisation", 4, seed=6)
    made = quantization.calibrate(network, batches, accuracy=accuracy.TOOLS)
    quantization.to_onnx(made, tmp_path / "int8.onnx")
    session = exact_onnxruntime.session(tmp_path / "int8.onnx")
    want = session.run(None, {"x": batches[0]})[0]
    got = get_backend("cpu").optimize_model(made, **QUICK)(batches[0])
    assert np.mean(np.abs(got - want)) <= 0.01 * np.std(want)


@pytest.mark.parametrize(("tool", "name"), [("equalisation", "conv1.weight"), ("smooth", "inner")])
def test_other_weights_are_scaled_as_the_first_ones_were(tool: str, name: str) -> None:
    network, batches = drawn(tool, 8, seed=7)
    backend = get_backend("cpu")
    model = backend.optimize_model(network, None, "int8", calibration=batches, accuracy=tool, refittable=True, **QUICK)
    exact = backend.optimize_model(network, refittable=True, **QUICK)
    before, weights = model(batches[0]), np.asarray(_weights(network, name))
    new = weights * np.random.default_rng(8).uniform(0.6, 1.4, weights.shape).astype(np.float32)
    for each in (model, exact):
        each.update_weights({name: new})
    # The scales of activations are kept, and so is what they were divided by.
    assert decibels(model(batches[0]), exact(batches[0])) > 25
    model.update_weights({name: weights})
    np.testing.assert_array_equal(model(batches[0]), before)


def _weights(network: nx.Network, name: str) -> Any:
    return next(t.numpy() for layer in network.layers for t in layer.inputs if t is not None and t.name == name)


@pytest.mark.parametrize("tool", accuracy.OF_WEIGHTS)
def test_tools_that_fit_the_weights_at_hand_refuse_a_refit_by_name(tool: str) -> None:
    network, batches = drawn("gptq", 2, seed=9)
    with pytest.raises(nx.InvalidArgumentError, match=f"accuracy='{tool}' fits the weights at hand, and refittable"):
        get_backend("cpu").optimize_model(
            network, None, "int8", calibration=batches, accuracy=("equalisation", tool), refittable=True, **QUICK
        )
    model = get_backend("cpu").optimize_model(network, None, "int8", calibration=batches, accuracy=tool, **QUICK)
    with pytest.raises(nx.Error, match="refittable"):
        model.update_weights({"w0": np.zeros((128, 128), np.float32)})


def test_a_cache_of_other_scales_is_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network, batches = drawn("smooth", 4, seed=10)
    file = tmp_path / "x.cache"
    quantization.calibrate(network, quantization.EntropyCalibrator(batches, file))
    with caplog.at_level(logging.WARNING, "neurenix"):
        given = quantization.EntropyCalibrator(batches, file)
        first = quantization.calibrate(network, given, accuracy="smooth")
    assert "it is that of another model or version, and is written anew" in caplog.text
    told: list[int] = []
    given = quantization.EntropyCalibrator(batches, file, progress=told.append)
    again = quantization.calibrate(network, given, accuracy="smooth")
    assert told == [] and again.dump() == first.dump()
    with pytest.raises(nx.InvalidArgumentError, match="accuracy='smooth' looks at batches, and there is none"):
        quantization.calibrate(network, quantization.EntropyCalibrator(cache_file=file), accuracy="smooth")


def test_equalisation_needs_no_batch_beside_its_cache(tmp_path: Path) -> None:
    network, batches = drawn("equalisation", 4, seed=11)
    file = tmp_path / "x.cache"
    first = quantization.calibrate(network, quantization.EntropyCalibrator(batches, file), accuracy="equalisation")
    alone = quantization.EntropyCalibrator(cache_file=file)
    assert quantization.calibrate(network, alone, accuracy="equalisation").dump() == first.dump()


def test_batches_that_come_once_are_all_counted() -> None:
    network, batches = drawn("smooth", 40, seed=12)
    told: list[int] = []

    def once() -> Iterator[Any]:
        yield from batches

    given = quantization.EntropyCalibrator(once(), progress=told.append)
    found = quantization.calibrate(network, given, accuracy=ONE_SCALE)
    assert told == list(range(1, 41))
    for tools in (ONE_SCALE, accuracy.TOOLS):
        given, plain = (quantization.EntropyCalibrator(data) for data in (once(), batches))
        found = quantization.calibrate(network, given, accuracy=tools)
        assert quantization.calibrate(network, plain, accuracy=tools).dump() == found.dump()


def test_layers_lose_less_alone_and_a_mix_keeps_fewer() -> None:
    network, batches = drawn("equalisation", 4, seed=13)
    plain = quantization.sensitivity(network, batches)
    better = {loss.layer: loss.decibels for loss in quantization.sensitivity(network, batches, accuracy=accuracy.TOOLS)}
    assert plain[0].layer == "conv1" and better["conv1"] > plain[0].decibels + 20
    build = get_backend("cpu").optimize_model
    options: dict[str, Any] = {"calibration": batches, "accuracy_budget": 30, **QUICK}
    kept = [
        build(network, None, "mixed", accuracy=tools, **options).report()["notes"] for tools in ((), accuracy.TOOLS)
    ]
    assert not any("mixed: int8: " in note for note in kept[0])
    assert any("mixed: int8: " in note for note in kept[1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("equalization", "the nearest name is 'equalisation'"),
        (("smoth",), "the nearest name is 'smooth'"),
        ({"smooth": {"alfa": 0.5}}, "there is no setting of 'smooth' 'alfa'"),
        ({"smooth": {"alpha": 1.5}}, "a number from 0.0 to 1.0"),
        ({"gptq": {"damping": "much"}}, "a number from 1e-06 to 1.0"),
        ({"bias_correction": {"much": 1}}, "there is no setting of 'bias_correction' 'much'"),
        ({"gptq": 3}, "the settings of 'gptq' are a dict"),
        (7, "`accuracy` names tools"),
        (("smooth", {"gptq": {}}), "named by a text"),
        ([["smooth"]], "named by a text"),
    ],
)
def test_unknown_tools_and_settings_are_refused(given: Any, message: str) -> None:
    network, batches = drawn("gptq", 1, seed=14)
    for call in (
        lambda: quantization.calibrate(network, batches, accuracy=given),
        lambda: quantization.sensitivity(network, batches, accuracy=given),
        lambda: get_backend("cpu").optimize_model(network, None, "int8", calibration=batches, accuracy=given),
    ):
        with pytest.raises(nx.InvalidArgumentError) as error:
            call()
        assert message in str(error.value)


def test_tools_are_for_calibrated_8_bits_alone() -> None:
    network, batches = drawn("gptq", 1, seed=15)
    build = get_backend("cpu").optimize_model
    with pytest.raises(nx.InvalidArgumentError, match="`accuracy` is for other precisions"):
        build(network, None, "bf16", accuracy="gptq")
    with pytest.raises(nx.InvalidArgumentError, match="`accuracy` goes with a calibration"):
        build(network, None, "int8", accuracy="gptq")
    assert accuracy.read(" smooth:alpha=0.25, gptq") == accuracy.Accuracy(("smooth", "gptq"), alpha=0.25)
    assert accuracy.read(accuracy.Accuracy(("gptq",), damping=0.1)) == accuracy.Accuracy(("gptq",), damping=0.1)
    assert not accuracy.read(None) and not accuracy.read(())
    assert batches


def test_readers_beside_a_depthwise_convolution_share_its_tensor_of_8_bits() -> None:
    random, network = np.random.default_rng(17), nx.Network()
    spread = np.geomspace(0.05, 5, 16).reshape(-1, 1, 1, 1)
    weights = [random.normal(size=(16, 4, 1, 1)) * spread, random.normal(size=(16, 1, 3, 3)) / spread]
    first, depthwise, beside = (
        network.add_constant("", w.astype(np.float32)) for w in (*weights, random.normal(size=(8, 16, 1, 1)) / 4)
    )
    x = network.add_input("x", np.float32, (2, 4, 9, 9))
    act = network.add_layer("HardSwish", network.add_layer("Conv", [x, first]))[0]
    for given, group in ((depthwise, 16), (beside, 1)):
        network.mark_output(network.add_layer("Conv", [act, given], {"group": group})[0], f"y{group}")
    batches = [random.normal(size=(2, 4, 9, 9)).astype(np.float32) for _ in range(4)]
    made = quantization.calibrate(network, batches, accuracy="smooth")
    scaled = [layer for layer in made.layers if layer.name.endswith(".smooth")]
    readers = [layer for layer in made.layers if scaled[0].outputs[0] in layer.inputs]
    assert len(scaled) == 1 and [layer.op for layer in readers] == ["QuantizeLinear"]
    want, plain, got = (
        each.evaluate({"x": batches[0]}) for each in (network, quantization.calibrate(network, batches), made)
    )
    assert decibels(got["y16"], want["y16"]) > decibels(plain["y16"], want["y16"]) + 6
    assert decibels(got["y1"], want["y1"]) > 30


@pytest.mark.parametrize("method", ["entropy", "minmax", "mse"])
def test_channels_of_a_depthwise_convolution_stay_where_scales_gain_nothing(method: str) -> None:
    """Few samples of numbers that are seldom large: what one half has as its greatest says little of the other."""
    gains = []
    for seed in range(6):
        random, network = np.random.default_rng(seed), nx.Network()
        first, second = (
            network.add_constant("", random.normal(size=shape).astype(np.float32))
            for shape in ((12, 4, 1, 1), (12, 1, 3, 3))
        )
        x = network.add_input("x", np.float32, (2, 4, 5, 5))
        x = network.add_layer("HardSwish", network.add_layer("Conv", [x, first]))[0]
        network.mark_output(network.add_layer("Conv", [x, second], {"group": 12})[0], "y")
        drawn = [random.standard_t(3, size=(2, 4, 5, 5)).astype(np.float32) for _ in range(24)]
        want = np.stack([network.evaluate({"x": x})["y"] for x in drawn[4:]])
        found = []
        for tools in ((), "smooth"):
            batches = quantization.calibrators.calibrator(drawn[:4], method)
            made = quantization.calibrate(network, batches, accuracy=tools)
            found.append(decibels(np.stack([made.evaluate({"x": x})["y"] for x in drawn[4:]]), want))
        gains.append(found[1] - found[0])
    assert min(gains) > -1.5 and np.mean(gains) > -0.2, gains
