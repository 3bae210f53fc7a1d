"""NVIDIA's library, for the tests that build with it. None of them needs a GPU."""

from __future__ import annotations

import pytest

from neurenix import _native


@pytest.fixture(scope="session")
def library() -> tuple[str, str, str]:
    """The file, the version and the headers of TensorRT-RTX, which builds without a GPU."""
    found, tried, _ = _native.tensorrt_library()
    if found is None:
        pytest.skip("no TensorRT library: " + "; ".join(f"{place}: {reason}" for place, reason in tried))
    if not found[2].startswith("rtx_"):
        pytest.skip(f"{found[0]} is TensorRT {found[1]}, which does not build without a GPU")
    return found
