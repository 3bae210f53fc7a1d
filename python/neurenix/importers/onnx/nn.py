"""Convolutions, pooling, normalisation, resampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.same import ANY, Same, same


def batch_normalization(node: Node) -> Tensor | list[Tensor]:
    """BatchNormalization; in training mode, which standardises weights in models, with the batch's own statistics."""
    node.refuse("spatial", 1)
    if node.attr("training_mode", 0):
        return _batch_statistics(node)
    return node.add("BatchNormalization", *(node[i] for i in range(5)), epsilon=node.attr("epsilon", 1e-5))


def _batch_statistics(node: Node) -> list[Tensor]:
    x, momentum = node[0], node.attr("momentum", 0.9)
    wide = "float64" if str(x.dtype) == "float64" else "float32"
    given, scale, bias, *old = (node.add("Cast", node[i], to=wide) for i in range(5))
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    away = node.add("Sub", given, mean := node.add("ReduceMean", given, axes=axes))
    variance = node.add("ReduceMean", node.add("Mul", away, away), axes=axes)
    shifted = node.add("Add", variance, node.like(node.attr("epsilon", 1e-5), given))
    # Statistics stand in their axis, the others in front of it.
    aligned = node.integers([-1, *[1] * (len(x.shape) - 2)])
    scale, bias = (node.add("Reshape", one, aligned) for one in (scale, bias))
    normal = node.add("Mul", node.add("Div", away, node.add("Sqrt", shifted)), scale)
    results = [node.add("Cast", node.add("Add", normal, bias), to=x.dtype)]
    for i, (kept, new) in enumerate(zip(old, (mean, variance), strict=True)):
        flat = node.add("Reshape", new, node.integers([-1]))
        parts = [node.add("Mul", one, node.like(share, one)) for one, share in ((kept, momentum), (flat, 1 - momentum))]
        results.append(node.add("Cast", node.add("Add", *parts), to=node[3 + i].dtype))
    return results[: len(node.outputs)]


def dropout(node: Node) -> list[Tensor]:
    """Dropout, which does nothing in inference: its mask keeps everything."""
    training = node.array(2)
    if node.has(2) and (training is None or training.reshape(-1)[0]):
        raise UnsupportedError("Dropout in training mode is not supported", hint="export the model in eval mode")
    x = node[0]
    if not any(node.outputs[1:]):
        return [x]
    kept = "bool" if node.version >= 10 else x.dtype
    return [x, node.add("ConstantOfShape", node.add("Shape", x), value=1.0, dtype=kept)]


def group_normalization(node: Node) -> Tensor:
    """GroupNormalization: before opset 21 scale and bias have one element per group."""
    if node.version >= 21:
        return Same()(node)[0]
    groups, channels = node.need("num_groups"), node[0].shape[1]
    if not isinstance(channels, int):
        raise UnsupportedError("the number of channels must be known", got=channels)
    group_of = node.integers([i * groups // channels for i in range(channels)])
    scale, bias = (node.add("Gather", node[i], group_of) for i in (1, 2))
    return node.add("GroupNormalization", node[0], scale, bias, num_groups=groups, epsilon=node.attr("epsilon", 1e-5))


def layer_normalization(node: Node) -> list[Tensor]:
    """LayerNormalization; mean and inverse deviation are computed where something reads them."""
    result = Same(ignore={"stash_type": ANY})(node)
    if not any(node.outputs[1:]):
        return list(result)
    x = node.add("Cast", node[0], to="float32")
    rank = len(x.shape)
    axes = list(range(node.attr("axis", -1) % rank, rank))
    mean = node.add("ReduceMean", x, axes=axes)
    away = node.add("Sub", x, mean)
    variance = node.add("ReduceMean", node.add("Mul", away, away), axes=axes)
    shifted = node.add("Add", variance, node.like(node.attr("epsilon", 1e-5), x))
    return [result[0], mean, node.add("Reciprocal", node.add("Sqrt", shifted))]


def global_lp_pool(node: Node) -> Tensor:
    """GlobalLpPool: a norm over the spatial axes."""
    x, p = node[0], node.attr("p", 2)
    axes = list(range(2, len(x.shape)))
    if p in (1, 2):
        return node.add(f"ReduceL{p}", x, axes=axes)
    power = node.add("Pow", node.add("Abs", x), node.like(p, x))
    return node.add("Pow", node.add("ReduceSum", power, axes=axes), node.like(1 / p, x))


def max_pool(node: Node) -> list[Tensor]:
    """MaxPool; where the elements stood is computed where something reads it."""
    values = node.add("MaxPool", node[0], **{k: v for k, v in node.attrs.items() if k != "storage_order"})
    if not any(node.outputs[1:]):
        return [values]
    return [values, node.add("MaxPoolIndices", node[0], **node.attrs)]


def roi_align(node: Node) -> Tensor:
    """RoiAlign: before opset 16 places are not shifted by half an element."""
    attrs = dict(node.attrs)
    if node.version < 16:
        attrs["coordinate_transformation_mode"] = "output_half_pixel"
    return node.add("RoiAlign", *(node[i] for i in range(3)), **attrs)


def mean_variance_normalization(node: Node) -> Tensor:
    """MeanVarianceNormalization, in float32 at least."""
    x, axes = node[0], node.attr("axes", [0, 2, 3])
    wide = x if str(x.dtype) in ("float32", "float64") else node.add("Cast", x, to="float32")
    away = node.add("Sub", wide, node.add("ReduceMean", wide, axes=axes))
    deviation = node.add("Sqrt", node.add("ReduceMean", node.add("Mul", away, away), axes=axes))
    result = node.add("Div", away, node.add("Add", deviation, node.like(1e-9, wide)))
    return result if wide is x else node.add("Cast", result, to=x.dtype)


def grid_sample(node: Node) -> Sequence[Tensor]:
    """GridSample: beyond the border torch moves each neighbour of a place inside, ONNX's reference the place."""
    cubic = node.attr("mode") in ("cubic", "bicubic")
    torch_at_borders = node.graph.from_torch and cubic and node.attr("padding_mode") == "border"
    return Same(defaults={"clamp_taps": 1} if torch_at_borders else {})(node)


def resize(node: Node) -> Tensor:
    """Resize: opset 10 has scales alone, and samples asymmetrically."""
    if node.version >= 11:
        attrs = _places(node)
        # Exporters give any roi where the mode does not read it.
        roi = node.get(1) if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize" else None
        return node.add("Resize", node[0], roi, node.get(2), node.get(3), **attrs)
    return _asymmetric(node, node[1])


def _places(node: Node) -> dict[str, Any]:
    """The attributes, with TensorFlow's half pixels as ONNX's."""
    attrs, mode = dict(node.attrs), node.attr("mode", "nearest")
    if attrs.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        if (mode, attrs.get("nearest_mode")) != ("nearest", "floor"):
            raise UnsupportedError(
                "Resize takes 'tf_half_pixel_for_nn' for the nearest elements below a place alone",
                expected="mode='nearest', nearest_mode='floor'",
                got=f"mode={mode!r}, nearest_mode={node.attr('nearest_mode', 'round_prefer_floor')!r}",
                hint="export the model with coordinate_transformation_mode='half_pixel'",
            )
        # The floor of a place that is not moved back by a half is the nearest one of the place that is.
        attrs |= {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    return attrs


def upsample(node: Node) -> Tensor:
    """Upsample, which Resize replaced: the scales are an attribute before opset 9."""
    return _asymmetric(node, node[1] if node.version >= 9 else node.constant(node.need("scales"), "float32"))


def _asymmetric(node: Node, scales: Tensor) -> Tensor:
    return node.add(
        "Resize",
        node[0],
        None,
        scales,
        mode=node.attr("mode", "nearest"),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


RULES: dict[str, Rule] = {
    **same(
        "AffineGrid",
        "CenterCropPad",
        "Col2Im",
        "DepthToSpace",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "InstanceNormalization",
        "LpNormalization",
        "LRN",
        "LpPool",
        "MaxRoiPool",
        "MaxUnpool",
        "RMSNormalization",
        "SpaceToDepth",
    ),
    "AveragePool": Same(),
    "BatchNormalization": batch_normalization,
    "Conv": Same(ignore={"kernel_shape": ANY}),
    "ConvTranspose": Same(ignore={"kernel_shape": ANY}),
    "DeformConv": Same(ignore={"kernel_shape": ANY}),
    "Dropout": dropout,
    "GlobalLpPool": global_lp_pool,
    "GridSample": grid_sample,
    "GroupNormalization": group_normalization,
    "LayerNormalization": layer_normalization,
    "MaxPool": max_pool,
    "MeanVarianceNormalization": mean_variance_normalization,
    "Resize": resize,
    "RoiAlign": roi_align,
    "Upsample": upsample,
}
