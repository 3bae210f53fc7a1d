"""A short run of `fuzz.interruptions`; CONTRIBUTING.md says how to run it for longer."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")
from fuzz import interruptions

#: Machines that run tests are busy.
SLACK = 1.0


def test_handlers_that_run_in_kernels_damage_nothing() -> None:
    """sgemm of oneDNN 3.2 has its stack pointer in a heap buffer, which a handler would write before."""
    findings, told = interruptions.timers(3.0)
    assert not findings, told
    assert "gemm:jit" in told and "brg" in told


def test_ctrl_c_is_seen_soon_and_as_keyboard_interrupt() -> None:
    findings, told = interruptions.interrupts(16, slack=SLACK)
    assert not findings, told


def test_processes_end_though_other_threads_work() -> None:
    findings, told = interruptions.exits(len(interruptions.EXITS))
    assert not findings, told


@pytest.mark.parametrize("ordered", [0, 1])
def test_futures_that_nobody_waits_for(ordered: int) -> None:
    findings, told = interruptions.cancels(60, seed=ordered)
    assert not findings, told
