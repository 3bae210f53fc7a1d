"""Random numbers that a seed makes constants: what is drawn, and where it stays the same."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx
from tests.importers.single import Array

BACKEND = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)
X = {"x": np.full((50, 400), 0.25, np.float32)}


def model(signature: str, body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> m {signature} {{ {body} }}')


def run(body: str, seed: int = 1, dtype: str = "float", outputs: str = "y", given: Any = None) -> list[Array]:
    results = ", ".join(f"{dtype}[] {name}" for name in outputs)
    network = from_onnx(model(f"(float[50,400] x) => ({results})", body), seed=seed)
    return list(BACKEND.optimize_model(network, {"x": (50, 400)}).run(given or X).values())


def is_uniform(y: Array, low: float, high: float) -> None:
    """The share of the numbers below each tenth is within five standard deviations."""
    assert y.min() >= low and y.max() < high
    for share in np.arange(1, 10) / 10:
        seen = (y < low + share * (high - low)).mean()
        assert abs(seen - share) < 5 * np.sqrt(share * (1 - share) / y.size)


def is_normal(y: Array, mean: float, scale: float) -> None:
    z = (y - mean) / scale
    assert abs(z.mean()) < 5 / np.sqrt(y.size) and abs(z.std() - 1) < 5 / np.sqrt(2 * y.size)
    for limit, share in ((-1, 0.158655), (0, 0.5), (1, 0.841345), (2, 0.977250)):
        assert abs((z < limit).mean() - share) < 5 * np.sqrt(share * (1 - share) / y.size)
    assert 3.5 < np.abs(z).max() < 6


def test_distributions() -> None:
    is_uniform(run("r = RandomUniform<shape = [50, 400], low = -1.0, high = 3.0>() y = Add(r, x)")[0] - 0.25, -1, 3)
    is_uniform(run("y = RandomUniformLike(x)")[0], 0, 1)
    is_normal(run("r = RandomNormal<shape = [50, 400], mean = 2.0, scale = 0.5>() y = Add(r, x)")[0] - 0.25, 2, 0.5)
    is_normal(run("y = RandomNormalLike(x)")[0], 0, 1)


def test_bernoulli_is_a_function_of_its_input() -> None:
    (y,) = run("y = Bernoulli(x)")
    assert set(np.unique(y)) == {0, 1} and abs(y.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / y.size)
    (more,) = run("y = Bernoulli(x)", given={"x": X["x"] * 2})
    assert np.all(more >= y) and more.mean() > 0.45
    (truths,) = run("y = Bernoulli<dtype = 9>(x)", dtype="bool")
    assert truths.dtype == np.bool_ and np.array_equal(truths, y == 1)


def test_multinomial() -> None:
    proto = model("(float[2,3] x) => (int64[2,20000] y)", "y = Multinomial<sample_size = 20000, dtype = 7>(x)")
    shares = np.asarray([[0.2, 0.5, 0.3], [0.0, 0.1, 0.9]])
    with np.errstate(divide="ignore"):
        logs = np.log(shares * 7).astype(np.float32)
    (y,) = BACKEND.optimize_model(from_onnx(proto, seed=3)).run({"x": logs}).values()
    assert y.shape == (2, 20000) and y.dtype == np.int64
    for row, share in zip(y, shares, strict=True):
        seen = np.bincount(row, minlength=3) / 20000
        assert np.all(np.abs(seen - share) <= 5 * np.sqrt(share * (1 - share) / 20000))


def test_each_node_and_each_seed_draws_its_own() -> None:
    body = """y = RandomUniformLike(x) z = RandomUniformLike(x)
        a = RandomUniformLike<seed = 2.0>(x) b = RandomUniformLike<seed = 2.0>(x)"""
    y, z, a, b = run(body, outputs="yzab")
    assert np.array_equal(a, b)
    assert len({one.tobytes() for one in (y, z, a, *run(body, seed=2, outputs="yzab")[:3])}) == 6
    again = run(body, outputs="yzab")
    assert all(np.array_equal(one, other) for one, other in zip((y, z, a, b), again, strict=True))


def philox(key: list[int], block: int) -> list[int]:
    """Four words of Philox 4x64-10, as Salmon and others describe it."""
    words, most = [block, 0, 0, 0], (1 << 64) - 1
    for step in range(10):
        left, right = 0xD2E7470EE14C6C93 * words[0], 0xCA5A826395121157 * words[2]
        first = key[0] + step * 0x9E3779B97F4A7C15 & most
        second = key[1] + step * 0xBB67AE8584CAA73B & most
        words = [right >> 64 ^ words[1] ^ first, right & most, left >> 64 ^ words[3] ^ second, left & most]
    return words


def test_the_numbers_are_those_of_the_generator() -> None:
    """The same on every machine and with every release of numpy."""
    (y,) = run("y = RandomUniformLike<seed = 2.0>(x)", seed=5)
    key = [5, zlib.crc32(b"seed 2.0")]
    words = [word for block in (1, 2) for word in philox(key, block)]
    np.testing.assert_array_equal(y.reshape(-1)[:8], np.asarray([(w >> 11) / 2**53 for w in words], np.float32))


LOOP = """t = Constant<value = bool {1}>()
    y = Loop(n, t, x) <body = b (int64 i, bool c, float[50,400] v) => (bool d, float[50,400] w) {
        d = Identity(c) r = RandomNormalLike(v) w = Add(v, r)
    }>"""


def test_what_stays_refused() -> None:
    for seed in (None, 1):
        with pytest.raises(nx.UnsupportedError, match="makes random numbers") as caught:
            from_onnx(model("(float[50,400] x, int64 n) => (float[] y)", LOOP), seed=seed)
        assert "seed=0" in str(caught.value.hint)
    assert "a Loop" in str(caught.value.got)
    with pytest.raises(nx.UnsupportedError, match="of a shape that only a call knows"):
        from_onnx(model("(float[N] x) => (float[] y)", "y = RandomNormalLike(x)"), seed=1)
    for seed in (-1, 1 << 64):
        with pytest.raises(nx.InvalidArgumentError, match="out of range"):
            from_onnx(model("(float[2] x) => (float[] y)", "y = RandomNormalLike(x)"), seed=seed)
