"""Saving by threat: the file of that name is the old one or the new one, whole, and nothing else is left behind."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import neurenix as nx
from tests.engine.sound import answers, backend, model, saved


def refused(path: Path | str) -> str:
    """Saving there must fail with an error of ours, and leaves nothing in the folder."""
    folder = Path(os.fsdecode(path)).parent
    before = sorted(folder.iterdir()) if folder.is_dir() else []
    with pytest.raises(nx.FileError) as caught:
        model().save(path)
    assert not folder.is_dir() or sorted(folder.iterdir()) == before
    return str(caught.value)


def test_the_disk_is_full_while_saving(tmp_path: Path) -> None:
    """The file system says so in the middle of the weights."""
    path = tmp_path / "a.engine"
    before = saved(path)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    large = model(refittable=True)
    try:
        for limit in (0, 40, len(before) // 2, len(before)):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
            with pytest.raises(nx.FileError, match=r"File too large[\s\S]*unchanged"):
                large.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_folder_a_pipe_and_a_device_at_the_target(tmp_path: Path) -> None:
    """They stay: a rename would put a file in their place."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    assert "got: a folder" in refused(tmp_path / "folder")
    for name in ("pipe", "link"):
        assert "got: a device or a pipe" in refused(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    assert "got: a device" in refused("/dev/null") and not Path("/dev/null").is_file()


def test_a_link_at_the_target(tmp_path: Path) -> None:
    """The link is replaced: what others made it point to stays as it is."""
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    for target in (treasure, tmp_path / "nowhere"):
        link = tmp_path / "a.engine"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        model().save(link)
        assert not link.is_symlink() and answers(backend().load(link))
    assert treasure.read_text() == "mine" and not (tmp_path / "nowhere").exists()


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    assert "too long" in refused(tmp_path / ("n" * 256))
    assert "NUL" in refused(f"{tmp_path}/a\0b")
    refused("")
    refused(tmp_path / "missing" / "a.engine")
    refused("/proc/a.engine")


def test_the_longest_name_that_a_file_can_have(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    model().save(path)
    assert answers(backend().load(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user whose files another one can't write")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    """In a process of another user, since root may write everywhere."""
    path = tmp_path / "a.engine"
    before = saved(path)
    process = multiprocessing.get_context("fork").Process(target=_save_as_nobody, args=(path,))
    tmp_path.chmod(0o755)
    process.start()
    process.join()
    assert process.exitcode == 13 and path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def _save_as_nobody(path: Path) -> None:
    made = model()
    os.seteuid(65534)
    try:
        made.save(path)
    except nx.FileError as error:
        os._exit(13 if "denied" in str(error) else 1)


def test_a_save_over_the_engine_that_is_open(tmp_path: Path) -> None:
    """It goes on with the weights that it mapped."""
    path = tmp_path / "a.engine"
    saved(path)
    opened = backend().load(path)
    for _ in range(3):
        opened.save(path)
        assert answers(opened) and answers(backend().load(path))
    assert list(tmp_path.iterdir()) == [path]


SAVE = """
import sys
from pathlib import Path
from tests.engine.sound import model
made = model(refittable=sys.argv[2] == "1")
print("ready", flush=True)
sys.stdin.readline()
for _ in range(60):
    made.save(sys.argv[1])
"""


def test_two_processes_save_to_one_path_while_a_third_loads(tmp_path: Path) -> None:
    path = tmp_path / "a.engine"
    saved(path)
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    writers = [
        subprocess.Popen([sys.executable, "-c", SAVE, path, which], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         env=environment, cwd=root)
        for which in "01"
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None and writer.stdin is not None
        assert writer.stdout.readline() == b"ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    loads, kinds = 0, set()
    while any(writer.poll() is None for writer in writers) or not loads:
        opened = backend().load(path)
        kinds.add(opened._engine.refittable)
        assert answers(opened)
        loads += 1
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert answers(backend().load(path)) and list(tmp_path.iterdir()) == [path]
