"""Optional values. Whether one has an element is settled at the import: then it is that element, else nothing."""

from __future__ import annotations

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.values import EmptyOptional, Given


def optional(node: Node) -> Given:
    """Optional: its input, or nothing of a type."""
    return node.graph.given(node.proto.input[0]) if node.has(0) else EmptyOptional()


def has_element(node: Node) -> Given:
    """OptionalHasElement: a rank-0 bool."""
    return np.asarray(node.has(0) and not isinstance(node.graph.given(node.proto.input[0]), EmptyOptional))


def get_element(node: Node) -> Given:
    """OptionalGetElement."""
    given = node.graph.given(node.proto.input[0]) if node.has(0) else EmptyOptional()
    if isinstance(given, EmptyOptional):
        raise InvalidArgumentError(
            "OptionalGetElement reads an optional value without an element",
            tensor=node.proto.input[0] if len(node) else None,
            hint="a condition that asks OptionalHasElement must stand around it",
        )
    return given


RULES: dict[str, Rule] = {
    "Optional": optional,
    "OptionalGetElement": get_element,
    "OptionalHasElement": has_element,
}
