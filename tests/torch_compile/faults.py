"""Operators that torch's ONNX exporter writes otherwise than torch computes them: each case in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from neurenix.importers.torch import faults
from neurenix.torch import counters, reports
from tests.torch_compile.agree import compiled

Function = Callable[..., torch.Tensor]


def _nothing(*shape: int) -> torch.Tensor:
    """Memory that nobody wrote may hold anything."""
    return torch.full(shape, float("nan"))


def _heads(x: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Enough around it that an engine is worth it."""
    return torch.relu(function(torch.sigmoid(x * 3.0) * 40.0 - 20.0) + 1.0)


def _functions() -> dict[str, tuple[Function, tuple[torch.Tensor, ...]]]:
    zeros, signs = torch.tensor([0.0, 0.0, -0.0, 1.0, -1.0]), torch.tensor([-1.0, 2.0, -3.0, -1.0, 0.0])
    x, image = torch.linspace(-30, 12, 43), torch.randn(1, 2, 7, 9)
    a, b = torch.randn(3, 4, 5), torch.randn(3, 5, 6)
    return {
        "atan2": (torch.atan2, (zeros, signs)),
        "erfcx": (torch.special.erfcx, (x / 6,)),
        "log_ndtr": (torch.special.log_ndtr, (x,)),
        "logaddexp": (torch.logaddexp, (x * 9, x.flip(0) * 9)),
        "baddbmm": (lambda s, p, q: torch.baddbmm(s, p, q, beta=0), (_nothing(3, 4, 6), a, b)),
        "addbmm": (lambda s, p, q: torch.addbmm(s, p, q, beta=0), (_nothing(4, 6), a, b)),
        "addmv": (lambda s, p, q: torch.addmv(s, p, q, beta=0), (_nothing(4), a[0], b[0, :, 0])),
        "avg_pool2d": (lambda t: F.avg_pool2d(t, 3, 2, 1, True, False, 5), (image,)),
        "avg_pool3d": (lambda t: F.avg_pool3d(t[None], 2, divisor_override=3), (image,)),
        "antialias": (lambda t: F.interpolate(t, scale_factor=0.55, mode="bilinear", antialias=True), (image,)),
        "circular": (lambda t: F.pad(t, (-1, 2, 1, -1), mode="circular"), (image,)),
        "chain": (lambda t: _heads(t, torch.special.erfcx), (image,)),
        "scatter_reduce": (
            lambda t, u: torch.scatter_reduce(t, 0, torch.tensor([0, 0, 1]), u, "mean"),
            (torch.tensor([-4, 3, 1]), torch.tensor([-3, 6, 2])),
        ),
        # Integers to powers below 0.
        "pow": (torch.pow, (torch.tensor([0, 0, 1, -1, -1, 2]), torch.tensor([-1, -2, -3, -3, -2, -1]))),
    }


def _of_integers() -> dict[str, tuple[Function, tuple[torch.Tensor, ...]]]:
    """Of which no results are compared."""
    large, small = torch.tensor([2**33 + 1, -(2**40) - 3, -7]), torch.tensor([-7, 2**20, 2])
    codes = torch.tensor([[3, 200, 0], [255, 1, 3]], dtype=torch.uint8)
    truths = codes > 2
    least, by = (
        torch.tensor([-(2**31), -(2**31), 100000001], dtype=torch.int32),
        torch.tensor([2, -7, 3], dtype=torch.int32),
    )
    return {
        "the least": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (least, by)),
        "truncated": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (large, small)),
        "truncated by a number": (lambda x: torch.div(x, -3, rounding_mode="trunc"), (large,)),
        "floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (large, small)),
        "floor by a float": (lambda x: x.floor_divide(2.5), (large,)),
        "bounds": (lambda x: x.clamp(-2, 300) + x.clamp(max=5) + x.clamp(min=-1), (codes,)),
        "sort": (lambda x: torch.sort(x)[1], (torch.arange(40) % 3,)),
        "uint8": (lambda x: (x.any(1), x.all(), -x, x << 2, x >> 1), (codes,)),
        "truth values": (lambda x: (x + x, x.max(1), x.min(1)), (truths,)),
    }


@torch.no_grad()
def integers() -> None:
    """They are exact, and what has no form in ONNX leaves the rest of a graph to engines."""
    for name, (function, inputs) in _of_integers().items():
        got, want = compiled(function)(*inputs), function(*inputs)
        torch.testing.assert_close(got, want, rtol=0, atol=0, msg=lambda text, at=name: f"{at}: {text}")
    assert "fallbacks" not in counters()


@torch.no_grad()
def means_of_what_is_scattered() -> None:
    """Indices that repeat show what is no mean, which those of the first call may not."""
    scattered = lambda x, i: _heads(x, lambda y: y.scatter_reduce(1, i, y * 2, "mean", include_self=False))  # noqa: E731
    ours, x = compiled(scattered), torch.randn(3, 4)
    for indices in ([0, 1, 2, 3], [0, 0, 1, 1]):
        places = torch.tensor([indices]).expand(3, 4)
        torch.testing.assert_close(ours(x, places), scattered(x, places))


@torch.no_grad()
def greatest_of_all() -> None:
    """`amax` without dimensions is in an engine."""
    function, x = lambda x: (x - x.amin()) / (x.amax() - x.amin()), torch.randn(3, 4)
    torch.testing.assert_close(compiled(function)(x), function(x))
    assert "fallbacks" not in counters() and not reports()[-1].refusals


@torch.no_grad()
def left_to_torch() -> None:
    """What is known to be wrong runs in torch, and the report says so."""
    for name, (function, inputs) in _functions().items():
        got, want = compiled(function)(*inputs), function(*inputs)
        torch.testing.assert_close(
            got, want, rtol=1e-5, atol=1e-5, equal_nan=True, msg=lambda text, at=name: f"{at}: {text}"
        )
    reasons = [refusal.reason for one in reports() for refusal in one.refusals]
    assert len([reason for reason in reasons if "would write it wrongly" in reason]) >= 6, reasons
    assert "fallbacks" not in counters()


@torch.no_grad()
def found_by_comparing() -> None:
    """What nobody knows to be wrong shows when the engine's first results are compared with torch's."""
    faults.FAULTS.clear()

    def pooled(t: torch.Tensor) -> torch.Tensor:
        return _heads(t, lambda y: F.avg_pool2d(y, 2, divisor_override=3) / 2.0)

    image: Any = torch.randn(1, 2, 6, 6)
    torch.testing.assert_close(compiled(pooled)(image), pooled(image))
    assert counters()["fallbacks"] >= 1
    assert "otherwise than torch computes it" in str(reports()[-1].partitions[0].reason)
