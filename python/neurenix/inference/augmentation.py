"""Test-time augmentation: windows are also looked at mirrored or turned; outputs are turned back and averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np

from neurenix import arrays
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.inference.arrays_of import FLOATS, dtype_name
from neurenix.inference.rows import Arrays

Turn = Callable[[Any], Any]
#: What is done to a batch of windows, and what undoes it in the outputs.
Pair = tuple[Turn, Turn]

WORDS = ("mirror", "d4")


def transforms(given: Any, axes: int) -> list[Pair]:
    """The transforms of a word or of pairs of functions; the first one leaves windows as they are.

    "mirror": along each set of spatial axes (4 in 2-D, 8 in 3-D). "d4": the 8 turns and mirror images of a square, in
    the last two axes.

    Raises `InvalidArgumentError` for anything else.
    """
    if given is None:
        return [(_same, _same)]
    if isinstance(given, str) and given == "mirror":
        every = range(-axes, 0)
        sets = chain.from_iterable(combinations(every, count) for count in range(axes + 1))
        return [(_mirror(chosen), _mirror(chosen)) for chosen in sets]
    if isinstance(given, str) and given == "d4":
        return [_square(turns, flips) for flips in (False, True) for turns in range(4)]
    pairs = list(given) if isinstance(given, (list, tuple)) else []
    if not pairs or not all(isinstance(p, (list, tuple)) and len(p) == 2 and all(map(callable, p)) for p in pairs):
        raise InvalidArgumentError(
            "tta is unknown",
            expected=f"None, {', '.join(map(repr, WORDS))}, or pairs of functions: what is done and what undoes it",
            got=repr(given),
        )
    return [(_same, _same), *((there, back) for there, back in pairs)]


def averaged(predict: Callable[[Any], Arrays], windows: Any, pairs: Sequence[Pair]) -> Arrays:
    """The mean of the outputs over the transforms; raises `InvalidArgumentError` for outputs that have none."""
    if len(pairs) == 1:
        return predict(windows)
    total: Arrays = {}
    for there, back in pairs:
        outputs = {name: back(array) for name, array in predict(_dense(there(windows))).items()}
        for name, array in outputs.items():
            if dtype_name(array) not in FLOATS:
                raise InvalidArgumentError(
                    "tta averages outputs, and this one has no mean",
                    tensor=name,
                    expected="floats",
                    got=dtype_name(array),
                )
            if name in total and total[name].shape != array.shape:
                raise ShapeError(
                    "a turned window gives an output of another shape",
                    tensor=name,
                    expected=str(list(total[name].shape)),
                    got=str(list(array.shape)),
                    hint='tta="d4" wants windows as high as they are wide',
                )
            total[name] = total[name] + array if name in total else array
    return {name: array / len(pairs) for name, array in total.items()}


def _dense(array: Any) -> Any:
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()


def _same(array: Any) -> Any:
    return array


def _mirror(axes: Sequence[int]) -> Turn:
    return lambda array: array.flip(tuple(axes)) if arrays.is_torch(array) else np.flip(array, tuple(axes))


def _square(turns: int, flips: bool) -> Pair:
    def turned(array: Any, count: int) -> Any:
        if arrays.is_torch(array):
            return array.rot90(count, (-2, -1))
        return np.rot90(array, count, (-2, -1))

    flip = _mirror((-1,)) if flips else _same
    return (lambda array: turned(flip(array), turns)), (lambda array: flip(turned(array, -turns)))
