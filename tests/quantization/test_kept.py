"""Which products stay in floats: as little work as a budget asks for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware import get_backend
from neurenix.hardware.options import Options
from neurenix.quantization.kept import fewest, multiplications
from neurenix.quantization.sensitivity import LayerLoss

QUICK = {"optimization_level": 0, "timing_cache": False, "threads": 2}


def chosen(noises: Mapping[str, float], work: Mapping[str, float], budget: float) -> tuple[list[str] | None, int]:
    """What stays in floats where noises add up to at most a budget, and how many networks were tried."""
    tried = 0

    def near(kept: Collection[str]) -> bool:
        nonlocal tried
        tried += 1
        return sum(noise for name, noise in noises.items() if name not in kept) <= budget

    losses = [LayerLoss(name, -10 * math.log10(noise)) for name, noise in noises.items()]
    return fewest(sorted(losses, key=lambda loss: loss.decibels), work, near), tried


def test_noise_that_buys_little_work_is_left_out_first() -> None:
    # The large product loses most alone, and each of the small ones nearly as much for a hundredth of the work.
    noises = {"large": 5.0, "a": 4.0, "b": 4.0, "c": 4.0}
    work = {"large": 1000.0, "a": 10.0, "b": 10.0, "c": 10.0}
    kept, _ = chosen(noises, work, 6.0)
    assert kept == ["a", "b", "c"]


def test_what_is_needless_behind_a_prefix_has_8_bits_again() -> None:
    # Either order meets `b` in front of what it can't do without.
    noises = {"a": 8.0, "b": 1.0, "c": 6.0}
    work = {"a": 1.0, "b": 1.0, "c": 1000.0}
    kept, _ = chosen(noises, work, 7.0)
    assert kept == ["a"]
    kept, _ = chosen({"a": 8.0, "b": 2.0, "c": 6.0}, {"a": 1.0, "b": 0.1, "c": 1.0}, 2.5)
    assert sorted(kept or ()) == ["a", "c"]


@pytest.mark.parametrize(("budget", "want"), [(100.0, []), (0.0, None)])
def test_all_or_nothing(budget: float, want: list[str] | None) -> None:
    kept, tried = chosen({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 1.0, "c": 1.0}, budget)
    assert kept == want and tried <= 4


def test_nothing_is_tried_twice() -> None:
    noises = {str(at): 1.0 + at for at in range(64)}
    _, tried = chosen(noises, dict.fromkeys(noises, 1.0), 900.0)
    assert tried <= 7 + 7 + 6


def test_multiplications_are_counted_at_the_sizes_of_a_batch() -> None:
    random = np.random.default_rng(3)
    made = nx.Network("sizes")
    x = made.add_input("x", np.float32, ("n", 4, "h", 8))

    def weights(*shape: int) -> Any:
        return made.add_constant(f"w{shape}", random.normal(size=shape).astype(np.float32))

    pads = {"pads": [1, 1, 1, 1]}
    x = made.add_layer("Conv", [x, weights(6, 4, 3, 3)], pads | {"strides": [2, 2]}, name="conv")[0]
    x = made.add_layer("Conv", [x, weights(6, 1, 3, 3)], pads | {"group": 6}, name="depthwise")[0]
    x = made.add_layer("ConvTranspose", [x, weights(6, 5, 2, 2)], {"strides": [2, 2]}, name="up")[0]
    x = made.add_layer("MatMul", [x, weights(8, 3)], {}, name="product")[0]
    made.mark_output(x, "y")
    full = made.in_full()
    found = multiplications(full, {"x": np.zeros((2, 4, 6, 8), np.float32)}, Options.of(threads=1).native(["cpu"]))
    want = {
        "conv": 2 * 6 * (3 * 4) * 4 * 9,
        "depthwise": 2 * 6 * (3 * 4) * 9,
        "up": 2 * 6 * (3 * 4) * 5 * 4,
        "product": 2 * 5 * 6 * 8 * 3,
    }
    assert found == {name: float(count) for name, count in want.items()}


def test_every_batch_of_a_sample_is_judged_on() -> None:
    random = np.random.default_rng(6)
    made = nx.Network("product")
    x = made.add_input("x", np.float32, (8, 64))
    weights = made.add_constant("w", random.normal(size=(64, 64)).astype(np.float32))
    made.mark_output(made.add_layer("MatMul", [x, weights], {}, name="product")[0], "y")
    quiet = [random.normal(size=(8, 64)).astype(np.float32) for _ in range(4)]
    # Far outside of what was calibrated on.
    loud = 30 * quiet[0]

    def in_8_bits(sample: list[Any]) -> bool:
        model = get_backend("cpu").optimize_model(
            made, None, "mixed", calibration=quiet, sample=sample, accuracy_budget=25.0, **QUICK
        )
        return any("mixed: int8" in note for note in model.report()["notes"])

    assert in_8_bits(quiet) and not in_8_bits([*quiet, loud])
