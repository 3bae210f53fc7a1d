"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neurenix.cli import main

#: Exit code, stdout, stderr.
Answer = tuple[int, str, str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs the command line."""

    def run(*argv: object) -> Answer:
        code = main([str(word) for word in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the command is called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURENIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path
