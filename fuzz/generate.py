"""Grows a random network of ONNX nodes whose every tensor is known: a value, a dtype, a shape."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

import neurenix as nx
from neurenix.importers import from_onnx

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
INTS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
#: Extents, and how often.
EXTENTS = (1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33)
#: No tensor has more elements.
LARGEST = 1 << 12
#: Nor a greater number, but for those on purpose: what follows from it would be noise.
GREATEST = 1e4
#: Values on purpose.
SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-40)


class Rejected(Exception):
    """There is no such node here; another one is tried."""


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor: its elements, whether the model holds it, and whether every correct engine gives just these bits."""

    name: str
    array: Array
    held: bool = False
    exact: bool = True

    @property
    def dtype(self) -> str:
        return self.array.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def is_float(self) -> bool:
        return "float" in self.dtype


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def on_grid(array: Array) -> bool:
    """Whether every element is so short a number that sums and products of a few are not rounded."""
    if "float" not in array.dtype.name:
        return True
    step, bound = {"float16": (4, 32), "bfloat16": (2, 16)}.get(array.dtype.name, (64, 1024))
    wide = array.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    return bool(np.all(np.abs(wide) <= bound) and np.all(wide * step == np.round(wide * step)))


class Network:
    """A network in the making."""

    def __init__(self, rng: random.Random, opset: int = 21) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.randrange(1 << 32))
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, Value] = {}
        #: Whether inputs may hold NaN and infinities.
        self.special = rng.random() < 0.15

    # What a recipe asks for.

    def shape(self, rank: int | None = None, least: int = 1) -> tuple[int, ...]:
        """A random shape; now and then without elements."""
        rank = self.rng.choice((0, 1, 2, 2, 3, 3, 4, 4, 5)) if rank is None else rank
        for _ in range(20):
            dims = [max(least, self.rng.choice(EXTENTS)) for _ in range(rank)]
            if rank and least < 2 and self.rng.random() < 0.02:
                dims[self.rng.randrange(rank)] = 0
            if np.prod(dims) <= LARGEST:
                return tuple(dims)
        return (max(least, 1),) * rank

    def random(self, shape: Sequence[int], dtype: str) -> Array:
        """Elements on a coarse grid; some special ones, where the network has them."""
        if dtype == "bool":
            return self.numbers.integers(0, 2, shape).astype(bool)
        if "float" not in dtype:
            low = 0 if dtype.startswith("u") else -4
            return self.numbers.integers(low, 9, shape).astype(dtype)
        array = self.numbers.integers(-12, 13, shape) / 4
        if self.special and self.rng.random() < 0.5:
            with np.errstate(all="ignore"):
                special = self.numbers.choice(SPECIAL, shape)
            array = np.where(self.numbers.random(shape) < 0.1, special, array)
        with np.errstate(all="ignore"):
            return np.asarray(array).astype(dtype_of(dtype))

    def new(self, shape: Sequence[int], dtype: str, held: bool | None = None) -> Value:
        """A new input, or a new weight."""
        return self.give(self.random(tuple(shape), dtype), self.rng.random() < 0.3 if held is None else held)

    def give(self, array: Any, held: bool = True, dtype: Any = None) -> Value:
        """These elements, as a weight (or an input)."""
        array = np.asarray(array, dtype)
        value = Value(f"{'w' if held else 'x'}{len(self.values)}", array, held, on_grid(array))
        self.values[value.name] = value
        return value

    def ints(self, *numbers: int) -> Value:
        """A weight of int64 numbers in a row."""
        return self.give(np.array(numbers, np.int64))

    def pick(
        self,
        dtypes: Sequence[str] = FLOATS,
        rank: int | Sequence[int] | None = None,
        exact: bool = False,
        fits: Callable[[Value], bool] = lambda v: True,
        least: int = 1,
    ) -> Value:
        """A tensor that is there and fits, or a new one."""
        ranks = None if rank is None else (rank,) if isinstance(rank, int) else tuple(rank)
        found = [
            v
            for v in list(self.values.values())[-24:]
            if v.dtype in dtypes
            and not v.held
            and (ranks is None or v.rank in ranks)
            and (v.exact or not exact)
            and (least < 2 or not v.shape or min(v.shape) >= least)
            and fits(v)
        ]
        if found and self.rng.random() < 0.75:
            return self.rng.choice(found[-8:])
        for _ in range(8):
            value = Value("", np.zeros(self.shape(None if ranks is None else self.rng.choice(ranks), least)))
            if fits(value):
                made = self.new(value.shape, self.rng.choice(list(dtypes)), held=False)
                if fits(made):
                    return made
        raise Rejected

    def like(self, value: Value, shape: Sequence[int] | None = None, exact: bool = False) -> Value:
        """A tensor of the same dtype, and of this shape."""
        wanted = value.shape if shape is None else tuple(shape)
        return self.pick_exactly(wanted, value.dtype, exact)

    def pick_exactly(self, shape: Sequence[int], dtype: str, exact: bool = False) -> Value:
        """A tensor of just this shape and dtype."""
        found = [
            v
            for v in self.values.values()
            if v.shape == tuple(shape) and v.dtype == dtype and (v.exact or not exact) and not v.held
        ]
        if found and self.rng.random() < 0.6:
            return self.rng.choice(found)
        return self.new(shape, dtype)

    def partner(self, value: Value, exact: bool = False) -> Value:
        """A tensor of the same dtype that broadcasts with this one."""
        dims = list(value.shape)
        for axis in range(len(dims)):
            if self.rng.random() < 0.3:
                dims[axis] = 1
            elif dims[axis] == 1 and self.rng.random() < 0.3 and np.prod(value.shape) < 64:
                dims[axis] = self.rng.choice((2, 3, 5))
        return self.like(value, dims[self.rng.choice((0, 0, 0, 1, 2)) :], exact)

    def axis(self, value: Value, extra: int = 0) -> int:
        """An axis, counted from the front or from the back."""
        rank = value.rank + extra
        if rank == 0:
            raise Rejected
        axis = self.rng.randrange(rank)
        return axis if self.rng.random() < 0.6 else axis - rank

    def flag(self) -> int:
        return self.rng.randrange(2)

    # What a recipe adds.

    def add(
        self, op: str, *inputs: Value | None, outputs: int = 1, exact: bool = False, wild: bool = False, **attrs: Any
    ) -> list[Value]:
        """Adds a node and gives its outputs.

        `exact`: whatever is on the grid comes out on it, or is moved as it is. `wild`: great numbers may come out.
        """
        names = [f"t{len(self.values) + at}" for at in range(outputs)]
        attrs = {name: _plain(value) for name, value in attrs.items() if value is not None}
        node = helper.make_node(op, ["" if v is None else v.name for v in inputs], names, f"{op}_{names[0]}", **attrs)
        given = [v for v in inputs if v is not None]
        arrays = alone(node, given, self.opset)
        for array in arrays:
            wide = np.abs(array[np.isfinite(array)].astype(np.float64)) if "float" in array.dtype.name else []
            # A kernel that does several layers at once may hold what half precision can't.
            half = array.dtype == np.float16 and np.isinf(array).any()
            if (
                array.size > LARGEST
                or (half and not any(np.isinf(v.array).any() for v in given if v.is_float))
                or (not wild and not self.special and np.max(wide, initial=0) > GREATEST)
            ):
                raise Rejected
        self.nodes.append(node)
        sure = exact and all(v.exact for v in given)
        made = [
            Value(name, array, exact=sure and on_grid(array) if "float" in array.dtype.name else sure or exact)
            for name, array in zip(names, arrays, strict=True)
        ]
        self.values.update((value.name, value) for value in made)
        return made


def _plain(value: Any) -> Any:
    """An attribute as ONNX has it."""
    return helper.np_dtype_to_tensor_dtype(value) if isinstance(value, np.dtype) else value


def alone(node: onnx.NodeProto, given: Sequence[Value], opset: int) -> list[Array]:
    """What one node gives, by our reference evaluation.

    Raises `Rejected` if it is refused.
    """
    model = model_of([node], {v.name: v for v in given}, opset)
    try:
        found = from_onnx(model).evaluate({v.name: v.array for v in given if not v.held})
    except nx.InternalError:
        raise
    except nx.Error as error:
        raise Rejected(str(error)) from error
    return [found[name] for name in node.output]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    values: dict[str, Value],
    opset: int,
    results: Sequence[str] | None = None,
    dims: dict[str, Sequence[int | str]] | None = None,
) -> onnx.ModelProto:
    """The model of some nodes: what none of them gives is a weight, or an input."""
    made = {name for node in nodes for name in node.output}
    read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
    used = {name for node in nodes for name in node.input}
    if results is None:
        results = [name for node in nodes for name in node.output if name not in used]

    def info(name: str, shape: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].array.dtype), shape)

    inputs = [info(n, (dims or {}).get(n, values[n].shape)) for n in read if not values[n].held]
    weights = [numpy_helper.from_array(np.ascontiguousarray(values[n].array), n) for n in read if values[n].held]
    outputs = [helper.make_tensor_value_info(name, 0, None) for name in results]
    for port in outputs:
        port.ClearField("type")
        if port.name in values:
            port.CopyFrom(info(port.name, None))
    graph = helper.make_graph(nodes, "fuzz", inputs, outputs, weights)
    versions = {"": opset, **{node.domain: 1 for node in nodes if node.domain}}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*v) for v in versions.items()], ir_version=10)


def symbolic(rng: random.Random, values: dict[str, Value], names: Sequence[str]) -> dict[str, Sequence[int | str]]:
    """Shapes of inputs with some dimensions as symbols; equal extents mostly share one."""
    share = rng.random() < 0.7
    dims: dict[str, Sequence[int | str]] = {}
    for name in names:
        shape: list[int | str] = []
        for axis, extent in enumerate(values[name].shape):
            symbol = f"n{extent}" if share else f"{name}_{axis}"
            shape.append(symbol if rng.random() < 0.5 else extent)
        dims[name] = shape
    return dims
