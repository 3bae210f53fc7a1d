"""No command writes over what it reads, nor two results into one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from neurenix.cli import main

onnx = pytest.importorskip("onnx")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 4)) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    Path("data").mkdir()
    np.save("data/x.npy", np.ones((1, 4), np.float32))
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    Path("link.svg").symlink_to("m.onnx")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("bench m.onnx --plot m.onnx", "--plot would replace what is read"),
        ("bench m.onnx --plot link.svg", "--plot would replace what is read"),
        ("bench m.onnx --export-times m.onnx", "--export-times would replace what is read"),
        ("bench m.onnx --export-profile m.onnx", "--export-profile would replace what is read"),
        ("bench m.onnx --json t.json --export-times t.json", "--json and --export-times name one file"),
        ("inspect m.onnx --json m.onnx", "--json would replace what is read"),
        ("inspect m.onnx --html m.onnx", "--html would replace what is read"),
        ("run m.onnx --json m.onnx", "--json would replace what is read"),
        ("run m.onnx --load-inputs x.npz --save-outputs x", "--save-outputs would replace what is read"),
        ("run m.onnx --load-inputs x:data/x.npy --json data/x.npy", "--json would replace what is read"),
        ("run m.onnx --save-inputs s.npz --save-outputs s", "--save-inputs and --save-outputs name one file"),
        ("calibrate m.onnx --data data --onnx m.onnx", "--onnx would replace what is read"),
        ("calibrate m.onnx --data data --onnx data/x.npy", "--onnx would replace what is read"),
        ("calibrate m.onnx --data data --output same --onnx same", "--output and --onnx name one file"),
        ("calibrate m.onnx --data data --json m.cache", "--output and --json name one file"),
        ("export m.onnx --json m.engine", "--output and --json name one file"),
    ],
)
def test_what_is_read_stays(files: Path, capsys: pytest.CaptureFixture[str], command: str, said: str) -> None:
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    assert main(command.split()) == 1
    assert said in capsys.readouterr().err
    assert {path: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before
