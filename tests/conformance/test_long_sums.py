"""Long sums of convolutions are cut into short ones, so that they round no more than PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native

#: Relative to the root mean square; one sum of all terms in float32 is off by 4.5e-7 and more.
MOST = 3.5e-7


def network(weights: np.ndarray[Any, Any], size: int) -> nx.Network:
    made = nx.Network("sums")
    x = made.add_input("x", weights.dtype, [2, weights.shape[1], size, size])
    pads = [weights.shape[2] // 2] * 4
    made.mark_output(made.add_layer("Conv", [x, made.add_constant("w", weights)], {"pads": pads})[0], "y")
    return made


@pytest.mark.parametrize(("channels", "kernel", "size", "way"), [(1024, 1, 1, "jit_1x1"), (512, 3, 7, "Winograd")])
def test_sums_are_cut(channels: int, kernel: int, size: int, way: str) -> None:
    random = np.random.default_rng(0)
    weights = random.standard_normal((64, channels, kernel, kernel)).astype(np.float32)
    x = random.standard_normal((2, channels, size, size)).astype(np.float32)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    wanted = np.einsum("nchwij,kcij->nkhw", windows, weights.astype(np.float64), optimize=True)
    outcomes = _native.run_every_form(network(weights, size), "cpu", {"x": x})
    cut = [one for one in outcomes if way in one["implementation"] and one["fault"] is None]
    if not any("avx512" in one["implementation"] for one in outcomes):
        pytest.skip("the kernels for AVX-512 are meant")
    # Of one pixel all layouts are the same memory.
    assert len(cut) >= (3 if size == 1 else 2)
    for one in cut:
        error = one["outputs"][0][1] - wanted
        assert np.sqrt((error**2).mean() / (wanted**2).mean()) < MOST, one["form"]
