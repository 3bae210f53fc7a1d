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


def _ignores_self(arguments: Mapping[str, Any]) -> bool:
    """torch does not read what it multiplies by 0, such as memory that nobody wrote."""
    return bool(arguments["beta"] == 0)


def _own_divisor(arguments: Mapping[str, Any]) -> bool:
    return arguments.get("divisor_override") is not None


def _own_scales(arguments: Mapping[str, Any]) -> bool:
    return any(arguments.get(name) is not None for name in ("scales_h", "scales_w", "scale_factors"))


def _averages_integers(arguments: Mapping[str, Any]) -> bool:
    found = arguments["self"].meta.get("val")
    return arguments["reduce"] == "mean" and (found is None or not found.is_floating_point())


def _crops_and_wraps(arguments: Mapping[str, Any]) -> bool:
    return arguments["mode"] == "circular" and any(isinstance(pad, int) and pad < 0 for pad in arguments["pad"])


#: By the name of an operator: for which arguments, and what happens.
FAULTS: dict[str, tuple[Applies, str]] = {
    "aten.atan2.default": (_always, "-pi comes for pi where the first argument is 0"),
    "aten.logaddexp.default": (_always, "it overflows"),
    "aten.special_erfcx.default": (_always, "it overflows"),
    "aten.special_log_ndtr.default": (_always, "it overflows"),
    "aten.addbmm.default": (_ignores_self, "what beta=0 leaves out is multiplied"),
    "aten.addmv.default": (_ignores_self, "what beta=0 leaves out is multiplied"),
    "aten.addr.default": (_ignores_self, "what beta=0 leaves out is multiplied"),
    "aten.baddbmm.default": (_ignores_self, "what beta=0 leaves out is multiplied"),
    "aten.avg_pool2d.default": (_own_divisor, "divisor_override is forgotten"),
    "aten.avg_pool3d.default": (_own_divisor, "divisor_override is forgotten"),
    "aten._upsample_bilinear2d_aa.default": (_own_scales, "the scales are forgotten"),
    "aten._upsample_bilinear2d_aa.vec": (_own_scales, "the scales are forgotten"),
    "aten._upsample_bicubic2d_aa.default": (_own_scales, "the scales are forgotten"),
    "aten._upsample_bicubic2d_aa.vec": (_own_scales, "the scales are forgotten"),
    "aten.scatter_reduce.two": (_averages_integers, "means of integers are rounded to the other side"),
    "aten.pad.default": (_crops_and_wraps, "what is cropped is wrapped"),
}

#: Those that torch's older exporter, for TorchScript, does not write any better.
ALIKE = frozenset({"aten.atan2.default", "aten.baddbmm.default"})


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
