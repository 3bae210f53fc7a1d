"""The double of TensorRT beside the recorded GPU: device memory, streams and graphs with numbers in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cuda.conftest import libraries
from tests.tensorrt import device_jobs
from tests.tensorrt.doubled import Process

__all__ = ["libraries"]


@pytest.fixture
def both(double_library: Path, libraries: Path) -> Iterator[Process]:
    """A process that has both."""
    settings = {"NEURENIX_CUDA_LIBRARIES": str(libraries), "RECORDED_SET": "capability=89"}
    with Process(double_library, **settings) as process:
        yield process


def test_calls_and_graphs_of_them_compute_on_the_gpus_memory(both: Process) -> None:
    assert both.run(device_jobs.on_gpu) == ([True] * 3, [])


def test_what_is_not_the_gpus_memory_is_seen(both: Process) -> None:
    assert "input x is not in the device's memory" in both.run(device_jobs.astray)
