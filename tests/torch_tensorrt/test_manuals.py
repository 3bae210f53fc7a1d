"""What manuals for Torch-TensorRT say runs as it is, but for the lines that import, with a model of our own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch

import neurenix as nx
import neurenix.torch_tensorrt as torch_tensorrt
from neurenix.cli import main
from neurenix.hardware import get_backend, probe
from tests.torch_tensorrt import manuals
from tests.torch_tensorrt.models import Net

pytestmark = [
    pytest.mark.filterwarnings("ignore:TorchScript is deprecated", "ignore:`torch.jit", "ignore:.*legacy"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

#: How far results of fp16 may be off, where this machine has arithmetic for it.
LOWER = 2e-2


class MyModel(Net):
    """A small network for pictures of 224 x 224, with a stride to be quick."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=4)


class Filter(torch.nn.Module):
    """Pictures of one channel to such."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The pictures, filtered."""
        found: torch.Tensor = self.conv(x)
        return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURENIX_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "models").mkdir()
    if not torch.cuda.is_available():
        for kind in (torch.Tensor, torch.nn.Module):
            monkeypatch.setattr(kind, "cuda", lambda self: self)
    return tmp_path


def run(text: str, **names: Any) -> dict[str, Any]:
    exec(text, names)
    return names


def same(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    found, wanted = (torch.as_tensor(one).detach().float().cpu() for one in (found, wanted))
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance)


def test_torch_compile(folder: Path) -> None:
    """In a process of its own: torch's compiler keeps state."""
    text = f"""
import torch
import neurenix.torch_tensorrt
from tests.torch_tensorrt.test_manuals import MyModel
if not torch.cuda.is_available():
    torch.nn.Module.cuda = lambda self: self
input = torch.randn(2, 3, 224, 224).to("cuda" if torch.cuda.is_available() else "cpu")
{manuals.TORCH_COMPILE}
torch.testing.assert_close(output, model(input), rtol=0, atol=1e-4)
from neurenix.torch import counters
assert counters()["partitions"] == 1 and "fallbacks" not in counters(), counters()
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", text], cwd=root, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr


def test_explicit_settings_and_the_file(folder: Path) -> None:
    names = run(manuals.EXPLICIT, MyModel=MyModel, torch=torch)
    x = torch.randn(2, 3, 224, 224).cuda()
    wanted = names["model"](x)
    same(names["optimized"](x.half()), wanted, LOWER)
    same(run(manuals.DIRECT, input_tensor=x.half())["output"], wanted, LOWER)


def test_a_range_of_batches(folder: Path) -> None:
    inputs = run(manuals.DYNAMIC, torch_tensorrt=torch_tensorrt)["inputs"]
    model = MyModel().cuda().eval()
    optimized = torch_tensorrt.compile(model, inputs=inputs)
    for batch in (1, 5):
        x = torch.randn(batch, 3, 224, 224).cuda()
        same(optimized(x), model(x))


def test_by_onnx(folder: Path) -> None:
    model, x = MyModel().eval(), torch.randn(2, 3, 224, 224)
    names = run(manuals.TO_ONNX + manuals.RUNTIME, model=model, example_input=x, torch=torch)
    found = names["context"].execute(x.numpy())
    same(found, model(x), LOWER)


def test_int8(folder: Path) -> None:
    model = MyModel().cuda().eval()
    data = [torch.randn(1, 3, 224, 224).cuda() for _ in range(4)]
    names = run(manuals.INT8, model=model, representative_data=data, torch=torch)
    wanted = model(data[0]).detach()
    assert ((names["optimized"](data[0]) - wanted).norm() / wanted.norm()).item() < 0.1
    assert (folder / "calibration.cache").stat().st_size


def test_the_export_script_and_the_quick_start(folder: Path) -> None:
    torch.save({"state_dict": {f"net.{k}": v for k, v in Filter(1).state_dict().items()}}, folder / "best.ckpt")
    wanted = Filter(1).eval()
    torch.save(wanted.state_dict(), folder / "weights.pt")
    line = f"export {__name__}:Filter --ckpt weights.pt {' '.join(manuals.EXPORT_SCRIPT.split())}"
    assert main(line.split()) == 0
    names = run(manuals.QUICK_START)
    same(names["output"], wanted(names["input_image"]))


def test_the_inference_engine(folder: Path) -> None:
    model = Filter().eval()
    precision = "fp16" if "fp16" in get_backend("cpu").get_device_info().precisions or probe.has_gpu() else "fp32"
    get_backend("tensorrt").optimize_model(
        model, {"x": nx.Shape(min=(1, 1, 256, 256), opt=(1, 1, 256, 256), max=(4, 1, 256, 256))}, precision
    ).save("model_trt.ts")
    images = [torch.randn(1, 1, 256, 256) for _ in range(4)]
    large = torch.randn(1, 1, 300, 400)
    given = {f"img{i}": image for i, image in enumerate(images, 1)}
    names = run(manuals.ENGINE, input_tensor=images[0], large_image=large, **given)
    for found, image in zip(names["outputs"], images, strict=True):
        same(found, model(image), LOWER)
    assert names["output"].shape == large.shape
    # At the edges of the windows, which begin at 0, 44 and at 0, 144, no pixels around are seen.
    same(names["output"][..., 1:44, 1:144], model(large)[..., 1:44, 1:144], LOWER)


def test_a_pipeline_with_its_model_replaced(folder: Path) -> None:
    class Pipeline:
        model: Any = None

        def predict(self, data: torch.Tensor) -> Any:
            return self.model(data)

    model = Filter().cuda().eval()
    torch.jit.save(torch_tensorrt.compile(model, inputs=[torch.randn(3, 1, 32, 32).cuda()]), "labelfree_trt.ts")
    images = torch.randn(3, 1, 32, 32).cuda()
    names = run(manuals.PIPELINE, model=Pipeline(), images=images, torch=torch)
    same(names["predictions"], model(images))


def test_an_ensemble(folder: Path) -> None:
    models = [Filter(seed).cuda().eval() for seed in range(3)]
    x = torch.randn(1, 1, 32, 32).cuda()
    for i, model in enumerate(models):
        torch.jit.save(torch_tensorrt.compile(model, inputs=[x], ir="ts"), f"model_{i}_trt.ts")
    found = run(manuals.ENSEMBLE, input=x, num_models=3, torch=torch)["final_output"]
    same(found, torch.stack([model(x) for model in models]).mean(0))
