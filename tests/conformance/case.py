"""What a case is, and the words in which `cases/*.py` write theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
Make = Callable[[np.random.Generator, "np.dtype[Any]"], Array]

FLOATS = ("float32", "float64", "float16", "bfloat16")
#: For ops with a floating-point attribute, which ONNX holds in single precision: float64 can't be exact there.
SINGLE = ("float32", "float16", "bfloat16")
INTS = ("int32", "int64")
NARROW_INTS = ("int8", "uint8", "int16", "uint16", "uint32", "uint64")
#: Those that are told apart from signed ones where order or value matters: of uint64 such ops are refused.
ORDERED_INTS = ("int8", "uint8", "int16", "uint16", "uint32")
BOOL = ("bool",)
#: Every dtype that data may have, for ops that only move elements.
ANY = (*FLOATS, *INTS, *NARROW_INTS, *BOOL)
#: float32, for cases whose point has nothing to do with the dtype.
F32 = ("float32",)


def dtype_of(name: str) -> np.dtype[Any]:
    """numpy's dtype of a name."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@dataclass(frozen=True)
class Given:
    """One input of a case: how its array is made, and whether the model holds it as a constant."""

    make: Make
    constant: bool = False


@dataclass(frozen=True, eq=False)
class Case:
    """One layer with its inputs; only itself is equal to it.

    `reference` gets the inputs, floating-point ones as float64, and the attributes as keywords; it gives the output, or
    a tuple of them. Without one, ONNX's own evaluator is asked.
    """

    name: str
    inputs: tuple[Given | None, ...]
    attrs: dict[str, Any]
    dtypes: tuple[str, ...] = FLOATS
    reference: Callable[..., Any] | None = None
    #: How many outputs the layer has.
    outputs: int = 1
    #: The dtype of floating-point outputs, where it is not that of the case.
    result: str | None = None
    #: The version of ONNX's operators; 0 adds the layer through the Network API instead.
    opset: int = 21
    #: How many times the tolerance of one rounding the result may be off.
    slack: float = 1.0
    #: Whether errors are measured against the greatest result (sums), not against each.
    sums: bool = False
    #: Whether the shapes of the inputs may be made symbolic.
    dynamic: bool = True
    #: Whether it is so large for kernels that a GPU alone has: other providers run the same code on smaller ones.
    gpu_only: bool = False

    def runs_on(self, provider: str) -> bool:
        """Whether a provider is asked for it."""
        return provider == "cuda" or not self.gpu_only


def case(
    name: str,
    *inputs: Given | None,
    dtypes: Sequence[str] = FLOATS,
    reference: Callable[..., Any] | None = None,
    outputs: int = 1,
    result: str | None = None,
    opset: int = 21,
    slack: float = 1.0,
    sums: bool = False,
    dynamic: bool = True,
    gpu_only: bool = False,
    **attrs: Any,
) -> Case:
    """A case; keywords that are not listed are attributes of the op."""
    return Case(name, inputs, attrs, tuple(dtypes), reference, outputs, result, opset, slack, sums, dynamic, gpu_only)


def normal(*shape: int) -> Given:
    """Normally distributed numbers (integers: from -9 to 9; unsigned: from 0; bool: either)."""

    def make(rng: np.random.Generator, dtype: np.dtype[Any]) -> Array:
        if dtype.kind in "iu":
            return rng.integers(-9 if dtype.kind == "i" else 0, 10, shape).astype(dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(dtype)
        return np.asarray(rng.standard_normal(shape)).astype(dtype)

    return Given(make)


def uniform(low: float, high: float, *shape: int) -> Given:
    """Numbers from `low` to `high`."""
    return Given(lambda rng, dtype: np.asarray(rng.uniform(low, high, shape)).astype(dtype))


def nonzero(*shape: int) -> Given:
    """Numbers of either sign that are at least 1 away from 0 where the dtype has both signs."""

    def make(rng: np.random.Generator, dtype: np.dtype[Any]) -> Array:
        sign = rng.choice([-1, 1], shape) if dtype.kind != "u" else np.ones(shape)
        return np.asarray(sign * rng.integers(1, 6, shape)).astype(dtype)

    return Given(make)


def distinct(*shape: int) -> Given:
    """Numbers that are all different, so that a greatest or least one is unique."""

    def make(rng: np.random.Generator, dtype: np.dtype[Any]) -> Array:
        count = int(np.prod(shape))
        return np.asarray(rng.permutation(count) - count // 2).reshape(shape).astype(dtype)

    return Given(make)


def special(*more: float, minus_infinity: bool = True) -> Given:
    """What arithmetic gets wrong: NaN, infinities, zeros of both signs, halves, numbers beside 0 and 1, and `more`."""
    numbers = [np.nan, np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 1.0, -1.0, 1e-3, -1e-3, 6.0, -6.0, *more]
    return exact([*numbers, -np.inf] if minus_infinity else numbers)


def exact(values: ArrayLike, dtype: Any = None) -> Given:
    """These very values, in the dtype of the case or their own."""
    return Given(lambda rng, of: np.asarray(values).astype(of if dtype is None else dtype))


def truths(*shape: int) -> Given:
    """Truth values."""
    return Given(lambda rng, dtype: rng.integers(0, 2, shape).astype(np.bool_))


def indices(low: int, high: int, *shape: int, dtype: Any = np.int64) -> Given:
    """Integers from `low` up to, but not including, `high`."""
    return Given(lambda rng, of: np.asarray(rng.integers(low, high, shape)).astype(dtype))


def constant(given: Given) -> Given:
    """The same, held by the model."""
    return Given(given.make, constant=True)


def ints(*values: int) -> Given:
    """A constant int64 vector: axes, shapes, sizes."""
    return constant(exact(np.asarray(values, np.int64), np.int64))


def floats(*values: float) -> Given:
    """A constant float32 vector, whatever the dtype of the case: scales, regions."""
    return constant(exact(np.asarray(values, np.float32), np.float32))


def scalar(value: float) -> Given:
    """A constant of rank 0 in the dtype of the case."""
    return constant(exact(np.asarray(value)))


def unary(
    low: float = -4,
    high: float = 4,
    *,
    dtypes: Sequence[str] = FLOATS,
    edges: Sequence[float] = (),
    limit: bool = False,
    **options: Any,
) -> list[Case]:
    """The cases of an op on each element alone: ranks, nothing at all, a length that no vector divides, edge values.

    `limit`: a case of its own for minus infinity, where the formula gives NaN and a kernel may give the limit.
    """
    cases = [
        case("rank_3", uniform(low, high, 2, 3, 5), dtypes=dtypes, **options),
        case("rank_0", uniform(low, high), dtypes=dtypes, **options),
        case("empty", uniform(low, high, 0, 4), dtypes=dtypes, **options),
        case("odd_length", uniform(low, high, 1027), dtypes=dtypes, **options),
        case("channels", uniform(low, high, 1, 17, 3, 5), dtypes=dtypes, **options),
    ]
    floats = [d for d in dtypes if d in FLOATS]
    if floats:
        cases.append(case("edges", special(*edges, minus_infinity=not limit), dtypes=floats, **options))
    if limit:
        cases.append(case("minus_infinity", exact([-np.inf, 0.0]), dtypes=floats, **options))
    return cases


def binary(left: Callable[..., Given] = normal, right: Callable[..., Given] = normal, **options: Any) -> list[Case]:
    """The cases of an op on two tensors with broadcasting."""
    return [
        case("same_shape", left(2, 3, 5), right(2, 3, 5), **options),
        case("rank_0_each", left(), right(), **options),
        case("rank_0_right", left(2, 3, 5), right(), **options),
        case("rank_0_left", left(), right(2, 3, 5), **options),
        case("row", left(4, 3, 5), right(5), **options),
        case("channel", left(2, 17, 4, 5), right(17, 1, 1), **options),
        case("constant_channel", left(2, 17, 4, 5), constant(right(1, 17, 1, 1)), **options),
        case("both_ways", left(2, 1, 5), right(1, 3, 1), **options),
        case("rank_1_and_4", left(5), right(2, 3, 4, 5), **options),
        case("inner_one", left(2, 3, 4, 5), right(2, 1, 4, 1), **options),
        case("empty", left(0, 3), right(1, 3), **options),
        case("odd_length", left(1027), right(1027), **options),
        case("constant_left", constant(left(3, 1)), right(2, 3, 5), **options),
    ]


def reduction(
    given: Callable[..., Given] = normal, *, empty: bool = True, rank_0: bool = True, **options: Any
) -> list[Case]:
    """The cases of a reduction; `empty`, `rank_0`: ONNX's evaluator knows the result of no elements, of one."""
    cases = [
        case("all", given(2, 3, 4), **options),
        case("all_flat", given(2, 3, 4), keepdims=0, **options),
        case("last", given(2, 3, 37), ints(-1), **options),
        case("first", given(5, 3, 4), ints(0), keepdims=0, **options),
        case("middle", given(2, 33, 4), ints(1), **options),
        case("spatial", given(2, 17, 5, 7), ints(2, 3), **options),
        case("spatial_flat", given(2, 16, 4, 4), ints(-1, -2), keepdims=0, **options),
        case("apart", given(2, 3, 4, 5), ints(0, 2), **options),
        case("axis_of_one", given(3, 1, 4), ints(1), **options),
        case("long", given(3, 1027), ints(1), **options),
        case("noop", given(2, 3), ints(), noop_with_empty_axes=1, dynamic=False, **options),
    ]
    if empty:
        cases.append(case("empty", given(2, 0, 3), ints(1), **options))
    if rank_0:
        cases.append(case("rank_0", given(), **options))
    return cases
