"""Polygraphy drives our module where it expects NVIDIA's, and finds it to agree with ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt

pytest.importorskip("polygraphy")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def stands_in() -> Iterator[None]:
    with trt.stand_in():
        yield


def export(module: torch.nn.Module, path: Path, inputs: dict[str, torch.Tensor]) -> Path:
    axes = {name: {0: "batch"} for name in [*inputs, "output"]}
    torch.onnx.export(
        module.eval(), tuple(inputs.values()), path, input_names=list(inputs), output_names=["output"],
        dynamic_axes=axes, dynamo=False,
    )  # fmt: skip
    return path


class Bert(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = transformers.BertModel(transformers.BertConfig(vocab_size=2000, attn_implementation="eager"))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.inner(input_ids=ids, attention_mask=mask).last_hidden_state


def resnet50(path: Path) -> tuple[Path, dict[str, tuple[int, ...]], dict[str, tuple[str, int]]]:
    torch.manual_seed(0)
    export(torchvision.models.resnet50(weights=None), path, {"input": torch.zeros(1, 3, 224, 224)})
    return path, {"input": (3, 224, 224)}, {}


def bert(path: Path) -> tuple[Path, dict[str, tuple[int, ...]], dict[str, tuple[str, int]]]:
    torch.manual_seed(0)
    inputs = {name: torch.ones(1, 64, dtype=torch.int64) for name in ("ids", "mask")}
    export(Bert(), path, inputs)
    return path, {"ids": (64,), "mask": (64,)}, {"ids": ("int64", 2000), "mask": ("int64", 2)}


def feed(shapes: dict[str, tuple[int, ...]], integers: dict[str, tuple[str, int]], batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    made = {}
    for name, shape in shapes.items():
        if name in integers:
            dtype, below = integers[name]
            made[name] = rng.integers(0, below, (batch, *shape)).astype(dtype)
            made[name][:, 0] = 1
        else:
            made[name] = rng.standard_normal((batch, *shape)).astype(np.float32)
    return made


@pytest.mark.parametrize("model", [resnet50, bert])
def test_comparison_with_onnxruntime_passes(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.backend.trt import (
        CreateConfig,
        EngineFromBytes,
        EngineFromNetwork,
        NetworkFromOnnxPath,
        Profile,
        SaveEngine,
        TrtRunner,
    )
    from polygraphy.comparator import Comparator, CompareFunc

    path, shapes, integers = model(tmp_path / "model.onnx")
    profile = Profile()
    for name, shape in shapes.items():
        profile.add(name, (1, *shape), (1, *shape), (2, *shape))
    config = CreateConfig(
        profiles=[profile], builder_optimization_level=0, memory_pool_limits={trt.MemoryPoolType.WORKSPACE: 1 << 30}
    )
    engine = SaveEngine(EngineFromNetwork(NetworkFromOnnxPath(str(path)), config), str(tmp_path / "model.engine"))
    runners = [
        TrtRunner(engine),
        TrtRunner(EngineFromBytes(lambda: (tmp_path / "model.engine").read_bytes()), name="from bytes"),
        OnnxrtRunner(SessionFromOnnx(str(path), providers=["CPUExecutionProvider"])),
    ]
    results = Comparator.run(runners, data_loader=[feed(shapes, integers, batch) for batch in (1, 2)])
    compare = CompareFunc.simple(rtol=1e-3, atol=1e-3, check_error_stat="elemwise")
    assert bool(Comparator.compare_accuracy(results, compare_func=compare))
    assert "PASSED" in capsys.readouterr().out


def test_its_command_line_runs(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
    export(module, tmp_path / "m.onnx", {"x": torch.zeros(1, 3, 8, 8)})
    script = tmp_path / "polygraphy_tool.py"
    script.write_text("import sys\nfrom polygraphy.tools import main\nsys.exit(main())\n")

    def polygraphy(*args: str) -> str:
        command = [sys.executable, "-m", "neurenix.hardware.tensorrt", str(script), *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    ranges = [f"--trt-{what}-shapes=x:[{batch},3,8,8]" for what, batch in (("min", 1), ("opt", 2), ("max", 4))]
    said = polygraphy("run", "m.onnx", "--trt", "--onnxrt", *ranges, "--save-engine", "m.engine")
    assert "PASSED | Runtime" in said and "FAILED" not in said
    said = polygraphy("inspect", "model", "m.engine", "--show", "layers")
    assert "shape=(-1, 3, 8, 8)" in said and "max=(4, 3, 8, 8)" in said and "[Op: Conv+Relu]" in said
    said = polygraphy("inspect", "model", "m.onnx", "--display-as=trt", "--show", "layers", "attrs")
    assert "[Op: LayerType.CONVOLUTION]" in said and "[Op: ActivationType.RELU]" in said


def test_its_calls_fail_with_our_errors(tmp_path: Path) -> None:
    from polygraphy.backend.trt import EngineFromBytes, NetworkFromOnnxBytes
    from polygraphy.exception import PolygraphyException

    with pytest.raises(PolygraphyException, match="Could not deserialize engine"):
        EngineFromBytes(b"no engine")()
    assert "it is not an engine file" in str(trt.last_error())
    with pytest.raises(PolygraphyException, match="Could not parse ONNX correctly"):
        NetworkFromOnnxBytes(b"no model")()
    assert isinstance(trt.last_error(), nx.FormatError)


def test_the_allocation_strategies_of_its_runner(tmp_path: Path) -> None:
    from polygraphy.backend.trt import EngineFromNetwork, NetworkFromOnnxPath, TrtRunner

    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    torch.onnx.export(
        module.eval(), (torch.zeros(3, 8),), tmp_path / "m.onnx", input_names=["x"], output_names=["y"], dynamo=False
    )
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    want = module(torch.from_numpy(x)).detach().numpy()
    engine = EngineFromNetwork(NetworkFromOnnxPath(str(tmp_path / "m.onnx")))()
    for strategy in ("static", "profile", "runtime"):
        with TrtRunner(engine, allocation_strategy=strategy) as runner:
            np.testing.assert_allclose(runner.infer({"x": x})["y"], want, rtol=1e-5, atol=1e-5)


def test_nothing_stands_in_where_another_module_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    monkeypatch.setitem(sys.modules, "tensorrt_other", types.ModuleType("tensorrt_other"))
    with pytest.raises(nx.InvalidArgumentError, match="was imported before"), trt.stand_in("tensorrt_other"):
        pass
