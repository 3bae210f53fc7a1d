"""One call on addresses: what was said so far, and how it runs."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from neurenix import _native, addresses
from neurenix.errors import InvalidArgumentError, OutOfMemoryError, ShapeError, UnsupportedError
from neurenix.hardware.tensorrt.build_enums import TensorIOMode
from neurenix.hardware.tensorrt.enums import Dims
from neurenix.hardware.tensorrt.interfaces import IOutputAllocator
from neurenix.hardware.tensorrt.ports import Port
from neurenix.hardware.tensorrt.weights import memory_at

#: So many pages are remembered as the processor's; no system has smaller ones than of 4 KiB.
_MOST_REACHED, _PAGE_BITS = 4096, 12
#: What allocators are asked for.
ALIGNMENT = 256

Times = list[tuple[str, str, int]]


def address_of(memory: Any, name: str) -> int:
    """An address as a number.

    Raises `InvalidArgumentError` for what is none.
    """
    if isinstance(memory, ctypes.c_void_p):
        return int(memory.value or 0)
    if memory is None:
        return 0
    try:
        return operator.index(memory)
    except TypeError as error:
        raise InvalidArgumentError(
            "an address is a number",
            tensor=name,
            got=type(memory).__name__,
            hint="give array.ctypes.data, or tensor.data_ptr()",
        ) from error


class Span(NamedTuple):
    """The bytes of a tensor."""

    begin: int
    end: int
    name: str
    is_output: bool

    @classmethod
    def of(cls, port: Port, address: int, shape: Dims) -> Span:
        """Those of a port."""
        end = address + math.prod(shape) * port.dtype.itemsize
        return cls(address, end, port.name, port.mode is TensorIOMode.OUTPUT)

    def pages(self) -> tuple[int, int]:
        """The pages of the first and the last byte; those of outputs are others, as they must be written."""
        return (
            self.begin >> _PAGE_BITS << 1 | self.is_output,
            self.end - 1 >> _PAGE_BITS << 1 | self.is_output,
        )


def _overlap(*spans: Span) -> InvalidArgumentError:
    return InvalidArgumentError(
        "the memory of an output overlaps that of another tensor",
        tensor=", ".join(span.name for span in spans),
        expected="memory of its own for each output",
        got=", ".join(f"{span.name} at {span.begin:#x} to {span.end:#x}" for span in spans),
        hint="give the output another address, and copy after the call",
    )


def _check_reach(spans: Sequence[Span]) -> None:
    """Raises `InvalidArgumentError` where the processor can't read the memory of a tensor, or write that of an output.

    The first and the last byte tell.
    """
    for written in (False, True):
        some = [span for span in spans if span.is_output is written]
        ends = [end for span in some for end in (span.begin, span.end - 1)]
        count = addresses.reachable(ends, write=written)
        if count < len(ends):
            lost = some[count // 2]
            raise InvalidArgumentError(
                f"the address of a tensor is one that the processor can't {'write to' if written else 'read'}",
                tensor=lost.name,
                expected=f"{lost.end - lost.begin} bytes of its memory",
                got=f"{lost.begin:#x} to {lost.end:#x}, which may be a GPU's",
                hint="engine.get_tensor_location(name) says whose memory it must be; give array.ctypes.data",
            )


class Call:
    """Shapes, addresses and allocators by name."""

    def __init__(self, ports: Iterable[Port]) -> None:
        ports = list(ports)
        self._inputs = [port for port in ports if port.mode is TensorIOMode.INPUT]
        self._outputs = [port for port in ports if port.mode is TensorIOMode.OUTPUT]
        self.shapes: dict[str, Dims] = {}
        self.addresses: dict[str, int] = {}
        self.allocators: dict[str, IOutputAllocator] = {}
        #: Addresses and shapes that were found to be apart.
        self._apart: tuple[Any, ...] | None = None
        #: Pages that the processor was found to reach.
        self._reached: set[int] = set()
        self.forget_shapes()

    def forget_shapes(self) -> None:
        """Leaves the shapes that are fixed."""
        fixed = (port for port in self._inputs if all(isinstance(d, int) for d in port.shape))
        self.shapes = {port.name: Dims(port.shape) for port in fixed}

    def set_allocator(self, name: str, allocator: IOutputAllocator | None) -> None:
        """An allocator for an output, or none."""
        self.allocators.pop(name, None)
        if allocator is not None:
            self.allocators[name] = allocator

    def missing_shapes(self) -> list[str]:
        """The inputs whose shapes are not known."""
        return [port.name for port in self._inputs if port.name not in self.shapes]

    def shape_key(self) -> tuple[Dims, ...]:
        """The shapes in the order of the inputs."""
        return tuple(self.shapes[port.name] for port in self._inputs)

    def known_outputs(self) -> dict[str, Dims]:
        """The shapes of those outputs whose dimensions are fixed, or are dimensions of inputs."""
        sizes: dict[int | str, int] = {}
        for port in self._inputs:
            sizes.update(zip(port.shape, self.shapes[port.name], strict=True))
        known = (port for port in self._outputs if all(isinstance(dim, int) or dim in sizes for dim in port.shape))
        return {port.name: Dims(sizes.get(dim, dim) for dim in port.shape) for port in known}

    def check(self) -> None:
        """Raises `InvalidArgumentError`, with the names, where a shape or an address is missing."""
        missing = self.missing_shapes()
        if missing:
            raise InvalidArgumentError(
                "the shapes of inputs are not set", tensor=", ".join(missing), hint="call context.set_input_shape first"
            )
        lost = [port.name for port in [*self._inputs, *self._outputs] if not self._has_place(port)]
        if lost:
            raise InvalidArgumentError(
                "the addresses of tensors are not set",
                tensor=", ".join(lost),
                hint="call context.set_tensor_address for each input and output first",
            )

    def _has_place(self, port: Port) -> bool:
        return (
            port.name in self.allocators or bool(self.addresses.get(port.name)) or 0 in self.shapes.get(port.name, ())
        )

    def run(
        self,
        engine: _native.Engine,
        context: _native.Context,
        outputs: dict[str, Dims],
        stream: int | None,
        timed: bool,
    ) -> Times:
        """Runs it; gives the time of each kernel where that is asked for."""
        if engine.staged:
            return self._run_stages(engine, context, outputs, timed, stream or 0)
        device = engine.devices[0] if engine.devices else None
        places = {port.name: self._place(port, outputs[port.name], stream or 0) for port in self._outputs}
        self._check_spans(outputs, self._outputs, device is None)
        times = engine.run_at(
            [(self.addresses.get(port.name, ALIGNMENT), device) for port in self._inputs],
            list(self.shape_key()),
            [(places[port.name], device) for port in self._outputs],
            None if device is None or stream is None else (device, stream),
            timed,
        )
        for name, allocator in self.allocators.items():
            allocator.notify_shape(name, outputs[name])
        return times

    def _check_spans(self, outputs: dict[str, Dims], written: Iterable[Port], on_processor: bool) -> None:
        """Raises `InvalidArgumentError` where an output shares bytes with an input or with another output.

        Kernels run in an order of the engine's own: an input may be read after any of the outputs was written. With
        `on_processor`, the processor must reach all bytes, too.
        """
        key = (tuple(self.addresses.items()), self.shape_key())
        if key == self._apart:
            return
        shapes = {**self.shapes, **outputs}
        spans = [Span.of(port, self.addresses.get(port.name, 0), shapes[port.name]) for port in self._inputs]
        spans += [Span.of(port, self.addresses.get(port.name, 0), shapes[port.name]) for port in written]
        # Of those before, in the order of memory: the one that reaches furthest, and the output that does.
        furthest = output = Span(0, 0, "", False)
        for span in sorted(span for span in spans if span.begin and span.begin < span.end):
            before = furthest if span.is_output else output
            if span.begin < before.end:
                raise _overlap(before, span)
            furthest = span if span.end > furthest.end else furthest
            output = span if span.is_output and span.end > output.end else output
        if on_processor:
            self._check_reach([span for span in spans if span.begin and span.begin < span.end])
        self._apart = key

    def _check_reach(self, spans: Iterable[Span]) -> None:
        """Looks at pages that were not seen before, so that calls with other addresses each time stay fast."""
        new = [span for span in spans if not self._reached.issuperset(span.pages())]
        if new:
            _check_reach(new)
            if len(self._reached) > _MOST_REACHED:
                self._reached.clear()
            self._reached.update(page for span in new for page in span.pages())

    def _place(self, port: Port, shape: Dims, stream: int) -> int:
        """The address of an output, from its allocator where it has one."""
        allocator = self.allocators.get(port.name)
        before = self.addresses.get(port.name)
        if allocator is None:
            return before or 0
        size = max(1, int(np.prod(shape, dtype=np.int64)) * port.dtype.itemsize)
        address = address_of(allocator.reallocate_output_async(port.name, before, size, ALIGNMENT, stream), port.name)
        if address <= 0:
            raise OutOfMemoryError(
                "the allocator gave no memory for an output", tensor=port.name, expected=f"{size} bytes"
            )
        self.addresses[port.name] = address
        return address

    def _run_stages(
        self, engine: _native.Engine, context: _native.Context, outputs: dict[str, Dims], timed: bool, stream: int
    ) -> Times:
        """Where the sizes of outputs depend on data: on copies in the processor's memory."""
        fixed = [port for port in self._outputs if port.name not in self.allocators]
        lost = [port.name for port in fixed if port.name not in outputs]
        if lost:
            raise UnsupportedError(
                "the sizes of outputs depend on data: an address can't say whether there is room",
                tensor=", ".join(lost),
                hint="give an allocator with context.set_output_allocator",
            )
        self._check_spans(outputs, fixed, True)
        given = {
            port.name: memory_at(self.addresses.get(port.name, 0), self.shapes[port.name], port.dtype).copy()
            for port in self._inputs
        }
        found = context.run(given)
        for port in self._outputs:
            array = np.asarray(found[port.name], order="C")
            if port.name in outputs and array.shape != outputs[port.name]:
                raise ShapeError(
                    "an output is of another shape than the shapes of the inputs told",
                    tensor=port.name,
                    expected=str(list(outputs[port.name])),
                    got=str(list(array.shape)),
                )
            address = self._place(port, Dims(array.shape), stream)
            if port.name in self.allocators and array.nbytes:
                self._check_reach([Span(address, address + array.nbytes, port.name, True)])
            ctypes.memmove(address, array.ctypes.data, array.nbytes)
            if port.name in self.allocators:
                self.allocators[port.name].notify_shape(port.name, Dims(array.shape))
        return engine.profile(given) if timed else []
