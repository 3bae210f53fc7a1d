"""precision="int8" on digits: as right as float32 by every calibrator; the same in ONNX Runtime."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import quantization
from neurenix.hardware import get_backend
from neurenix.quantization import region_benchmark
from tests import exact_onnxruntime
from tests.machine import HAS_INT8, needs_int8

torch = pytest.importorskip("torch", reason="the network is trained by PyTorch")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")

from benchmarks.digits import Digits, network, trained  # noqa: E402

CALIBRATORS = [
    quantization.EntropyCalibrator,
    quantization.MinMaxCalibrator,
    quantization.PercentileCalibrator,
    quantization.MSECalibrator,
]


@pytest.fixture(scope="module")
def digits() -> Digits:
    """Trained once."""
    torch.set_num_threads(2)
    return trained()


@pytest.fixture(scope="module")
def path(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network as ONNX, of any batch."""
    return digits.export(tmp_path_factory.mktemp("digits") / "digits.onnx")


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_at_most_five_more_digits_are_mistaken(digits: Digits, path: Path, calibrator: Any) -> None:
    given = calibrator(digits.batches())
    model = get_backend("cpu").optimize_model(
        path, {"input": digits.test.shape}, "int8", calibration=given, deterministic=True
    )
    want, got = digits.scores(), model(digits.test)
    assert digits.errors(got) <= digits.errors(want) + 5
    assert np.std(want) > 0.1
    noise = np.mean((got - want) ** 2) / np.mean(want**2)
    assert 10 * np.log10(1 / noise) > 25
    report = model.report()
    assert any("signal-to-noise ratio" in note for note in report["notes"])
    # Those that are faster in floats are no more wrong there.
    chosen = get_backend("cpu").optimize_model(
        path, {"input": digits.test.shape}, "int8", calibration=calibrator(digits.batches())
    )
    assert digits.errors(chosen(digits.test)) <= digits.errors(want) + 5
    # Only a processor without VNNI, on which sums of 8 bits saturate, computes in floating point.
    if HAS_INT8:
        assert report["arithmetic_per_dtype"]["int8"] > 0.9


@pytest.mark.parametrize("name", ["resnet", "transformer"])
def test_the_cache_has_the_same_bytes_at_any_number_of_threads(digits: Digits, tmp_path: Path, name: str) -> None:
    path = digits._replace(module=network(name).eval()).export(tmp_path / "untrained.onnx")
    caches = set()
    for threads in (1, 2, 5):
        told: list[int] = []
        file = tmp_path / f"{threads}.cache"
        given = quantization.EntropyCalibrator(digits.batches(), file, progress=told.append)
        quantization.calibrate(path, given, threads=threads)
        assert told == [1, 2, 3, 4, 5, 6, 7, 8]
        caches.add(file.read_bytes())
    assert len(caches) == 1


def test_the_cache_is_about_the_same_however_batches_are_cut_and_is_enough(
    digits: Digits, path: Path, tmp_path: Path
) -> None:
    caches = []
    for size in (64, 32):
        file = tmp_path / f"{size}.cache"
        quantization.calibrate(path, quantization.MinMaxCalibrator(digits.batches(size, 256 // size), file))
        caches.append(quantization.CalibrationCache.read(file))
    names = list(caches[0].scales)
    assert names == list(caches[1].scales) and "input" in names
    # Kernels on other shapes may sum in another order.
    np.testing.assert_allclose([caches[0].scales[n] for n in names], [caches[1].scales[n] for n in names], rtol=1e-5)
    alone = quantization.calibrate(path, quantization.MinMaxCalibrator(cache_file=tmp_path / "64.cache"))
    model = get_backend("cpu").optimize_model(alone, {"input": digits.test.shape})
    assert digits.errors(model(digits.test)) <= digits.errors(digits.scores()) + 5


def weights() -> list[Any]:
    """Those of two convolutions."""
    rng = np.random.default_rng(6)
    return [rng.normal(size=shape).astype(np.float32) for shape in [(8, 3, 3, 3), (4, 8, 1, 1)]]


def averaging() -> nx.Network:
    """The mean of what a convolution gives, and a product of that."""
    made = nx.Network("averaging")
    x = made.add_input("x", np.float32, (2, 3, 8, 8))
    first, second = (made.add_constant(f"w{at}", array) for at, array in enumerate(weights()))
    y = made.add_layer("Conv", [x, first], {"pads": [1, 1, 1, 1]})[0]
    y = made.add_layer("Relu", [y], {}, name="relu")[0]
    y = made.add_layer("GlobalAveragePool", [y], {})[0]
    made.mark_output(made.add_layer("Conv", [y, second], {})[0], "y")
    return made


@needs_int8
def test_what_a_mean_reads_has_8_bits_where_its_range_is_known(tmp_path: Path) -> None:
    batch = np.random.default_rng(7).normal(size=(2, 3, 8, 8)).astype(np.float32)
    want = get_backend("cpu").optimize_model(averaging(), None)(batch)
    full = averaging().in_full(False)
    optional = [name for _, name, _, role in full.quantization_points([]) if role == "mean"]
    assert optional == ["relu"]
    file = tmp_path / "ranges.cache"
    found = quantization.calibrate(averaging(), quantization.MinMaxCalibrator([batch], cache_file=file))
    ranges = quantization.CalibrationCache.read(file).ranges
    assert sum(layer.op == "QuantizeLinear" for layer in found.layers) == len(ranges) == 3
    # As of a cache that others wrote.
    del ranges["relu"]
    lacking = full.quantized(ranges, [])
    assert sum(layer.op == "QuantizeLinear" for layer in lacking.layers) == 2
    for made, kernel in ((found, "int8 ReduceMean+QuantizeLinear"), (lacking, "ReduceMean")):
        model = get_backend("cpu").optimize_model(made, None)
        assert np.abs(model(batch) - want).max() < 0.03 * np.abs(want).max()
        assert any(kernel in one["kernel"] for one in model.report()["kernels"])


def test_onnxruntime_gives_the_same_on_the_written_network(digits: Digits, path: Path, tmp_path: Path) -> None:
    network = quantization.calibrate(path, digits.batches())
    quantization.to_onnx(network, tmp_path / "int8.onnx")
    session = exact_onnxruntime.session(tmp_path / "int8.onnx")
    want = session.run(None, {"input": digits.test})[0]
    ours = get_backend("cpu").optimize_model(network, {"input": digits.test.shape})(digits.test)
    read_again = get_backend("cpu").optimize_model(tmp_path / "int8.onnx", {"input": digits.test.shape})(digits.test)
    # A step of 8 bits somewhere may fall otherwise where a sum is next to half a step.
    for got in (ours, read_again):
        assert np.mean(np.abs(got - want)) <= 0.01 * np.std(want)
        assert np.mean(np.argmax(got, 1) == np.argmax(want, 1)) > 0.99


def test_what_is_written_as_onnx_has_no_spare_weights(digits: Digits, path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    made = quantization.to_onnx(quantization.calibrate(path, digits.batches()))
    read = {name for node in made.graph.node for name in node.input}
    assert {weight.name for weight in made.graph.initializer} <= read
    onnx.checker.check_model(made, full_check=True)


def test_what_can_not_be_written_as_onnx(digits: Digits, path: Path, tmp_path: Path) -> None:
    with pytest.raises(nx.InvalidArgumentError, match=r"(?s)a network is written.*got: Linear.*calibrate"):
        quantization.to_onnx(nx.nn.Linear(3, 2))
    network = quantization.calibrate(path, digits.batches())
    for wrong in (tmp_path / "nowhere" / "z.onnx", tmp_path):
        with pytest.raises(nx.FileError, match="the model can't be written"):
            quantization.to_onnx(network, wrong)


def test_without_data_the_weights_alone_have_8_bits(
    digits: Digits, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "neurenix"):
        model = get_backend("cpu").optimize_model(path, {"input": digits.test.shape}, "int8")
    assert sum("the weights alone have 8 bits" in record.message for record in caplog.records) == 1
    assert digits.errors(model(digits.test)) <= digits.errors(digits.scores()) + 2
    assert model.report()["arithmetic_per_dtype"]["float32 with int8 weights"] > 0.9


def test_saved_engines_are_the_same(digits: Digits, path: Path, tmp_path: Path) -> None:
    backend = get_backend("cpu")
    model = backend.optimize_model(path, {"input": digits.test.shape}, "int8", calibration=digits.batches())
    model.save(tmp_path / "int8.engine")
    opened = backend.load(tmp_path / "int8.engine")
    np.testing.assert_array_equal(opened(digits.test), model(digits.test))
    # Where all products were faster in floats, nothing in the file is of 8 bits.
    in_floats = region_benchmark.all_in_floats(model.report()["notes"])
    assert opened.report()["precision"] == ("fp32" if in_floats or not HAS_INT8 else "int8")


def test_what_can_not_be_calibrated_is_refused(digits: Digits, path: Path, tmp_path: Path) -> None:
    def build(calibration: Any, precision: str = "int8") -> None:
        get_backend("cpu").optimize_model(path, {"input": digits.test.shape}, precision, calibration=calibration)

    with pytest.raises(nx.InvalidArgumentError, match="there is no batch to calibrate on"):
        build([])
    with pytest.raises(nx.InvalidArgumentError, match="not finite"):
        build([np.full((2, 1, 8, 8), np.nan, np.float32)])
    with pytest.raises(nx.InvalidArgumentError, match="no batch to calibrate on"):
        build([{"other": digits.train[:2]}] and [7])
    with pytest.raises(nx.InvalidArgumentError, match="lacks an input"):
        build([{"other": digits.train[:2]}])
    with pytest.raises(nx.InvalidArgumentError, match='precision="int8"'):
        build(digits.batches(), "fp32")
    with pytest.raises(nx.FileError, match="there is no such file"):
        build(tmp_path / "nowhere")
    with pytest.raises(nx.InvalidArgumentError, match="there is no layer 'nothing' to keep"):
        quantization.calibrate(path, digits.batches(), keep=["nothing"])


def test_layers_that_are_kept_stay_in_floating_point(digits: Digits, path: Path) -> None:
    plain = nx.importers.from_onnx(path)
    convolutions = [layer.name for layer in plain.layers if layer.op == "Conv"]
    network = quantization.calibrate(path, digits.batches(), keep=convolutions[:1])
    kept = [layer for layer in network.layers if convolutions[0] in layer.sources and layer.op == "Conv"]
    producers = {output: layer.op for layer in network.layers for output in layer.outputs}
    assert [producers.get(layer.inputs[1]) for layer in kept] == [None]
    others = [layer for layer in network.layers if layer.op == "Conv" and layer not in kept]
    assert all(producers.get(layer.inputs[1]) == "DequantizeLinear" for layer in others if layer.name != kept[0].name)


def test_names_to_keep_may_come_once(digits: Digits, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = nx.importers.from_onnx(path)
    convolutions = [layer.name for layer in plain.layers if layer.op == "Conv"]

    def codes(network: nx.Network) -> int:
        return sum(layer.op == "DequantizeLinear" for layer in network.layers)

    calibrated = [
        quantization.calibrate(path, digits.batches(), keep=keep) for keep in (convolutions[:1], iter(convolutions[:1]))
    ]
    assert codes(calibrated[0]) == codes(calibrated[1])
    assert codes(quantization.calibrate(path, digits.batches())) > codes(calibrated[1])
    products = [layer.name for layer in plain.layers if layer.op in ("Conv", "MatMul", "Gemm")]
    model = get_backend("cpu").optimize_model(
        path, {"input": digits.test.shape}, "int8", calibration=digits.batches(), keep=iter(products)
    )
    np.testing.assert_allclose(model(digits.test), digits.scores(), rtol=1e-3, atol=1e-3)
    # Who keeps all of them need not be told.
    assert "calibrate the float32 model" not in caplog.text
    with pytest.raises(nx.UnsupportedError, match="Conv"):
        get_backend("cpu").optimize_model(path, {"input": digits.test.shape}, exclude={"cpu": iter(["Conv"])})


def test_batches_of_16_bits_are_widened(digits: Digits, path: Path) -> None:
    batches = [batch.astype(np.float16) for batch in digits.batches()]
    for more in ({"deterministic": True}, {}):
        model = get_backend("cpu").optimize_model(
            path, {"input": digits.test.shape}, "int8", calibration=batches, **more
        )
        assert digits.errors(model(digits.test)) <= digits.errors(digits.scores()) + 5


@pytest.mark.parametrize("calibrated", [True, False])
def test_new_weights_are_quantized_anew(digits: Digits, path: Path, calibrated: bool) -> None:
    backend = get_backend("cpu")
    given = {"calibration": digits.batches()} if calibrated else {}
    model = backend.optimize_model(path, {"input": digits.test.shape}, "int8", refittable=True, **given)
    before = model(digits.test)
    head = next(name for name in digits.module.state_dict() if name.endswith("weight") and name.startswith("4."))
    weights = digits.module.state_dict()[head].numpy()
    model.update_weights({head: -weights})
    bias = digits.module.state_dict()[head.replace("weight", "bias")].numpy()
    # Of a product without its bias the sign changes, and nothing else: the scales of activations are kept.
    np.testing.assert_allclose(model(digits.test) - bias, bias - before, atol=1e-4)
    model.update_weights({head: weights})
    np.testing.assert_array_equal(model(digits.test), before)


def test_weights_whose_codes_a_calibrated_network_holds_are_refused(digits: Digits, path: Path) -> None:
    network = quantization.calibrate(nx.importers.from_onnx(path), digits.batches())
    model = get_backend("cpu").optimize_model(network, {"input": digits.test.shape}, refittable=True)
    before = model(digits.test)
    state = {name: array.numpy() for name, array in digits.module.state_dict().items() if name.endswith("weight")}
    state = {name: array for name, array in state.items() if name.startswith("4.")}
    assert state
    with pytest.raises(nx.InvalidArgumentError, match="no layer reads this weight any more"):
        model.update_weights({name: -array for name, array in state.items()})
    np.testing.assert_array_equal(model(digits.test), before)
    # What it is already changes nothing.
    model.update_weights(state)
    np.testing.assert_array_equal(model(digits.test), before)


def test_fp8_keeps_the_weights_alone_in_8_bits_and_says_so(
    digits: Digits, path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = get_backend("cpu")
    with caplog.at_level(logging.WARNING, "neurenix"):
        model = backend.optimize_model(path, {"input": digits.test.shape}, "fp8", calibration=digits.batches())
    assert sum("computes in floats of 8 bits" in record.message for record in caplog.records) == 1
    assert digits.errors(model(digits.test)) <= digits.errors(digits.scores()) + 2
    report = model.report()
    assert report["arithmetic_per_dtype"]["float32 with float8_e4m3fn weights"] > 0.9
    assert any("fp8: the signal-to-noise ratio" in note for note in report["notes"])
    model.save(tmp_path / "fp8.engine")
    np.testing.assert_array_equal(backend.load(tmp_path / "fp8.engine")(digits.test), model(digits.test))
    with pytest.raises(nx.UnsupportedError, match="computes in floats of 8 bits"):
        backend.optimize_model(path, {"input": digits.test.shape}, "fp8", strict=True)
