"""The rule of an op that is the same here and in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from neurenix import _native
from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.node import Node

#: Stands for any value in `Same.ignore`.
ANY = object()


@dataclass(frozen=True)
class Same:
    """Adds the op with the node's inputs and attributes.

    `op` is its name here, if that differs. `ignore` names ONNX attributes that the op here does not have, with the only
    value that may then be given (`ANY`: it has no influence). `defaults` are ONNX's, where they differ from the op's.
    """

    op: str = ""
    ignore: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)

    def __call__(self, node: Node) -> Sequence[Tensor]:
        op = self.op or node.op
        declared = _declared(op)
        attrs = dict(self.defaults)
        for name, value in node.attrs.items():
            if name in declared:
                attrs[name] = value
            elif name not in self.ignore or self.ignore[name] not in (ANY, value):
                raise UnsupportedError(
                    f"attribute {name!r} of {node.op} is not supported",
                    expected=repr(self.ignore[name]) if name in self.ignore else ", ".join(declared) or "no attributes",
                    got=repr(value),
                )
        return node.add_all(op, node.all(), **attrs)


@cache
def _declared(op: str) -> dict[str, Any]:
    return next((declared["attrs"] for declared in _native.ops() if declared["name"] == op), {})


def same(*ops: str) -> dict[str, Same]:
    """Rules for ops that are the same in every respect."""
    return {op: Same() for op in ops}
