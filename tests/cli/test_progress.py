"""Progress: on a terminal alone, after a while alone, and never on stdout."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time

import pytest

from neurenix.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "PERIOD", 0.02)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def shown(seconds: float, stderr: io.StringIO, fails: bool = False) -> str:
    """What work of so many seconds writes to stderr."""
    stdout = io.StringIO()
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(stdout), progress.step("thinking") as tell:
        tell(0.25, "3 of 12")
        time.sleep(seconds)
        if fails:
            raise KeyError("mine")
    assert stdout.getvalue() == ""
    return stderr.getvalue()


def test_on_a_terminal_with_rich() -> None:
    pytest.importorskip("rich")
    text = shown(1.0, Terminal())
    assert "thinking" in text and "3 of 12" in text


def test_on_a_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    text = shown(0.5, Terminal())
    assert "\rthinking 25% 0 s 3 of 12" in text
    # The line is wiped in the end.
    assert text.rpartition("\r")[2] == "" and not text.split("\r")[-2].strip()


@pytest.mark.parametrize("terminal", ["dumb", "unknown", "", None])
def test_a_terminal_that_takes_nothing_back_gets_one_line(
    terminal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal is None:
        monkeypatch.delenv("TERM")
    else:
        monkeypatch.setenv("TERM", terminal)
    assert shown(0.5, Terminal()) == "thinking ...\n"


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    # Numbers from 30 on set a colour.
    coloured = re.compile(r"\x1b\[[\d;]*\b(3|4|9|10)\d[\d;]*m")
    assert coloured.search(shown(1.0, Terminal()))
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(1.0, Terminal())
    assert "thinking" in text and not coloured.search(text)


def test_what_is_soon_over_is_not_told_of() -> None:
    assert shown(0, Terminal()) == ""


def test_a_file_is_no_terminal() -> None:
    assert shown(0.3, io.StringIO()) == ""


def test_a_failure_ends_the_line() -> None:
    terminal = Terminal()
    with pytest.raises(KeyError):
        shown(0.5, terminal, fails=True)
    before = terminal.getvalue()
    assert "thinking" in before
    time.sleep(0.1)
    assert terminal.getvalue() == before
