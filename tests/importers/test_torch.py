"""PyTorch modules arrive through torch's exporters, and compute the same."""

import logging
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_torch
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


class Eigenvalues(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x)[0].abs()


def test_what_no_exporter_takes_leaves_stdout_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(nx.UnsupportedError, match="torch can't export the module as ONNX") as caught:
        from_torch(Eigenvalues(), input_shapes={"input": (4, 4)})
    assert "the dynamo exporter: " in str(caught.value.got) and "the TorchScript exporter: " in str(caught.value.got)
    assert capfd.readouterr().out == ""


def test_torch_must_be_told_the_inputs() -> None:
    with pytest.raises(nx.InvalidArgumentError, match="give example inputs, or input_shapes"):
        from_torch(Small())


class Two(torch.nn.Module):
    """Two inputs with dynamic dimensions in common and of their own."""

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(tokens @ tokens.transpose(1, 2) + mask, -1)


BACKEND = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param({"image": Shape((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 16, 8))}, id="a Shape"),
        pytest.param({"image": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 16, 8))}, id="three tuples"),
        pytest.param({"image": {"min": (1, 3, 8, 8), "opt": (2, 3, 8, 8), "max": (4, 3, 16, 8)}}, id="a mapping"),
        pytest.param([{"image": (2, 3, 8, 8)}, {"image": (4, 3, 16, 8)}, {"image": (1, 3, 8, 8)}], id="profiles"),
    ],
)
def test_a_module_runs_at_every_shape_of_its_ranges(shapes: Any) -> None:
    module = Small().eval()
    model = BACKEND.optimize_model(module, shapes)
    for dims in ((2, 3, 8, 8), (4, 3, 16, 8), (1, 3, 8, 8)):
        x = torch.randn(dims)
        with torch.no_grad():
            want = module.double()(x.double()).numpy()
        module.float()
        np.testing.assert_allclose(model.run({"image": x.numpy()})["output"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamo", [True, False])
def test_two_inputs_with_dynamic_dimensions(dynamo: bool) -> None:
    shapes = {
        "tokens": Shape((1, 4, 8), (2, 4, 8), (4, 16, 8)),
        "mask": Shape((1, 1, 4), (2, 1, 4), (4, 1, 16)),
    }
    network = from_torch(Two().eval(), input_shapes=shapes, dynamo=dynamo)
    model = BACKEND.optimize_model(network, shapes)
    for batch, length in ((2, 4), (3, 16), (1, 5)):
        tokens, mask = torch.randn(batch, length, 8), torch.randn(batch, 1, length)
        want = Two()(tokens.double(), mask.double()).numpy()
        got = model.run({"tokens": tokens.numpy(), "mask": mask.numpy()})["output"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_module_that_takes_any_number_of_tensors() -> None:
    class Sum(torch.nn.Module):
        def forward(self, first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
            return first * 2 + sum(others)

    names = ("input", "input_1", "input_2")
    network = from_torch(Sum(), inputs=(torch.randn(3, 4),) * 3, dynamic={name: [0] for name in names})
    assert [port.shape for port in network.inputs] == [("batch", 4)] * 3
    x, y, z = (np.random.default_rng(n).normal(size=(5, 4)).astype("float32") for n in range(3))
    found = network.evaluate(dict(zip(names, (x, y, z), strict=True)))["output"]
    np.testing.assert_allclose(found, x * 2 + y + z, atol=1e-6)


def test_profiles_of_different_ranks_are_refused() -> None:
    with pytest.raises(nx.ShapeError, match="another number of dimensions") as caught:
        BACKEND.optimize_model(Small(), [{"image": (2, 3, 8, 8)}, {"image": (3, 8, 8)}])
    assert caught.value.tensor == "image"


@pytest.mark.parametrize("dynamo", [True, False])
def test_weights_keep_their_names_where_they_are_to_be_replaced(dynamo: bool) -> None:
    def module(seed: int) -> Any:
        torch.manual_seed(seed)
        made = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(144, 5),
        )
        torch.nn.init.uniform_(made[1].running_mean)
        torch.nn.init.uniform_(made[1].running_var, 0.5, 1.0)
        return made.eval()

    first, second, x = module(0), module(1), torch.randn(2, 3, 8, 8)
    network = nx.importers.from_torch(first, [x], dynamo=dynamo, refittable=True)
    model = TensorRTBackend(optimization_level=0, refittable=True).optimize_model(network)
    for wanted in (first, second):
        model.update_weights(wanted.state_dict())
        with torch.no_grad():
            torch.testing.assert_close(model(x), wanted(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("refittable", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_normalisations_of_16_bits_stay_in_16_bits(dtype: torch.dtype, refittable: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).to(dtype).eval()
    x = torch.randn(2, 3, 9, 9).to(dtype)
    made = BACKEND.optimize_model(model, {"x": x.shape}, refittable=refittable)
    with torch.no_grad():
        torch.testing.assert_close(made(x).float(), model(x).float(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("refittable", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_16_bits_are_results_of_16_bits(dtype: torch.dtype, refittable: bool) -> None:
    class Sums(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1, (x * x).sum(dim=[0]), x.float().sum()

    x = torch.randn(8, 16).to(dtype)
    network = from_torch(Sums().eval(), [x], refittable=refittable)
    found, wanted = BACKEND.optimize_model(network)(x), Sums()(x)
    assert [one.dtype for one in found] == [one.dtype for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)
