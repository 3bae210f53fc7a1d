"""Reductions over the segments of a tensor, as scatters: tf2onnx counts negative ids from the end."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from neurenix.importers.tensorflow.writer import Writer

#: What rows are combined by, in terms of ONNX's scatters.
REDUCTIONS = {"Sum": "add", "Mean": "add", "Prod": "mul", "Max": "max", "Min": "min"}
SORTED = tuple(f"Segment{kind}" for kind in REDUCTIONS)
UNSORTED = tuple(f"UnsortedSegment{kind}" for kind in REDUCTIONS if kind != "Mean")


def _scattered(make: Writer, kind: str, identity: Any, shape: str, ids: str, data: str) -> str:
    """Rows of data, combined in a tensor of a shape."""
    base = make.add("Expand", make.const(identity, make.numpy), shape)
    places = make.add("Unsqueeze", ids, make.const([-1]))
    return make.add("ScatterND", base, places, data, reduction=REDUCTIONS[kind])


def unsorted_segments(context: Any, node: Any, name: str, args: Any) -> None:
    """UnsortedSegmentSum, -Prod, -Max and -Min: negative ids go to one more segment, which is cut off.

    Raises `ValueError` where the rank of the ids is unknown.
    """
    make, kind = Writer(context, node), node.type.removeprefix("UnsortedSegment")
    rank = context.get_rank(node.input[1])
    if rank is None:
        raise ValueError("the rank of the ids of segments must be known")
    data, count = node.input[0], make.add("Reshape", make.int64(node.input[2]), make.const([1]))
    rest = make.add("Slice", make.add("Shape", data), make.const([rank]), make.const([np.iinfo(np.int64).max]))
    given = make.add("Reshape", make.int64(node.input[1]), make.const([-1]))
    if rank != 1:
        data = make.add("Reshape", data, make.add("Concat", make.add("Shape", given), rest, axis=0))
    ids = make.add("Where", make.add("Less", given, make.const(0)), count, given)
    shape = make.add("Concat", make.add("Add", count, make.const(1)), rest, axis=0)
    found = _scattered(make, kind, _identity(kind, make.numpy), shape, ids, data)
    make.replace("Slice", [found, make.const([0]), count, make.const([0])])


def sorted_segments(context: Any, node: Any, name: str, args: Any) -> None:
    """SegmentSum, -Mean, -Prod, -Max and -Min: segments between others may be empty, and are 0 then, or 1 for -Prod."""
    make, kind = Writer(context, node), node.type.removeprefix("Segment")
    data, ids = node.input[0], make.int64(node.input[1])
    last = make.add("Gather", ids, make.const([-1]), axis=0)
    rest = make.add("Slice", make.add("Shape", data), make.const([1]), make.const([np.iinfo(np.int64).max]))
    shape = make.add("Concat", make.add("Add", last, make.const(1)), rest, axis=0)
    found = _scattered(make, kind, _identity(kind, make.numpy), shape, ids, data)
    if kind in ("Sum", "Prod"):
        make.replace("Identity", [found])
        return
    one = make.const(1, make.numpy)
    rows = _scattered(make, "Sum", 0, shape, ids, make.add("Expand", one, make.add("Shape", data)))
    if kind == "Mean":
        make.replace("Div", [found, make.add("Max", rows, one)])
        return
    zero = make.const(0, make.numpy)
    make.replace("Where", [make.add("Greater", rows, zero), found, zero])


def _identity(kind: str, dtype: np.dtype[Any]) -> Any:
    """What an empty segment is: TensorFlow's extremes are finite."""
    if kind in ("Max", "Min"):
        of_kind: Any = np.iinfo if dtype.kind in "iu" else ml_dtypes.finfo
        limits = of_kind(dtype)
        return limits.min if kind == "Max" else limits.max
    return 1 if kind == "Prod" else 0
