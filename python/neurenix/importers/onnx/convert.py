"""Models of operator sets older than the rules: ONNX's own converter brings them up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.weights import Weights

if TYPE_CHECKING:
    import onnx

#: The oldest opset whose meaning the rules follow.
OLDEST_OPSET = 7
#: The newest one.
NEWEST_OPSET = 28
#: What older models become.
TARGET_OPSET = 8


def converted(model: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """The model itself, or one of a newer operator set if it is older than opset 7.

    Raises `UnsupportedError`, with the converter's own words, for a model that it can't convert.
    """
    version = next((opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), OLDEST_OPSET)
    if version >= OLDEST_OPSET:
        return model
    from onnx.version_converter import ConvertError, convert_version

    whole = _whole(model, weights)
    _check(whole)
    try:
        return convert_version(_broadcast_as_numpy(whole), TARGET_OPSET)
    except (ConvertError, RuntimeError, ValueError) as error:
        raise UnsupportedError(
            f"the model is older than ONNX's opset {OLDEST_OPSET}, and ONNX's version converter can't convert it: "
            + " ".join(str(error).split()),
            expected=f"opset {OLDEST_OPSET} or newer",
            got=f"opset {version}",
            hint="export the model again, with opset 13 or newer",
        ) from error


def _whole(model: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """A copy of the model, with the weights that lie in other files."""
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for tensor in whole.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.raw_data = weights.read(tensor).tobytes()
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return whole


def _check(model: onnx.ModelProto) -> None:
    """Raises onnx's `ValidationError` for what breaks ONNX's rules: the converter crashes on it."""
    import onnx

    shaped = onnx.ModelProto()
    shaped.CopyFrom(model)
    # The rules want a shape of every port, the converter does without.
    for port in (*shaped.graph.input, *shaped.graph.output):
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(shaped)


def _broadcast_as_numpy(model: onnx.ModelProto) -> onnx.ModelProto:
    """Turns `broadcast=1, axis=a` into an Unsqueeze of the second input: the converter takes every `axis` for the last.

    Raises `ValueError` where the number of dimensions of an input is not known.
    """
    import onnx
    from onnx import helper

    inferred = onnx.shape_inference.infer_shapes(model).graph
    ports = [*inferred.input, *inferred.value_info, *inferred.output]
    ranks = {p.name: len(p.type.tensor_type.shape.dim) for p in ports if p.type.tensor_type.HasField("shape")}
    ranks.update((tensor.name, len(tensor.dims)) for tensor in model.graph.initializer)
    nodes = []
    for node in model.graph.node:
        axis = _legacy_axis(node)
        if axis is not None:
            for name in node.input[:2]:
                if name not in ranks:
                    raise ValueError(
                        f"the number of dimensions of {name!r}, which {node.op_type} broadcasts, is not known"
                    )
            left, right = (ranks[name] for name in node.input[:2])
            behind = left - (axis + left if axis < 0 else axis) - right
            if behind > 0:
                name = f"{node.output[0]}.broadcast"
                axes = list(range(right, right + behind))
                nodes.append(helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes))
                node.input[1] = name
            _drop(node, "axis")
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _legacy_axis(node: onnx.NodeProto) -> int | None:
    """Where the second input of an op that broadcasts begins, as opset 6 writes it."""
    attrs: dict[str, Any] = {attr.name: attr.i for attr in node.attribute}
    for attr in node.attribute:
        if attr.HasField("g") and any(_legacy_axis(inner) is not None for inner in attr.g.node):
            raise ValueError("broadcasting along an axis inside of a branch or a loop")
    return int(attrs["axis"]) if attrs.get("broadcast") and "axis" in attrs else None


def _drop(node: onnx.NodeProto, name: str) -> None:
    kept = [attr for attr in node.attribute if attr.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
