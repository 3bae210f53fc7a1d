"""Holds a node against ONNX's own declaration of its op: inputs, outputs, attributes, and sorts of elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from neurenix.errors import DTypeError, FormatError

if TYPE_CHECKING:
    import onnx

#: What each type of attribute is called.
KINDS = ("none", "float", "int", "text", "tensor", "graph", "floats", "ints", "texts", "tensors", "graphs")
#: The type of a sparse tensor.
SPARSE = 11


#: The sorts of elements, and the words in the names of their types. An op that takes one sort in some widths may take
#: it in others too.
WORDS = {"truths": ("bool",), "numbers": ("float", "double"), "integers": ("int",)}


def check(node: onnx.NodeProto, domain: str, version: int, dtype: Callable[[str], str | None]) -> None:
    """Raises `FormatError` or `DTypeError` for a node that is not as ONNX declares its op; other domains' ops pass.

    `dtype` gives the element type of a tensor, None where nothing is known of it. Attributes that the declaration does
    not have are left to the rules.
    """
    declared = _declared(node.op_type, version) if domain == "" else None
    if declared is None:
        return
    _count("inputs", node.op_type, node.input, declared.min_input, declared.max_input)
    _count("outputs", node.op_type, node.output, declared.min_output, declared.max_output)
    for index, (name, sorts) in enumerate(zip(node.input, _sorts(node.op_type, len(node.input)), strict=True)):
        given = dtype(name) if name else None
        if given is not None and _sort(given) not in (*sorts, None):
            raise DTypeError(
                f"input {index} of {node.op_type} has elements of the wrong sort",
                tensor=name,
                expected=" or ".join(sorted(sorts)),
                got=given,
            )
    if node.op_type == "Constant":
        # It has one attribute of thirteen, which the walk over the graph looks for.
        return
    have = {attr.name: attr for attr in node.attribute}
    if len(have) != len(node.attribute):
        raise FormatError("a node has one attribute twice", got=", ".join(attr.name for attr in node.attribute))
    for name, (kind, required) in _attributes(node.op_type, version).items():
        attr = have.get(name)
        if attr is None:
            if required:
                raise FormatError(f"attribute {name!r} of {node.op_type} is missing", expected=_kind(kind))
        elif attr.type != kind and not attr.ref_attr_name:
            raise FormatError(
                f"attribute {name!r} of {node.op_type} has the wrong type", expected=_kind(kind), got=_kind(attr.type)
            )


def _count(what: str, op: str, names: Any, least: int, most: int) -> None:
    # What is left out at the end need not be written.
    given = len(names)
    while given > most and names[given - 1] == "":
        given -= 1
    if least <= given <= most:
        return
    bounds = str(least) if least == most else f"{least} to {most}" if most < 1 << 30 else f"{least} or more"
    raise FormatError(f"{op} has another number of {what} than ONNX says", expected=bounds, got=str(given))


@cache
def _declared(op: str, version: int) -> Any:
    """ONNX's declaration; None where the installed onnx package does not have it."""
    from onnx import defs

    try:
        return defs.get_schema(op, version, "")
    except defs.SchemaError:
        return None


@cache
def _attributes(op: str, version: int) -> dict[str, tuple[int, bool]]:
    declared = _declared(op, version)
    return {name: (int(attr.type.value), bool(attr.required)) for name, attr in declared.attributes.items()}


@cache
def _sorts(op: str, count: int) -> list[frozenset[str]]:
    """The sorts of elements that each of so many inputs may have in the newest version of an op."""
    from onnx import defs

    declared = defs.get_schema(op)
    variables = {v.type_param_str: v.allowed_type_strs for v in declared.type_constraints}
    formal = [declared.inputs[min(index, len(declared.inputs) - 1)].type_str for index in range(count)]
    types = [variables.get(text, [text]) for text in formal]
    return [frozenset(filter(None, map(_sort, given))) for given in types]


def _sort(dtype: str) -> str | None:
    """The sort of an element type, as ONNX writes it ("tensor(double)") or as numpy does; None for texts and others."""
    return next((sort for sort, words in WORDS.items() if any(word in dtype for word in words)), None)


def _kind(number: int) -> str:
    return KINDS[number] if number < len(KINDS) else "sparse tensor" if number == SPARSE else f"type {number}"
