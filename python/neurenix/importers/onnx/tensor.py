"""Shapes, slices, and moving elements about."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.same import Same, same
from neurenix.importers.onnx.values import AppendedTensor, Element, Given


def bit_cast(node: Node) -> Tensor:
    """BitCast."""
    from neurenix.importers.onnx.graph import dtype_of

    return node.add("BitCast", node[0], to=dtype_of(node.need("to")))


def concat(node: Node) -> Given:
    """Concat; what it appends to a tensor that a Loop makes longer is left to the loop."""
    longer = node.graph.value(node.proto.input[0])
    if not isinstance(longer, AppendedTensor):
        return node.add("Concat", *node.all(), axis=node.need("axis"))
    rest = [node[index] for index in range(1, len(node))]
    new = node.add("Concat", *rest, axis=node.need("axis")) if len(rest) > 1 else rest[0]
    return AppendedTensor(longer.owner, (Element(new),))


def constant(node: Node) -> list[Tensor]:
    """Constant: the walk over the graph keeps its elements; it adds no layer."""
    return []


def identity(node: Node) -> Tensor:
    """Identity, which exporters use to share one weight under many names."""
    return node[0]


def cast(node: Node) -> Tensor:
    """Cast."""
    from neurenix.importers.onnx.graph import dtype_of

    x, to = node[0], dtype_of(node.need("to"))
    if x.value is not None and x.dtype == np.int64 and to.kind == "f":
        node.graph.wholes[node.outputs[0]] = x
    return node.add("Cast", x, to=to, **rounding(node))


def cast_like(node: Node) -> Tensor:
    """CastLike: the second input says the dtype."""
    return node.add("Cast", node[0], to=node[1].dtype, **rounding(node))


def rounding(node: Node) -> dict[str, Any]:
    """How numbers become floats of 8 bits."""
    return {name: node.attrs[name] for name in ("saturate", "round_mode") if name in node.attrs}


def constant_of_shape(node: Node) -> Tensor:
    """ConstantOfShape: one value everywhere."""
    value = node.graph.read(node.attrs["value"]) if "value" in node.attrs else np.zeros(1, np.float32)
    return node.add("ConstantOfShape", node[0], value=float(value.reshape(-1)[0]), dtype=value.dtype)


def range_(node: Node) -> Tensor:
    """Range: of floats that are whole numbers (a size, cast) it is one of integers, whose length the shapes tell."""
    ends = [_whole(node, i) for i in range(3)]
    if None in ends:
        return node.add("Range", *node.all())
    return node.add("Cast", node.add("Range", *ends), to=node[0].dtype)


def _whole(node: Node, index: int) -> Tensor | None:
    """The integer that a float input stands for, if it is known to be one."""
    known = node.array(index)
    if known is None:
        return node.graph.wholes.get(node.graph.aliases.get(node.proto.input[index], node.proto.input[index]))
    if known.dtype.kind != "f" or known.size != 1 or not float(known.reshape(-1)[0]).is_integer():
        return None
    return node.constant(int(known.reshape(-1)[0]), np.int64)


def eye_like(node: Node) -> Tensor:
    """EyeLike: where the column is `k` more than the row."""
    from neurenix.importers.onnx.graph import dtype_of

    x = node[0]
    if len(x.shape) != 2:
        raise ShapeError("EyeLike makes matrices", expected="an input of rank 2", got=str(x.shape))
    shape = node.add("Shape", x)

    def places(axis: int) -> Tensor:
        extent = node.add("Gather", shape, node.constant(axis, np.int64), axis=0)
        return node.add("Range", node.constant(0, np.int64), extent, node.constant(1, np.int64))

    rows = node.add("Unsqueeze", node.add("Add", places(0), node.constant(node.attr("k", 0), np.int64)), axes=[1])
    to = dtype_of(node.attrs["dtype"]) if "dtype" in node.attrs else x.dtype
    return node.add("Cast", node.add("Equal", rows, places(1)), to=to)


def pad(node: Node) -> Tensor:
    """Pad: pads and value are attributes before opset 11."""
    mode = node.attr("mode", "constant")
    if node.version >= 11:
        return node.add("Pad", *(node.get(i) for i in range(4)), mode=mode)
    value = node.like(node.attr("value", 0.0), node[0])
    return node.add("Pad", node[0], node.integers(node.need("pads")), value, mode=mode)


def reshape(node: Node) -> Tensor:
    """Reshape."""
    return node.add("Reshape", node[0], node[1], allowzero=node.attr("allowzero", 0))


def slice_(node: Node) -> Tensor:
    """Slice: all but the data are attributes before opset 10."""
    if node.version >= 10:
        return node.add("Slice", *(node.get(i) for i in range(5)))
    starts, ends = node.need("starts"), node.need("ends")
    axes = node.attr("axes", list(range(len(starts))))
    return node.add("Slice", node[0], node.integers(starts), node.integers(ends), node.integers(axes))


def split(node: Node) -> list[Tensor]:
    """Split: the sizes were an attribute before opset 13 and are an input since; without them the parts are equal."""
    x, axis, parts = node[0], node.attr("axis", 0), len(node.outputs)
    sizes: list[Any] | None = node.known(1) if node.has(1) else node.attr("split")
    if sizes is None and node.has(1):
        starts = node.add("CumSum", node[1], node.constant(0, np.int64), exclusive=1)
        return slices(node, axis, starts, node[1], parts)
    if sizes is None:
        total = x.shape[axis]
        if not isinstance(total, int):
            return _equal_parts(node, axis, parts)
        each = -(-total // parts)
        sizes = [min(each, total - each * i) for i in range(parts)]
    if len(sizes) != parts:
        raise InvalidArgumentError("a Split has another number of outputs than sizes", got=f"{sizes} for {parts}")
    return node.add_all("Split", [x], axis=axis, split=sizes)


def _equal_parts(node: Node, axis: int, parts: int) -> list[Tensor]:
    """A Split of an extent that is a symbol: the last part may be smaller."""
    total = node.add("Gather", node.add("Shape", node[0]), node.integers([axis]), axis=0)
    each = node.add("Div", node.add("Add", total, node.integers([parts - 1])), node.integers([parts]))
    return slices(node, axis, node.add("Mul", each, node.integers(range(parts))), each, parts)


def slices(node: Node, axis: int, starts: Tensor, sizes: Tensor, count: int) -> list[Tensor]:
    """So many slices of the first input along an axis; what lies behind its end is left out."""
    ends = node.add("Add", starts, sizes)

    def part(index: int) -> Tensor:
        bounds = [node.add("Gather", places, node.integers([index]), axis=0) for places in (starts, ends)]
        return node.add("Slice", node[0], *bounds, node.integers([axis]))

    return [part(index) for index in range(count)]


def squeeze(node: Node) -> Tensor:
    """Squeeze: the axes were an attribute before opset 13 and are an input since."""
    if node.has(1):
        return node.add_with("Squeeze", [node[0]], "axes", 1)
    return node.add("Squeeze", node[0], axes=node.attr("axes", []))


def tensor_scatter(node: Node) -> Tensor:
    """TensorScatter: each sample's update goes to its own place along an axis, perhaps around the end."""
    cache, update, mode = node[0], node[1], node.attr("mode", "linear")
    axis, rank = node.attr("axis", -2), len(cache.shape)
    axis += rank if axis < 0 else 0
    if not 1 <= axis < rank:
        raise ShapeError("the axis of a TensorScatter is out of range", expected=f"1 to {rank - 1}", got=str(axis))
    if mode not in ("linear", "circular"):
        raise InvalidArgumentError("attribute 'mode' is unknown", expected="'linear' or 'circular'", got=repr(mode))

    def extent(x: Tensor) -> Tensor:
        return node.add("Gather", node.add("Shape", x), node.constant(axis, np.int64), axis=0)

    zero, one = (node.constant(v, np.int64) for v in (0, 1))
    places = node.add("Unsqueeze", node.add("Range", zero, extent(update), one), axes=list(range(1, rank - axis)))
    if node.has(2):
        first = node.add("Cast", node[2], to="int64")
        places = node.add("Add", places, node.add("Unsqueeze", first, axes=list(range(1, rank))))
    if mode == "circular":
        places = node.add("Mod", places, extent(cache))
    places = node.add("Expand", places, node.add("Shape", update))
    return node.add("ScatterElements", cache, places, update, axis=axis)


def top_k(node: Node) -> list[Tensor]:
    """TopK: k is an attribute before opset 10."""
    k = node[1] if node.version >= 10 else node.integers([node.need("k")])
    return node.add_all(
        "TopK",
        [node[0], k],
        axis=node.attr("axis", -1),
        largest=node.attr("largest", 1),
        sorted=node.attr("sorted", 1),
    )


def picked(node: Node) -> list[Tensor]:
    """Compress and Unique: without an axis they see the tensor flattened."""
    attrs = {"sorted": node.attr("sorted", 1)} if node.op == "Unique" else {}
    flat = node.attr("axis") is None
    return node.add_all(node.op, node.all(), axis=node.attr("axis", 0), flat=int(flat), **attrs)


def unsqueeze(node: Node) -> Tensor:
    """Unsqueeze: the axes were an attribute before opset 13 and are an input since."""
    if node.has(1):
        return node.add_with("Unsqueeze", [node[0]], "axes", 1)
    return node.add("Unsqueeze", node[0], axes=node.need("axes"))


RULES: dict[str, Rule] = {
    **same(
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "NonMaxSuppression",
        "NonZero",
        "OneHot",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "TfIdfVectorizer",
        "Tile",
        "Transpose",
        "Trilu",
    ),
    "BitCast": bit_cast,
    "Cast": cast,
    "Compress": picked,
    "Concat": concat,
    "CastLike": cast_like,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "Identity": identity,
    "Pad": pad,
    "Range": range_,
    "Reshape": reshape,
    "Scatter": Same("ScatterElements"),
    "Slice": slice_,
    "Split": split,
    "Squeeze": squeeze,
    "TensorScatter": tensor_scatter,
    "TopK": top_k,
    "Unique": picked,
    "Unsqueeze": unsqueeze,
}
