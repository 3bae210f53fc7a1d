"""Keras models of any backend give what Keras computes with it. A process has one backend, so each has its own here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import two_at_once
from tests.importers.tensorflow.models import needs_tensorflow

pytestmark = needs_tensorflow
#: What each backend of Keras' needs; NumPy's takes some of its ops from JAX.
NEEDS = {"jax": ("jax",), "numpy": ("jax",), "openvino": ("openvino",), "torch": ("torch", "onnxscript")}
Finished = Callable[[str], "subprocess.CompletedProcess[str] | None"]


def run(backend: str, folder: Path) -> subprocess.CompletedProcess[str] | None:
    """Runs the checks of backends.py where Keras has this backend; None where a package is missing."""
    if any(importlib.util.find_spec(name) is None for name in NEEDS[backend]):
        return None
    paths = [str(Path(__file__).parents[3]), *(path for path in sys.path if path)]
    # Python looks for packages in the working directory first, where one of the checks has a trap.
    program = "import sys; del sys.path[0]; from tests.importers.tensorflow import backends; backends.check()"
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=os.environ | {"KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(paths)},
    )


@pytest.fixture(scope="module")
def finished(request: pytest.FixtureRequest) -> Iterator[Finished]:
    """What became of the process of a backend."""
    with two_at_once.started(request, "backend", run) as finished:
        yield finished


@pytest.mark.parametrize("backend", NEEDS)
def test_backend(backend: str, finished: Finished) -> None:
    done = finished(backend)
    if done is None:
        pytest.skip(f"needs {' and '.join(NEEDS[backend])}, for Keras' backend {backend}")
    assert done.returncode == 0, done.stderr
