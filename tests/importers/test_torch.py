"""PyTorch modules arrive through torch's exporters, and compute the same."""

import logging

import numpy as np
import pytest

import neurenix as nx
from neurenix.importers import from_exported_program, from_torch
from neurenix.shapes import Shape

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(image)))


class Branch(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        print("forward prints")
        return (a + b, a - b) if a.sum() > 0 else (a, b)


def test_a_module_in_training_mode_is_imported_in_eval_mode(capfd: pytest.CaptureFixture[str]) -> None:
    module = Small().train()
    network = from_torch(module, input_shapes={"input": (2, 3, 8, 8)})
    assert module.training and module.norm.training
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        want = module.eval()(x).numpy()
    assert list(network.outputs) == ["output"]
    np.testing.assert_allclose(network.evaluate({"input": x.numpy()})["output"], want, atol=1e-6)
    assert capfd.readouterr() == ("", "")


def test_a_range_makes_dimensions_dynamic() -> None:
    shape = Shape((1, 3, 8, 8), (1, 3, 16, 8), (8, 3, 32, 8))
    (image,) = from_torch(Small(), input_shapes={"image": shape}).inputs
    assert (image.name, image.shape) == ("image", ("batch", 3, "image_2", 8))


def test_the_second_exporter_steps_in_and_says_why(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, "neurenix"):
        network = from_torch(Branch(), {"b": torch.ones(3), "a": torch.ones(3)})
    assert [t.name for t in network.inputs] == ["a", "b"]
    assert list(network.outputs) == ["output", "output_1"]
    assert "exported with the TorchScript exporter" in caplog.text
    assert "Python boolean might cause the trace to be incorrect" in caplog.text
    assert capfd.readouterr() == ("", "")


def test_an_exported_program_keeps_its_dynamic_dimensions() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    program = torch.export.export(Small().eval(), (torch.zeros(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    (image,) = from_exported_program(program).inputs
    assert image.name == "input"
    assert isinstance(image.shape[0], str) and image.shape[1:] == (3, 8, 8)


def test_torch_must_be_told_the_inputs() -> None:
    with pytest.raises(nx.InvalidArgumentError, match="give example inputs, or input_shapes"):
        from_torch(Small())
