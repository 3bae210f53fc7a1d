"""What the command line says of a wrong call: on stderr, with exit code 1, or 2 where the usage is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neurenix.cli import main

pytest.importorskip("onnx")

CASES = {
    "export missing.onnx": "export: the model can't be read: No such file or directory\n  got: missing.onnx\n",
    "run missing.engine": (
        "run: missing.engine can't be opened: No such file or directory (os error 2)\n"
        "  hint: check the path and its rights\n"
    ),
    "run text.txt": (
        "run: files of this kind are not models\n"
        "  expected: a .onnx or .pt2 file, an .engine file, or package.module:factory\n  got: text.txt\n"
    ),
    "export model.onnx --precision fp12": (
        "export: the option 'precision' can't have this value\n  expected: fp32, tf32, bf16, fp16\n  got: 'fp12'\n"
    ),
    "export model.onnx --shapes x:1xa": (
        "export: the shapes can't be read\n  expected: name:1x3x224x224,name2:1x128\n  got: 'x:1xa'\n"
    ),
    "bench model.onnx --plugins no_such_module": (
        "bench: the module 'no_such_module', which has plugins, can't be imported: No module named 'no_such_module'\n"
        "  hint: name it as an import statement would; its folder must be on sys.path\n"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.onnx").write_bytes(b"nobody reads it")
    (tmp_path / "text.txt").write_text("text")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", CASES)
def test_wrong_calls(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.iterdir())
    assert main(line.split()) == 1
    out, err = capsys.readouterr()
    assert (out, err.partition("neurenix ")[2]) == ("", CASES[line])
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("line", ["", "exprt model.onnx", "export", "bench model.onnx --iterations x"])
def test_wrong_usage(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and not out and err.startswith("usage: neurenix") and "error: " in err


def test_an_error_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "missing.engine", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] is False and told["error"]["kind"] == "io" and told["error"]["hint"]
