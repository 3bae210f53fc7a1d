"""What fails in a process whose libraries are the stand-ins, and what is left of it."""

from __future__ import annotations

import gc
import logging
import os
from functools import partial
from typing import Any

import neurenix as nx
from neurenix import _native
from neurenix.log import LOG
from tests.cuda.jobs import (
    Row,
    call,
    classifier,
    error_of,
    kernels,
    leaves_nothing,
    optimized,
    stopover,
)
from tests.cuda.stand_in import ILLEGAL_ADDRESS, OUT_OF_MEMORY, Recorded


@leaves_nothing
def scarce() -> list[nx.Error | None]:
    """What a build and a call say on a GPU that is nearly full; both work when it is not any more."""
    recorded = Recorded()
    model = optimized(classifier(), optimization_level=0)
    call(model)
    recorded.set("total_memory", recorded.count("live_bytes") + 4096)
    errors = [error_of(lambda: optimized(classifier(24), optimization_level=3)), error_of(lambda: call(model, 64))]
    call(model)
    recorded.set("total_memory", recorded.count("live_bytes") + (1 << 30))
    call(model, 64)
    call(optimized(classifier(24), optimization_level=3))
    return errors


@leaves_nothing
def graphs_of_a_build(elapsed_us: int) -> int:
    """How many graphs a build makes where that lies between any two events."""
    recorded = Recorded()
    recorded.set("elapsed_us", elapsed_us)
    before = recorded.count("cuGraphInstantiateWithFlags")
    optimized(classifier(16), optimization_level=3)
    return recorded.count("cuGraphInstantiateWithFlags") - before


def refused_once(function: str, status: int, level: int, most: int) -> list[str]:
    """How a build and four calls end, by the error's class, when a function refuses its first call, its second, ...

    Each time what was built, and a new build if nothing was, must run after that, and nothing may be left.
    """
    recorded, ends = Recorded(), []
    for after in range(most):
        end = _refused(recorded, function, after, status, level)
        if end is None:
            break
        ends.append(end)
    return ends


@leaves_nothing
def _refused(recorded: Recorded, function: str, after: int, status: int, level: int) -> str | None:
    before = recorded.count(function)
    recorded.fail(function, after, status)
    models: list[Any] = []
    error = error_of(lambda: models.append(optimized(classifier(), optimization_level=level)))
    for _ in range(4):
        error = (error_of(lambda: call(models[0])) if models else None) or error
    reached = recorded.count(function) - before > after
    recorded.fail(function, 0, 0)
    if not models:
        models.append(optimized(classifier(), optimization_level=level))
    for _ in range(3):
        call(models[0])
    return type(error).__name__ if reached else None


@leaves_nothing
def unrecorded(function: str, calls: int) -> tuple[list[int], list[str], list[str]]:
    """How often calls that can't be recorded whole try it, what is logged, and what the report adds."""
    recorded, tried, logged = Recorded(), [], []
    model = optimized(classifier(), optimization_level=0)
    before = model.report()["notes"]
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    LOG.addHandler(handler)
    for _ in range(calls):
        count = recorded.count(function)
        recorded.fail(function, 0, OUT_OF_MEMORY)
        call(model)
        recorded.fail(function, 0, 0)
        tried.append(recorded.count(function) - count)
    LOG.removeHandler(handler)
    return tried, logged, [note for note in model.report()["notes"] if note not in before]


def lost(function: str) -> list[nx.Error | None]:
    """What calls and builds say after a kernel broke the context; the model is given up, and the CPU goes on."""
    recorded = Recorded()
    errors = _after_loss(recorded, function)
    gc.collect()
    call(optimized(classifier(), providers=["cpu"]))
    assert recorded.lines("misuse") == []
    return errors


def _after_loss(recorded: Recorded, function: str) -> list[nx.Error | None]:
    model = optimized(classifier(), optimization_level=0)
    for _ in range(3):
        call(model)
    recorded.fail(function, 0, ILLEGAL_ADDRESS)
    calls = [error_of(partial(call, model, batch)) for batch in (2, 2, 5)]
    return [*calls, error_of(lambda: optimized(classifier(24)))]


def lost_in_build() -> list[nx.Error | None]:
    """What builds say when the context breaks while kernels are timed."""
    Recorded().fail("cuStreamSynchronize", 1, ILLEGAL_ADDRESS)
    return [error_of(lambda: optimized(classifier())), error_of(lambda: optimized(stopover()))]


def forked() -> str:
    """What a call says in a child that was forked off."""
    model = optimized(stopover(), optimization_level=0)
    call(model)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(error_of(lambda: call(model))).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, encoding="utf-8") as said:
        return said.read()


def without() -> tuple[str | None, list[Row], str, str | None, nx.Error | None]:
    """The state of the provider; who runs a network, and what its report says of the GPU; what fallback=False says."""
    state = dict(_native.provider_states())["cuda"]
    model = optimized(classifier(), optimization_level=0)
    call(model)
    fallback = {row["provider"]: row["reason"] for row in model.report()["fallbacks"]}
    error = error_of(lambda: optimized(classifier(), fallback=False))
    return state, kernels(model), str(model.report()), fallback.get("cuda"), error
