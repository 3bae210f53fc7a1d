"""Residuals in 8 bits: rounded where their steps are small beside what is added, and in floats elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from benchmarks.accuracy_residuals import batches, compared, network, residuals
from neurenix import quantization
from neurenix.hardware import get_backend

QUICK: dict[str, Any] = {"optimization_level": 0, "timing_cache": False, "threads": 2, "verify": False}
#: What a branch is beside its stream.
SMALL, LARGE = 0.05, 1.2
SMALL_KIND = "branches behind activations"


def built(model: Any, calibration: Any, **options: Any) -> Any:
    return get_backend("cpu").optimize_model(model, None, "int8", calibration=calibration, **QUICK, **options)


def decibels(got: Any, want: Any) -> float:
    wide = np.asarray(want, np.float64)
    return float(10 * np.log10(np.sum(wide**2) / np.sum((np.asarray(got, np.float64) - wide) ** 2)))


def told(model: Any) -> str:
    return " ".join(note for note in model.report()["notes"] if "residuals" in note)


@pytest.mark.parametrize("seed", ["1", "2", "9"])
def test_streams_past_small_branches_lose_no_more_than_in_floats(seed: str) -> None:
    model = network(SMALL_KIND, seed, SMALL)
    found = compared(model, batches(model, 0, 4), batches(model, 1, 2))
    assert found.rounded < found.residuals
    assert found.guarded > found.none - 1.0


def test_many_small_branches_are_worth_floats_and_are_told() -> None:
    model = network(SMALL_KIND, "11", SMALL)
    found = compared(model, batches(model, 0, 4), batches(model, 1, 2))
    assert found.guarded > found.all + 1
    notes = told(built(model, batches(model, 0, 4)))
    assert f"{found.residuals - found.rounded} of {found.residuals} residuals stay in floats" in notes


@pytest.mark.parametrize("kind", ["detectors", "ResNets"])
def test_branches_as_large_as_their_streams_leave_8_bits_unbroken(kind: str) -> None:
    model = network(kind, "large", LARGE)
    found = compared(model, batches(model, 0, 4), batches(model, 1, 2))
    assert found.rounded == found.residuals > 0
    assert not told(built(model, batches(model, 0, 4)))


def test_a_branch_that_is_zero_does_not_round_its_stream() -> None:
    model = network(SMALL_KIND, "zero", 0.0)
    found = compared(model, batches(model, 0, 2), batches(model, 1, 1))
    assert found.guarded >= found.all - 0.2


def test_new_weights_are_quantized_beside_residuals_in_floats(tmp_path: Path) -> None:
    model = network(SMALL_KIND, "11", SMALL)
    given = batches(model, 0, 4)
    engine = built(model, given, refittable=True)
    exact = get_backend("cpu").optimize_model(model, refittable=True, **QUICK)
    name = next(layer.inputs[1].name for layer in model.layers if layer.op == "Conv")
    new = next(layer.inputs[1] for layer in model.layers if layer.op == "Conv").numpy() * np.float32(0.9)
    for one in (engine, exact):
        one.update_weights({name: new})
    x = batches(model, 1, 1)[0]
    assert decibels(engine.run(x)["y"], exact.run(x)["y"]) > 20
    assert "residuals stay in floats" in told(engine)


def test_a_cache_decides_as_the_batches_did_and_one_without_branches_rounds_all(tmp_path: Path) -> None:
    model = network(SMALL_KIND, "11", SMALL)
    file = tmp_path / "ranges.cache"
    fresh = quantization.calibrate(model, quantization.EntropyCalibrator(batches(model, 0, 4), file))
    again = quantization.calibrate(model, quantization.EntropyCalibrator(cache_file=file))
    assert [layer.op for layer in fresh.layers] == [layer.op for layer in again.layers]
    # As calibrations before this one, and others than ours, may have written it.
    cache = quantization.CalibrationCache.read(file)
    points = model.in_full(False).quantization_points()
    branches = [name for _, name, _, role in points if role == "branch"]
    assert branches and all(name in cache.scales for name in branches)
    for name in branches:
        del cache.scales[name]
    cache.write(file)
    old = quantization.calibrate(model, quantization.EntropyCalibrator(cache_file=file))
    assert len(residuals(old)) == len(branches) > len(residuals(fresh))
    given = quantization.EntropyCalibrator(batches(model, 0, 4), file)
    assert f"{len(branches)} of {len(branches)} residuals have 8 bits whatever that costs" in told(built(model, given))


def test_what_residuals_hold_is_not_cut_off() -> None:
    model = nx.Network("clipped")
    random = np.random.default_rng(3)
    x = model.add_input("x", np.float32, (1, 4, 32, 32))
    weights = model.add_constant("w", random.standard_normal((4, 4, 1, 1)).astype(np.float32))
    y = model.add_layer("Conv", [x, weights], {}, name="conv")[0]
    model.mark_output(model.add_layer("Add", [x, y], {}, name="add")[0], "y")
    # The entropy calibrator takes few large numbers for none.
    batch = random.standard_normal((1, 4, 32, 32)).astype(np.float32)
    batch.reshape(-1)[::100] *= 20
    ranges = {}
    for made in (quantization.EntropyCalibrator, quantization.MSECalibrator):
        kept: list[bytes] = []
        given = made([{"x": batch}])
        given.write_calibration_cache = kept.append  # type: ignore[method-assign]
        quantization.calibrate(model, given)
        ranges[made] = quantization.CalibrationCache.of_bytes(kept[0]).ranges["x"]
    assert ranges[quantization.EntropyCalibrator] >= ranges[quantization.MSECalibrator]
