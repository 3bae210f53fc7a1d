"""Ops that tf2onnx does not know, written in ops of ONNX's."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.importers.tensorflow.writer import Writer


def erfc(context: Any, node: Any, name: str, args: Any) -> None:
    """Erfc(x) => 1 - Erf(x); Erfc(-x) => 1 + Erf(x), and Erfc(-x * c) => 1 + Erf(x * c), as GELU has it."""
    from tf2onnx import utils

    dtype, shape = context.get_dtype(node.output[0]), context.get_shape(node.output[0])
    one = context.make_const(utils.make_name(f"{name}/one"), np.array(1, utils.map_onnx_to_numpy_type(dtype)))
    source = _negated(context, node.input[0], dtype, shape)
    erf = context.make_node("Erf", [source or node.input[0]], dtypes=[dtype], shapes=[shape])
    context.remove_node(node.name)
    context.make_node(
        "Add" if source else "Sub", [one.output[0], erf.output[0]], name=name, outputs=node.output,
        dtypes=[dtype], shapes=[shape],
    )  # fmt: skip


def _negated(context: Any, tensor: str, dtype: Any, shape: Any) -> str | None:
    """What a tensor is the negative of; None where it is not written as one."""
    producer = context.get_node_by_output(tensor)
    if producer is None:
        return None
    if producer.type == "Neg":
        return str(producer.input[0])
    if producer.type == "Mul":
        for factor, other in (producer.input, producer.input[::-1]):
            inner = context.get_node_by_output(factor)
            if inner is not None and inner.type == "Neg":
                product = context.make_node("Mul", [inner.input[0], other], dtypes=[dtype], shapes=[shape])
                return str(product.output[0])
    return None


def reverse(context: Any, node: Any, name: str, args: Any) -> None:
    """ReverseV2(x, axes) => Slice(x) with steps of -1, where tf2onnx makes transposes and a ReverseSequence of it.

    Raises `ValueError` where the axes are no constants.
    """
    from tf2onnx import utils

    axes = np.ravel(node.inputs[1].get_tensor_value(as_list=False)).astype(np.int64)
    dtype, shape = context.get_dtype(node.output[0]), context.get_shape(node.output[0])
    parts = [np.full(axes.shape, value) for value in (-1, np.iinfo(np.int64).min)]
    given = [*parts, axes, np.full(axes.shape, -1)]
    consts = [context.make_const(utils.make_name(f"{name}/slice"), array).output[0] for array in given]
    x = node.input[0]
    context.remove_node(node.name)
    context.make_node("Slice", [x, *consts], name=name, outputs=node.output, dtypes=[dtype], shapes=[shape])


def one_hot(context: Any, node: Any, name: str, args: Any) -> None:
    """OneHot, where negative classes are none: they become the number of classes, as ONNX counts from the end."""
    make = Writer(context, node)
    given, depth = make.int64(node.input[0]), make.int64(node.input[1])
    classes = make.add("Where", make.add("Less", given, make.const(0)), depth, given)
    off_on = [make.add("Reshape", tensor, make.const([1])) for tensor in (node.input[3], node.input[2])]
    values = make.add("Concat", *off_on, axis=0)
    if context.get_rank(node.input[0]) == 0:
        # ONNX's takes lists of classes alone.
        found = make.add("OneHot", make.add("Reshape", classes, make.const([1])), depth, values)
        make.replace("Squeeze", [found, make.const([0])])
        return
    make.replace("OneHot", [classes, depth, values], axis=node.get_attr_value("axis", -1))


def select(context: Any, node: Any, name: str, args: Any) -> None:
    """Select and SelectV2 => Where; what tf2onnx makes of them, c * x + !c * y, is NaN where either one is.

    Raises `ValueError` for a Select of rows of tensors whose rank is unknown.
    """
    make = Writer(context, node)
    condition, *parts = node.input
    if node.type == "Select" and context.get_rank(condition) == 1:
        ranks = [rank for rank in map(context.get_rank, parts) if rank is not None]
        if not ranks:
            raise ValueError("the rank of what is selected must be known")
        if ranks[0] > 1:
            condition = make.add("Unsqueeze", condition, make.const(range(1, ranks[0])))
    make.replace("Where", [condition, *parts])


def scatter_nd(context: Any, node: Any, name: str, args: Any) -> None:
    """ScatterNd, where what goes to the same place adds up."""
    make = Writer(context, node)
    base = make.add("Expand", make.const(0, make.numpy), make.int64(node.input[2]))
    attrs = {} if make.numpy.kind == "b" else {"reduction": "add"}
    make.replace("ScatterND", [base, make.int64(node.input[0]), node.input[1]], **attrs)


def gelu(context: Any, node: Any, name: str, args: Any) -> None:
    """TensorFlow Lite's Gelu, in either form."""
    import math

    from tf2onnx import utils

    dtype, shape = context.get_dtype(node.output[0]), context.get_shape(node.output[0])
    kind = utils.map_onnx_to_numpy_type(dtype)
    x, approximate = node.input[0], bool(node.get_attr_value("approximate", False))

    def make(op: str, *inputs: str | float) -> str:
        given = [
            one if isinstance(one, str) else context.make_const(utils.make_name(name), np.array(one, kind)).output[0]
            for one in inputs
        ]
        return str(context.make_node(op, given, dtypes=[dtype], shapes=[shape]).output[0])

    if approximate:
        cubed = make("Mul", make("Mul", make("Mul", x, x), x), 0.044715)
        gate = make("Tanh", make("Mul", make("Add", x, cubed), math.sqrt(2 / math.pi)))
    else:
        gate = make("Erf", make("Mul", x, math.sqrt(0.5)))
    half = make("Mul", x, 0.5)
    product = [half, make("Add", gate, 1.0)]
    context.remove_node(node.name)
    context.make_node("Mul", product, name=name, outputs=node.output, dtypes=[dtype], shapes=[shape])
