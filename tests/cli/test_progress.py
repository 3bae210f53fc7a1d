"""Progress: on a terminal alone, after a while alone, and never on stdout."""

from __future__ import annotations

import io
import sys
import time

import pytest

from neurenix.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "PERIOD", 0.02)
    return made


def work(seconds: float) -> None:
    with progress.step("thinking") as tell:
        tell(0.25, "3 of 12")
        time.sleep(seconds)


@pytest.mark.parametrize("rich", [True, False])
def test_on_a_terminal(
    terminal: Terminal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rich: bool
) -> None:
    if rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    work(0.5)
    text = terminal.getvalue()
    assert "thinking" in text and "3 of 12" in text
    assert rich or "\rthinking 25% 0 s 3 of 12" in text
    assert capsys.readouterr().out == ""


def test_what_is_soon_over_is_not_told_of(terminal: Terminal) -> None:
    work(0)
    assert terminal.getvalue() == ""


def test_a_file_is_no_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    work(0.2)
    assert file.getvalue() == ""


def test_a_failure_ends_the_line(terminal: Terminal) -> None:
    with pytest.raises(KeyError), progress.step("thinking"):
        time.sleep(0.2)
        raise KeyError("mine")
    before = terminal.getvalue()
    time.sleep(0.1)
    assert terminal.getvalue() == before
