"""How much memory there is: of the machine, and of control groups of both versions, its own and those around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from neurenix import memory

GIB = 1 << 30


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    monkeypatch.setattr(memory, "_of_machine", lambda: 64.0 * GIB)
    return tmp_path


def in_group(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, *a, **k: line if str(self) == "/proc/self/cgroup" else read(self, *a, **k)
    )


def group(folder: Path, limit: str, used: int, cached: int, names: tuple[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")


V2, V1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")


def test_the_group_of_this_process_is_asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_group("0::/user.slice/run.scope\n", monkeypatch)
    group(root / "user.slice/run.scope", str(GIB), GIB // 2, GIB // 4, V2)
    assert memory.free() == 3 * GIB // 4
    group(root / "user.slice", str(GIB), GIB * 3 // 4, 0, V2)
    assert memory.free() == GIB // 4
    group(root / "user.slice", "max", GIB, 0, V2)
    assert memory.free() == 3 * GIB // 4


def test_version_1(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_group("9:name=systemd:/x\n4:cpu,memory:/a/b\n", monkeypatch)
    group(root / "memory/a/b", str(2 * GIB), GIB, 0, V1)
    group(root / "memory", str(2**63 - 4096), GIB, 0, V1)
    assert memory.free() == GIB


def test_a_container_sees_its_limit_at_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_group("0::/what/the/machine/calls/it\n", monkeypatch)
    group(root, str(GIB), GIB // 2, 0, V2)
    assert memory.free() == GIB // 2


def test_nothing_is_known_or_left(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_group("nonsense", monkeypatch)
    assert memory.free() == 64 * GIB
    in_group("0::/\n", monkeypatch)
    group(root, "1000", 1000, 0, V2)
    assert memory.free() == memory.LEAST
