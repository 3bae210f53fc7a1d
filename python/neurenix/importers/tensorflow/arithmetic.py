"""Divisions and their rests: TensorFlow's go to the floor or to zero, as their ops say and for every dtype."""

from __future__ import annotations

from typing import Any

from neurenix.importers.tensorflow.writer import Writer


def floor_div(context: Any, node: Any, name: str, args: Any) -> None:
    """FloorDiv: of integers, the truncated quotient less one where signs differ and something is left."""
    make = Writer(context, node)
    a, b = node.input
    quotient = make.add("Div", a, b)
    if make.numpy.kind not in "iu":
        make.replace("Floor", [quotient])
        return
    if make.numpy.kind == "u" or (_counts(context, a) and _counts(context, b)):
        make.replace("Identity", [quotient])
        return
    zero = make.const(0, make.numpy)
    apart = make.add("Xor", make.add("Less", a, zero), make.add("Less", b, zero))
    left = make.add("Not", make.add("Equal", make.add("Mod", a, b), zero))
    # a - Mod(a, b) is not formed: the smallest integers have none below them.
    make.replace("Sub", [quotient, make.add("Cast", make.add("And", apart, left), to=make.dtype)])


def floor_mod(context: Any, node: Any, name: str, args: Any) -> None:
    """FloorMod, with the sign of the divisor."""
    make = Writer(context, node)
    a, b = node.input
    if make.numpy.kind in "iu":
        make.replace("Mod", [a, b])
        return
    make.replace("Sub", [a, make.add("Mul", make.add("Floor", make.add("Div", a, b)), b)])


def truncate_div(context: Any, node: Any, name: str, args: Any) -> None:
    """TruncateDiv: Div of ONNX's keeps the fractions of floats."""
    make = Writer(context, node)
    if make.numpy.kind in "iu":
        make.replace("Div", list(node.input))
        return
    quotient = make.add("Div", *node.input)
    below = make.add("Less", quotient, make.const(0, make.numpy))
    make.replace("Where", [below, make.add("Ceil", quotient), make.add("Floor", quotient)])


def truncate_mod(context: Any, node: Any, name: str, args: Any) -> None:
    """TruncateMod => Mod of C's kind, with the sign of the dividend."""
    Writer(context, node).replace("Mod", list(node.input), fmod=1)


#: Ops that give no negative numbers if what they read are none.
PASSING = ("Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "StridedSlice", "Unsqueeze")
#: So far is looked for where a number comes from.
DEPTH = 6


def _counts(context: Any, tensor: str, depth: int = DEPTH) -> bool:
    """Whether a tensor is made of sizes and constants above zero, whose quotients stay sizes for the shapes of ours."""
    producer = context.get_node_by_output(tensor)
    if producer is None or depth == 0:
        return False
    if producer.is_const():
        value = producer.get_tensor_value(as_list=False)
        return bool(value.dtype.kind in "iu" and (value >= 0).all())
    if producer.type in ("Shape", "Size"):
        return True
    return producer.type in PASSING and _counts(context, producer.input[0], depth - 1)
