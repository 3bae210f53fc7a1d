"""What torch's exporters write otherwise than PyTorch computes is found, and is no silent wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from tests.optional import torch

pytest.importorskip("onnxscript")

SHAPE = (4, 3, 6, 6)


class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A function of one tensor."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def built(function: Callable[[Any], Any], **options: Any) -> Any:
    backend = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)
    return backend.optimize_model(Module(function), {"x": SHAPE}, **options)


def told(model: Any) -> list[str]:
    return [note for note in model.report()["notes"] if "exporter" in note]


def test_the_other_exporter_is_taken_where_the_first_one_is_wrong() -> None:
    """That of torch 2.15 normalises by the running statistics, whatever `training` says."""

    def normalised(x: Any) -> Any:
        return torch.nn.functional.batch_norm(x, torch.zeros(3), torch.ones(3), training=True)

    x = 3 * torch.randn(SHAPE) + 1
    model = built(normalised)
    np.testing.assert_allclose(model(x.numpy()), normalised(x).numpy(), rtol=1e-4, atol=1e-4)
    # A version of torch that writes it right needs no second exporter.
    wrong = built(normalised, verify=False)
    if np.allclose(wrong(x.numpy()), normalised(x).numpy(), rtol=1e-4, atol=1e-4):
        assert not told(model)
    else:
        assert len(told(model)) == 1 and "TorchScript" in told(model)[0]


@pytest.mark.parametrize("truths", [True, False])
def test_attention_of_queries_to_which_a_mask_shows_nothing_is_zero(truths: bool) -> None:
    """torch's exporter writes the mean of all values, or NaN."""
    seen = torch.eye(6, dtype=torch.bool)
    seen[2] = False
    numbers = torch.zeros(6, 6).masked_fill(~seen, -torch.inf)
    attention = torch.nn.functional.scaled_dot_product_attention
    model = built(lambda x: attention(x, x, x, seen if truths else numbers))
    x = torch.randn(SHAPE)
    found = model(x.numpy())
    np.testing.assert_allclose(found, attention(x, x, x, seen).numpy(), rtol=1e-5, atol=1e-5)
    assert not found[:, :, 2].any() and not told(model)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("avg_pool2d", lambda x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=3)),
        ("erfcx", torch.special.erfcx),
        ("logaddexp", lambda x: torch.logaddexp(x, -x)),
    ],
)
def test_what_no_exporter_writes_right_is_refused_by_name(name: str, function: Callable[[Any], Any]) -> None:
    with pytest.raises(nx.UnsupportedError) as caught:
        built(function)
    error = caught.value
    assert "export" in error.message and error.got
    # The way out is one.
    assert name == "avg_pool2d" or name in error.got
    if "torch.compile" in (error.hint or ""):
        x = torch.randn(SHAPE)
        compiled = torch.compile(function, backend="neurenix", options={"cache": False, "timing_cache": False})
        torch.testing.assert_close(compiled(x), function(x))


def test_models_are_compared_in_their_own_mode_and_left_as_they_were() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.5))
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False).optimize_model(model, {"x": SHAPE})
    assert not told(made) and model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_models_that_give_something_else_each_time_are_not_judged() -> None:
    calls = iter(range(1000))
    made = built(lambda x: x * float(next(calls) + 1))
    assert made(np.ones(SHAPE, np.float32)).shape == SHAPE


def test_what_a_lower_precision_loses_is_no_fault_of_an_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of 16 bits that are far off ask for an engine in float32, which agrees; a wrong one does not."""
    from neurenix.importers.torch import comparing

    monkeypatch.setitem(comparing.MOST, 16, 1e-9)
    convolution = torch.nn.Conv2d(3, 8, 3)
    backend = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)
    made = backend.optimize_model(convolution, {"x": SHAPE}, "bf16")
    assert made.report()["precision"] == "bf16" and not told(made)
    with pytest.raises(nx.UnsupportedError, match="otherwise than PyTorch computes it"):
        built(lambda x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=3), precision="bf16")


@pytest.mark.parametrize("align", [False, True])
def test_neighbours_of_a_place_beyond_the_border(align: bool) -> None:
    """torch brings each of the sixteen inside; ONNX's reference evaluation the place, which differs by up to 0.4."""
    places = 2.8 * torch.rand((4, 5, 7, 2)) - 1.4

    def sampled(x: Any) -> Any:
        how = {"mode": "bicubic", "padding_mode": "border", "align_corners": align}
        return torch.nn.functional.grid_sample(x, places, **how)

    x = torch.randn(SHAPE)
    model = built(sampled, verify=False)
    np.testing.assert_allclose(model(x.numpy()), sampled(x).numpy(), rtol=1e-4, atol=1e-5)
    assert not told(built(sampled))
