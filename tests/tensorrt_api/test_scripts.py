"""Scripts in the usual shape of TensorRT's tutorials run when their import is changed, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

SCRIPTS = Path(__file__).parent / "scripts"
RNG = np.random.default_rng(0)


def run(script: str, tmp_path: Path, *args: object) -> str:
    text = (SCRIPTS / script).read_text(encoding="utf-8")
    assert text.count("import tensorrt as trt\n") == 1
    changed = tmp_path / script
    changed.write_text(text.replace("import tensorrt as trt\n", "import neurenix.hardware.tensorrt as trt\n"))
    done = subprocess.run([sys.executable, changed, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


def export(module: torch.nn.Module, path: Path, shape: tuple[int, ...], dynamic: dict[int, str] | None = None) -> Path:
    axes = {"input": dynamic} if dynamic else None
    torch.onnx.export(
        module.eval(), (torch.zeros(shape),), path, input_names=["input"], output_names=["output"], dynamic_axes=axes,
        dynamo=False, do_constant_folding=False,
    )  # fmt: skip
    return path


def by_onnxruntime(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {session.get_inputs()[0].name: x})[0]


def test_a_classifier_from_onnx_through_an_engine_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = export(torchvision.models.resnet18(weights=None), tmp_path / "resnet.onnx", (1, 3, 96, 96))
    image = RNG.standard_normal((1, 3, 96, 96)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    for _ in range(2):  # The second time the engine is there already.
        run("resnet_onnx.py", tmp_path, path, tmp_path / "image.npy", tmp_path / "scores.npy")
        want = by_onnxruntime(path)(image)
        np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), want, rtol=1e-3, atol=1e-4)
    assert (tmp_path / "resnet.engine").exists()


def test_a_model_that_can_not_be_read_is_told_by_the_parser(tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    with pytest.raises(AssertionError, match="this is no ONNX model"):
        run("resnet_onnx.py", tmp_path, bad, "image.npy", "scores.npy")


class LeNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 20, 5)
        self.conv2 = torch.nn.Conv2d(20, 50, 5)
        self.fc1 = torch.nn.Linear(800, 500)
        self.fc2 = torch.nn.Linear(500, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.max_pool2d(self.conv1(x), 2)
        x = torch.max_pool2d(self.conv2(x), 2).flatten(1)
        return self.fc2(self.fc1(x).relu()).softmax(1)


def test_a_network_put_together_layer_by_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = LeNet().eval()
    np.savez(tmp_path / "weights.npz", **{name: w.numpy() for name, w in module.state_dict().items()})
    digits = RNG.standard_normal((4, 1, 28, 28)).astype(np.float32)
    np.save(tmp_path / "digits.npy", digits)
    run("mnist_api.py", tmp_path, tmp_path / "weights.npz", tmp_path / "digits.npy", tmp_path / "scores.npy")
    with torch.no_grad():
        want = module(torch.from_numpy(digits)).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), want, rtol=1e-2, atol=1e-3)


def test_dynamic_shapes_timing_cache_inspector_and_refit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)]
    axes = {0: "batch", 2: "height", 3: "width"}
    path = export(torch.nn.Sequential(*layers), tmp_path / "model.onnx", (1, 3, 16, 16), axes)
    small = RNG.standard_normal((1, 3, 24, 20)).astype(np.float32)
    large = RNG.standard_normal((5, 3, 40, 64)).astype(np.float32)
    np.savez(tmp_path / "inputs.npz", small=small, large=large)
    model = onnx.load(path)
    given = {}
    for weight in model.graph.initializer:
        if weight.name.endswith(("0.weight", "1.bias")) or weight.name == "0.bias":
            array = RNG.standard_normal(tuple(weight.dims)).astype(np.float32)
            given[weight.name] = array
            weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    assert given
    np.savez(tmp_path / "weights.npz", **given)
    other = tmp_path / "other.onnx"
    onnx.save(model, other)
    log = run("dynamic_refit.py", tmp_path, path, tmp_path)
    with np.load(tmp_path / "outputs.npz") as found:
        np.testing.assert_allclose(found["small"], by_onnxruntime(path)(small), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found["large"], by_onnxruntime(path)(large), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found["refitted"], by_onnxruntime(other)(small), rtol=1e-3, atol=1e-4)
    assert (tmp_path / "timing.cache").stat().st_size > 0
    told = json.loads((tmp_path / "layers.json").read_text())
    assert [port["Name"] for port in told["I/O Tensors"]] == ["input", "output"]
    assert told["I/O Tensors"][0]["ProfileInfo"][1] == {
        "Profile": 1, "Min": [2, 3, 32, 32], "Opt": [4, 3, 32, 32], "Max": [8, 3, 64, 64]
    }  # fmt: skip
    kernels = {name for name in told["times"] if not name.startswith("reorder")}
    assert kernels and {layer["Name"] for layer in told["Layers"]} >= kernels
    assert all(ms >= 0 for ms in told["times"].values())
    assert "Traceback" not in log


def test_without_a_script_it_says_what_it_wants() -> None:
    command = [sys.executable, "-m", "neurenix.hardware.tensorrt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "usage: python -m neurenix.hardware.tensorrt" in done.stderr
