"""Operators that torch's ONNX exporter writes otherwise than torch computes them, for all arguments or for some.

Seen with torch 2.15 and onnxscript 0.7 on the samples of torch's own tests of operators; what else there is shows when
the results of an engine are compared with torch's (`comparing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from neurenix.errors import UnsupportedError

#: Says of the arguments by name whether the results would be others.
Applies = Callable[[Mapping[str, Any]], bool]


def _always(arguments: Mapping[str, Any]) -> bool:
    return True


def _own_divisor(arguments: Mapping[str, Any]) -> bool:
    return arguments.get("divisor_override") is not None


def _own_scales(arguments: Mapping[str, Any]) -> bool:
    return any(arguments.get(name) is not None for name in ("scales_h", "scales_w", "scale_factors"))


def _averages(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments["reduce"] == "mean")


def _dtype(given: Any) -> torch.dtype | None:
    return getattr(getattr(given, "meta", {}).get("val"), "dtype", None)


def _of_integers(arguments: Mapping[str, Any]) -> bool:
    found = _dtype(arguments["self"])
    return found is None or not found.is_floating_point


def _of_truths(arguments: Mapping[str, Any]) -> bool:
    return _dtype(arguments["self"]) == torch.bool


def _of_truths_alone(arguments: Mapping[str, Any]) -> bool:
    return _of_truths(arguments) and _dtype(arguments["other"]) == torch.bool


def _of_uint8(arguments: Mapping[str, Any]) -> bool:
    return _dtype(arguments["self"]) == torch.uint8


def _by_a_number(arguments: Mapping[str, Any]) -> bool:
    return isinstance(arguments["other"], float)


def _mixes(arguments: Mapping[str, Any]) -> bool:
    return len(set(map(_dtype, arguments["tensors"]))) > 1


def _crops_and_wraps(arguments: Mapping[str, Any]) -> bool:
    return arguments["mode"] == "circular" and any(isinstance(pad, int) and pad < 0 for pad in arguments["pad"])


#: By the name of an operator: for which arguments, and what happens.
FAULTS: dict[str, tuple[Applies, str]] = {
    "aten.logaddexp.default": (_always, "it overflows"),
    "aten.special_erfcx.default": (_always, "it overflows"),
    "aten.special_log_ndtr.default": (_always, "it overflows"),
    "aten.avg_pool2d.default": (_own_divisor, "divisor_override is forgotten"),
    "aten.avg_pool3d.default": (_own_divisor, "divisor_override is forgotten"),
    "aten._upsample_bilinear2d_aa.default": (_own_scales, "the scales are forgotten"),
    "aten._upsample_bilinear2d_aa.vec": (_own_scales, "the scales are forgotten"),
    "aten._upsample_bicubic2d_aa.default": (_own_scales, "the scales are forgotten"),
    "aten._upsample_bicubic2d_aa.vec": (_own_scales, "the scales are forgotten"),
    "aten.scatter_reduce.two": (_averages, "ONNX has no means of what is scattered"),
    "aten.sort.default": (_of_integers, "equal numbers have another order"),
    "aten.add.Tensor": (_of_truths_alone, "truth values are added as numbers"),
    "aten.any.default": (_of_uint8, "it gives truth values"),
    "aten.any.dim": (_of_uint8, "it gives truth values"),
    "aten.all.default": (_of_uint8, "it gives truth values"),
    "aten.all.dim": (_of_uint8, "it gives truth values"),
    "aten.neg.default": (_of_uint8, "ONNX has no Neg of it"),
    "aten.__lshift__.Scalar": (_of_uint8, "it gives another dtype"),
    "aten.__rshift__.Scalar": (_of_uint8, "it gives another dtype"),
    "aten.floor_divide.default": (_by_a_number, "it divides by tensors alone"),
    "aten.max.dim": (_of_truths, "ONNX has no ArgMax of truth values"),
    "aten.min.dim": (_of_truths, "ONNX has no ArgMin of truth values"),
    "aten.stack.default": (_mixes, "the dtypes stay as they are"),
    "aten._linalg_det.default": (_always, "it gives one of three results"),
    "aten._embedding_bag_forward_only.default": (_always, "a condition has a dimension"),
    "aten.pad.default": (_crops_and_wraps, "what is cropped is wrapped"),
}

#: Those that torch's older exporter, for TorchScript, does not write any better.
ALIKE = frozenset({"aten.sort.default"})


def fault(node: fx.Node) -> str | None:
    """What torch's exporter would get wrong about a node; None where nothing is known."""
    applies, what = FAULTS.get(str(node.target), (None, ""))
    if applies is None or not isinstance(node.target, torch._ops.OpOverload):
        return None
    declared = node.target._schema.arguments
    given = {one.name: one.default_value for one in declared}
    given |= {one.name: value for one, value in zip(declared, node.args, strict=False)} | dict(node.kwargs)
    return f"torch's ONNX exporter would write it wrongly: {what}" if applies(given) else None


def check(graph: fx.Graph) -> None:
    """Raises `UnsupportedError` for the first node of a graph that the older exporter may write better, or refuses."""
    for node in graph.nodes:
        reason = fault(node) if str(node.target) not in ALIKE else None
        if reason is not None:
            raise UnsupportedError(reason, layer=f"{node.name} ({node.target})")
