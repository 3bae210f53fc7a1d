"""Engines saved as files of torch's: by `OptimizedModel.save`, opened by torch, by `nx.load`, by `InferenceEngine`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch

import neurenix as nx
import neurenix.torch_tensorrt as torch_tensorrt
from neurenix.hardware import get_backend
from neurenix.importers.files import has_engine
from neurenix.inference import InferenceEngine, export_to_tensorrt
from neurenix.torch_tensorrt import Input
from tests.torch_tensorrt.models import QUICK, net, pictures

CPU = get_backend("cpu")
ENGINE = {name: value for name, value in QUICK.items() if name != "cache"}
RANGE = {"x": nx.Shape(min=(1, 3, 16, 16), opt=(4, 3, 16, 16), max=(8, 3, 16, 16))}
pytestmark = pytest.mark.filterwarnings("ignore:TorchScript is deprecated", "ignore:`torch.jit")


class Two(torch.nn.Module):
    """Two inputs, two outputs."""

    def forward(self, x: Any, y: Any) -> Any:
        """A product and a sum."""
        return x @ y, x + 1


def opened(path: Path) -> Any:
    return torch.jit.load(path) if path.suffix == ".ts" else torch.export.load(path).module()


def same(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ending", [".ts", ".pt2"])
def test_an_engine_of_several_shapes(tmp_path: Path, ending: str) -> None:
    model, path = net(), tmp_path / f"m{ending}"
    CPU.optimize_model(model, RANGE, **ENGINE).save(path)
    run, again, engine = opened(path), CPU.load(path), InferenceEngine(path, (4, 3, 16, 16), device="cpu")
    for batch in (1, 2, 8):
        x = pictures(batch)
        for call in (run, again, engine):
            same(call(x), model(x))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", [".ts", ".pt2"])
def test_an_engine_of_several_inputs_and_outputs(tmp_path: Path, ending: str) -> None:
    path, x, y = tmp_path / f"m{ending}", torch.randn(3, 4), torch.randn(4, 4)
    CPU.optimize_model(Two(), {"x": (3, 4), "y": (4, 4)}, **ENGINE).save(path)
    for found in (opened(path)(x, y), CPU.load(path)(x, y)):
        for one, other in zip(found, Two()(x, y), strict=True):
            same(one, other)


@pytest.mark.parametrize("ending", [".ts", ".pt2"])
def test_what_torch_tensorrt_saved(tmp_path: Path, ending: str) -> None:
    """One engine is opened as such; a module of several stays one of torch's."""
    given = {"inputs": [Input(min_shape=[1, 3, 16, 16], opt_shape=[4, 3, 16, 16], max_shape=[8, 3, 16, 16])], **QUICK}
    kind = "torchscript" if ending == ".ts" else "exported_program"
    for cut in (False, True):
        model = net(cut)
        torch_tensorrt.save(torch_tensorrt.compile(model, **given), tmp_path / f"{cut}{ending}", output_format=kind)
    x = pictures(5)
    same(InferenceEngine(tmp_path / f"False{ending}", device="cpu")(x), net()(x))
    with pytest.raises(nx.UnsupportedError, match="more than one engine"):
        CPU.load(tmp_path / f"True{ending}")


def test_the_exporter_writes_them(tmp_path: Path) -> None:
    model, x = net(), pictures()
    export_to_tensorrt(model, tmp_path / "m.ts", (2, 3, 16, 16), "fp32", device="cpu", **ENGINE)
    same(torch.jit.load(tmp_path / "m.ts")(x), model(x))


def test_files_without_an_engine(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(net(), pictures()), tmp_path / "m.ts")
    torch.export.save(torch.export.export(net(), (pictures(),)), tmp_path / "m.pt2")
    (tmp_path / "text.ts").write_text("neurenix.run.default")
    for name in ("m.ts", "m.pt2", "text.ts"):
        assert not has_engine(tmp_path / name)
        with pytest.raises(nx.UnsupportedError, match="no engine of ours"):
            CPU.load(tmp_path / name)
    with pytest.raises(nx.FileError):
        CPU.load(tmp_path / "missing.ts")
    # A program without one is a model.
    same(InferenceEngine(tmp_path / "m.pt2", device="cpu")(x := pictures()), net()(x))
    with pytest.raises(nx.UnsupportedError, match="TorchScript"):
        InferenceEngine(tmp_path / "m.ts", device="cpu")


def test_a_file_that_can_t_be_written(tmp_path: Path) -> None:
    model = CPU.optimize_model(net(), (2, 3, 16, 16), **ENGINE)
    for ending in (".ts", ".pt2"):
        with pytest.raises(nx.FileError):
            model.save(tmp_path / "missing" / f"m{ending}")
    with pytest.raises(nx.InvalidArgumentError, match=r"no \.onnx file"):
        model.save(tmp_path / "m.onnx")
