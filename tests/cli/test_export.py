"""`neurenix export`: what it writes, refuses, and says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix.cli import export
from neurenix.hardware.tensorrt import TensorRTBackend
from tests.cli.conftest import Answer
from tests.machine import needs_int8

onnx = pytest.importorskip("onnx")

Call = Callable[..., Answer]

FACTORY = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, width), torch.nn.Linear(width, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

def make(width=4):
    torch.manual_seed(0)
    return Net(width).eval()
"""
OURS = """
from neurenix import nn

def ours(width=4):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))
"""


@pytest.fixture
def net(folder: Path) -> Iterator[str]:
    """The name of a factory in the folder; `our_net:ours` is one that needs no PyTorch."""
    (folder / "exported_net.py").write_text(FACTORY)
    (folder / "our_net.py").write_text(OURS)
    yield "exported_net:make"
    for name in ("exported_net", "our_net"):
        sys.modules.pop(name, None)


@pytest.fixture
def model(folder: Path) -> Path:
    """A model with a fixed batch of four numbers, and weights."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> m (float[n,4] x) => (float[n,2] y)'
        " <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { h = Relu(x) y = MatMul(h, w) }"
    )
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


def test_the_file_computes_what_the_model_computes(call: Call, model: Path, folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    code, out, _ = call("export", model, "--precision", "fp32", "--input-shape", 3, 4, "--verify", "-o", "a.engine")
    assert code == 0
    assert out.splitlines()[-1] == "written: a.engine"
    assert "verified" in out
    x = np.arange(12, dtype=np.float32).reshape(3, 4) - 6
    weights = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    got = TensorRTBackend().load(folder / "a.engine")(x)
    np.testing.assert_allclose(got, np.maximum(x, 0) @ weights, rtol=1e-6)


@pytest.mark.parametrize("shape", [("3", "4"), ("3x4",), ("x:3x4",)])
def test_shapes_in_every_spelling(call: Call, model: Path, shape: tuple[str, ...]) -> None:
    code, out, _ = call("export", model, "--precision", "fp32", "--input-shape", *shape, "--json")
    assert code == 0
    assert json.loads(out)["profiles"] == [{"n": [3, 3, 3]}]


def test_dynamic_shapes(call: Call, model: Path) -> None:
    arguments = ("export", model, "--precision", "fp32", "--dynamic-shapes", "--json")
    assert json.loads(call(*arguments)[1])["profiles"] == [{"n": [1, 4, 16]}]
    # The optimum that nobody gave lies inside.
    assert json.loads(call(*arguments, "--max-batch", 2)[1])["profiles"] == [{"n": [1, 2, 2]}]
    chosen = (*arguments, "--min-batch", 2, "--opt-batch", 8, "--max-batch", 32)
    assert json.loads(call(*chosen)[1])["profiles"] == [{"n": [2, 8, 32]}]
    code, _, err = call(*arguments, "--min-batch", 5, "--opt-batch", 4)
    assert code == 1
    assert "0 <= min <= opt <= max" in err
    words = ("--min-shapes", "x:1x4", "--opt-shapes", "x:3x4", "--maxShapes", "x:9x4")
    assert json.loads(call("export", model, "--precision", "fp32", *words, "--json")[1])["profiles"] == [
        {"n": [1, 3, 9]}
    ]


def test_what_was_asked_for_and_can_not_be_had_is_an_error(call: Call, model: Path, folder: Path) -> None:
    """Unless this processor computes in float16, of course."""
    shape = ("--input-shape", 3, 4)
    code, out, err = call("export", model, *shape, "--precision", "fp16", "-o", "h.engine", "--json")
    if TensorRTBackend().get_device_info(0).precisions.count("fp16"):
        assert code == 0
        return
    assert code == 1
    assert not (folder / "h.engine").exists()
    assert json.loads(out)["error"]["kind"] == "unsupported"
    assert "no layer computes in fp16, and no file was written" in err
    code, out, _ = call("export", model, *shape, "-o", "h.engine", "--json")
    assert code == 0
    content = json.loads(out)
    why = "the default of export is fp16, for which this machine has no arithmetic"
    assert content["precision"] == {"asked": None, "got": "fp32", "why": why}
    assert content["notes"] == []
    # The engine is one of float32, and is what it says wherever it is opened.
    code, out, err = call("export", model, *shape, "-o", "h.engine")
    assert (code, err) == (0, "") and f"precision: fp32 ({why})\n" in out
    assert call("bench", "h.engine", "--duration", 0)[0] == 0


def test_the_default_precision_is_said_once_with_the_way_to_float32(
    call: Call, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a machine that computes in float16, which this one need not do."""
    if "fp16" not in TensorRTBackend().get_device_info(0).precisions:
        monkeypatch.setattr(export, "PRECISION", "bf16")
        if "bf16" not in TensorRTBackend().get_device_info(0).precisions:
            pytest.skip("this processor has neither float16 nor bfloat16 arithmetic")
    code, out, err = call("export", model, "--input-shape", 3, 4)
    assert code == 0
    line = f"precision: {export.PRECISION} (the default of export; --precision fp32 keeps float32)"
    assert out.splitlines().count(line) == 1 and "fp32" not in out.replace(line, "") + err + caplog.text
    out = call("export", model, "--input-shape", 3, 4, "--precision", "fp32")[1]
    assert "precision: fp32 (as asked for)\n" in out


def test_bf16_is_verified_within_its_own_budget(call: Call, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    if "bf16" not in TensorRTBackend().get_device_info(0).precisions:
        pytest.skip("this processor has no bfloat16 arithmetic")
    code, out, _ = call("export", model, "--input-shape", 3, 4, "--precision", "bf16", "--verify", "--json")
    content = json.loads(out)
    assert (code, content["precision"]["got"]) == (0, "bf16")
    strict = ("--tolerance", "0")
    code, out, _ = call("export", model, "--input-shape", 3, 4, "--precision", "bf16", "--verify", *strict)
    assert code == 1
    assert "FAILED: the engine departs from the model" in out


def test_a_factory_with_weights_and_config(call: Call, net: str, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    (folder / "c.json").write_text('{"width": 5}')
    weights = {"first.weight": torch.ones(5, 8), "first.bias": torch.zeros(5)}
    weights |= {"second.weight": torch.ones(3, 5), "second.bias": torch.tensor([0.0, 1.0, 2.0])}
    torch.save({"state_dict": weights, "epoch": 3}, folder / "w.pt")
    given = ("--ckpt", "w.pt", "--config", "c.json", "--input-shape", 2, 8, "--precision", "fp32")
    code, out, _ = call("export", net, *given, "--verify", "--benchmark", "--benchmark-iterations", 10)
    assert code == 0
    assert "=== Performance summary ===" in out
    got = TensorRTBackend().load(folder / "make.engine")(np.full((2, 8), 0.5, np.float32))
    np.testing.assert_array_equal(got, [[20, 21, 22]] * 2)


def test_a_factory_of_ours_with_safetensors(call: Call, net: str, folder: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    weights = {"0.weight": np.ones((4, 8), np.float32), "0.bias": np.zeros(4, np.float32)}
    weights |= {"2.weight": np.ones((3, 4), np.float32), "2.bias": np.arange(3, dtype=np.float32)}
    numpy.save_file(weights, folder / "w.safetensors")
    given = ("--ckpt", "w.safetensors", "--input-shape", 2, 8, "--precision", "fp32", "--verify")
    code, out, _ = call("export", "our_net:ours", *given, "-o", "o.engine")
    assert code == 0
    assert "differs from float64 evaluation" in out
    np.testing.assert_array_equal(
        TensorRTBackend().load(folder / "o.engine")(np.ones((2, 8), np.float32)), [[32, 33, 34]] * 2
    )


def test_an_exported_program(call: Call, net: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    import exported_net

    torch.export.save(torch.export.export(exported_net.make(), (torch.zeros(2, 8),)), "p.pt2")
    code, out, _ = call("export", "p.pt2", "--precision", "fp32", "--verify")
    assert code == 0
    assert "verified" in out


def test_an_exported_program_s_names_and_ranges(call: Call, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Scaled(torch.nn.Module):  # type: ignore[misc]
        def forward(self, image: Any, *, scale: Any) -> Any:
            return {"scaled": image * scale, "mean": image.mean(1)}

    batch = torch.export.Dim("batch", min=1, max=12)
    given = {"scale": torch.tensor(2.0)}
    shapes = {"image": {0: batch}, "scale": None}
    torch.export.save(torch.export.export(Scaled(), (torch.zeros(2, 8),), given, dynamic_shapes=shapes), "s.pt2")
    code, out, _ = call("export", "s.pt2", "--precision", "fp32", "--verify", "--json")
    content = json.loads(out)
    assert (code, list(content["inputs"]), list(content["outputs"])) == (0, ["image", "scale"], ["output", "output_1"])
    assert [list(profile.values()) for profile in content["profiles"]] == [[[1, 2, 12]]]
    words = ("export", "s.pt2", "--precision", "fp32", "--dynamic-shapes", "--json")
    code, out, _ = call(*words, "--min-batch", 2, "--max-batch", 6)
    assert [list(profile.values()) for profile in json.loads(out)["profiles"]] == [[[2, 4, 6]]]
    code, _, err = call(*words)
    assert code == 1
    assert "a dimension is given a greater size than the model states for it" in err


class Evil:
    """Unpickling it writes a file."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("owned", "w")


def test_no_checkpoint_executes_code(call: Call, net: str, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"first.weight": Evil()}, folder / "evil.pt")
    code, _, err = call("export", net, "--ckpt", "evil.pt", "--input-shape", 2, 8)
    assert code == 1
    assert "holds more than weights, which could execute code" in err
    assert not (folder / "owned").exists()


@pytest.mark.parametrize("name", ["x.pt2", "x.ts"])
def test_an_engine_in_a_file_of_torch_runs_and_is_no_model(call: Call, model: str, name: str) -> None:
    pytest.importorskip("torch")
    for each in (name, "x.engine"):
        assert call("export", model, "-o", each, "--precision", "fp32")[0] == 0
    assert call("run", name)[:2] == call("run", "x.engine")[:2] and call("inspect", name)[0] == 0
    code, _, err = call("export", name)
    assert code == 1 and "the model is an engine file already" in err


def test_no_exported_program_executes_code(call: Call, net: str, folder: Path) -> None:
    """The archive's tensors are read by torch.load, which torch.export.load lets execute what they say."""
    torch = pytest.importorskip("torch")
    import io
    import zipfile

    import exported_net

    torch.export.save(torch.export.export(exported_net.make(), (torch.zeros(2, 8),)), "good.pt2")
    evil = io.BytesIO()
    torch.save(Evil(), evil)
    with zipfile.ZipFile("good.pt2") as good, zipfile.ZipFile("evil.pt2", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, evil.getvalue() if name.endswith(".pt") else good.read(name))
        assert any(name.endswith(".pt") for name in good.namelist())
    code, _, err = call("export", "evil.pt2", "--precision", "fp32")
    assert code == 1
    assert "this is no torch.export program" in err
    assert not (folder / "owned").exists()
    with zipfile.ZipFile("good.pt2", "a") as archive:
        archive.writestr("good/data/constants/custom_obj_0", b"")
    assert "holds code or pickled objects" in call("export", "good.pt2")[2]


def test_torchscript_is_refused_with_the_way_out(call: Call, net: str) -> None:
    torch = pytest.importorskip("torch")
    import exported_net

    torch.jit.save(torch.jit.trace(exported_net.make(), torch.zeros(2, 8)), "script.pt")
    for words in (("export", "script.pt"), ("run", "script.pt")):
        code, _, err = call(*words)
        assert code == 1
        assert "TorchScript is not imported" in err
        assert "package.module:factory with --ckpt" in err
    assert "is a TorchScript program, not weights" in call("export", net, "--ckpt", "script.pt")[2]
    torch.save({"w": torch.zeros(1)}, "weights.pt")
    assert "package.module:factory --ckpt weights.pt" in call("export", "weights.pt")[2]


def test_an_engine_file_keeps_its_precision(call: Call, model: Path) -> None:
    assert call("export", model, "--precision", "fp32", "--input-shape", 3, 4, "-o", "a.engine")[0] == 0
    code, out, err = call("run", "a.engine", "--precision", "bf16")
    assert (code, out) == (1, "")
    assert "an engine file keeps the precision it was built for" in err
    for precision in ("bf16", "fp16"):
        err = call("run", "a.engine", "--precision", precision)[2]
        can = precision in TensorRTBackend().get_device_info(0).precisions
        way = (
            f"export MODEL --precision {precision}" if can else "leave --precision out: this machine has arithmetic for"
        )
        assert way in err
    assert "the nearest name is 'fp32'" in call("run", "a.engine", "--precision", "float32")[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model.h5",), "save it anew: model.save('model.keras')"),
        (("{model}", "--calibration-data", "folder"), "--calibration-data is for a precision of 8 bits"),
        (("{model}", "--num-calibration-samples", "9"), "--num-calibration-samples is for a precision of 8 bits"),
        pytest.param(
            ("{model}", "--precision", "int8", "--calibration-data", "no"),
            "there is no such file or folder to calibrate on",
            marks=needs_int8,
        ),
        (("{model}", "--accuracy-budget", "20"), "`accuracy_budget` is for other precisions"),
        (("{model}", "--precision", "fp61"), "the nearest name is 'fp16'"),
        (("{model}", "--precision", "FP32"), "the nearest name is 'fp32'\n"),
        (("{model}", "-o", "m.onnx"), "--output would replace what is read"),
        (("{model}", "--max-batch", "4"), "--max-batch means something with --dynamic-shapes alone"),
        (("{model}", "--shapes", "x:1x4", "--input-shape", "1", "4"), "the shapes are given twice"),
        (("{model}", "--min-shapes", "x:1x4"), "the ranges of the inputs are not whole"),
        (("{model}", "--input-shape", "z:1x4"), "the nearest name is 'x'"),
        (("{model}", "--ckpt", "w.pt"), "--ckpt and --config belong to a factory"),
        (("{net}", "--config", "bad.json"), "the config can't be read"),
        (("our_net:ours", "--config", "wrong.json"), "does not take what --config says"),
        (("our_net:ours",), "the shapes of the inputs must be known to trace a module"),
        (("m.engine",), "the model is an engine file already"),
        (("missing.onxx",), "there is no such file"),
        (("bad.json",), "files of this kind are not models"),
        (
            ("{model}", "--input-shape", "2", "4", "--precision", "fp32", "-o", "no/such.engine"),
            "can't be saved",
        ),
    ],
)
def test_refusals(call: Call, model: Path, net: str, folder: Path, words: tuple[str, ...], message: str) -> None:
    (folder / "model.h5").write_bytes(b"")
    (folder / "bad.json").write_text("{")
    (folder / "wrong.json").write_text('{"height": 3}')
    code, out, err = call("export", *(word.format(model=model, net=net) for word in words))
    assert (code, out) == (1, "")
    assert message in err
