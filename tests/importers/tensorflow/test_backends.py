"""Keras models of any backend give what Keras computes with it. A process has one backend, so each has its own here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.importers.tensorflow.models import needs_tensorflow

pytestmark = needs_tensorflow
#: What each backend of Keras' needs; NumPy's takes some of its ops from JAX.
NEEDS = {"jax": ("jax",), "numpy": ("jax",), "openvino": ("openvino",), "torch": ("torch", "onnxscript")}
BACKENDS = [
    pytest.param(
        backend,
        marks=pytest.mark.skipif(
            any(importlib.util.find_spec(name) is None for name in needs),
            reason=f"needs {' and '.join(needs)}, for Keras' backend {backend}",
        ),
    )
    for backend, needs in NEEDS.items()
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend(backend: str, tmp_path: Path) -> None:
    """Runs the checks of tests/importers/tensorflow/backends.py where Keras has this backend."""
    paths = [str(Path(__file__).parents[3]), *(path for path in sys.path if path)]
    # Python looks for packages in the working directory first, where one of the checks has a trap.
    program = "import sys; del sys.path[0]; from tests.importers.tensorflow import backends; backends.check()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=os.environ | {"KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr
