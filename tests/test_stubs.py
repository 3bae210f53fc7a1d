"""The stub of the native module says what the module has."""

import subprocess
import sys
from pathlib import Path

import pytest

#: The stub needs nothing of the package around the module, whose imports (torch among them) take mypy half a minute.
CONFIGURATION = "[mypy]\n[mypy-neurenix]\nfollow_imports = skip\n"


def test_the_stub_fits_the_module(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "mypy.stubtest", "neurenix._native"]
    options = ["--mypy-config-file", str(tmp_path / "mypy.ini")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\nrun tools/stubs.py, which writes the stub"
