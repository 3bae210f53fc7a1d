"""Opening by threat: what is no file, files that go while they are open, engines of other machines."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import Runtime, last_error

pytest.importorskip("xxhash")
from fuzz.engine_file import File
from tests.engine.sound import X, answers, backend, model, saved


@pytest.mark.timeout(30)
def test_a_pipe_a_device_and_a_folder_are_refused_at_once(tmp_path: Path) -> None:
    """Nobody writes into the pipe, and the device never ends."""
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(nx.FormatError, match=f"expected: a file\n  got: .*{what}"):
            backend().load(path)


def test_names_that_no_file_has(tmp_path: Path) -> None:
    for name in ("missing.engine", "n" * 256, "a\0b", "missing/a.engine"):
        with pytest.raises(nx.FileError, match="can't be opened"):
            backend().load(f"{tmp_path}/{name}")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(nx.FileError, match="symbolic links"):
        backend().load(tmp_path / "loop")


def test_a_file_that_disappears_or_is_replaced_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a.engine"
    saved(path, refittable=True)
    opened = backend().load(path)
    path.unlink()
    assert answers(opened)
    path.write_bytes(b"something else")
    assert answers(opened)
    opened.save(tmp_path / "b.engine")
    assert answers(backend().load(tmp_path / "b.engine"))


def test_an_engine_from_bytes_has_a_file_that_nobody_else_can_shorten(tmp_path: Path) -> None:
    """The way out for a file that others may write to."""
    data = saved(tmp_path / "a.engine")
    engine = Runtime().deserialize_cuda_engine(data)
    assert engine is not None
    (tmp_path / "a.engine").write_bytes(b"")
    assert engine.create_execution_context().execute(X).shape == (2, 32)


def test_bytes_for_which_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with TensorRT: None, and the error is told."""
    data = saved(tmp_path / "a.engine")
    runtime = Runtime()
    runtime.temporary_directory = str(tmp_path / "missing")
    assert runtime.deserialize_cuda_engine(data) is None
    assert isinstance(last_error(), nx.FileError)


def test_an_engine_of_a_device_that_is_gone_is_planned_anew_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.engine"
    file = File.read(saved(path))
    key = "cuda NVIDIA H200 sm_90 132 SMs cudnn 9.19|MatMul|0|float32[2x64]plain>float32[2x32]plain"
    file.header["times"] = {key: 5000}
    path.write_bytes(file.written())
    with caplog.at_level(logging.WARNING, "neurenix"):
        opened = backend().load(path, optimization_level=1)
    told = [record.getMessage() for record in caplog.records if "planned anew" in record.getMessage()]
    assert len(told) == 1 and "optimization_level 0, here 1" in told[0]
    assert answers(opened)


def test_many_threads_open_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.engine"
    saved(path)
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(answers(backend().load(path)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


def test_saving_an_engine_needs_no_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model().save("a.engine")
    assert answers(backend().load("a.engine")) and os.listdir() == ["a.engine"]
