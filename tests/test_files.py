"""Files that are read whole or written whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import checkpoint, files, reports, safetensors


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o604)
    with files.replacing(path, "it") as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert (path.read_text(), path.stat().st_mode & 0o777, names(tmp_path)) == ("new", 0o604, ["a"])


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), files.replacing(path, "it") as file:
        file.write(b"n")
        raise ZeroDivisionError
    assert (path.read_text(), names(tmp_path)) == ("old", ["a"])


def test_a_new_file_has_the_rights_that_the_process_gives(tmp_path: Path) -> None:
    code = f"import os; os.umask(0o027); from neurenix import files; files.write({str(tmp_path / 'a')!r}, 'x', 'it')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    files.write(tmp_path / "link", "new", "it")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_a_device_is_written_to(tmp_path: Path) -> None:
    files.write("/dev/null", "text", "it")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(nx.FileError, match="it can't be written: No space left on device"):
        files.write("/dev/full", "text", "it")


@pytest.mark.parametrize("path", ["missing/a", "."])
def test_what_can_not_be_written_is_named(path: str, tmp_path: Path) -> None:
    with pytest.raises(nx.FileError, match="it can't be written") as caught:
        files.write(tmp_path / path, "text", "it")
    assert caught.value.got == str(tmp_path / path) and names(tmp_path) == []


def test_a_save_sweeps_up_what_killed_processes_left(tmp_path: Path) -> None:
    code = (
        "import os, signal; from neurenix import files\n"
        f"with files.replacing({str(tmp_path / 'a')!r}, 'it') as file:\n"
        "    file.write(b'x' * 100); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    files.write(tmp_path / "b", "text", "it")
    assert names(tmp_path) == sorted([left.name, "b"])
    old = time.time() - 2 * 3600
    os.utime(left, (old, old))
    network = nx.Network()
    network.mark_output(network.add_layer("Relu", [network.add_input("x", "float32", [2])])[0], "y")
    with nx.hardware.use("cpu") as backend:
        backend.optimize_model(network).save(tmp_path / "c.engine")
    assert names(tmp_path) == ["b", "c.engine"]


def test_a_saved_engine_keeps_the_rights_of_the_one_before(tmp_path: Path) -> None:
    network = nx.Network()
    network.mark_output(network.add_layer("Relu", [network.add_input("x", "float32", [2])])[0], "y")
    path = tmp_path / "a.engine"
    with nx.hardware.use("cpu") as backend:
        model = backend.optimize_model(network)
    model.save(path)
    path.chmod(0o600)
    model.save(path)
    assert path.stat().st_mode & 0o777 == 0o600


READERS: dict[str, Callable[[Any], Any]] = {
    "from_onnx": lambda path: nx.importers.from_onnx(path),
    "checkpoint": lambda path: checkpoint.load(f"{path}.safetensors"),
    "safetensors": lambda path: safetensors.load(path),
    "engine": lambda path: nx.hardware.get_backend("cpu").load(path),
    "report": lambda path: reports.save({}, f"{path}.json"),
    "plugins": lambda path: nx.hardware.tensorrt.load_plugin_library(path),
}


@pytest.mark.parametrize("name", READERS)
def test_zero_bytes_in_paths(name: str) -> None:
    if name == "from_onnx":
        pytest.importorskip("onnx")
    with pytest.raises(nx.Error) as caught:
        READERS[name]("a\0b")
    assert "null" in str(caught.value) or "NUL" in str(caught.value) or "nul byte" in str(caught.value)


@pytest.mark.parametrize("name", ["from_onnx", "safetensors", "engine"])
def test_devices_and_pipes_are_not_read(name: str, tmp_path: Path) -> None:
    if name == "from_onnx":
        pytest.importorskip("onnx")
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(nx.Error, match="a device or a pipe"):
            READERS[name](path)


def test_a_folder_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(nx.FileError, match="it can't be read: it is a folder"):
        files.read(tmp_path, "it")


def test_a_link_at_the_timing_cache_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine\n")
    (tmp_path / "times").symlink_to("victim")
    network = nx.Network()
    x = network.add_input("x", "float32", [64, 64])
    weights = np.ones((64, 64), np.float32)
    network.mark_output(network.add_layer("MatMul", [x, network.add_constant("weights", weights)])[0], "y")
    backend = nx.hardware.get_backend("cpu", timing_cache=str(tmp_path / "times"))
    backend.optimize_model(network)
    assert (tmp_path / "victim").read_text() == "mine\n" and (tmp_path / "times").is_symlink()
