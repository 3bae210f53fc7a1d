"""Without a package that an importer needs, the error names the extra that brings it."""

import sys

import pytest

import neurenix as nx
from tests.optional import torch


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_torch_models_say_what_brings_their_packages(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # None is what makes Python's import fail; the module that imports them is read anew.
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "neurenix.importers.torch.export", raising=False)
    with pytest.raises(nx.MissingPackageError) as caught:
        nx.importers.from_torch(torch.nn.ReLU(), input_shapes={"input": (1, 2)})
    assert str(caught.value) == (
        f"importing a PyTorch module needs the package '{package}', which is not installed\n"
        '  hint: pip install "neurenix[torch]"'
    )
