"""A double of TensorRT-RTX out of `double/`: NVIDIA's real builder, and a runtime that runs plans with our CPU engine.

It is no TensorRT: no code of NVIDIA's runs a plan here, and no GPU. What is shown with it is how Neurenix drives a
runtime, and that the layers which Neurenix writes compute, by NVIDIA's documentation, what the model says.
"""

from __future__ import annotations

import ctypes
import functools
import json
import multiprocessing
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

Result = TypeVar("Result")

SOURCES = Path(__file__).parent / "double"
FLAGS = "-std=c++17 -O0 -Wall -Wextra -Werror -Wno-deprecated-declarations -shared -fPIC -fvisibility=hidden -pthread"
#: All that NVIDIA's headers ask of CUDA's.
CUDA_STUB = "#pragma once\ntypedef struct CUstream_st* cudaStream_t;\ntypedef struct CUevent_st* cudaEvent_t;\n"
#: TensorRT's dtypes in numpy's words.
DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "UINT8": "uint8",
    "BOOL": "bool",
}


class Operand(ctypes.Structure):
    """`Tensor` of double.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.c_int64 * 8),
        ("data", ctypes.c_void_p),
    )


Run = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.POINTER(Operand),
    ctypes.c_int64,
    ctypes.POINTER(Operand),
    ctypes.c_int64,
    ctypes.c_int32,
)


def headers() -> Path:
    """The headers of TensorRT-RTX 1.7, where build_tensorrt.rs finds them."""
    if shutil.which("cargo") is None or shutil.which("g++") is None:
        pytest.skip("no cargo and g++ to build the double of TensorRT with")
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--offline"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if done.returncode != 0:
        pytest.skip(f"cargo metadata: {done.stderr.splitlines()[0]}")
    packages = {package["name"]: package for package in json.loads(done.stdout)["packages"]}
    return Path(packages["trtx-sys"]["manifest_path"]).parent / "TensorRT-Headers/TRT-RTX-1.7"


def build(folder: Path, real: str) -> Path:
    """Compiles the double, whose builder is that of the library `real`."""
    stub = folder / "cuda_runtime_api.h"
    stub.write_text(CUDA_STUB)
    path = folder / "libtensorrt_double.so"
    sources = sorted(str(source) for source in SOURCES.glob("*.cc"))
    system = ["-isystem", str(headers()), "-isystem", str(folder)]
    command = ["g++", *FLAGS.split(), f'-DREAL="{real}"', *system, *sources, "-o", str(path), "-ldl"]
    subprocess.run(command, check=True)
    return path


class Double:
    """The double of this process: what it is to do wrong, and how often it was called."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.double_count.restype = ctypes.c_int64
        self._kept: dict[int, Any] = {}
        self._run = Run(self._compute)
        self._library.double_run(self._run)

    def set(self, name: str, value: int = 1) -> None:
        """Lets something go wrong so many times (-1: always), or changes what the double does; its sources name it."""
        self._library.double_set(name.encode(), ctypes.c_int64(value))

    @contextmanager
    def doing(self, **settings: int) -> Iterator[None]:
        """The same for a while."""
        for name, value in settings.items():
            self.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                self.set(name, 0)

    def weights(self, name: str) -> None:
        """Adds a name to those of the weights of refittable plans."""
        self._library.double_weights(name.encode())

    def count(self, name: str) -> int:
        """How often something was done."""
        return int(self._library.double_count(name.encode()))

    def _compute(self, network: bytes, weights: int, size: int, *rest: Any) -> int | None:
        inputs, given, outputs, wanted, only_shapes = rest
        try:
            held = ctypes.string_at(weights, size) if size else b""
            arrays = {inputs[at].name.decode(): array_of(inputs[at], bool(only_shapes)) for at in range(given)}
            results = compute(network.decode(), held, arrays)
        except BaseException as error:
            text = ctypes.create_string_buffer(f"{type(error).__name__}: {error}".encode())
            self._kept[threading.get_ident()] = text
            return ctypes.addressof(text)
        for at in range(wanted):
            fill(outputs[at], results[at])
        self._kept[threading.get_ident()] = results
        return None


def array_of(operand: Operand, zeros: bool) -> np.ndarray[Any, Any]:
    """An operand as an array."""
    shape = tuple(operand.dims[: operand.rank])
    dtype = np.dtype(DTYPES[operand.dtype.decode()])
    if zeros or operand.data is None:
        return np.zeros(shape, dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(operand.data, size), dtype).reshape(shape)


def fill(operand: Operand, array: np.ndarray[Any, Any]) -> None:
    """Tells where a result is, and its shape."""
    assert array.dtype == DTYPES[operand.dtype.decode()], (operand.name, array.dtype)
    operand.rank = array.ndim
    for axis, extent in enumerate(array.shape):
        operand.dims[axis] = extent
    operand.data = array.ctypes.data


def compute(network: str, weights: bytes, arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The outputs of a network that the double's builder has read, by our CPU engine."""
    model = read(network, weights)
    names = [port.name for port in model.graph.input]
    feeds = dict(zip(names, arrays.values(), strict=True))
    shapes = tuple((name, array.shape) for name, array in feeds.items())
    results = engine(network, weights, shapes)(feeds)
    return [np.asarray(results[port.name], order="C") for port in model.graph.output]


@functools.lru_cache(maxsize=64)
def read(network: str, weights: bytes) -> Any:
    from tests.tensorrt.interpret import Reader

    return Reader(network, weights).model()


@functools.lru_cache(maxsize=64)
def engine(network: str, weights: bytes, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Any:
    from neurenix.hardware import get_backend

    backend = get_backend("cpu")
    return backend.optimize_model(read(network, weights), dict(shapes), verify=False, optimization_level=0)


#: The double of a process that was started to have one.
current: Double | None = None


def _begin(environment: dict[str, str]) -> None:
    global current
    os.environ.update(environment)
    current = Double(environment["NEURENIX_TENSORRT_LIB"])


class Process:
    """A process whose TensorRT is the double; `settings` are more of its environment.

    What it runs must be a function at the top of a module that can be imported; its errors are raised here.
    """

    def __init__(self, library: Path, **settings: str) -> None:
        environment = {"NEURENIX_TENSORRT_LIB": str(library)} | settings
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=(environment,))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def run(self, job: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """What a function gives there."""
        return self._pool.submit(job, *args, **kwargs).result()


def double() -> Double:
    """The double of this process."""
    assert current is not None
    return current


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An array at an address that TensorRT takes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 256, np.uint8)
    start = -raw.ctypes.data % 256
    return np.ndarray(shape, dtype, raw, start)


def address(array: np.ndarray[Any, Any]) -> int:
    """Where an array is, one without elements too."""
    where = array.__array_interface__["data"][0]
    assert isinstance(where, int)
    return where


def call(context: Any, feeds: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a context, whose GPU is the processor's memory."""
    kept, outputs = [], {}
    for name, array in feeds.items():
        context.set_input_shape(name, array.shape)
        there = aligned(array.shape, array.dtype)
        there[...] = array
        kept.append(there)
        context.set_tensor_address(name, address(there))
    assert context.infer_shapes() == []
    given: dict[str, np.ndarray[Any, Any]] = {}
    for port in context.engine.tensors:
        if port.is_input:
            continue
        if -1 in port.shape:
            # Its size may depend on data.
            context.set_output_allocator(port.name, allocator(given, port.name))
        else:
            outputs[port.name] = aligned(port.shape, DTYPES[port.dtype])
            context.set_tensor_address(port.name, address(outputs[port.name]))
    scratch = aligned((context.memory_required(),), np.uint8)
    context.set_device_memory(address(scratch), scratch.size)
    context.execute_async()
    for port in context.engine.tensors:
        if port.name in given:
            shape, dtype = context.collected(port.name), np.dtype(DTYPES[port.dtype])
            outputs[port.name] = given[port.name][: int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
    return outputs


def allocator(given: dict[str, np.ndarray[Any, Any]], name: str) -> Callable[[int, int, int, int], int]:
    """Gives memory for a result, and keeps it under its name."""

    def allocate(current: int, size: int, alignment: int, stream: int) -> int:
        given[name] = aligned((size,), np.uint8)
        return address(given[name])

    return allocate
