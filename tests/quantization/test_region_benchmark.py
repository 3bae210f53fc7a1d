"""Products that are slower in 8 bits than in floats stay in floats, and the report says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import quantization
from neurenix.hardware import get_backend
from neurenix.hardware.options import has_int8
from neurenix.quantization import region_benchmark
from neurenix.quantization.compare import Ratios

SHAPE = ("n", 4, 512, 512)
SHAPES = {"x": ((1, 4, 512, 512), (2, 4, 512, 512), (4, 4, 512, 512))}
#: What it says depends on how long kernels take.
TIMED = pytest.mark.exclusive
EIGHT_BITS = pytest.mark.skipif(not has_int8("cpu"), reason="this processor does not multiply in 8 bits")


def network() -> nx.Network:
    """A convolution that reads one pixel of 256, all of which 8 bits would have to round first; and a product whose
    weights are a quarter in 8 bits: neither is ever the other way round, however busy the processor is."""
    random = np.random.default_rng(7)

    def weights(*shape: int) -> Any:
        values = random.normal(size=shape) / np.sqrt(np.prod(shape) / max(shape))
        return made.add_constant("", values.astype(np.float32))

    made = nx.Network("regions")
    x = made.add_input("x", np.float32, SHAPE)
    y = made.add_layer("Conv", [x, weights(4, 4, 1, 1)], {"strides": [16, 16]}, name="sparse")[0]
    y = made.add_layer("Flatten", [y], {}, name="flat")[0]
    y = made.add_layer("MatMul", [y, weights(4096, 2048)], {}, name="dense")[0]
    made.mark_output(y, "y")
    return made


def batch(count: int = 2) -> np.ndarray[Any, Any]:
    return np.random.default_rng().standard_normal((count, *SHAPE[1:])).astype(np.float32)


def in_8_bits(model: Any) -> list[str]:
    """The products that an engine computes in 8 bits."""
    layers = [layer for kernel in model.report()["kernels"] for layer in kernel["layers"]]
    return [name for name in ("sparse", "dense") if f"{name}.weight.dequantize" in layers]


def notes(model: Any) -> list[str]:
    return [note for note in model.report()["notes"] if "where they are faster" in note]


def decibels(got: Any, want: Any) -> float:
    return float(10 * np.log10(np.mean(np.square(want)) / np.mean(np.square(got - want))))


@TIMED
@EIGHT_BITS
def test_a_product_that_loses_in_8_bits_stays_in_floats_and_the_others_do_not() -> None:
    backend = get_backend("cpu")
    x = batch()
    model = backend.optimize_model(network(), SHAPES, "int8", calibration=[x], timing_cache=False)
    assert len(notes(model)) == 1
    note = notes(model)[0]
    assert note.startswith("int8: 1 of 2 products stay in float32") and "sparse: " in note and "dense" not in note
    assert in_8_bits(model) == ["dense"]
    exact = backend.optimize_model(network(), SHAPES)
    assert decibels(model(x), exact(x)) > 25
    # At sizes of batches that nothing was timed at too.
    assert decibels(model(x[:1]), exact(x[:1])) > 20


@EIGHT_BITS
@pytest.mark.parametrize("option", [{"deterministic": True}, {"strict": True}, {"optimization_level": 2}])
def test_everything_has_8_bits_where_nothing_may_be_timed(option: dict[str, Any]) -> None:
    model = get_backend("cpu").optimize_model(network(), SHAPES, "int8", calibration=[batch()], **option)
    assert in_8_bits(model) == ["sparse", "dense"] and notes(model) == []


@EIGHT_BITS
def test_networks_that_memory_would_not_hold_so_often_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_benchmark, "MOST_WEIGHTS", 1 << 20)
    model = get_backend("cpu").optimize_model(network(), SHAPES, "int8", calibration=[batch()])
    told = [note for note in model.report()["notes"] if "was not timed against float32" in note]
    assert in_8_bits(model) == ["sparse", "dense"] and len(told) == 1


@TIMED
@EIGHT_BITS
def test_the_timing_cache_keeps_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = get_backend("cpu")
    options: dict[str, Any] = {"timing_cache": str(tmp_path / "times"), "calibration": [batch()]}
    model = backend.optimize_model(network(), SHAPES, "int8", threads=2, **options)

    def timed(*_: Any) -> Any:
        raise AssertionError("timed once more")

    monkeypatch.setattr(region_benchmark._Search, "_measured", timed)
    again = backend.optimize_model(network(), SHAPES, "int8", threads=2, **options)
    assert in_8_bits(again) == in_8_bits(model) == ["dense"]
    assert notes(again) == notes(model) and len(notes(model)) == 1
    # Other threads, shapes or precisions around it are another question.
    for shapes, precision, threads in (
        (SHAPES, "int8", 1),
        ({"x": (2, *SHAPE[1:])}, "int8", 2),
        (SHAPES, "int8+bf16", 2),
    ):
        with pytest.raises(AssertionError, match="timed once more"):
            backend.optimize_model(network(), shapes, precision, threads=threads, **options)


@EIGHT_BITS
def test_the_timing_cache_keeps_that_there_was_no_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the kernels of a small network take in another build."""
    options: dict[str, Any] = {"timing_cache": str(tmp_path / "times"), "calibration": [batch()]}
    monkeypatch.setattr(region_benchmark, "LEAST_MS", 1e9)
    model = get_backend("cpu").optimize_model(network(), SHAPES, "int8", **options)
    monkeypatch.setattr(region_benchmark, "LEAST_MS", 0.0)
    again = get_backend("cpu").optimize_model(network(), SHAPES, "int8", **options)
    assert in_8_bits(again) == in_8_bits(model) == ["sparse", "dense"] and not notes(again)


@TIMED
@EIGHT_BITS
def test_a_timing_cache_that_cannot_be_written_costs_its_times_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"timing_cache": str(tmp_path), "calibration": [batch()]}
    assert in_8_bits(get_backend("cpu").optimize_model(network(), SHAPES, "int8", **options)) == ["dense"]


@TIMED
@EIGHT_BITS
def test_a_cache_alone_is_enough(tmp_path: Path) -> None:
    cache = tmp_path / "ranges.cache"
    quantization.calibrate(network(), quantization.MinMaxCalibrator([batch()], cache))
    given = quantization.MinMaxCalibrator(cache_file=cache)
    model = get_backend("cpu").optimize_model(network(), SHAPES, "int8", calibration=given, timing_cache=False)
    assert len(notes(model)) == 1 and in_8_bits(model) == ["dense"]


@TIMED
@EIGHT_BITS
def test_saved_and_refitted_engines_keep_what_was_chosen(tmp_path: Path) -> None:
    backend = get_backend("cpu")
    options: dict[str, Any] = {"timing_cache": False, "refittable": True}
    model = backend.optimize_model(network(), SHAPES, "int8", calibration=[batch()], **options)
    model.save(tmp_path / "made.engine")
    opened = backend.load(tmp_path / "made.engine")
    assert in_8_bits(opened) == in_8_bits(model) == ["dense"]
    x = batch()
    np.testing.assert_array_equal(opened(x), model(x))
    name = next(name for name, _, shape in model._engine.weights if list(shape) == [4, 4, 1, 1])
    before = model(x)
    # Scales of what a tensor gives stay as they were calibrated: lesser numbers are within.
    model.update_weights({name: np.asarray(model._engine.weight(name)) / 2})
    assert decibels(model(x), before / 2) > 15 and in_8_bits(model) == ["dense"]


def test_kernels_of_no_product_count_to_the_next_one() -> None:
    rows = [("x.quantize", 3), ("a + relu", 5), ("mean", 2), ("b", 7), ("c + d + add", 11), ("softmax", 1)]
    trial = region_benchmark.Trial(frozenset(), None, rows)  # type: ignore[arg-type]
    groups = region_benchmark._groups(["a", "b", "c", "d", "absent"], [trial])
    assert groups == {"a": "a", "b": "b", "c": "c", "d": "c"}
    assert dict(region_benchmark._times(rows, groups)) == {"a": 8, "b": 9, "c": 12}
    assert region_benchmark._regions(["a", "b", "c"], {"a", "b"}) == [["a", "b"]]
    assert region_benchmark._regions(["a", "b", "c"], {"a", "c"}) == [["a"], ["c"]]
    # Products that share a kernel in some engine are one there and elsewhere.
    other = region_benchmark.Trial(frozenset(), None, [("a", 1), ("b + c", 1), ("d", 1)])  # type: ignore[arg-type]
    assert region_benchmark._groups(["a", "b", "c", "d"], [trial, other]) == {"a": "a", "b": "b", "c": "b", "d": "b"}


def test_networks_whose_sizes_depend_on_data_have_8_bits_everywhere() -> None:
    made = network()
    y = made.outputs["y"]
    flat = made.add_layer("Reshape", [y, made.add_constant("", np.array([-1]))], {}, name="line")[0]
    above = made.add_layer("Greater", [flat, made.add_constant("", np.float32(0))], {}, name="above")[0]
    made.mark_output(made.add_layer("Compress", [flat, above], {}, name="some")[0], "some")
    exact = get_backend("cpu").optimize_model(made)
    model = get_backend("cpu").optimize_model(made, None, "int8", calibration=[batch()])
    told = [note for note in model.report()["notes"] if "signal-to-noise" in note]
    # As many numbers are seldom above zero in 8 bits as in float32.
    assert notes(model) == [] and len(told) == 2
    x = batch()
    assert decibels(model(x)[0], exact(x)[0]) > 25


def test_outputs_of_other_shapes_are_as_far_as_can_be() -> None:
    found = Ratios()
    found.add({"y": np.ones(4), "z": np.ones(2)}, {"y": np.ones(3), "z": np.full(2, 1.1)})
    found.add({"y": np.ones(4), "z": np.ones(2)}, {"y": np.ones(4), "z": np.full(2, 1.1)})
    assert found.decibels()["y"] == -np.inf and 19 < found.decibels()["z"] < 21
