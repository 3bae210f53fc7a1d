"""What calibration is given that is odd or wrong: batches, files, calibrators in TensorRT's shape, caches, metrics."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import quantization
from neurenix.hardware import get_backend
from tests.machine import HAS_INT8, needs_int8

SHAPE = ("n", 3, 8, 8)
QUICK: dict[str, Any] = {"optimization_level": 0, "timing_cache": False, "threads": 1}


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def batch(count: int = 2) -> Any:
    return rng().normal(size=(count, 3, 8, 8)).astype(np.float32)


def network(bias: bool = True) -> nx.Network:
    """One convolution."""
    made = nx.Network("one")
    x = made.add_input("x", np.float32, SHAPE)
    weights = rng().normal(size=(4, 3, 3, 3)).astype(np.float32) * 0.1
    tensors = [x, made.add_constant("w", weights)]
    if bias:
        tensors.append(made.add_constant("b", rng().normal(size=4).astype(np.float32)))
    made.mark_output(made.add_layer("Conv", tensors, {}, name="conv")[0], "y")
    return made


def int8(calibration: Any, model: Any = None, **options: Any) -> Any:
    given = {"precision": "int8", "calibration": calibration} | QUICK | options
    return get_backend("cpu").optimize_model(network() if model is None else model, **given)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda x: x.astype(np.float64), nx.DTypeError, "expected: float32"),
        (lambda x: np.full(x.shape, 200, np.uint8), nx.DTypeError, 'x.astype\\("float32"\\)'),
        (lambda x: x[:, :2], nx.ShapeError, "another shape than the input"),
        (lambda x: x[0], nx.ShapeError, "another shape than the input"),
    ],
)
def test_batches_must_be_what_the_input_takes(wrong: Callable[[Any], Any], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message) as error:
        quantization.calibrate(network(), [wrong(batch())])
    assert "tensor: x" in str(error.value)


@pytest.mark.parametrize("precision", ["int8", "mixed", "fp8"])
@pytest.mark.parametrize("given", [np.float32, np.float16])
def test_inputs_of_16_bits_are_calibrated_on_either(precision: str, given: Any) -> None:
    model = int8([batch().astype(given)], precision=precision, io_dtype="fp16")
    exact = get_backend("cpu").optimize_model(network(), **QUICK)(batch())
    got = model(batch().astype(np.float16))
    assert got.dtype == np.float16
    assert 10 * np.log10(np.mean(exact**2) / np.mean((got.astype(np.float32) - exact) ** 2)) > 25


def test_tensors_that_are_always_zero_leave_the_bias_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "neurenix"):
        model = int8([0 * batch()])
    assert any("1 of 1 tensors are zero in all batches, such as 'x'" in record.message for record in caplog.records)
    np.testing.assert_allclose(
        model(0 * batch()), get_backend("cpu").optimize_model(network(), **QUICK)(0 * batch()), atol=1e-4
    )


@needs_int8
def test_a_network_without_products_is_told_and_runs(caplog: pytest.LogCaptureFixture) -> None:
    plain = nx.Network("plain")
    x = plain.add_input("x", np.float32, SHAPE)
    plain.mark_output(plain.add_layer("Relu", [x], {})[0], "y")
    for precision in ("int8", "mixed"):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "neurenix"):
            model = int8([batch()], plain, precision=precision)
        assert any("nothing gets 8 bits" in record.message for record in caplog.records)
        np.testing.assert_array_equal(model(batch()), np.maximum(batch(), 0))
        with pytest.raises(nx.UnsupportedError, match="nothing gets 8 bits"):
            int8([batch()], plain, precision=precision, strict=True)


def test_a_last_batch_of_another_size_is_told() -> None:
    fixed = nx.Network("fixed")
    x = fixed.add_input("x", np.float32, (2, 3))
    weights = fixed.add_constant("w", np.ones((3, 4), np.float32))
    fixed.mark_output(fixed.add_layer("MatMul", [x, weights], {})[0], "y")
    ones = np.ones((5, 3), np.float32)
    with pytest.raises(nx.ShapeError, match="drop_last=True"):
        int8([ones[:2], ones[2:4], ones[4:]], fixed)


def test_where_float32_is_not_finite_the_same_is_no_loss() -> None:
    made = nx.Network("mask")
    x = made.add_input("x", np.float32, SHAPE)
    w = made.add_constant("w", rng().normal(size=(4, 3, 3, 3)).astype(np.float32))
    y = made.add_layer("Conv", [x, w], {})[0]
    mask = np.zeros((1, 4, 1, 1), np.float32)
    mask[:, 1] = -np.inf
    made.mark_output(made.add_layer("Add", [y, made.add_constant("mask", mask)], {})[0], "y")
    notes = [note for note in int8([batch()], made).report()["notes"] if "signal-to-noise" in note]
    assert len(notes) == 1 and "inf" not in notes[0]


@needs_int8
def test_strict_wants_data() -> None:
    with pytest.raises(nx.UnsupportedError, match="without calibration"):
        int8(None, strict=True)


@pytest.mark.skipif(HAS_INT8, reason="this processor has products of 8 bits")
def test_what_a_processor_without_them_names_instead_is_taken() -> None:
    with pytest.raises(nx.UnsupportedError, match=r'take precision="fp32"$'):
        int8([batch()], strict=True)
    int8(None, precision="fp32", strict=True)


@pytest.mark.skipif(HAS_INT8, reason="this processor has products of 8 bits")
def test_products_that_a_network_states_and_a_processor_lacks_are_told(caplog: pytest.LogCaptureFixture) -> None:
    made = quantization.calibrate(network(), [batch()])
    model = int8(None, made, precision="fp32")
    told = [text for text in caplog.messages if "no kernels for products of 8 bits" in text]
    assert len(told) == 1 and told[0] in model.report()["notes"]
    with pytest.raises(nx.UnsupportedError, match="leave strict out"):
        int8(None, made, precision="fp32", strict=True)
    # Weights alone are numbers again before they are multiplied.
    caplog.clear()
    int8(None, quantization.quantize_weights(network()), precision="fp32", strict=True)
    assert not caplog.messages


def test_a_network_that_is_quantized_already_is_no_network_of_fp8(caplog: pytest.LogCaptureFixture) -> None:
    made = quantization.calibrate(network(), [batch()])
    with caplog.at_level(logging.WARNING, "neurenix"):
        model = int8(None, made, precision="fp8")
    assert any("is quantized already, and stays as it is" in record.message for record in caplog.records)
    np.testing.assert_array_equal(model(batch()), int8(None, made)(batch()))
    with pytest.raises(nx.UnsupportedError, match="quantized already"):
        int8(None, made, precision="fp8", strict=True)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda run: float("nan"), "in float32 is not finite"),
        (lambda run: None, "does not give a number"),
        (lambda run: np.zeros(3), "does not give a number"),
    ],
)
def test_metrics_give_numbers(metric: Any, message: str) -> None:
    with pytest.raises(nx.InvalidArgumentError, match=message):
        int8([batch()], precision="mixed", metric=metric)


def test_keep_is_a_list_and_limit_a_number() -> None:
    with pytest.raises(nx.InvalidArgumentError, match="is a list of names"):
        quantization.calibrate(network(), [batch()], keep="conv")
    with pytest.raises(nx.InvalidArgumentError, match="must be positive"):
        quantization.Calibrator([batch()], limit="3")  # type: ignore[arg-type]


def damaged(path: Path) -> None:
    np.savez(path, x=batch())
    held = bytearray(path.read_bytes())
    held[300:400] = bytes(100)
    path.write_bytes(held)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.npz", lambda path: path.write_bytes(b"PK\x03\x04 and no more")),
        ("a.npz", damaged),
        ("a.npy", lambda path: path.write_bytes(b"")),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, write: Callable[[Path], Any]) -> None:
    write(tmp_path / name)
    with pytest.raises(nx.FileError, match=f"{name}"):
        int8(tmp_path)


class Given:
    """A calibrator in TensorRT's shape that gives this once."""

    def __init__(self, batch: Any, cache: Any = None) -> None:
        self.left, self.cache = [batch], cache

    def get_batch_size(self) -> int:
        return 2

    def get_batch(self, names: Any) -> Any:
        return self.left.pop() if self.left else None

    def read_calibration_cache(self) -> Any:
        return self.cache

    def write_calibration_cache(self, cache: bytes) -> None:
        self.cache = cache


def test_batches_of_scripts_may_stand_alone() -> None:
    x = batch()
    want = Given([x])
    int8(want)
    for alone in (x, x.ctypes.data, ctypes.c_void_p(x.ctypes.data), {"x": x}, (x,)):
        given = Given(alone)
        int8(given)
        assert given.cache == want.cache
    # A cache that a script reads as text.
    read = Given(None, want.cache.decode())
    assert np.array_equal(int8(read)(x), int8(Given([x]))(x))


@pytest.mark.parametrize("address", [0, -8, 8, 1 << 60])
def test_addresses_that_can_not_be_read_are_refused(address: int) -> None:
    with pytest.raises(nx.UnsupportedError, match="an address that the processor can't read"):
        int8(Given([address]))


def test_caches_that_can_not_be_kept_are_told_before_the_work(tmp_path: Path) -> None:
    read: list[int] = []
    given = (read.append(at) or batch() for at in range(3))  # type: ignore[func-returns-value]
    with pytest.raises(nx.FileError, match="can't be written"):
        int8(quantization.Calibrator(given, tmp_path / "no" / "x.cache"))
    assert not read


def test_what_is_quantized_already_is_not_quantized_again() -> None:
    made = quantization.calibrate(network(), [batch()])
    for call in (quantization.calibrate, quantization.sensitivity):
        with pytest.raises(nx.InvalidArgumentError, match="says itself what is quantized"):
            call(made, [batch()])


def test_shapes_of_no_input_are_told() -> None:
    for call in (quantization.calibrate, quantization.sensitivity):
        with pytest.raises(nx.InvalidArgumentError, match="z"):
            call(network(), [batch()], {"z": (1, 3, 8, 8)})


def test_a_cache_of_another_method_is_written_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x.cache"
    int8(quantization.MinMaxCalibrator([batch(8)], path))
    assert quantization.CalibrationCache.read(path).method == "MinMaxCalibration"
    with caplog.at_level(logging.WARNING, "neurenix"):
        int8(quantization.PercentileCalibrator([batch(8)], path, percentile=90))
    assert any("is one of 'minmax'" in record.message for record in caplog.records)
    assert quantization.CalibrationCache.read(path).method == "PercentileCalibration"
    # A cache alone is all that there is.
    int8(quantization.Calibrator(None, path))


def test_the_bias_of_a_channel_without_weights_is_kept() -> None:
    """As a BatchNorm with a factor of 0 leaves it: 32 bits hold a bias in no scale that is next to 0."""
    weights, bias = rng().normal(size=(4, 3, 3, 3)).astype(np.float32), np.array([0.5, 0.7, -900, 0.2], np.float32)
    weights[1], weights[2] = 0, weights[2] * 1e-9
    made = nx.Network("pruned")
    x = made.add_input("x", np.float32, SHAPE)
    tensors = [x, made.add_constant("w", weights), made.add_constant("b", bias)]
    made.mark_output(made.add_layer("Conv", tensors, {}, name="conv")[0], "y")
    got = int8([batch()], made)(batch())
    np.testing.assert_allclose(got[:, 1:3], np.broadcast_to(bias[1:3, None, None], (2, 2, 6, 6)), rtol=1e-6)
    exact = get_backend("cpu").optimize_model(made, **QUICK)(batch())
    assert np.abs(got - exact)[:, [0, 3]].max() < 0.05 * np.abs(exact[:, [0, 3]]).max()
