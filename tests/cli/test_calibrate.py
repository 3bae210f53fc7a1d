"""`neurenix calibrate`: the cache that it writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import neurenix as nx
from neurenix.quantization import CalibrationCache, region_benchmark
from tests.cli.conftest import Answer
from tests.machine import needs_int8

onnx = pytest.importorskip("onnx")

Call = Callable[..., Answer]


@pytest.fixture
def model(folder: Path) -> Path:
    """Two convolutions, and batches to calibrate on."""
    rng = np.random.default_rng(0)
    tensor = onnx.numpy_helper.from_array
    weights = [rng.normal(size=(8, 3, 3, 3)).astype(np.float32), rng.normal(size=(2, 8, 1, 1)).astype(np.float32)]
    nodes = [
        onnx.helper.make_node("Conv", ["x", "v"], ["a"], "first"),
        onnx.helper.make_node("Relu", ["a"], ["b"], "relu"),
        onnx.helper.make_node("Conv", ["b", "w"], ["y"], "second"),
    ]
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 3, 8, 8]), ("y", None))
    ]
    held = [tensor(array, name) for array, name in zip(weights, "vw", strict=True)]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], held)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    (folder / "data").mkdir()
    for at in range(5):
        np.save(folder / "data" / f"{at}.npy", rng.normal(size=(4, 3, 8, 8)).astype(np.float32))
    return folder / "m.onnx"


def test_the_cache_is_what_a_build_reads(call: Call, model: Path, folder: Path) -> None:
    code, out, _ = call("calibrate", model, "--data", "data", "--threads", "2", "--json")
    content = json.loads(out)
    assert code == 0 and content["method"] == "entropy" and set(content["tensors"]) == {"x", "relu"}
    cache = CalibrationCache.read(folder / "m.cache")
    assert cache.ranges == content["tensors"] and 2 < cache.ranges["x"] < 5
    code, out, _ = call("calibrate", model, "--data", "data", "--method", "minmax", "-o", "most.cache", "--samples", 2)
    assert code == 0 and "most.cache: the ranges of 2 tensors by minmax" in out
    most = max(np.abs(np.load(folder / "data" / f"{at}.npy")).max() for at in range(2))
    assert CalibrationCache.read("most.cache").ranges["x"] == pytest.approx(most, rel=1e-6)
    given = nx.quantization.Calibrator(cache_file="m.cache")
    built = nx.hardware.get_backend("cpu").optimize_model(model, {"x": (4, 3, 8, 8)}, "int8", calibration=given)
    assert built.report()["precision"] == "int8"


@needs_int8
def test_export_calibrates_too(call: Call, model: Path) -> None:
    words = ("--input-shape", "4", "3", "8", "8", "--providers", "cpu", "--timing-cache", "none")
    for precision in ("int8", "mixed"):
        code, out, err = call(
            "export", model, "--precision", precision, "--calibration-data", "data", "-o", "m.engine", "--verify",
            "--num-calibration-samples", "3", "--json", *words,
        )  # fmt: skip
        assert code == 0, err
        content = json.loads(out)
        in_floats = region_benchmark.all_in_floats(content["notes"])
        assert content["precision"]["got"] == ("fp32" if in_floats else precision) and content["passed"]
        assert any("dB" in note for note in content["notes"])


@needs_int8
def test_export_writes_the_file_where_all_is_faster_in_floats(
    call: Call, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_benchmark, "LEAST_MS", 0.0)
    monkeypatch.setattr(region_benchmark._Search, "_fastest", lambda self, trials: (trials[1], 2.0, 1.0))
    words = ("--calibration-data", "data", "-o", "m.engine", "--input-shape", "4", "3", "8", "8", "--providers", "cpu")
    code, out, err = call("export", model, "--precision", "int8", "--timing-cache", "none", *words)
    assert code == 0 and (folder / "m.engine").exists(), err
    assert "precision: fp32 (every product is faster in floats than in int8)" in out


@needs_int8
def test_tools_of_accuracy_change_the_model_and_what_the_cache_is_for(call: Call, model: Path, folder: Path) -> None:
    words = ("--accuracy", "gptq:damping=0.02,bias_correction", "--onnx", "int8.onnx", "--threads", "2")
    code, out, err = call("calibrate", model, "--data", "data", *words)
    assert code == 0 and "int8.onnx: the quantized model" in out, err
    backend = nx.hardware.get_backend("cpu")
    exact = backend.optimize_model(model, {"x": (4, 3, 8, 8)})
    x = np.load(folder / "data" / "4.npy")
    quantized = backend.optimize_model("int8.onnx", {"x": (4, 3, 8, 8)})
    assert np.sum((quantized(x) - exact(x)) ** 2) < 1e-3 * np.sum(exact(x) ** 2)
    code, out, _ = call("calibrate", model, "--data", "data", "--accuracy", "equalisation", "-o", "e.cache", "--json")
    assert code == 0 and json.loads(out)["accuracy"] == ["equalisation"]
    code, out, err = call(
        "export", model, "--precision", "int8", "--calibration-data", "data", "-o", "m.engine", "--accuracy", "gptq",
        "--input-shape", "4", "3", "8", "8", "--providers", "cpu", "--timing-cache", "none", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert any(note.startswith("accuracy: gptq: 2 of 2 products") for note in json.loads(out)["notes"])


@needs_int8
def test_products_with_scales_for_tokens_have_no_cache(call: Call, model: Path, folder: Path) -> None:
    del model
    network = nx.Network("tokens")
    x = network.add_input("x", np.float32, (4, 3, 8, 8))
    weights = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    y = network.add_layer("MatMul", [x, network.add_constant("w", weights)], {}, name="product")[0]
    network.mark_output(y, "y")
    nx.quantization.to_onnx(network, folder / "tokens.onnx")
    words = ("calibrate", "tokens.onnx", "--data", "data", "--accuracy", "per_token")
    code, _, err = call(*words)
    assert code == 1 and "a cache would hold no range" in err and "--onnx" in err
    code, out, err = call(*words, "--onnx", "tokens8.onnx")
    assert code == 0 and "tokens8.onnx: the quantized model" in out, err
    assert not (folder / "tokens.cache").exists()
    code, out, err = call(
        "export", "tokens.onnx", "--precision", "int8", "--accuracy", "per_token", "-o", "t.engine", "--providers",
        "cpu", "--timing-cache", "none", "--json",
    )  # fmt: skip
    assert code == 0 and "accuracy: per_token: " in " ".join(json.loads(out)["notes"]), err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data", "data", "--accuracy", "gptq"), "a cache holds ranges alone"),
        (("--data", "data", "--accuracy", "smoth"), "the nearest name is 'smooth'"),
        (("--data", "data", "--accuracy", "gptq", "--onnx", "no/such.onnx"), "the quantized model can't be written"),
        (("--data", "nowhere"), "there is no such file or folder to calibrate on"),
        (("--data", "empty"), "there is nothing to calibrate on"),
        (("--data", "wrong.npz"), "a batch to calibrate on lacks an input"),
        (("--data", "data", "-o", "m.onnx"), "--output would replace what is read"),
        (("--data", "data", "-o", "no/such.cache"), "the calibration cache can't be written"),
    ],
)
def test_refusals(call: Call, model: Path, folder: Path, words: tuple[str, ...], message: str) -> None:
    (folder / "empty").mkdir()
    np.savez("wrong.npz", other=np.zeros(3, np.float32))
    code, out, err = call("calibrate", model, *words)
    assert (code, out) == (1, "") and message in err
