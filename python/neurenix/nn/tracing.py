"""Tracing: `forward` runs once on symbolic tensors, and what it does becomes layers of a Network."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from neurenix import arrays, shapes
from neurenix._native import Network, Tensor
from neurenix.errors import InvalidArgumentError, ShapeError

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

    def add(self, op: str, *inputs: Traced | Tensor | None, **attrs: Any) -> Traced:
        """Adds a layer with one output."""
        return self.add_all(op, inputs, **attrs)[0]

    def add_all(self, op: str, inputs: Sequence[Traced | Tensor | None], **attrs: Any) -> list[Traced]:
        """Adds a layer and gives all its outputs."""
        tensors = [t.tensor if isinstance(t, Traced) else t for t in inputs]
        while tensors and tensors[-1] is None:
            tensors.pop()
        return [Traced(self, t) for t in self.network.add_layer(op, tensors, attrs, self.path[-1] or op)]

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
            else:
                parts.append(self._dimension(dim, of))
        return self.add("Concat", *parts, axis=0)

    def _dimension(self, dim: str, of: Traced) -> Traced:
        for tensor in (of.tensor, *self.network.inputs):
            if dim in tensor.shape:
                axis = tensor.shape.index(dim)
                return self.add("Shape", tensor, start=axis, end=axis + 1)
        raise ShapeError(f"no dimension is {dim!r}", tensor=of.tensor.name, expected=str(of.shape))


class Traced:
    """A tensor while `forward` is traced: operators and methods add layers.

    `shape` holds integers, and texts where a dimension is dynamic.
    """

    __slots__ = ("tensor", "trace")
    #: numpy leaves `array * traced` to us.
    __array_ufunc__ = None

    def __init__(self, trace: Trace, tensor: Tensor) -> None:
        self.trace = trace
        self.tensor = tensor

    def __repr__(self) -> str:
        return f"Traced({self.tensor!r})"

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The extent of each dimension."""
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.tensor.shape)

    def dim(self) -> int:
        """The number of dimensions."""
        return self.ndim

    def size(self, axis: int | None = None) -> Any:
        """The shape, or the extent of one dimension."""
        return self.shape if axis is None else self.shape[axis]

    def __bool__(self) -> bool:
        raise InvalidArgumentError(
            "a traced tensor has no value, so Python can't branch on it",
            tensor=self.tensor.name,
            hint="use nn.functional.where, or decide by shapes and arguments",
        )

    def __len__(self) -> int:
        first = self.shape[0]
        if isinstance(first, int):
            return first
        raise ShapeError("the length of a dynamic dimension is not known", tensor=self.tensor.name, got=first)

    def __iter__(self) -> Iterator[Traced]:
        return (self[i] for i in range(len(self)))

    def _other(self, value: Any) -> Traced:
        if isinstance(value, Traced):
            return value
        if isinstance(value, np.ndarray):
            return self.trace.constant(value)
        return Traced(self.trace, self.trace.network.add_constant("constant", np.asarray(value, self.dtype)))

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Traced:
        other = self._other(other)
        return self.trace.add(op, other, self) if swapped else self.trace.add(op, self, other)

    def __add__(self, other: Any) -> Traced:
        return self._binary("Add", other)

    def __radd__(self, other: Any) -> Traced:
        return self._binary("Add", other, True)

    def __sub__(self, other: Any) -> Traced:
        return self._binary("Sub", other)

    def __rsub__(self, other: Any) -> Traced:
        return self._binary("Sub", other, True)

    def __mul__(self, other: Any) -> Traced:
        return self._binary("Mul", other)

    def __rmul__(self, other: Any) -> Traced:
        return self._binary("Mul", other, True)

    def __truediv__(self, other: Any) -> Traced:
        return self._binary("Div", other)

    def __rtruediv__(self, other: Any) -> Traced:
        return self._binary("Div", other, True)

    def __pow__(self, other: Any) -> Traced:
        return self._binary("Pow", other)

    def __matmul__(self, other: Any) -> Traced:
        return self._binary("MatMul", other)

    def __rmatmul__(self, other: Any) -> Traced:
        return self._binary("MatMul", other, True)

    def __neg__(self) -> Traced:
        return self.trace.add("Neg", self)

    def __abs__(self) -> Traced:
        return self.trace.add("Abs", self)

    def __lt__(self, other: Any) -> Traced:
        return self._binary("Less", other)

    def __le__(self, other: Any) -> Traced:
        return self._binary("LessOrEqual", other)

    def __gt__(self, other: Any) -> Traced:
        return self._binary("Greater", other)

    def __ge__(self, other: Any) -> Traced:
        return self._binary("GreaterOrEqual", other)

    def __getitem__(self, key: Any) -> Traced:
        return _index(self, key if isinstance(key, tuple) else (key,))

    def reshape(self, *shape: Any) -> Traced:
        """The same elements under another shape; -1 is what is left."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self.trace.add("Reshape", self, self.trace.shape(dims, self), allowzero=1)

    view = reshape

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Traced:
        """Dimensions from `start_dim` to `end_dim` as one."""
        start, end = start_dim % self.ndim, end_dim % self.ndim
        if start == 1 and end == self.ndim - 1:
            return self.trace.add("Flatten", self, axis=1)
        return self.reshape(*self.shape[:start], -1, *self.shape[end + 1 :])

    def permute(self, *dims: Any) -> Traced:
        """The dimensions in another order."""
        order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
        return self.trace.add("Transpose", self, perm=[d % self.ndim for d in order])

    def transpose(self, dim0: int, dim1: int) -> Traced:
        """Two dimensions swapped."""
        order = list(range(self.ndim))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return self.permute(order)

    @property
    def T(self) -> Traced:
        """The dimensions in reverse."""
        return self.permute(list(reversed(range(self.ndim))))

    def squeeze(self, dim: int) -> Traced:
        """Without a dimension of extent 1."""
        return self.trace.add("Squeeze", self, axes=[dim])

    def unsqueeze(self, dim: int) -> Traced:
        """With a new dimension of extent 1."""
        return self.trace.add("Unsqueeze", self, axes=[dim])

    def expand(self, *shape: Any) -> Traced:
        """Dimensions of extent 1 repeated; -1 leaves one as it is."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        own = [1] * (len(dims) - self.ndim) + list(self.shape)
        wanted = [have if want == -1 else want for have, want in zip(own, dims, strict=True)]
        return self.trace.add("Expand", self, self.trace.shape(wanted, self))

    def to(self, dtype: Any) -> Traced:
        """The same values as another dtype."""
        return self.trace.add("Cast", self, to=np.dtype(dtype))

    def float(self) -> Traced:
        """As float32."""
        return self.to(np.float32)

    def contiguous(self) -> Traced:
        """The same: layouts are the planner's."""
        return self

    def _reduce(self, op: str, dim: Any, keepdim: bool) -> Traced:
        axes = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return self.trace.add(op, self, axes=axes, keepdims=int(keepdim))

    def mean(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The mean over some dimensions, or all."""
        return self._reduce("ReduceMean", dim, keepdim)

    def sum(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The sum over some dimensions, or all."""
        return self._reduce("ReduceSum", dim, keepdim)

    def amax(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The greatest over some dimensions, or all."""
        return self._reduce("ReduceMax", dim, keepdim)

    def amin(self, dim: Any = None, keepdim: bool = False) -> Traced:
        """The least over some dimensions, or all."""
        return self._reduce("ReduceMin", dim, keepdim)

    def relu(self) -> Traced:
        """max(x, 0)."""
        return self.trace.add("Relu", self)

    def sigmoid(self) -> Traced:
        """1 / (1 + exp(-x))."""
        return self.trace.add("Sigmoid", self)

    def tanh(self) -> Traced:
        """The hyperbolic tangent."""
        return self.trace.add("Tanh", self)

    def exp(self) -> Traced:
        """The exponential."""
        return self.trace.add("Exp", self)

    def log(self) -> Traced:
        """The natural logarithm."""
        return self.trace.add("Log", self)

    def sqrt(self) -> Traced:
        """The square root."""
        return self.trace.add("Sqrt", self)

    def softmax(self, dim: int) -> Traced:
        """exp(x) / sum(exp(x)) along a dimension."""
        return self.trace.add("Softmax", self, axis=dim)

    def chunk(self, chunks: int, dim: int = 0) -> list[Traced]:
        """Up to `chunks` equal parts along a dimension."""
        extent = self.shape[dim]
        if not isinstance(extent, int):
            raise ShapeError("only a fixed dimension can be split", tensor=self.tensor.name, got=extent)
        return self.split(-(-extent // chunks), dim)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> list[Traced]:
        """Parts of these sizes along a dimension."""
        extent = self.shape[dim]
        if isinstance(split_size, int):
            if not isinstance(extent, int):
                raise ShapeError("only a fixed dimension can be split", tensor=self.tensor.name, got=extent)
            split_size = [min(split_size, extent - at) for at in range(0, extent, split_size)]
        return self.trace.add_all("Split", [self], axis=dim, split=list(split_size))


def _index(x: Traced, key: tuple[Any, ...]) -> Traced:
    """numpy's basic indexing: integers, slices, None and ..."""
    if key.count(Ellipsis) == 0:
        key = (*key, Ellipsis)
    at = next(i for i, part in enumerate(key) if isinstance(part, EllipsisType))
    consumed = sum(part is not None and part is not Ellipsis for part in key)
    whole = (slice(None),) * (x.ndim - consumed)
    key = (*key[:at], *whole, *key[at + 1 :])
    starts, ends, axes, steps, dropped, added = [], [], [], [], [], []
    axis = place = 0
    for part in key:
        if part is None:
            added.append(place)
            place += 1
            continue
        if isinstance(part, slice):
            if part != slice(None):
                step = 1 if part.step is None else part.step
                starts.append((0 if step > 0 else -1) if part.start is None else part.start)
                ends.append((2**63 - 1 if step > 0 else -(2**63)) if part.stop is None else part.stop)
                axes.append(axis)
                steps.append(step)
            place += 1
        elif isinstance(part, (int, np.integer)):
            starts.append(int(part))
            ends.append(int(part) + 1 if part != -1 else 2**63 - 1)
            axes.append(axis)
            steps.append(1)
            dropped.append(axis)
        else:
            raise InvalidArgumentError(
                "a traced tensor is indexed by integers, slices, None and ... alone", got=repr(part)
            )
        axis += 1
    ints = [x.trace.constant(np.array(v, np.int64)) for v in (starts, ends, axes, steps)]
    if axes:
        x = x.trace.add("Slice", x, *ints)
    if dropped:
        x = x.trace.add("Squeeze", x, axes=dropped)
    if added:
        x = x.trace.add("Unsqueeze", x, axes=added)
    return x


def trace(root: Module, input_shapes: Any = None, inputs: Mapping[str, Any] | None = None) -> Network:
    """The network of a module, whose `forward` runs once on symbolic inputs.

    `input_shapes` maps names to shapes in the order of `forward`'s arguments: tuples (float32), arrays (whose dtype
    counts too), or a `Shape`, whose least and greatest extents differ where a dimension is dynamic. A model with one
    input, then called "input", takes its shape alone. Outputs are "output", "output_1", ..., or the keys of a dict.
    """
    given = input_shapes if isinstance(input_shapes, Mapping) else {"input": input_shapes}
    state = Trace(root)
    arguments = []
    for name, value in given.items():
        wanted = shapes.shape(value, name)
        dims: list[Dim] = []
        for axis, (low, high) in enumerate(zip(wanted.min, wanted.max, strict=True)):
            symbol = f"{name}_{axis}" if axis else "batch"
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
    if isinstance(result, Mapping):
        return [(str(name), value) for name, value in result.items()]
    several = list(result) if isinstance(result, (tuple, list)) else [result]
    return [("output" if i == 0 else f"output_{i}", value) for i, value in enumerate(several)]
