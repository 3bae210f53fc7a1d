"""What a model takes and gives, in the protocol's words, and whether an array fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from neurenix.errors import UnsupportedError
from neurenix.hardware.optimized import Port
from neurenix.serve.status import Refused, Status

Array = np.ndarray[Any, Any]

#: The protocol's names of dtypes.
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

#: Arrays have at most so many dimensions.
MOST_DIMENSIONS = 32

#: Messages show so many letters of a value of a request, and so many names of a list.
MOST_SHOWN, MOST_LISTED = 200, 20


def shown(value: object) -> str:
    """A value of a request for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text)} characters)"


def listed(names: Iterable[str]) -> str:
    """Names for a message: the first of them, and how many more there are."""
    found = list(names)
    more = len(found) - MOST_LISTED
    return ", ".join(found[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class TensorSpec:
    """An input or output. -1 in `shape` is a dimension that a request says; the batch is one, where there is one."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, port: Port) -> TensorSpec:
        """The one of a model's port; raises `UnsupportedError` for a dtype that the protocol does not know."""
        if port.dtype not in NAMES:
            raise UnsupportedError(
                "the protocol has no such dtype", tensor=port.name, expected=", ".join(DTYPES), got=port.dtype.name
            )
        return cls(port.name, port.dtype, tuple(d if isinstance(d, int) else -1 for d in port.shape))

    @property
    def datatype(self) -> str:
        """The protocol's name of the dtype."""
        return NAMES[self.dtype]

    def text(self) -> str:
        """Dtype and shape for a message."""
        return f"{self.datatype}{list(self.shape)}"


@dataclass(frozen=True)
class Spec:
    """The inputs and outputs of a model. `max_batch` 0: the first dimension is no batch."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int = 0
    by_name: Mapping[str, TensorSpec] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Sequence[Port], outputs: Sequence[Port], max_batch: int) -> Spec:
        """The one of a model's ports."""
        given = tuple(map(TensorSpec.of, inputs))
        return cls(given, tuple(map(TensorSpec.of, outputs)), max_batch, {tensor.name: tensor for tensor in given})


@dataclass(slots=True)
class Request:
    """A request for inference whose arrays fit the model. `rows`: its batch, 1 where the model has none.

    `deadline`: the `time.monotonic()` after which nobody waits for it. `priority`: 1 is the highest.
    """

    id: str
    inputs: dict[str, Array]
    rows: int
    outputs: tuple[str, ...]
    priority: int = 0
    deadline: float | None = None
    #: Of the outputs, those that are wanted as bytes behind the JSON.
    binary: frozenset[str] = frozenset()


def tensor_of(spec: Spec, name: str, datatype: str, shape: Sequence[Any]) -> TensorSpec:
    """The input of this name, if what a request says of it fits; raises `Refused` with what was expected and came."""
    wanted = spec.by_name.get(name)
    if wanted is None:
        raise Refused(
            Status.INVALID, "the model has no such input", expected=listed(spec.by_name) or "none", got=shown(name)
        )
    if datatype != wanted.datatype:
        raise Refused(
            Status.INVALID, f"input {name!r} has the wrong datatype", expected=wanted.datatype, got=shown(datatype)
        )
    dims = tuple(shape)
    if not all(type(d) is int and 0 <= d < 1 << 62 for d in dims) or len(dims) > MOST_DIMENSIONS:
        raise Refused(
            Status.INVALID, f"input {name!r} has a shape that is none",
            expected=f"a list of at most {MOST_DIMENSIONS} integers that are 0 or more", got=shown(list(shape)[:40]),
        )  # fmt: skip
    if len(dims) != len(wanted.shape) or any(w not in (-1, d) for w, d in zip(wanted.shape, dims, strict=True)):
        raise Refused(
            Status.INVALID, f"input {name!r} has the wrong shape", expected=str(list(wanted.shape)), got=str(list(dims))
        )
    return wanted


def from_bytes(tensor: TensorSpec, shape: Sequence[int], data: bytes | memoryview) -> Array:
    """An array of a request's bytes: little endian, row by row; raises `Refused` where there are too few or many."""
    count = 1
    for extent in shape:
        count *= extent
    if len(data) != count * tensor.dtype.itemsize:
        raise Refused(
            Status.INVALID, f"input {tensor.name!r} has the wrong number of bytes",
            expected=f"{count * tensor.dtype.itemsize} for {tensor.datatype}{list(shape)}", got=str(len(data)),
        )  # fmt: skip
    found: Array = np.frombuffer(data, tensor.dtype)
    try:
        return found.reshape(shape)
    except ValueError as error:
        # Of no elements, but with extents whose strides are too large.
        raise Refused(Status.INVALID, f"input {tensor.name!r} has a shape that is none: {error}") from None


def complete(spec: Spec, arrays: dict[str, Array]) -> int:
    """The number of rows of a request; raises `Refused` where inputs are missing or their batches differ."""
    missing = [tensor.name for tensor in spec.inputs if tensor.name not in arrays]
    if missing:
        raise Refused(
            Status.INVALID, f"input {missing[0]!r} is missing", expected=listed(spec.by_name),
            got=listed(arrays) or "no inputs",
        )  # fmt: skip
    if not spec.max_batch:
        return 1
    rows: set[int] = {array.shape[0] for array in arrays.values()}
    if len(rows) != 1:
        raise Refused(
            Status.INVALID, "the inputs have different batches", expected="one first dimension",
            got=listed(f"{name} {array.shape[0]}" for name, array in arrays.items()),
        )  # fmt: skip
    count = rows.pop()
    if not 1 <= count <= spec.max_batch:
        raise Refused(
            Status.INVALID, "the batch is out of range", expected=f"1 to {spec.max_batch} rows", got=str(count)
        )
    return count


def wanted_outputs(spec: Spec, names: Sequence[str]) -> tuple[str, ...]:
    """The outputs that a request wants, all where it names none; raises `Refused` for one that is not there."""
    known = tuple(tensor.name for tensor in spec.outputs)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Refused(Status.INVALID, "the model has no such output", expected=listed(known), got=shown(unknown[0]))
    return tuple(dict.fromkeys(names)) or known
