"""Transforms of signals whose sizes come with a call, against numpy's and ONNX's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from neurenix.hardware.tensorrt import TensorRTBackend
from tests.importers.single import Array

BACKEND = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)
RNG = np.random.default_rng(4)


def model(signature: str, body: str, version: int = 20) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["": {version}]> m {signature} {{ {body} }}')


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def run(proto: onnx.ModelProto, given: dict[str, Array]) -> Array:
    shapes = {name: array.shape for name, array in given.items()}
    return np.asarray(next(iter(BACKEND.optimize_model(proto, shapes).run(given).values())))


def close(got: Array, want: Array) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want).max())))


def numbers(x: Array) -> Array:
    """Complex numbers of pairs, or of reals."""
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0].astype(complex)


def pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


@pytest.mark.parametrize("version", [17, 20])
@pytest.mark.parametrize("extent", [9, 12])
@pytest.mark.parametrize("length", [None, 8, 9, 15])
@pytest.mark.parametrize(("parts", "inverse", "onesided"), [(1, 0, 0), (2, 0, 0), (2, 1, 0), (1, 0, 1), (2, 1, 1)])
def test_dft(version: int, extent: int, length: int | None, parts: int, inverse: int, onesided: int) -> None:
    if version == 17 and inverse and onesided:
        return
    x = normal(2, extent, 3, parts)
    given = {"x": x} if length is None else {"x": x, "n": np.asarray(length)}
    attrs = f"inverse = {inverse}, onesided = {onesided}"
    call = f"DFT<{attrs}, axis = 1>(x, {'n' if length else ''})"
    if version == 20:
        call = f"DFT<{attrs}>(x, {'n' if length else ''}, one)"
    body = f"one = Constant<value = int64 {{1}}>() y = {call}"
    # Only the call knows the extent, even where the length is left out.
    proto = model(f"(float[b,N,3,{parts}] x{', int64 n' if length else ''}) => (float[] y)", body, version)
    if inverse and onesided:
        want = np.fft.irfft(numbers(x), length or 2 * (extent - 1), axis=1)[..., None]
    elif onesided:
        want = pairs(np.fft.rfft(x[..., 0], length, axis=1))
    else:
        want = pairs((np.fft.ifft if inverse else np.fft.fft)(numbers(x), length, axis=1))
    engine = BACKEND.optimize_model(proto, {name: array.shape for name, array in given.items()})
    for _ in range(2):
        close(np.asarray(next(iter(engine.run(given).values()))), want)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize(("step", "length"), [(4, 8), (5, 9)])
@pytest.mark.parametrize("sizes", ["step", "step and length", "window"])
def test_stft(onesided: int, window: bool, step: int, length: int, sizes: str) -> None:
    if sizes == "window" and not window:
        return
    given: dict[str, Any] = {"x": normal(2, 30, 1)}
    names, ports = ["x", "", "", ""], "float[2,S,1] x"
    body = f"s = Constant<value = int64 {{{step}}}>() n = Constant<value = int64 {{{length}}}>()"
    if "step" in sizes:
        given["step"], names[1], ports = np.asarray(step), "step", ports + ", int64 step"
    if "length" in sizes:
        given["length"], names[3], ports = np.asarray(length), "length", ports + ", int64 length"
    if window:
        given["w"], names[2], ports = np.hanning(length).astype(np.float32), "w", ports + ", float[W] w"
    names = [names[0], names[1] or "s", names[2], names[3] or ("" if sizes == "window" else "n")]
    proto = model(f"({ports}) => (float[] y)", f"{body} y = STFT<onesided = {onesided}>({', '.join(names)})")
    frames = np.stack([given["x"][:, at : at + length, 0] for at in range(0, 30 - length + 1, step)], 1)
    frames = frames * (given["w"] if window else 1)
    close(run(proto, given), pairs(np.fft.rfft(frames) if onesided else np.fft.fft(frames)).astype(np.float32))


@pytest.mark.parametrize(
    ("bands", "length", "rate", "low", "high"), [(8, 16, 8192, 0, 4096), (40, 400, 16000, 20, 7600)]
)
@pytest.mark.parametrize("open_", ["bands length rate low high", "length rate", "high"])
def test_mel_weights(bands: int, length: int, rate: int, low: float, high: float, open_: str) -> None:
    values = {"bands": bands, "length": length, "rate": rate, "low": low, "high": high}
    kinds = {name: "float" if name in ("low", "high") else "int64" for name in values}
    ports = ", ".join(f"{kinds[name]} {name}" for name in open_.split())
    held = " ".join(
        f"{name} = Constant<value = {kinds[name]} {{{float(v) if kinds[name] == 'float' else v}}}>()"
        for name, v in values.items() if name not in open_.split()
    )  # fmt: skip
    proto = model(f"({ports}) => (float[] y)", f"{held} y = MelWeightMatrix(bands, length, rate, low, high)")
    given = {n: np.asarray(values[n], np.float32 if kinds[n] == "float" else np.int64) for n in open_.split()}
    (want,) = ReferenceEvaluator(proto).run(None, given)
    close(run(proto, given), np.asarray(want))
