"""Weights that change, are shared or folded, each in a process of its own; `agree` compares with torch itself."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable

import torch
from torch import nn

from neurenix.torch import counters, dynamo, reports
from tests.torch_compile.agree import agree, compiled
from tests.torch_compile.cases import all_in_engines, mlp


def begun_early(case: Callable[[], None]) -> None:
    """A case as on a GPU, whose work begins before the weights are looked at."""
    dynamo._begins_early = lambda device, report: not report.refusals
    case()


@torch.no_grad()
def begun_again() -> None:
    """A call that began with weights that are others by now is done again, and only such a call."""
    dynamo._begins_early = lambda device, report: True
    model = mlp()
    function = compiled(model)
    x = torch.randn(4, 8)
    for _ in range(4):
        agree(function(x), model(x), 2e-6)
    (partition,) = reports()[0].partitions
    calls = partition.calls
    agree(function(x), model(x), 2e-6)
    assert partition.calls == calls + 1
    model[0].weight.add_(1)
    agree(function(x), model(x), 2e-6)
    assert partition.calls == calls + 3
    for _ in range(3):
        agree(function(x), model(x), 2e-6)
    assert partition.calls == calls + 6


@torch.no_grad()
def live_parameters() -> None:
    model = mlp()
    function = compiled(model)
    x = torch.randn(4, 8)

    def check() -> None:
        agree(function(x), model(x), 2e-6)

    check()
    model.load_state_dict({name: tensor * 2 for name, tensor in model.state_dict().items()})
    check()
    model[0].weight.data = torch.randn(16, 8)
    check()
    model[0].weight = nn.Parameter(torch.randn(16, 8))
    check()
    model[2].bias.add_(1)
    check()
    model.load_state_dict({name: tensor * 2 for name, tensor in model.state_dict().items()}, assign=True)
    check()
    assert counters()["refits"] == 5
    assert counters()["engines_built"] == 1


@torch.no_grad()
def swapped_tensors() -> None:
    """As `load_state_dict` and `to` do with `torch.__future__.set_swap_module_params_on_conversion`: what has a weak
    reference can't be swapped. PyTorch's tracing may leave some for a while.
    """
    model, other = mlp(), mlp()
    function = compiled(model)
    x = torch.randn(4, 8)
    agree(function(x), model(x), 2e-6)
    deadline = time.monotonic() + 10
    while (held := weakref.getweakrefs(model[0].weight)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.1)
    holders = [holder for one in held for holder in gc.get_referrers(one)]
    assert not any(type(holder).__module__.startswith("neurenix") for holder in holders)
    if held:
        return
    torch.utils.swap_tensors(model[0].weight, other[0].weight)
    agree(function(x), model(x), 2e-6)
    assert counters()["refits"] == 1


@torch.no_grad()
def lora() -> None:
    """A low-rank update that is merged into a weight, and taken out of it again."""
    model = mlp()
    function = compiled(model)
    x = torch.randn(4, 8)
    before = function(x)
    delta = torch.randn(16, 2) @ torch.randn(2, 8)
    model[0].weight += delta
    agree(function(x), model(x), 2e-6)
    assert not torch.allclose(function(x), before)
    model[0].weight -= delta
    agree(function(x), model(x), 2e-6)


@torch.no_grad()
def written_through_data() -> None:
    """As PEFT merges LoRA, and averages of weights are swapped in: torch counts nothing of it."""
    model = mlp()
    function = compiled(model)
    x = torch.randn(4, 8)
    agree(function(x), model(x), 2e-6)
    averages = {name: tensor * 0.5 for name, tensor in model.state_dict().items()}
    before = model[0].weight._version
    model[0].weight.data += torch.randn(16, 2) @ torch.randn(2, 8)
    agree(function(x), model(x), 2e-6)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(averages[name])
    agree(function(x), model(x), 2e-6)
    assert model[0].weight._version == before
    assert counters()["refits"] == 2 and counters()["engines_built"] == 1


@torch.no_grad()
def weights_that_always_change() -> None:
    model = mlp()
    function = compiled(model)
    x = torch.randn(4, 8)
    for _ in range(11):
        model[0].weight.add_(0.1)
        agree(function(x), model(x), 2e-6)
    assert counters()["rebuilds"] == 1
    assert counters()["refits"] == 7


@torch.no_grad()
def tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(20, 8)
            self.head = nn.Linear(8, 20, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(torch.tanh(self.table(ids)))
            return result

    model = Tied().eval()
    function = compiled(model)
    ids = torch.tensor([[1, 2, 3]])
    agree(function(ids), model(ids))
    model.table.weight.mul_(2)
    agree(function(ids), model(ids))


def weights_of_inference_mode() -> None:
    """torch does not count what is written into these: they are read in each call."""
    with torch.inference_mode():
        model = mlp()
        function = compiled(model)
        x = torch.randn(2, 8)
        agree(function(x), model(x))
        model[0].weight.mul_(2)
        agree(function(x), model(x))
    assert "refits" not in counters()
    all_in_engines()


@torch.no_grad()
def frozen() -> None:
    model = mlp()
    function = compiled(model, freeze=True)
    x = torch.randn(4, 8)
    wanted = model(x)
    agree(function(x), wanted)
    model[0].weight.add_(1)
    agree(function(x), wanted)
