"""The examples pass `mypy --strict` with the types that the installed package brings, as a program of a user would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import neurenix

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))
#: Packages of others are not looked into: reading PyTorch's alone takes longer than all the rest.
CONFIGURATION = """
[mypy]
strict = True
[mypy-PIL.*,onnx.*,onnxruntime.*,ray.*,rapidocr_onnxruntime.*,skimage.*,starlette.*,torch.*,torchvision.*]
follow_imports = skip
ignore_missing_imports = True
"""


def test_examples_are_strictly_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    configuration = tmp_path / "mypy.ini"
    configuration.write_text(CONFIGURATION)
    package = Path(neurenix.__file__).parents[1]
    # mypy finds an installed package by itself; one that is run from a checkout must be shown.
    path = {} if package.name == "site-packages" else {"MYPYPATH": str(package)}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", configuration, "--cache-dir", tmp_path / "cache", *EXAMPLES],
        cwd=tmp_path,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
