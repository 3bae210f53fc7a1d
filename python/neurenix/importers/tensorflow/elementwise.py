"""Functions of numbers that tf2onnx does not know, in ops of ONNX's."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.importers.tensorflow.writer import Writer


def log1p(context: Any, node: Any, name: str, args: Any) -> None:
    """Log1p(x) => Log(1 + x) * x / ((1 + x) - 1), as what 1 + x rounds away is missing from both."""
    make, x = Writer(context, node), node.input[0]
    one = make.const(1, make.numpy)
    more = make.add("Add", x, one)
    rounded = make.add("Sub", more, one)
    infinite = make.add("Equal", more, make.const(np.inf, make.numpy))
    whole = make.add("Or", make.add("Equal", rounded, make.const(0, make.numpy)), infinite)
    ratio = make.add("Div", x, make.add("Where", whole, one, rounded))
    make.replace("Where", [whole, x, make.add("Mul", make.add("Log", more), ratio)])


def expm1(context: Any, node: Any, name: str, args: Any) -> None:
    """Expm1(x) => Tanh(x / 2) * (Exp(x) + 1), which keeps the digits of small x."""
    make, x = Writer(context, node), node.input[0]
    half = make.add("Tanh", make.add("Mul", x, make.const(0.5, make.numpy)))
    make.replace("Mul", [half, make.add("Add", make.add("Exp", x), make.const(1, make.numpy))])


#: What such an op computes elsewhere, and of what of its second operand.
ABSORBING = {"Xlogy": ("Mul", "Log"), "Xdivy": ("Div", None), "MulNoNan": ("Mul", None)}


def absorbing(context: Any, node: Any, name: str, args: Any) -> None:
    """Xlogy, Xdivy and MulNoNan: 0 where an operand is, even if the other one is infinite or no number."""
    make, (x, y) = Writer(context, node), node.input
    op, inner = ABSORBING[node.type]
    zero = make.const(0, make.numpy)
    empty = make.add("Equal", y if node.type == "MulNoNan" else x, zero)
    make.replace("Where", [empty, zero, make.add(op, x, make.add(inner, y) if inner else y)])


def bucketize(context: Any, node: Any, name: str, args: Any) -> None:
    """Bucketize: the number of boundaries that are not above a number."""
    make = Writer(context, node)
    boundaries = np.asarray(node.get_attr_value("boundaries", []), "float32")
    given = node.input[0]
    if context.get_dtype(given) != 1:
        given = make.add("Cast", given, to=1)
    column = make.add("Unsqueeze", given, make.const([-1]))
    above = make.add("Cast", make.add("Less", column, make.const(boundaries, np.float32)), to=make.dtype)
    count = make.add("ReduceSum", above, make.const([-1]), keepdims=0)
    make.replace("Sub", [make.const(len(boundaries), make.numpy), count])


def l2_loss(context: Any, node: Any, name: str, args: Any) -> None:
    """L2Loss => ReduceSumSquare(x) / 2."""
    make = Writer(context, node)
    squares = make.add("ReduceSumSquare", node.input[0], keepdims=0)
    make.replace("Mul", [squares, make.const(0.5, make.numpy)])


def euclidean_norm(context: Any, node: Any, name: str, args: Any) -> None:
    """EuclideanNorm => ReduceL2."""
    make = Writer(context, node)
    axes = make.add("Reshape", make.int64(node.input[1]), make.const([-1]))
    make.replace("ReduceL2", [node.input[0], axes], keepdims=int(bool(node.get_attr_value("keep_dims", False))))


def sign_bits(context: Any, node: Any, name: str, args: Any) -> None:
    """Bitcast of floats to integers that nothing but the sign is read of, as Keras' argmax does; NaNs have none.

    Raises `ValueError` for any other.
    """
    least = np.iinfo(np.int32).min
    make, x = Writer(context, node), node.input[0]
    readers = context.find_output_consumers(node.output[0])
    if context.get_dtype(x) != 1 or make.numpy != np.int32 or not all(_masks(one, least) for one in readers):
        raise ValueError("the bits of floats are read for their signs alone")
    zero = make.const(0, np.float32)
    inverse = make.add("Div", make.const(1, np.float32), x)
    below = make.add("Less", make.add("Where", make.add("Equal", x, zero), inverse, x), zero)
    make.replace("Where", [below, make.const(least, np.int32), make.const(0, np.int32)])


def _masks(node: Any, mask: int) -> bool:
    values = [given.get_tensor_value(as_list=False) for given in node.inputs if given.is_const()]
    return node.type == "BitwiseAnd" and len(values) == 1 and bool(np.all(values[0] == mask))
