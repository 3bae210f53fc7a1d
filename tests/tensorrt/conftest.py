"""NVIDIA's library, for the tests that build with it. None of them needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from neurenix import _native
from tests.tensorrt import doubled


@pytest.fixture(scope="session")
def library() -> tuple[str, str, str]:
    """The file, the version and the headers of TensorRT-RTX, which builds without a GPU."""
    found, tried, _ = _native.tensorrt_library()
    if found is None:
        pytest.skip("no TensorRT library: " + "; ".join(f"{place}: {reason}" for place, reason in tried))
    if not found[2].startswith("rtx_"):
        pytest.skip(f"{found[0]} is TensorRT {found[1]}, which does not build without a GPU")
    return found


@pytest.fixture(scope="session")
def double_library(library: tuple[str, str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The double, over that library's builder."""
    pytest.importorskip("onnx")
    return doubled.build(tmp_path_factory.mktemp("double"), library[0])


@pytest.fixture(scope="module")
def process(double_library: Path) -> Iterator[doubled.Process]:
    """A process whose TensorRT is the double."""
    with doubled.Process(double_library) as process:
        yield process
