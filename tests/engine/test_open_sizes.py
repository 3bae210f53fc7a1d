"""Models whose sizes nobody says: what they are optimised for, and no call is left on a reference implementation."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
SPREAD, MIX = (RNG.standard_normal(shape).astype(np.float32) / 4 for shape in ((16, 1, 3, 3), (24, 16, 1, 1)))


def segmenter() -> nx.Network:
    """A convolution by channels, one of 1x1 behind it, at any height and width: what mobile networks are made of."""
    made = nx.Network("segmenter")
    x = made.add_input("image", "float32", ["batch", 16, "height", "width"])
    spread = made.add_constant("spread", SPREAD)
    y = made.add_layer("Conv", [x, spread], {"group": 16, "pads": [1, 1, 1, 1], "strides": [2, 2]})[0]
    y = made.add_layer("HardSwish", [y])[0]
    y = made.add_layer("Conv", [y, made.add_constant("mix", MIX)])[0]
    made.mark_output(y, "y")
    return made


def expected(x: Array) -> Array:
    """What it gives, in float64."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    y = np.einsum("nchwij,cij->nchw", windows, SPREAD[:, 0].astype(np.float64))
    y = y * np.clip(y / 6 + 0.5, 0, 1)
    return np.einsum("nchw,mc->nmhw", y, MIX[:, :, 0, 0].astype(np.float64))


def slow(model: nx.OptimizedModel, x: Array) -> list[str]:
    """The kernels of a call on reference implementations, and on those by matrix products, for the least sizes."""
    found = [row for row in model.profile({"image": x}, 1) if re.search("ref|gemm", row.implementation)]
    return [f"{row.name}: {row.implementation}" for row in found]


#: Tuned by rules and by time, at sizes that nobody gave and at the least that there are.
LEAST = {"image": nx.Shape((1, 16, 1, 1), (1, 16, 1, 1), (4, 16, 512, 512))}


@pytest.mark.parametrize(("shapes", "sizes"), [
    (None, [(1, 16, 48, 40), (2, 16, 31, 33)]),
    (LEAST, [(1, 16, 64, 48), (2, 16, 31, 65), (1, 16, 256, 256)]),
], ids=["without", "least"])  # fmt: skip
@pytest.mark.parametrize("level", [0, 3])
def test_far_from_where_forms_were_chosen_they_are_chosen_again(shapes: Any, sizes: Any, level: int) -> None:
    model = TensorRTBackend(optimization_level=level, timing_cache=False).optimize_model(segmenter(), shapes)
    for size in [*sizes, (1, 16, 1, 1), (1, 16, 2, 3)]:
        x = RNG.standard_normal(size).astype(np.float32)
        np.testing.assert_allclose(model({"image": x})["y"], expected(x), rtol=1e-4, atol=1e-5)
        if size in sizes:
            assert slow(model, x) == [], size


def test_calls_of_many_sizes_and_threads_agree() -> None:
    """Forms that were chosen again share their weights with those of the build, and go when nobody uses them."""
    from concurrent.futures import ThreadPoolExecutor

    model = TensorRTBackend(timing_cache=False).optimize_model(segmenter(), LEAST)
    sizes = [(1, 16, 8 + 7 * i, 70 - 3 * i) for i in range(12)]
    arrays = [RNG.standard_normal(size).astype(np.float32) for size in sizes]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: model({"image": x})["y"], arrays * 2))
    for x, y in zip(arrays * 2, found, strict=True):
        np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-5)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "default sizes" in r.getMessage()]


def test_one_warning_has_the_line_to_write(caplog: pytest.LogCaptureFixture) -> None:
    backend = TensorRTBackend(optimization_level=0)
    with caplog.at_level(logging.WARNING, "neurenix"):
        model = backend.optimize_model(segmenter())
        model({"image": np.zeros((1, 16, 32, 32), np.float32)})
    assert len(told(caplog)) == 1 and "for height, width" in told(caplog)[0]
    line = told(caplog)[0].rpartition("input_shapes=")[2]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "neurenix"):
        again = backend.optimize_model(segmenter(), eval(line))
    assert told(caplog) == [] and again.profiles[0]["height"] == (224, 224, 224)


def test_a_batch_alone_is_no_size_to_say(caplog: pytest.LogCaptureFixture) -> None:
    network = nx.Network("rows")
    x = network.add_input("x", "float32", ["batch", 8])
    network.mark_output(network.add_layer("Relu", [x])[0], "y")
    with caplog.at_level(logging.WARNING, "neurenix"):
        model = TensorRTBackend(optimization_level=0).optimize_model(network)
    assert told(caplog) == [] and model.profiles[0]["batch"][1] == 1


def test_the_warning_stands_in_no_file(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever opens a file can't build otherwise."""
    backend = TensorRTBackend(optimization_level=0)
    backend.optimize_model(segmenter()).save(tmp_path / "a.engine")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "neurenix"):
        opened = backend.load(tmp_path / "a.engine")
    assert told(caplog) == [] and opened.profiles[0]["height"][1] == 224
