"""Which rule imports which ONNX op. One family, one file; each is a table from op name to rule."""

from __future__ import annotations

from functools import cache

import onnx

from neurenix import _native
from neurenix.importers.onnx import (
    activation,
    attention,
    contrib,
    control,
    logic,
    loops,
    loss,
    math,
    nn,
    optional,
    preview,
    quantized,
    random,
    recurrent,
    reduction,
    sequence,
    signal,
    tensor,
)
from neurenix.importers.onnx.node import Rule
from neurenix.importers.onnx.same import Same

#: ONNX's own ops by family.
FAMILIES: tuple[dict[str, Rule], ...] = (
    activation.RULES,
    attention.RULES,
    contrib.OWN,
    control.RULES,
    logic.RULES,
    loops.RULES,
    loss.RULES,
    math.RULES,
    nn.RULES,
    optional.RULES,
    quantized.RULES,
    random.RULES,
    recurrent.RULES,
    reduction.RULES,
    sequence.RULES,
    signal.RULES,
    tensor.RULES,
)
RULES: dict[str, Rule] = {op: rule for family in FAMILIES for op, rule in family.items()}

#: The ops of each domain; ONNX's own has no name.
DOMAINS: dict[str, dict[str, Rule]] = {
    "": RULES,
    "ai.onnx.preview": preview.RULES,
    "com.microsoft": contrib.RULES,
}

#: The rules of nodes that add no layer.
CONSTANT = tensor.constant
IDENTITY = tensor.identity

__all__ = ["CONSTANT", "FAMILIES", "IDENTITY", "RULES", "Rule", "find", "hint", "known"]


@cache
def _ops() -> frozenset[str]:
    return frozenset(op["name"] for op in _native.ops())


def known(domain: str, op: str) -> bool:
    """Whether a rule imports this op."""
    rule = DOMAINS.get(domain, {}).get(op)
    return rule is not None and (not isinstance(rule, Same) or (rule.op or op) in _ops())


def find(domain: str, op: str) -> Rule | None:
    """The rule of an op; None where there is none."""
    return DOMAINS[domain][op] if known(domain, op) else None


def hint(kinds: list[str], plugins: list[str]) -> str:
    """The way out for ops that no rule knows, for which these plugins would have to be registered."""
    ways = []
    domain, _, name = kinds[0].rpartition("::")
    name = name.partition(" ")[0]
    able = [op for op in sorted(DOMAINS.get(domain, {})) if known(domain, op) and op not in random.RULES]
    # An op that ONNX has is no typing error of another one.
    nearest = None if onnx.defs.has(name, domain) else _native.nearest(name, able)
    if nearest is not None:
        ways.append(f"the nearest op that can be imported is {nearest!r}")
    ways.append(
        f"plugins run what you register before the import: {', '.join(plugins)}, in a module that `plugins=` or "
        "--plugins on the command line names (docs/plugins.md)"
    )
    ways.append("a function of that name in the model (onnx.FunctionProto) may say it in ONNX's own ops")
    return "; ".join(ways)
