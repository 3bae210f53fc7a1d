"""The tool that tries other Pythons: which it finds, which it refuses, and what it runs on them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools import other_pythons


def stand_in(folder: Path, name: str, *told: object) -> str:
    """A program that says of itself what a Python would."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{json.dumps([*told, str(path)])}'\n")
    path.chmod(0o755)
    return str(path)


def test_what_is_no_usual_python_is_named(tmp_path: Path) -> None:
    named = [
        stand_in(tmp_path, "python3.14", "CPython", "3.14.1", False),
        stand_in(tmp_path, "python3.13t", "CPython", "3.13.2", True),
        stand_in(tmp_path, "pypy3", "PyPy", "3.11.9", False),
        stand_in(tmp_path, "python3.9", "CPython", "3.9.18", False),
        str(tmp_path / "nowhere"),
    ]
    found = other_pythons.find(named)
    assert [(python.version, python.refusal) for python in found] == [
        ("3.11.9", "is PyPy"),
        ("3.13.2", "is a free-threaded build, which Neurenix refuses"),
        ("3.14.1", None),
    ]
    told = other_pythons.table([other_pythons.Row(found[2], "7 passed", True, 60)], found[:2])
    assert "3.14.1         60  7 passed" in told and "3.13.2             not tried" in told
    assert "3.10               not tried: none was found" in told and "3.14               not tried" not in told


def test_this_python_is_one() -> None:
    found = other_pythons.ask(sys.executable)
    assert found is not None and found.minor == sys.version_info[:2]


@pytest.mark.parametrize("path", other_pythons.SMOKE)
def test_smoke_tests_are_there(path: str) -> None:
    assert (other_pythons.ROOT / path).is_file()


def test_a_python_that_fails_fails_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stand_in(tmp_path, "python3.14", "CPython", "3.14.1", False)
    monkeypatch.setattr(sys, "argv", ["other_pythons", "--wheel", str(tmp_path / "none.whl"), path])
    assert other_pythons.main() == 1
    monkeypatch.setattr(sys, "argv", ["other_pythons", "--wheel", "none.whl", str(tmp_path / "nowhere")])
    assert other_pythons.main() == 1
