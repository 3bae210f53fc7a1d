"""What modules, threads and builds share, and state that calls change: each case in a process of its own."""

from __future__ import annotations

import copy
import gc
import time
from typing import Any

import torch
from torch import nn

from neurenix.torch import counters, engines, reports
from neurenix.torch.partition import Partition
from tests.torch_compile.agree import agree, compiled
from tests.torch_compile.cases import mlp
from tests.torch_compile.in_threads import in_threads


class Block(nn.Module):
    """torch compiles one graph for all modules of a class."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


@torch.no_grad()
def frozen_modules_of_a_class() -> None:
    first, second = Block(), Block()
    functions = [compiled(one, freeze=True) for one in (first, second)]
    for _ in range(3):
        x = torch.randn(2, 8)
        agree([one(x) for one in functions], [first(x), second(x)])
    assert counters() == {"graphs": 1, "partitions": 1, "engines_built": 2}


@torch.no_grad()
def frozen_blocks_of_a_model() -> None:
    model = nn.Sequential(Block(), Block(), Block())
    reference = copy.deepcopy(model)
    for block in model:
        block.forward = compiled(block.forward, freeze=True)
    for _ in range(3):
        x = torch.randn(2, 8)
        agree(model(x), reference(x), 2e-6)
    assert counters()["engines_built"] == 3


@torch.no_grad()
def blocks_of_a_model() -> None:
    """Each layer that shares a graph has an engine, which follows its weights; one that is gone lets go of its own."""
    model = nn.Sequential(*(Block() for _ in range(12)))
    reference = copy.deepcopy(model)
    for block in model:
        block.forward = compiled(block.forward)

    def check() -> None:
        x = torch.randn(2, 8)
        agree(model(x), reference(x), 2e-6)

    for _ in range(4):
        check()
    assert counters() == {"graphs": 1, "partitions": 1, "engines_built": 1, "refits": 11}
    for one in (model, reference):
        one[3].linear.weight.mul_(2)
        one[5].linear.bias = nn.Parameter(torch.full((8,), 0.25))
    for _ in range(3):
        check()
    assert counters()["refits"] == 13
    assert len(_engines()) == 12
    block = Block()
    model[0], reference[0] = block, copy.deepcopy(block)
    block.forward = compiled(block.forward)
    gc.collect()
    check()
    assert (len(_engines()), counters()["refits"]) == (12, 14)


def _engines() -> Any:
    """Those of the only partition."""
    return next(one._engines for one in gc.get_objects() if type(one) is Partition)


@torch.no_grad()
def more_modules_than_engines() -> None:
    """With more of them than are kept, their weights become inputs."""
    engines.MOST = 4
    modules = [Block() for _ in range(6)]
    functions = [compiled(one) for one in modules]
    for _ in range(3):
        x = torch.randn(2, 8)
        agree([one(x) for one in functions], [one(x) for one in modules], 2e-6)
    assert counters()["engines_built"] == 2 and counters()["rebuilds"] == 1 and counters()["refits"] == 3


def modules_of_a_class_in_threads() -> None:
    """A thread never gets what another thread's module gives."""
    import sys

    modules = [Block(), Block()]
    x = torch.randn(2, 8)
    with torch.no_grad():
        functions = [compiled(one) for one in modules]
        wanted = [one(x) for one in modules]
        for function in functions:
            function(x)
    wrong: list[Any] = []
    sys.setswitchinterval(1e-5)

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(300):
                found = functions[number](x)
                if not torch.allclose(found, wanted[number], atol=1e-5):
                    wrong.append(found)

    in_threads([lambda: work(0), lambda: work(1)])
    assert not wrong, len(wrong)


@torch.no_grad()
def weights_written_during_a_build() -> None:
    from neurenix.torch import partition

    model = mlp()
    function = compiled(model, background=True)
    x = torch.randn(2, 8)
    build: Any = partition.conversion.build

    def slow(*args: Any, **kwargs: Any) -> Any:
        made = build(*args, **kwargs)
        with torch.no_grad():
            model[0].weight.mul_(3)
        return made

    partition.conversion.build = slow
    function(x)
    deadline = time.monotonic() + 60
    while "engines_built" not in counters() and time.monotonic() < deadline:
        time.sleep(0.02)
    partition.conversion.build = build
    agree(function(x), model(x), 2e-6)
    assert reports()[-1].partitions[0].runs == "engine"


@torch.no_grad()
def strides_of_an_intermediate() -> None:
    """`as_strided` reads memory that lies as torch lays it out."""

    def function(x: torch.Tensor) -> Any:
        y = torch.relu(x @ x.t() + 1) * 2
        return y[:, 1:].as_strided((2, 2), (4, 1)) + 1, (y * 3).exp().sum()

    x = torch.randn(4, 4) / 4
    agree(compiled(function)(x), function(x), 2e-6)


def gradients_of_autocast() -> None:
    """A gradient asked for outside of `torch.autocast` is that of the call inside."""
    model = mlp()
    function = compiled(model)
    x = torch.randn(4, 8)
    found = []
    for called in (function, model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = called(x)
        assert result.dtype == torch.bfloat16
        result.float().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
        model.zero_grad(set_to_none=True)
    agree(found[0], found[1])


@torch.no_grad()
def norms_in_train_mode() -> None:
    """Normalisation by the batch, and the statistics that it keeps."""
    models = (
        nn.Sequential(nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4), nn.ReLU()),
        nn.Sequential(nn.Conv1d(4, 4, 3), nn.InstanceNorm1d(4, affine=True, track_running_stats=True)),
        nn.Sequential(nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4, track_running_stats=False)),
    )
    for model in models:
        reference = copy.deepcopy(model)
        function = compiled(model)
        for step in range(4):
            if step == 3:
                model.eval()
                reference.eval()
            x = torch.randn(3, 4, 9) * 2 + 1
            agree(function(x), reference(x), 2e-6)
            agree(model.state_dict(), reference.state_dict(), 2e-6)
