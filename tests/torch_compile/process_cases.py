"""Failures, threads, processes and caches, each case in a process of its own; `agree` compares with torch itself."""

from __future__ import annotations

import functools
import threading
import time

import torch

from neurenix.torch import counters, reports
from tests.torch_compile.agree import agree, compiled
from tests.torch_compile.cases import Residual, mlp
from tests.torch_compile.in_threads import in_threads


@torch.no_grad()
def forced_failure() -> None:
    """A build that fails leaves its partition to torch, with one warning and a count."""
    model = mlp()
    function = compiled(model, plugins=["a_module_that_is_not_there"])
    x = torch.randn(4, 8)
    for _ in range(3):
        agree(function(x), model(x))
    assert counters()["fallbacks"] == 1
    assert "engines_built" not in counters()
    (report,) = reports()
    assert report.partitions[0].runs == "torch" and "a_module_that_is_not_there" in str(report.partitions[0].reason)
    torch._dynamo.reset()
    try:
        compiled(model, plugins=["a_module_that_is_not_there"], pass_through_build_failures=True)(x)
    except Exception as error:
        assert "a_module_that_is_not_there" in str(error)
    else:
        raise AssertionError("nothing was raised")


@torch.no_grad()
def beside_the_build() -> None:
    model = mlp()
    function = compiled(model, background=True)
    x = torch.randn(2, 8)
    agree(function(x), model(x))
    assert counters().get("engines_built", 0) == 0
    deadline = time.monotonic() + 60
    while "engines_built" not in counters() and time.monotonic() < deadline:
        agree(function(x), model(x))
        time.sleep(0.02)
    model[0].weight.mul_(3)
    agree(function(x), model(x), 2e-6)
    assert reports()[-1].partitions[0].runs == "engine"


@torch.no_grad()
def dry_run(path: str) -> None:
    model = mlp()
    function = compiled(model, dryrun=path)
    x = torch.randn(2, 8)
    agree(function(x), model(x))
    assert "engines_built" not in counters()
    with open(path, encoding="utf-8") as file:
        assert "partition 0: 3 operations, torch: dryrun" in file.read()


@torch.no_grad()
def threads() -> None:
    """Eight threads call at once, of shapes that differ; one of them builds the engine beside the others."""
    import sys

    sys.setswitchinterval(1e-4)
    model = mlp()
    function = compiled(model, dynamic=True)
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            barrier.wait()
            for step in range(30):
                x = torch.randn(2 + (seed + step) % 5, 8, generator=generator)
                agree(function(x), model(x), 2e-6)

    in_threads([functools.partial(work, seed) for seed in range(8)])
    assert counters()["engines_built"] == counters()["partitions"]
    model[0].weight.mul_(2)
    x = torch.randn(3, 8)
    agree(function(x), model(x), 2e-6)


@torch.no_grad()
def another_process(folder: str, expected: str) -> None:
    torch.manual_seed(3)
    model = Residual().eval()
    function = compiled(model, cache=folder)
    x = torch.randn(2, 3, 12, 12)
    agree(function(x), model(x))
    assert counters()[expected] == 1, counters()
    model.head.weight.mul_(2)
    agree(function(x), model(x))
    assert counters()["refits"] == 1


@torch.no_grad()
def cache_of_other_weights(folder: str) -> None:
    """Another model of the same shape takes no engine that is not its own."""
    torch.manual_seed(4)
    model = Residual().eval()
    function = compiled(model, cache=folder)
    x = torch.randn(2, 3, 12, 12)
    agree(function(x), model(x))
    assert counters()["engines_built"] == 1


@torch.no_grad()
def many_shapes_and_recompiles() -> None:
    """Memory is flat over changes of shape, and over models that come and go."""
    import gc
    import resource
    import weakref

    model = mlp()
    function = compiled(model, dynamic=True)
    rng = torch.Generator().manual_seed(0)
    for step in range(300):
        x = torch.randn(int(torch.randint(2, 200, (), generator=rng)), 8)
        found = function(x)
        if step % 50 == 0:
            agree(found, model(x))
    assert counters()["engines_built"] == 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gone = []
    for _ in range(8):
        torch._dynamo.reset()
        other = mlp()
        gone.append(weakref.ref(other[0].weight))
        compiled(other)(torch.randn(2, 8))
    del other
    torch._dynamo.reset()
    gc.collect()
    assert not any(one() is not None for one in gone)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def profiled() -> None:
    """Partitions have names in torch's profiler, and compiled modules the operator's."""
    import neurenix.torch_tensorrt as torch_tensorrt
    from tests.torch_tensorrt.models import QUICK, net, pictures

    model, x = net(cut=True), pictures()
    with torch.no_grad():
        function = compiled(model)
        ahead = torch_tensorrt.compile(model, inputs=[x], **QUICK)
        function(x)
        with torch.profiler.profile() as profile:
            agree(function(x), model(x))
            ahead(x)
    found = {event.key: event.count for event in profile.key_averages()}
    assert sum(count for name, count in found.items() if name.startswith("neurenix: graph")) == 2
    assert found["neurenix::run"] == 2
