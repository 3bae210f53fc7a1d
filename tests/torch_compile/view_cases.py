"""Results that share memory, each case in a process of its own; `agree` compares with torch itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from neurenix.torch import counters, reports
from tests.torch_compile.agree import agree, compiled


def strides_agree(found: Any, wanted: Any) -> None:
    assert [one.stride() for one in found] == [one.stride() for one in wanted]


@torch.no_grad()
def expanded() -> None:
    """torch makes what it expands of a result, of a buffer and of an input; an engine goes on from its own."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("bias", torch.randn(1, 4))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            bias, wide, _ = torch.broadcast_tensors(self.bias, x, y)
            mean = (bias * 2 + wide).relu().mean(0).expand(3, -1)
            return bias, wide, mean, mean @ y.t() + bias[0, 0]

    model = Model()
    for dynamic in (True, None):
        function = compiled(model, dynamic=dynamic)
        for size in (3, 5):
            x, y = torch.randn(1, 4), torch.randn(size, 4)
            found, wanted = function(x, y), model(x, y)
            agree(found, wanted)
            strides_agree(found[:3], wanted[:3])
            assert found[0].data_ptr() == model.bias.data_ptr() and found[1].data_ptr() == x.data_ptr()
    assert all(len(one.partitions) == 1 for one in reports())
    assert "fallbacks" not in counters()


@torch.no_grad()
def result_beside_its_view() -> None:
    """What goes on from a view that is a result as well stays in the engine, and nothing of that counts as torch's."""

    def function(x: torch.Tensor) -> Any:
        y = torch.relu(x @ x.t()) * 2 + 1
        first, (upper, lower) = y[:, 0], y.chunk(2)
        return y, first, upper, lower, (first * 3).exp() @ x, upper @ lower.t()

    x = torch.randn(4, 4) / 4
    found, wanted = compiled(function, require_full_compilation=True)(x), function(x)
    agree(found, wanted, 2e-6)
    strides_agree(found, wanted)
    assert all(one.untyped_storage().data_ptr() == found[0].data_ptr() for one in found[:4])
    assert len(reports()[-1].partitions) == 1
