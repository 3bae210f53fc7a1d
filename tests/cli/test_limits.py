"""What the command line says of sizes, counts, files and disks that can't be: one error, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neurenix.cli import main
from tests.cli.conftest import Answer

onnx = pytest.importorskip("onnx")
Call = Callable[..., Answer]


@pytest.fixture
def model(folder: Path) -> Path:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> m (float[n,4] x) => (float[n,4] y) { y = Relu(x) }'
    )
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("command", ["run", "bench", "export"])
@pytest.mark.parametrize("size", ["1000000000000", "4611686018427387904", "9" * 30])
def test_huge_shapes(call: Call, model: Path, command: str, size: str) -> None:
    code, _, err = call(command, model, "--shapes", f"x:{size}x4")
    assert code == 1 and err.startswith(f"neurenix {command}: ") and "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "--iterations", "-5"),
        ("bench", "--duration", "-1"),
        ("bench", "--warmup", "nan"),
        ("run", "--seed", "-1"),
        ("run", "--atol", "-1"),
        ("export", "--benchmark-iterations", "-1"),
        ("export", "--max-batch", "-4"),
    ],
)
def test_negative_counts(capsys: pytest.CaptureFixture[str], model: Path, words: tuple[str, str, str]) -> None:
    command, option, value = words
    with pytest.raises(SystemExit) as ended:
        main([command, str(model), "--shapes", "x:1x4", option, value])
    assert ended.value.code == 2
    assert f"argument {option}" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--threads", "-1"), ("--threads", "0"), ("--optimization-level", "-1")])
def test_counts_that_options_refuse(call: Call, model: Path, option: tuple[str, str]) -> None:
    code, _, err = call("run", model, "--shapes", "x:1x4", *option)
    assert code == 1 and err.startswith("neurenix run: ") and "expected: " in err


def command(*words: object, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "neurenix.cli", *map(str, words)]
    return subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=120)


@pytest.fixture
def full() -> Iterator[int]:
    """A stream that takes nothing, as a file on a full disk."""
    handle = os.open("/dev/full", os.O_WRONLY)
    yield handle
    os.close(handle)


@pytest.mark.parametrize("words", [("run", "--report"), ("bench", "--iterations", "10"), ("inspect",)])
def test_a_full_disk_under_stdout(model: Path, full: int, words: tuple[str, ...]) -> None:
    name, *more = words
    done = command(name, model, "--shapes", "x:1x4", *more, stdout=full)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"neurenix {name}: No space left on device", done.stderr


def test_a_full_disk_under_files(call: Call, model: Path) -> None:
    for option, suffix in (("--save-outputs", ".npz"), ("--json", "")):
        target = model.parent / f"full{suffix}"
        target.symlink_to("/dev/full")
        code, _, err = call("run", model, "--shapes", "x:1x4", option, target)
        assert code == 1 and "can't be written: No space left on device" in err, err
        target.unlink()


@pytest.mark.parametrize("name", ["m.onnx", "m.engine", "m.pt2", "m.json", "m.keras", "m.tflite", "m.pb"])
@pytest.mark.parametrize("what", ["/dev/zero", "pipe"])
def test_devices_and_pipes_are_no_models(call: Call, model: Path, name: str, what: str) -> None:
    if name.endswith(".pt2"):
        pytest.importorskip("torch")
    path = model.parent / "given" / name
    path.parent.mkdir()
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(what)
    words = ("operator:neg", "--config", path) if name.endswith(".json") else (path,)
    code, _, err = call("run", *words)
    assert code == 1 and "a device or a pipe" in err, err


def test_the_engine_never_replaces_its_model(call: Call, model: Path) -> None:
    before = model.read_bytes()
    (model.parent / "other.engine").hardlink_to(model)
    for target in (model, model.parent / "other.engine"):
        code, _, err = call("export", model, "--shapes", "x:1x4", "--precision", "fp32", "--output", target)
        assert code == 1 and err.startswith("neurenix export: ")
        assert target.read_bytes() == before
    assert "--output would replace what is read" in err


def test_what_is_written_keeps_its_rights_and_leaves_nothing(call: Call, model: Path) -> None:
    target = model.parent / "told.json"
    target.write_text("old")
    target.chmod(0o640)
    code, _, err = call("run", model, "--shapes", "x:1x4", "--json", target)
    assert code == 0, err
    assert target.stat().st_mode & 0o777 == 0o640 and target.read_text().startswith("{")
    assert sorted(path.name for path in model.parent.iterdir()) == ["cache", "m.onnx", "told.json"]
