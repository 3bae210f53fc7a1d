"""What the command line says of a wrong call: on stderr, with exit code 1, or 2 where the usage is wrong."""

from __future__ import annotations

import json
import sys
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
        "  expected: a .onnx, .pt2, .keras, .tflite or .pb file, a SavedModel folder, an .engine file, or "
        "package.module:factory\n  got: text.txt\n"
    ),
    "export model.onnx --precision fp12": (
        "export: the option 'precision' can't have this value\n  expected: fp32, tf32, bf16, fp16, int8, fp8, mixed, "
        "int8+fp16, int8+bf16, fp8+fp16, fp8+bf16\n  got: 'fp12'\n  hint: the nearest name is 'fp32'\n"
    ),
    "export model.onnx --output other.onnx": (
        "export: an engine file is no .onnx file, and would be taken for one\n"
        "  expected: another ending, as in model.engine\n  got: other.onnx\n  hint: call it 'other.engine'\n"
    ),
    "run model.onnx --backend gpu": (
        "run: there is no backend 'gpu'\n  expected: tensorrt, cuda, cpu\n  hint: the nearest name is 'cuda'\n"
    ),
    "bench model.onnx --iterations 0": "bench: --iterations is too small\n  expected: 1 or more\n  got: 0\n",
    "run model.h5": (
        "run: a file in Keras 2's format (HDF5) can't be opened\n"
        "  expected: a .onnx, .pt2, .keras, .tflite or .pb file, a SavedModel folder, an .engine file, or "
        "package.module:factory\n  got: model.h5\n"
        "  hint: open it with Keras (keras.saving.load_model) and save it anew: model.save('model.keras')\n"
    ),
    "debug model.engine": (
        "debug: an engine file has no original to compare with\n  expected: the model it was made of\n"
        "  got: model.engine\n"
        "  hint: give that model; an engine is compared with outputs of the model that were kept: neurenix run MODEL "
        "--save-inputs I.npz --save-outputs O.npz, neurenix run ENGINE --load-inputs I.npz --load-outputs O.npz\n"
    ),
    "export model.onnx --shapes x:1xa": (
        "export: the shapes can't be read\n  expected: name:1x3x224x224,name2:1x128\n  got: 'x:1xa'\n"
    ),
    "bench model.onnx --plugins raising_module": (
        "bench: the module 'raising_module', which has plugins, raised ValueError at its import: as it does\n"
    ),
    "run raising_module:make": (
        "run: the module 'raising_module' raised ValueError: as it does (raising_module.py, line 1)\n"
    ),
    "run odd_module:fails": "run: the factory 'odd_module:fails' raised KeyError: 'inside' (odd_module.py, line 2)\n",
    "run odd_module:number": (
        "run: 'odd_module:number' is no factory\n  expected: a class or a function that gives a module\n  got: 3\n"
    ),
    "bench model.onnx --plugins my/plugins.py": (
        "bench: the module 'my/plugins.py', which has plugins, can't be imported: No module named 'my/plugins'\n"
        "  hint: name it as an import statement would: plugins\n"
    ),
    "export": ("export: there is no model\n  expected: MODEL, or --config FILE.yaml with _target_\n  got: neither\n"),
    "bench model.onnx --plugins no_such_module": (
        "bench: the module 'no_such_module', which has plugins, can't be imported: No module named 'no_such_module'\n"
        "  hint: name it as an import statement would; its folder must be on sys.path\n"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.onnx").write_bytes(b"nobody reads it")
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "raising_module.py").write_text("raise ValueError('as it does')")
    (tmp_path / "odd_module.py").write_text("number = 3\ndef fails(): return {}['inside']")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "model.h5").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", CASES)
def test_wrong_calls(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = sorted(folder.iterdir())
    assert main(line.split()) == 1
    out, err = capsys.readouterr()
    told = err.partition("neurenix ")[2].replace(f"({folder}/", "(")
    assert (out, told) == ("", CASES[line])
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "line", ["", "exprt model.onnx", "bench model.onnx --iterations x", "bench model.onnx --duration -1"]
)
def test_wrong_usage(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and not out and err.startswith("usage: neurenix") and "error: " in err


def test_an_error_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "missing.engine", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] is False and told["error"]["kind"] == "io" and told["error"]["hint"]
