"""Tracing: `forward` runs once on symbolic tensors, and what it does becomes layers of a Network."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from neurenix import arrays, shapes
from neurenix._native import Network, Tensor
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.nn.traced import Traced
from neurenix.nn.traced.base import Base
from neurenix.nn.traced.extent import Extent

if TYPE_CHECKING:
    from neurenix.nn.module import Module

Dim = int | str

_current: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("trace", default=None)


def current() -> Trace:
    """The trace that runs.

    Raises `InvalidArgumentError` outside of one.
    """
    trace = _current.get()
    if trace is None:
        raise InvalidArgumentError(
            "a module of neurenix.nn describes a model; it does not run by itself",
            hint="optimise it: TensorRTBackend().optimize_model(model, {'input': shape})",
        )
    return trace


class Trace:
    """A network in the making, and where in the tree of modules the trace is."""

    def __init__(self, root: Module) -> None:
        self.network = Network(type(root).__name__)
        self.modules = {id(module): name for name, module in root.named_modules()}
        self.arrays = {id(array): name for name, array in root.named_arrays()}
        self.constants: dict[int, tuple[Any, Tensor]] = {}
        self.path = [""]

    @contextlib.contextmanager
    def inside(self, module: Module) -> Iterator[None]:
        """Names layers after `module` for a while."""
        self.path.append(self.modules.get(id(module), type(module).__name__))
        try:
            yield
        finally:
            self.path.pop()

    def add(self, op: str, *inputs: Base | Tensor | None, **attrs: Any) -> Traced:
        """Adds a layer with one output."""
        return self.add_all(op, inputs, **attrs)[0]

    def add_all(self, op: str, inputs: Sequence[Base | Tensor | None], **attrs: Any) -> list[Traced]:
        """Adds a layer and gives all its outputs."""
        tensors = [t.tensor if isinstance(t, Base) else t for t in inputs]
        while tensors and tensors[-1] is None:
            tensors.pop()
        return [Traced(self, t) for t in self.network.add_layer(op, tensors, attrs, self.path[-1] or op)]

    def wrap(self, tensor: Tensor) -> Traced:
        """A tensor of the network, with operators and methods."""
        return Traced(self, tensor)

    def integers(self, value: Any) -> Traced:
        """Integers as a tensor: a traced one as it is, else a constant of int64."""
        return value if isinstance(value, Traced) else self.constant(np.asarray(value, np.int64))

    def constant(self, value: ArrayLike, dtype: Any = None) -> Traced:
        """A constant; a weight of a module enters once, under its name."""
        known = self.constants.get(id(value))
        if known is None:
            name = self.arrays.get(id(value), "constant")
            # The value stays alive beside its tensor, so that its id is not used again.
            known = value, self.network.add_constant(name, np.asarray(value, dtype))
            self.constants[id(value)] = known
        return Traced(self, known[1])

    def shape(self, dims: Sequence[Dim | Traced], of: Traced) -> Traced:
        """An int64 vector of dimensions; symbolic ones are taken from where they stand in the shape of `of`."""
        if all(isinstance(d, int) for d in dims):
            return self.constant(np.array(dims, np.int64))
        parts = []
        for dim in dims:
            if isinstance(dim, Traced):
                parts.append(dim.reshape(1))
            elif isinstance(dim, int):
                parts.append(self.constant(np.array([dim], np.int64)))
            elif isinstance(dim, Extent):
                parts.append(dim.traced().reshape(1))
            else:
                parts.append(self._dimension(dim, of))
        return self.add("Concat", *parts, axis=0)

    def _dimension(self, dim: str, of: Traced) -> Traced:
        for tensor in (of.tensor, *self.network.inputs):
            if dim in tensor.shape:
                axis = tensor.shape.index(dim)
                return self.add("Shape", tensor, start=axis, end=axis + 1)
        raise ShapeError(f"no dimension is {dim!r}", tensor=of.tensor.name, expected=str(of.shape))


def trace(root: Module, input_shapes: Any = None) -> Network:
    """The network of a module, whose `forward` runs once on symbolic inputs.

    `input_shapes` maps names to shapes in the order of `forward`'s arguments: tuples (float32), arrays (whose dtype
    counts too), or a `Shape`, whose least and greatest extents differ where a dimension is dynamic. A model with one
    input, then called "input", takes its shape alone. Outputs are "output", "output_1", ..., or the keys of a dict;
    what stands in tuples, lists and dicts in one another comes one after another, without None. Dynamic first
    dimensions of one range are one, the batch.
    """
    given = input_shapes if isinstance(input_shapes, Mapping) else {"input": input_shapes}
    state = Trace(root)
    arguments = []
    batch: tuple[int, int] | None = None
    for name, value in given.items():
        wanted = shapes.shape(value, name)
        dims: list[Dim] = []
        for axis, (low, high) in enumerate(zip(wanted.min, wanted.max, strict=True)):
            if axis == 0 and low != high:
                batch = batch or (low, high)
            symbol = "batch" if axis == 0 and (low, high) == batch else f"{name}_{axis}"
            dims.append(low if low == high else f"'{symbol}'")
        dtype = getattr(value, "dtype", np.float32)
        if arrays.is_torch(value):
            dtype = arrays.to_numpy(value).dtype
        arguments.append(Traced(state, state.network.add_input(name, dtype, dims)))
    token = _current.set(state)
    try:
        result = root(*arguments)
    finally:
        _current.reset(token)
    for name, output in _named(result):
        if not isinstance(output, Traced):
            raise InvalidArgumentError("forward must give traced tensors", tensor=name, got=type(output).__name__)
        state.network.mark_output(output.tensor, name)
    return state.network


def _named(result: Any) -> list[tuple[str, Any]]:
    """The outputs in tuples, lists and dicts, without those that are None, and what they are called."""
    found: list[tuple[str, Any]] = []
    for key, value in _leaves(result, None):
        usual = "output" if not found else f"output_{len(found)}"
        taken = {name for name, _ in found}
        several = (f"{key}_{number}" for number in range(1, len(found) + 2))
        found.append((next(name for name in (key or usual, *several) if name not in taken), value))
    return found or [("output", result)]


def _leaves(result: Any, key: str | None) -> Iterator[tuple[str | None, Any]]:
    """What is no tuple, list or dict, with the innermost key that leads there."""
    if isinstance(result, Mapping):
        for name, value in result.items():
            yield from _leaves(value, str(name))
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from _leaves(value, key)
    elif result is not None:
        yield key, result
