"""Calls on arrays that lie on a GPU: nothing goes through the processor's memory, and nothing waits.

torch tensors, and the arrays of libraries in CuPy's shape, which have `__cuda_array_interface__` and make arrays that
others may write into. Results are of the kind that came in.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np

from neurenix import _native, arrays
from neurenix.errors import DTypeError, InvalidArgumentError, ShapeError


class Spot(NamedTuple):
    """Where an array lies: its address, the number of its GPU (None: the processor's memory), its shape."""

    address: int
    device: int | None
    shape: tuple[int, ...]


class Library(Protocol):
    """A library with arrays on a GPU."""

    #: Whether it holds the memory of its arrays, so that nobody need ask the driver whether there is any.
    holds: bool

    def spot(self, value: Any, dtype: np.dtype[Any]) -> tuple[Spot, Any]:
        """Where a dense array of this dtype lies, and what keeps it alive; raises for any other array."""

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], device: int) -> tuple[Any, int]:
        """A new array, and its address."""

    def stream(self, device: int) -> int:
        """The stream that the caller works in."""

    def within(self, stream: int, device: int) -> AbstractContextManager[Any]:
        """Makes a stream the one in which the library copies and allocates."""


class Torch:
    """torch."""

    holds = True

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        self._dtypes: dict[np.dtype[Any], Any] = {}
        self._devices: dict[int, Any] = {}
        # The number alone takes a twentieth of the time that an object with it does; not every torch gives it.
        self._raw_stream = getattr(self._torch._C, "_cuda_getCurrentRawStream", None)

    def dtype(self, dtype: np.dtype[Any]) -> Any:
        """torch's name of a dtype."""
        found = self._dtypes.get(dtype)
        if found is None:
            found = getattr(self._torch, dtype.name, None)
            if found is None:
                raise DTypeError(
                    f"torch has no {dtype.name}", hint="give numpy arrays, or cast this input in the model"
                )
            self._dtypes[dtype] = found
        return found

    def spot(self, value: Any, dtype: np.dtype[Any]) -> tuple[Spot, Any]:
        """Where a tensor lies; one that is not dense is copied on its device first."""
        if value.dtype != self.dtype(dtype):
            got = str(value.dtype).removeprefix("torch.")
            raise DTypeError(
                "the array has the wrong dtype",
                expected=dtype.name,
                got=got,
                hint=f"convert it first, for example with x.to(torch.{dtype.name})",
            )
        value = arrays.settled(value)
        if not value.is_contiguous():
            value = value.detach().contiguous()
        return Spot(value.data_ptr(), value.get_device() if value.is_cuda else None, value.shape), value

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], device: int) -> tuple[Any, int]:
        """A new tensor, and its address."""
        place = self._devices.get(device)
        if place is None:
            place = self._devices[device] = self._torch.device("cuda", device)
        made = self._torch.empty(shape, dtype=self.dtype(dtype), device=place)
        return made, made.data_ptr()

    def stream(self, device: int) -> int:
        """torch's current stream."""
        if self._raw_stream is not None:
            return int(self._raw_stream(device))
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def within(self, stream: int, device: int) -> AbstractContextManager[Any]:
        """Nothing to do where torch works in that stream already."""
        if stream == self.stream(device):
            return nullcontext()
        cuda = self._torch.cuda
        legacy = stream in LEGACY_STREAM
        named = cuda.default_stream(device) if legacy else cuda.ExternalStream(stream, device=device)
        entered: AbstractContextManager[Any] = cuda.stream(named)
        return entered


class CudaArrays:
    """CuPy, and libraries in its shape."""

    # Arrays around addresses of others are ordinary ones there.
    holds = False

    def __init__(self, namespace: Any, stream: int) -> None:
        self._namespace = namespace
        self._stream = stream

    def spot(self, value: Any, dtype: np.dtype[Any]) -> tuple[Spot, Any]:
        """Where an array lies."""
        face = value.__cuda_array_interface__
        given = np.dtype(getattr(value, "dtype", face["typestr"]))
        if given != dtype:
            raise DTypeError("the array has the wrong dtype", expected=dtype.name, got=given.name)
        shape, strides = tuple(face["shape"]), face.get("strides")
        if strides is not None and not _dense(shape, strides, dtype.itemsize):
            raise ShapeError(
                "the array is not dense", expected="row-major", got=f"strides {strides}", hint="copy it first"
            )
        device = value.device
        return Spot(int(face["data"][0]), int(getattr(device, "id", 0)), shape), value

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], device: int) -> tuple[Any, int]:
        """A new array, and its address."""
        made = self._namespace.empty(tuple(shape), dtype=dtype)
        return made, int(made.__cuda_array_interface__["data"][0])

    def stream(self, device: int) -> int:
        """The stream that the arrays were made in."""
        return self._stream

    def within(self, stream: int, device: int) -> AbstractContextManager[Any]:
        """The library has no name for that; nothing is copied, since arrays must be dense."""
        return nullcontext()


def library_of(value: Any) -> tuple[Library, int] | None:
    """The library of an array on a GPU, and the number of the GPU; None for every other array."""
    if arrays.is_torch(value):
        return (of_torch(), value.get_device()) if value.is_cuda else None
    face = getattr(value, "__cuda_array_interface__", None)
    namespace = getattr(value, "__array_namespace__", None)
    if face is None or namespace is None or not hasattr(namespace(), "cuda"):
        return None
    # 1 is the legacy default stream; without an entry nobody has to be waited for.
    return CudaArrays(namespace(), face.get("stream") or 1), int(value.device.id)


_TORCH: list[Torch] = []


def of_torch() -> Torch:
    """torch, which the caller has imported."""
    if not _TORCH:
        _TORCH.append(Torch())
    return _TORCH[0]


def stream_of(stream: Any) -> int:
    """The number of a stream: an int, or one of torch, CuPy or cuda.core."""
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):
        number = getattr(stream, name, None)
        if isinstance(number, int):
            return number
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise InvalidArgumentError(
            "this is no stream",
            expected="an int, or a stream of torch, CuPy or cuda.core",
            got=type(stream).__name__,
        )
    return int((protocol() if callable(protocol) else protocol)[1])


class Caller:
    """Calls an engine on arrays of a GPU."""

    def __init__(self, engine: _native.Engine) -> None:
        self._engine = engine
        self._inputs = tuple((name, np.dtype(dtype)) for name, dtype, _ in engine.inputs)
        self._outputs = tuple(name for name, _, _ in engine.outputs)
        self._specs: dict[tuple[tuple[int, ...], ...], list[tuple[np.dtype[Any], list[int]]]] = {}
        self.devices = frozenset(engine.devices)

    def run(self, library: Library, device: int, inputs: Mapping[str, Any], stream: Any) -> dict[str, Any]:
        """Results on the GPU, of the library of the inputs; the work is in the stream, and may not be done yet."""
        if stream is None:
            return self._run_in(library, device, inputs, library.stream(device))
        number = stream_of(stream)
        with library.within(number, device):
            return self._run_in(library, device, inputs, number)

    def _run_in(self, library: Library, device: int, inputs: Mapping[str, Any], stream: int) -> dict[str, Any]:
        spots, keep = [], []
        for name, dtype in self._inputs:
            value = inputs[name]
            try:
                spot, kept = library.spot(value, dtype) if _is_far(value) else _near(value, dtype)
            except DTypeError as error:
                error.tensor = name
                raise
            spots.append(spot)
            keep.append(kept)
        shapes = tuple(spot.shape for spot in spots)
        specs = self._specs.get(shapes)
        if specs is None:
            specs = self._engine.specs(list(shapes))
            if len(self._specs) >= KEPT_SHAPES:
                self._specs.clear()
            self._specs[shapes] = specs
        made = [library.empty(shape, dtype, device) for dtype, shape in specs]
        self._engine.run_at(
            [(spot.address, spot.device) for spot in spots],
            list(shapes),
            [(address, device) for _, address in made],
            (device, stream),
            held=library.holds,
        )
        return dict(zip(self._outputs, (array for array, _ in made), strict=True))

    def fits(self, inputs: Mapping[str, Any]) -> bool:
        """Whether these are the inputs of the engine."""
        return len(inputs) == len(self._inputs) and all(name in inputs for name, _ in self._inputs)


#: What CUDA calls the legacy default stream: null, and cudaStreamLegacy.
LEGACY_STREAM = (0, 1)
#: The shapes of results are kept for so many shapes of inputs.
KEPT_SHAPES = 256


def _is_far(value: Any) -> bool:
    if arrays.is_torch(value):
        return bool(value.is_cuda)
    return hasattr(value, "__cuda_array_interface__")


def _near(value: Any, dtype: np.dtype[Any]) -> tuple[Spot, Any]:
    array = np.asarray(arrays.to_numpy(value), order="C")
    if array.dtype != dtype:
        raise DTypeError("the array has the wrong dtype", expected=dtype.name, got=array.dtype.name)
    return Spot(array.ctypes.data, None, array.shape), array


def _dense(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != size:
            return False
        size *= extent
    return True
