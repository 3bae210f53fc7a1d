"""Without a package that an importer needs, the error names the extra that brings it."""

import subprocess
import sys

import pytest

CODE = """
import sys
import torch
sys.modules[sys.argv[1]] = None  # what makes Python's import fail
import neurenix
try:
    neurenix.importers.from_torch(torch.nn.ReLU(), input_shapes={"input": (1, 2)})
except neurenix.MissingPackageError as error:
    print(error)
"""


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_torch_models_say_what_brings_their_packages(package: str) -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", CODE, package], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"importing a PyTorch module needs the package '{package}', which is not installed\n"
        '  hint: pip install "neurenix[torch]"\n'
    )
