"""Programs by the memory of the caller's arrays, on the recorded device: what is copied, and what is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.cuda.device_arrays import Arrays
from tests.cuda.jobs import LAUNCHES, branches, classifier, gated, leaves_nothing, optimized, stopover
from tests.cuda.stand_in import Process, Recorded

#: Where an array of a call lies: on the processor, on the GPU, or there at an address that kernels can't use.
HOST, GPU, ASKEW = "host", "gpu", "askew"


def pieces() -> nx.Network:
    """Results that are inputs, constants, views of inputs, one tensor twice, read again, and parts of one another."""
    made = nx.Network("pieces")
    x = made.add_input("x", "float32", ["batch", 8, 4])
    both = made.add_layer("Split", [x], {"axis": 1, "split": [4, 4]})
    y = made.add_layer("Relu", [both[0]])[0]
    joined = made.add_layer("Concat", [y, both[1]], {"axis": 1})[0]
    again = made.add_layer("Sigmoid", [joined])[0]
    flat = made.add_layer("Flatten", [x], {"axis": 1})[0]
    for name, tensor in {"x_again": x, "y": y, "joined": joined, "again": again, "twice": again, "flat": flat}.items():
        made.mark_output(tensor, name)
    made.mark_output(made.add_constant("c", np.arange(3, dtype=np.float32)), "constant")
    return made


NETWORKS: dict[str, Callable[[], nx.Network]] = {
    "classifier": classifier,
    "stopover": stopover,
    "gated": gated,
    "branches": branches,
    "pieces": pieces,
}


class Call:
    """A call of a model at a batch, with arrays where they are wanted."""

    def __init__(self, model: Any, batch: int, device: Arrays) -> None:
        self._engine, self._device = model._engine, device
        self.shapes = [[batch, *port.shape[1:]] for port in model.inputs]
        outputs = self._engine.specs(self.shapes)
        self._sizes = (
            [int(np.prod(shape)) * 4 for shape in self.shapes],
            [int(np.prod(shape)) * dtype.itemsize for dtype, shape in outputs],
        )
        self._held: list[Any] = []
        self._known: dict[tuple[str, int, int], tuple[int, int | None]] = {}

    def _array(self, where: str, kind: int, at: int) -> tuple[int, int | None]:
        if (where, kind, at) not in self._known:
            size = self._sizes[kind][at]
            if where == HOST:
                self._held.append(np.zeros(size, np.uint8))
                found: tuple[int, int | None] = (self._held[-1].ctypes.data, None)
            else:
                address, gpu = self._device.array(size + 4)
                found = (address + 4 * (where == ASKEW), gpu)
            self._known[where, kind, at] = found
        return self._known[where, kind, at]

    def __call__(self, inputs: Sequence[str], outputs: Sequence[str], stream: tuple[int, int] | None) -> None:
        given = [self._array(where, 0, at) for at, where in enumerate(inputs)]
        made = [self._array(where, 1, at) for at, where in enumerate(outputs)]
        self._engine.run_at(given, self.shapes, made, stream)


@leaves_nothing
def counted(network: str, where: str, calls: int) -> list[dict[str, int]]:
    """What each call launched and copied, all of its arrays there, behind one that brought the weights to the GPU."""
    recorded, device, found = Recorded(), Arrays(), []
    model = optimized(NETWORKS[network](), optimization_level=0)
    call, stream = Call(model, 2, device), device.stream()
    names = (*LAUNCHES, "cuMemcpyAsync", "cuGraphLaunch")
    call([HOST] * len(model.inputs), [HOST] * len(model.outputs), None)
    for _ in range(calls):
        before = {name: recorded.count(name) for name in names}
        call([where] * len(model.inputs), [where] * len(model.outputs), stream)
        found.append({name: recorded.count(name) - before[name] for name in names})
    model.synchronize()
    device.close()
    return found


def kernels(counts: dict[str, int]) -> int:
    return sum(counts[name] for name in LAUNCHES)


@pytest.mark.parametrize("network", ["classifier", "gated", "branches"])
def test_arrays_of_the_gpu_are_copied_nowhere(process: Process, network: str) -> None:
    first, second, third, fourth = process.run(counted, network, GPU, 4)
    assert not any(counts["cuMemcpyAsync"] for counts in (first, second, third, fourth))
    assert kernels(first) == kernels(process.run(counted, network, HOST, 1)[0])
    assert third["cuGraphLaunch"] == fourth["cuGraphLaunch"] == 1 and not kernels(fourth)


def test_arrays_at_other_addresses_than_kernels_take_are_copied_once_each(process: Process) -> None:
    assert process.run(counted, "classifier", ASKEW, 1)[0]["cuMemcpyAsync"] == 2
    assert process.run(counted, "classifier", HOST, 1)[0]["cuMemcpyAsync"] == 2


def test_what_the_processor_computes_is_copied_and_nothing_else(process: Process) -> None:
    assert [counts["cuMemcpyAsync"] for counts in process.run(counted, "stopover", GPU, 3)] == [2, 2, 2]
    assert process.run(counted, "stopover", HOST, 1)[0]["cuMemcpyAsync"] == 4


def masked() -> nx.Network:
    """Layers that read one input each, with few kernels between them."""
    made = nx.Network("masked")
    x, mask = (made.add_input(name, "float32", ["batch", 64]) for name in ("x", "mask"))
    rng = np.random.default_rng(0)
    for layer in range(6):
        weights = made.add_constant(f"w{layer}", rng.standard_normal((64, 64)).astype(np.float32))
        x = made.add_layer("Softmax", [made.add_layer("MatMul", [x, weights])[0]], {"axis": -1})[0]
        x = made.add_layer("Softmax", [made.add_layer("Add", [x, mask])[0]], {"axis": -1})[0]
    made.mark_output(x, "y")
    return made


@leaves_nothing
def arrays_that_do_not_come_again(calls: int) -> list[dict[str, int]]:
    """What each call launched whose arrays no call had before."""
    recorded, device, found = Recorded(), Arrays(), []
    model = optimized(masked(), optimization_level=0)
    stream, size, names = device.stream(), 2 * 64 * 4, (*LAUNCHES, "cuGraphLaunch")
    for _ in range(calls):
        before = {name: recorded.count(name) for name in names}
        arrays = [device.array(size) for _ in range(3)]
        model._engine.run_at(arrays[:2], [[2, 64]] * 2, arrays[2:], stream)
        found.append({name: recorded.count(name) - before[name] for name in names})
    model.synchronize()
    device.close()
    return found


def test_few_kernels_between_those_that_read_an_input_are_no_graph(process: Process) -> None:
    first, *later = process.run(arrays_that_do_not_come_again, 4)
    assert all(counts["cuGraphLaunch"] == 0 and kernels(counts) == kernels(first) for counts in later)


@leaves_nothing
def placements(network: str, batch: int) -> tuple[int, int]:
    """Calls with arrays in all memories by turns: bytes of the device after two rounds of them, and after another."""
    recorded, device = Recorded(), Arrays()
    model = optimized(NETWORKS[network](), optimization_level=0)
    call, streams = Call(model, batch, device), (device.stream(), None)
    inputs = list(itertools.product((HOST, GPU, ASKEW), repeat=len(model.inputs)))
    ends = [(where,) * len(model.outputs) for where in (HOST, GPU, ASKEW)]
    mixed = [tuple((HOST, GPU, ASKEW)[(at + start) % 3] for at in range(len(model.outputs))) for start in range(3)]
    every = list(itertools.product(inputs, [*ends, *mixed], streams))
    for _ in range(2):
        for given, made, stream in every:
            for _ in range(3):
                call(given, made, stream)
    model.synchronize()
    # Weights are packed once for all placements.
    once = recorded.count("live_bytes")
    for given, made, stream in every:
        call(given, made, stream)
    model.synchronize()
    twice = recorded.count("live_bytes")
    device.close()
    return once, twice


@pytest.mark.parametrize("network", NETWORKS)
def test_arrays_may_lie_anywhere_and_elsewhere_in_the_next_call(process: Process, network: str) -> None:
    once, twice = process.run(placements, network, 3)
    assert once == twice


@leaves_nothing
def weights_held(wheres: Sequence[str]) -> int:
    """Bytes of the device that an engine with a large matrix holds after calls with arrays in these memories."""
    recorded, device = Recorded(), Arrays()
    made = nx.Network("wide")
    x = made.add_input("x", "float32", ["batch", 512])
    weights = np.random.default_rng(0).standard_normal((512, 4096)).astype(np.float32)
    made.mark_output(made.add_layer("MatMul", [x, made.add_constant("w", weights)])[0], "y")
    model = optimized(made, optimization_level=0)
    call = Call(model, 2, device)
    for where in (HOST, GPU):
        call._array(where, 0, 0), call._array(where, 1, 0)
    for where in wheres:
        call([where], [where], None)
    found = recorded.count("live_bytes")
    device.close()
    return found


def test_weights_are_held_once_for_all_placements(process: Process) -> None:
    host, both = process.run(weights_held, [HOST]), process.run(weights_held, [HOST, GPU, HOST])
    assert 512 * 4096 * 4 < host <= both < host + 512 * 1024
