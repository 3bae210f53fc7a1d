"""Diagonals of matrices, and parts of tensors, in the place of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.importers.tensorflow.writer import Writer


def diagonal(context: Any, node: Any, name: str, args: Any) -> None:
    """MatrixDiag and its versions: the main diagonal of square matrices here, others as tf2onnx has them."""
    if not all(_is(node, index, value) for index, value in ((1, 0), (2, -1), (3, -1))):
        from tf2onnx.onnx_opset.tensor import MatrixDiag

        MatrixDiag.version_12(context, node)
        return
    make, x = Writer(context, node), node.input[0]
    numbers = _numbers(make, make.add("Gather", make.add("Shape", x), make.const(-1)))
    on = make.add("Equal", make.add("Unsqueeze", numbers, make.const([-1])), numbers)
    padding = node.input[4] if len(node.input) > 4 else make.const(0, make.numpy)
    make.replace("Where", [on, make.add("Unsqueeze", x, make.const([-1])), padding])


def set_diagonal(context: Any, node: Any, name: str, args: Any) -> None:
    """MatrixSetDiag and its versions, of the main diagonal.

    Raises `ValueError` for other diagonals, and where the size of the matrices is unknown.
    """
    shape: list[int] = context.get_shape(node.input[0]) or []
    if not _is(node, 2, 0) or len(shape) < 2 or min(shape[-2:]) < 0:
        raise ValueError("only the main diagonal of matrices of a known size can be set")
    make = Writer(context, node)
    rows, columns = shape[-2:]
    on = make.const(np.eye(rows, columns), bool)
    axis = -1 if rows <= columns else -2
    make.replace("Where", [on, make.add("Unsqueeze", node.input[1], make.const([axis])), node.input[0]])


def _is(node: Any, index: int, value: int) -> bool:
    """Whether an input is this constant, or left out."""
    if len(node.input) <= index:
        return True
    given = node.inputs[index]
    return bool(given.is_const() and np.all(given.get_tensor_value(as_list=False) == value))


def update_slice(context: Any, node: Any, name: str, args: Any) -> None:
    """XlaDynamicUpdateSlice: along each axis, elements of the update from its start on, which is moved to fit.

    Raises `ValueError` where the number of dimensions is unknown.
    """
    make, (x, update, starts) = Writer(context, node), node.input
    rank = context.get_rank(x)
    if not rank:
        raise ValueError("the number of dimensions of what is updated must be known")
    starts, extents, sizes = make.int64(starts), make.add("Shape", x), make.add("Shape", update)
    inside = ""
    for axis in range(rank):
        extent, size = make.pick(extents, axis), make.pick(sizes, axis)
        most = make.add("Sub", extent, size)
        start = make.add("Max", make.add("Min", make.pick(starts, axis), most), make.const([0]))
        places = make.add("Sub", _numbers(make, make.add("Squeeze", extent)), start)
        last = make.add("Sub", size, make.const(1))
        near = make.add("Max", make.add("Min", places, last), make.const(0))
        update = make.add("Gather", update, near, axis=axis)
        here = make.add("Reshape", make.add("Equal", places, near), make.const([-1] + [1] * (rank - 1 - axis)))
        inside = make.add("And", inside, here) if inside else here
    make.replace("Where", [inside, update, x])


def _numbers(make: Writer, count: str) -> str:
    return make.add("Range", make.const(0), count, make.const(1))
