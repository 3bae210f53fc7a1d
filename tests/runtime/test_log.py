"""What is said through the log: nothing where nothing is lost, and as much as NEURENIX_LOG asks for."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neurenix import _native
from neurenix.hardware import get_backend, probe
from neurenix.hardware.options import Options
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.log import LEVELS, LOG

#: A model that is built, and an option that gives a warning.
CODE = """
import sys
import numpy as np
import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
{before}
model = TensorRTBackend(optimization_level=0, threads=1, {options}).optimize_model(nx.nn.ReLU(), (2, 3))
model(np.zeros((2, 3), np.float32))
assert {{state["provider"] for state in model.report()["fallbacks"]}} == {{"tensorrt", "cuda"}}
"""
MISSPELT = 'exclude={"cpu": ["Konv"]}'
NO_GPU = pytest.mark.skipif(probe.has_gpu(), reason="there is a GPU, and a processor that runs in its place is told of")


def said(level: str | None, options: str = "", before: str = "") -> str:
    """What a process writes to stderr; to stdout it writes nothing."""
    names = ("NEURENIX_LOG", "NEURENIX_DUMP", "NEURENIX_PROVIDERS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)} | ({} if level is None else {"NEURENIX_LOG": level})
    code = CODE.format(options=options, before=before)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert (child.returncode, child.stdout) == (0, ""), child.stderr
    return child.stderr


@NO_GPU
def test_a_machine_without_a_gpu_is_no_news() -> None:
    assert said(None) == ""


@NO_GPU
@pytest.mark.parametrize("level", ["info", "DEBUG"])
def test_the_fall_back_is_told_to_those_who_ask(level: str) -> None:
    text = said(level)
    assert text.count("running on cpu; not on tensorrt: ") == 1


@NO_GPU
def test_each_level_shows_what_is_as_grave_and_no_more() -> None:
    assert said("warning", MISSPELT).startswith("exclude: ") and said(None, MISSPELT) == said("warning", MISSPELT)
    assert said("error", MISSPELT) == said("off", MISSPELT) == ""


@NO_GPU
def test_a_program_that_logs_gets_each_message_once() -> None:
    before = "import logging; logging.basicConfig(format='mine: %(message)s')"
    text = said("info", before=before)
    assert text.startswith("mine: running on cpu") and text.count("running on") == 1


@NO_GPU
def test_a_level_that_is_none_is_told_and_nothing_stops() -> None:
    text = said("loud")
    assert text.startswith("NEURENIX_LOG can't be read") and "off, error, warning, info or debug" in text
    assert text.endswith("got: loud\n")


def test_the_knob_lists_the_levels_that_there_are() -> None:
    doc = next(knob["doc"] for knob in _native.knobs() if knob["name"] == "NEURENIX_LOG")
    assert list(LEVELS) == doc.rpartition(": ")[2].replace(" or ", ", ").split(", ")
    assert _native.knob("NEURENIX_LOG") == os.environ.get("NEURENIX_LOG")


REFUSED = [probe.State("tensorrt", "no library"), probe.State("cuda", "no driver\n  hint: install it")]


@pytest.mark.parametrize(
    ("chosen", "asked", "gpu", "level"),
    [
        ("cpu", None, False, logging.INFO),
        ("cpu", "cuda", False, logging.WARNING),
        ("cpu", "cpu", False, logging.INFO),
        # A GPU that stays idle is a loss, whatever was asked for; another provider on it is none.
        ("cpu", None, True, logging.WARNING),
        ("cuda", None, True, logging.INFO),
    ],
)
def test_a_fall_back_is_a_warning_where_it_costs_something(
    chosen: str,
    asked: str | None,
    gpu: bool,
    level: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "_told", set())
    monkeypatch.setattr(probe, "has_gpu", lambda: gpu)
    with caplog.at_level(logging.DEBUG, "neurenix"):
        for _ in range(2):
            probe.tell([chosen], REFUSED, asked)
    assert [record.levelno for record in caplog.records] == [level]
    assert caplog.messages == [f"running on {chosen}; not on tensorrt: no library, not on cuda: no driver"]


@NO_GPU
@pytest.mark.parametrize(
    ("backend", "level"),
    [
        (lambda: TensorRTBackend(), logging.INFO),
        (lambda: get_backend(), logging.INFO),
        (lambda: get_backend("cuda"), logging.WARNING),
        (lambda: TensorRTBackend(providers=["cuda", "cpu"]), logging.WARNING),
        (lambda: TensorRTBackend(providers=["cpu", "cuda"]), logging.INFO),
    ],
)
def test_who_names_a_provider_is_told_that_it_does_not_run(
    backend, level: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_told", set())
    with caplog.at_level(logging.DEBUG, "neurenix"):
        backend()._choose(Options.of(**backend()._options))
    assert [record.levelno for record in caplog.records] == [level]


@NO_GPU
def test_the_command_line_is_quiet(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> m (float[2,4] x) => (float[2,4] y) { y = Relu(x) }'
    )
    onnx.save(proto, tmp_path / "m.onnx")
    environment = {name: value for name, value in os.environ.items() if name != "NEURENIX_LOG"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    for words in (["export", "m.onnx"], ["run", "m.engine"], ["inspect", "m.engine"], ["bench", "m.engine"]):
        more = ["--duration", "0"] if words[0] == "bench" else []
        command = [sys.executable, "-m", "neurenix.cli", *words, *more]
        child = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=True
        )
        assert child.stderr == "", words


def test_a_program_sets_what_is_logged() -> None:
    logging.disable(logging.WARNING)
    LOG.setLevel(logging.ERROR)
    assert not LOG.isEnabledFor(logging.WARNING)


def test_the_tests_behind_it_hear_warnings(caplog: pytest.LogCaptureFixture) -> None:
    LOG.warning("heard")
    assert caplog.messages == ["heard"]
