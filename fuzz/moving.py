"""Recipes of the ops that only move elements about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.generate import FLOATS, INTS, Network, Rejected, Value

Recipe = Callable[[Network], Any]

MOVED = (*FLOATS, *INTS, "bool")
NUMBERS = (*FLOATS, *INTS[:4])


def gather(g: Network) -> None:
    x = g.pick(MOVED, rank=(1, 2, 3, 4))
    axis = g.axis(x)
    g.add("Gather", x, places(g, x.shape[axis], g.shape(g.rng.choice((0, 1, 2)))), axis=axis, exact=True)


def places(g: Network, extent: int, shape: tuple[int, ...]) -> Value:
    """Indices into an extent, some of them from the back."""
    if extent == 0 and np.prod(shape) > 0:
        raise Rejected
    numbers = g.numbers.integers(-extent, max(extent, 1), shape)
    return g.give(numbers.astype(g.rng.choice((np.int64, np.int32))), held=bool(g.flag()))


def gather_elements(g: Network) -> None:
    x = g.pick(MOVED, rank=(1, 2, 3))
    axis = g.axis(x)
    shape = list(x.shape)
    shape[axis] = g.rng.choice((1, 2, 5))
    g.add("GatherElements", x, places(g, x.shape[axis], tuple(shape)), axis=axis, exact=True)


def gather_nd(g: Network) -> None:
    x = g.pick(MOVED, rank=(1, 2, 3))
    depth = g.rng.randint(1, x.rank)
    shape = g.shape(g.rng.choice((1, 2)))[:2]
    columns = [places(g, x.shape[a], shape).array.astype(np.int64) for a in range(depth)]
    g.add("GatherND", x, g.give(np.stack(columns, -1), held=bool(g.flag())), exact=True)


def scatter_elements(g: Network) -> None:
    x = g.pick(NUMBERS, rank=(1, 2, 3), exact=True)
    axis = g.axis(x)
    count = g.rng.randint(0, x.shape[axis])
    # Each place once: what comes last is open.
    shape = list(x.shape)
    shape[axis] = count
    order = np.argsort(g.numbers.random(x.shape), axis)
    indices = g.give(np.take(order, range(count), axis).astype(np.int64), held=bool(g.flag()))
    reduction = g.rng.choice(("none", "add", "mul", "max", "min"))
    g.add("ScatterElements", x, indices, g.like(x, shape, exact=True), axis=axis, reduction=reduction, exact=True)


def scatter_nd(g: Network) -> None:
    x = g.pick(NUMBERS, rank=(1, 2, 3), exact=True)
    count = g.rng.randint(0, x.shape[0])
    rows = g.numbers.permutation(x.shape[0])[:count, None].astype(np.int64)
    updates = g.like(x, (count, *x.shape[1:]), exact=True)
    reduction = g.rng.choice(("none", "add", "mul", "max", "min"))
    g.add("ScatterND", x, g.give(rows, held=bool(g.flag())), updates, reduction=reduction, exact=True)


def concat(g: Network) -> None:
    x = g.pick(MOVED, rank=(1, 2, 3, 4))
    axis = g.axis(x)
    parts = [x]
    for _ in range(g.rng.randrange(1, 4)):
        shape = list(x.shape)
        shape[axis] = g.rng.choice((0, 1, 2, 3, x.shape[axis]))
        parts.append(g.like(x, shape))
    g.rng.shuffle(parts)
    g.add("Concat", *parts, axis=axis, exact=True)


def split(g: Network) -> None:
    x = g.pick(MOVED, rank=(1, 2, 3, 4), fits=lambda v: v.rank > 0)
    axis = g.axis(x)
    cuts = sorted(g.rng.randint(0, x.shape[axis]) for _ in range(g.rng.randrange(1, 3)))
    sizes = np.diff([0, *cuts, x.shape[axis]])
    g.add("Split", x, g.ints(*sizes), outputs=len(sizes), axis=axis, exact=True)


def slice_(g: Network) -> None:
    x = g.pick(MOVED, rank=(1, 2, 3, 4))
    axes = g.rng.sample(range(x.rank), g.rng.randint(1, x.rank))
    steps = [g.rng.choice((1, 1, 2, -1, -2)) for _ in axes]
    starts = [g.rng.choice((0, 1, -1, -3, 100, -100)) for _ in axes]
    ends = [g.rng.choice((1, 3, -1, 1000, -1000, 2**63 - 1)) for _ in axes]
    g.add("Slice", x, g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps), exact=True)


def pad(g: Network) -> None:
    x = g.pick((*FLOATS, *INTS[:2]), rank=(1, 2, 3, 4))
    mode = g.rng.choice(("constant", "constant", "reflect", "edge", "wrap"))
    least = -1 if mode == "constant" else 0
    pads = [g.rng.randint(least, 2) for _ in range(2 * x.rank)]
    value = g.give(np.asarray(1.5 if x.is_float else 1, x.array.dtype)) if mode == "constant" and g.flag() else None
    g.add("Pad", x, g.ints(*pads), value, mode=mode, exact=True)


def reshape(g: Network) -> None:
    x = g.pick(MOVED)
    if x.array.size == 0:
        raise Rejected
    rest, dims = int(x.array.size), []
    while rest > 1 and len(dims) < 4:
        factor = g.rng.choice([d for d in range(1, rest + 1) if rest % d == 0][:12])
        dims.append(factor)
        rest //= factor
    dims.append(rest)
    g.rng.shuffle(dims)
    if g.flag():
        dims[g.rng.randrange(len(dims))] = -1
    g.add("Reshape", x, g.ints(*dims), exact=True)


def flatten(g: Network) -> None:
    x = g.pick(MOVED)
    g.add("Flatten", x, axis=g.rng.randint(-x.rank, x.rank), exact=True)


def transpose(g: Network) -> None:
    x = g.pick(MOVED)
    g.add("Transpose", x, perm=g.rng.sample(range(x.rank), x.rank), exact=True)


def expand(g: Network) -> None:
    x = g.pick(MOVED)
    dims = [g.rng.choice((2, 3)) if d == 1 and g.flag() else d if g.flag() else 1 for d in x.shape]
    g.add("Expand", x, g.ints(*g.rng.choice(([], [2])), *dims), exact=True)


def tile(g: Network) -> None:
    x = g.pick(MOVED)
    g.add("Tile", x, g.ints(*(g.rng.choice((1, 1, 2, 0, 3)) for _ in x.shape)), exact=True)


def squeeze(g: Network) -> None:
    x = g.pick(MOVED, fits=lambda v: 1 in v.shape)
    ones = [a for a, d in enumerate(x.shape) if d == 1]
    g.add("Squeeze", x, g.ints(*g.rng.sample(ones, g.rng.randint(1, len(ones)))), exact=True)


def unsqueeze(g: Network) -> None:
    x = g.pick(MOVED, rank=(0, 1, 2, 3))
    g.add("Unsqueeze", x, g.ints(*g.rng.sample(range(x.rank + 2), 2)), exact=True)


def shape_of(g: Network) -> None:
    """A shape that comes back as the shape of something else."""
    x = g.pick(MOVED)
    (shape,) = g.add("Shape", x, exact=True)
    kind = g.rng.randrange(4)
    if kind == 0:
        g.add("ConstantOfShape", shape, exact=True)
    elif kind == 1:
        g.add("Expand", g.like(x, [1] * x.rank), shape, exact=True)
    elif kind == 2 and x.array.size:
        g.add("Reshape", g.like(x, (x.array.size,)), shape, exact=True)
    else:
        (size,) = g.add("Size", x, exact=True)
        g.add("Range", g.give(np.int64(0)), size, g.give(np.int64(g.rng.choice((1, 2)))), exact=True)


def depth(op: str) -> Recipe:
    def recipe(g: Network) -> None:
        n, c, h, w = g.shape(4)
        shape = (n, 4 * c, h, w) if op == "DepthToSpace" else (n, c, 2 * h, 2 * w)
        if np.prod(shape) > 2000:
            raise Rejected
        mode = {"mode": g.rng.choice(("DCR", "CRD"))} if op == "DepthToSpace" else {}
        g.add(op, g.pick_exactly(shape, g.rng.choice(FLOATS)), blocksize=2, exact=True, **mode)

    return recipe


def trilu(g: Network) -> None:
    x = g.pick(MOVED, rank=(2, 3, 4))
    k = g.give(np.int64(g.rng.randint(-3, 3))) if g.flag() else None
    g.add("Trilu", x, k, upper=g.flag(), exact=True)


def one_hot(g: Network) -> None:
    indices = g.pick(("int64", "int32"), rank=(0, 1, 2))
    values = g.like(g.new((2,), g.rng.choice(("float32", "int64", "float16"))), (2,))
    g.add("OneHot", indices, g.give(np.int64(g.rng.choice((1, 5, 9)))), values, axis=g.axis(indices, 1), exact=True)


MOVING: dict[str, Recipe] = {
    **{op: depth(op) for op in ("DepthToSpace", "SpaceToDepth")},
    "Concat": concat,
    "ConstantOfShape": lambda g: g.add("ConstantOfShape", *g.add("Shape", g.pick(MOVED), exact=True), exact=True),
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "OneHot": one_hot,
    "Pad": pad,
    "Reshape": reshape,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Shape": shape_of,
    "Slice": slice_,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
