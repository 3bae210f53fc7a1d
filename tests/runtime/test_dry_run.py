"""`optimize_model(..., dry_run=True)`: the table of what a build would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from neurenix import UnsupportedError, nn
from neurenix.hardware import DryRun
from neurenix.hardware.tensorrt import TensorRTBackend

MODULE = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Softmax(1))
SHAPE = (1, 3, 8, 8)


def test_the_table_names_provider_kernel_and_time(tmp_path: Path) -> None:
    backend = TensorRTBackend(timing_cache=str(tmp_path / "times"))
    table = backend.optimize_model(MODULE, SHAPE, dry_run=True)
    assert isinstance(table, DryRun)
    assert [row.op for row in table] == ["Conv", "Relu", "Softmax"]
    assert {row.provider for row in table} == {table.report["providers"][0][0]}
    # Conv and Relu share a kernel, whose time is told once.
    assert table[0].kernel == table[1].kernel == "Conv+Relu"
    assert table[1].estimate_ms is None
    assert 0 < table.estimate_ms == sum(row.estimate_ms for row in table if row.estimate_ms is not None)
    lines = str(table).splitlines()
    assert lines[0].split() == ["layer", "op", "provider", "ms", "kernel"]
    assert all(row.layer in line for row, line in zip(table, lines[1:], strict=False))


def test_without_timing_there_is_no_estimate() -> None:
    table = TensorRTBackend(optimization_level=0).optimize_model(MODULE, SHAPE, dry_run=True)
    assert [row.estimate_ms for row in table] == [None, None, None]


def test_what_can_run_nowhere_is_refused_as_in_a_build() -> None:
    with pytest.raises(UnsupportedError):
        TensorRTBackend().optimize_model(MODULE, SHAPE, exclude={"cpu": ["Softmax"]}, providers=["cpu"], dry_run=True)
