"""Without a package that an importer needs, the error names the command that installs it."""

import sys

import pytest

import neurenix as nx
from neurenix import packages


def test_all_that_is_missing_is_installed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnx", "onnx.reference", "onnxscript"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(nx.MissingPackageError) as caught:
        packages.need("onnx.reference", "reading", ("onnx", "onnxscript", "numpy"))
    assert "reading needs the package 'onnx" in str(caught.value)
    assert caught.value.hint == f'pip install "{packages.REQUIREMENTS["onnx"]}" "{packages.REQUIREMENTS["onnxscript"]}"'


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_torch_models_say_what_brings_their_packages(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    # None is what makes Python's import fail; the module that imports them is read anew.
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "neurenix.importers.torch.export", raising=False)
    with pytest.raises(nx.MissingPackageError) as caught:
        nx.importers.from_torch(torch.nn.ReLU(), input_shapes={"input": (1, 2)})
    assert str(caught.value) == (
        f"importing a PyTorch module needs the package '{package}', which is not installed\n"
        f'  hint: pip install "{packages.REQUIREMENTS[package]}"'
    )
