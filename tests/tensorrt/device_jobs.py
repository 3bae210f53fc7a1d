"""What the tests do in a process that has the double of TensorRT and the recorded GPU of tests/cuda/recorded."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from tests.cuda.stand_in import Recorded
from tests.tensorrt import jobs


class Gpu:
    """The recorded GPU by its driver: memory whose addresses nobody but a GPU may follow."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL(str(Path(os.environ["NEURENIX_CUDA_LIBRARIES"]) / "libcuda.so.1"))
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxPushCurrent_v2", context)
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), 1)
        self.stream = stream.value or 0

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._driver, name)(*args)
        assert status == 0, (name, status)

    def allocate(self, size: int) -> int:
        """The address of new memory."""
        where = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(where), ctypes.c_size_t(size))
        return where.value

    def copy(self, to: int, source: int, size: int) -> None:
        """Puts a copy into the stream."""
        addresses = (ctypes.c_uint64(to), ctypes.c_uint64(source))
        self._call("cuMemcpyAsync", *addresses, ctypes.c_size_t(size), ctypes.c_void_p(self.stream))

    def begin(self) -> None:
        """Captures the stream from here on."""
        self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(self.stream), 1)

    def end(self) -> ctypes.c_void_p:
        """What was captured, ready to be launched."""
        graph, instance = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamEndCapture", ctypes.c_void_p(self.stream), ctypes.byref(graph))
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(instance), graph, ctypes.c_ulonglong(0))
        return instance

    def launch(self, instance: ctypes.c_void_p) -> None:
        """Launches a graph."""
        self._call("cuGraphLaunch", instance, ctypes.c_void_p(self.stream))

    def wait(self) -> None:
        """Waits for the stream."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))


def on_gpu() -> tuple[list[bool], list[str]]:
    """Whether a call, and two launches of a graph of it with other inputs, are right; and what was done wrong."""
    gpu, context = Gpu(), jobs.plan().open().context()
    x, y, z = np.zeros((3, 6), np.float32), np.zeros((3, 5), np.float32), np.zeros(3, np.float32)
    places = {name: gpu.allocate(array.nbytes) for name, array in (("x", x), ("y", y), ("z", z))}
    context.set_input_shape("x", x.shape)
    assert context.infer_shapes() == []
    scratch = context.memory_required()
    context.set_device_memory(gpu.allocate(scratch), scratch)
    for name, where in places.items():
        context.set_tensor_address(name, where)

    def put() -> None:
        gpu.copy(places["x"], x.ctypes.data, x.nbytes)
        context.execute_async(gpu.stream)
        gpu.copy(y.ctypes.data, places["y"], y.nbytes)
        gpu.copy(z.ctypes.data, places["z"], z.nbytes)

    def is_right(seed: int, run: Any) -> bool:
        x[...] = jobs.batch(3, seed)
        run()
        gpu.wait()
        wanted = jobs.expected(x)
        return np.allclose(y, wanted["y"], rtol=1e-5, atol=1e-5) and np.allclose(z, wanted["z"], rtol=1e-5, atol=1e-5)

    found = [is_right(0, put)]
    gpu.begin()
    put()
    graph = gpu.end()
    found += [is_right(seed, lambda: gpu.launch(graph)) for seed in (1, 2)]
    return found, Recorded().lines("misuse")


def astray() -> str:
    """The error of a call whose input is no memory of the GPU."""
    gpu, context = Gpu(), jobs.plan().open().context()
    context.set_input_shape("x", (3, 6))
    scratch = context.memory_required()
    context.set_device_memory(gpu.allocate(scratch), scratch)
    context.set_tensor_address("x", gpu.allocate(8) + (1 << 30))
    for name in ("y", "z"):
        context.set_tensor_address(name, gpu.allocate(64))
    try:
        context.execute_async(gpu.stream)
    except Exception as error:
        return str(error)
    return "nothing was wrong"
