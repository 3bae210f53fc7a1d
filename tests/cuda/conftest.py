"""The recorded device, for the tests that need no GPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cuda import stand_in


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-ins for NVIDIA's libraries."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to build the stand-ins for NVIDIA's libraries with")
    return stand_in.build(tmp_path_factory.mktemp("recorded") / "libraries")


@pytest.fixture(scope="module")
def process(libraries: Path) -> Iterator[stand_in.Process]:
    """A process that sees the recorded device."""
    with stand_in.Process(libraries) as process:
        yield process
