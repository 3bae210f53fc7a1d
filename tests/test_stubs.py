"""The stub of the native module says what the module has."""

import subprocess
import sys

import pytest


def test_the_stub_fits_the_module() -> None:
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "neurenix._native"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\nrun tools/stubs.py, which writes the stub"
