"""torch.export programs: their names, and the ranges of their dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx
import torch

from neurenix._native import Network
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.graph import import_model
from neurenix.importers.torch.bounds import bounds_within_dtype
from neurenix.importers.torch.constants import model_of
from neurenix.importers.torch.export import input_ports, output_names
from neurenix.importers.torch.results import in_16_bits
from neurenix.importers.torch.silence import first_line, silence
from neurenix.importers.torch.translations import translations
from neurenix.importers.torch.trying import check_loaded
from neurenix.importers.torch.unused import without_unused
from neurenix.log import LOG

#: What the greatest dimension is taken to be where nobody states one.
_UNBOUNDED = 2**31 - 1
#: torch states this minimum where nobody does, and runs programs below it.
_UNSTATED = 2


@dataclass(frozen=True)
class Dimension:
    """A dynamic dimension: the name that the user gave it, else torch's, and its range."""

    name: str
    min: int
    opt: int
    max: int


def export_program(program: torch.export.ExportedProgram, refittable: bool) -> Network:
    """The network of an exported program; with `refittable` as its weights are."""
    check_loaded(program.state_dict.items())
    try:
        with silence(), bounds_within_dtype(program.graph):
            exported = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                optimize=not refittable,
                custom_translation_table=translations(),
            )
        assert exported is not None
        model = model_of(exported)
    except Exception as error:
        LOG.debug("torch's exporter failed", exc_info=error)
        raise UnsupportedError(f"torch can't write the program as ONNX: {first_line(error)}") from None
    return imported(program, model)


def imported(program: torch.export.ExportedProgram, model: onnx.ModelProto) -> Network:
    """The network of what torch's exporter wrote for a program, with the program's dimensions."""
    dimensions = _dimensions(program)
    model = in_16_bits(without_unused(model), program)
    for port in input_ports(model):
        for dim in port.type.tensor_type.shape.dim:
            if dim.dim_param in dimensions:
                dim.dim_param = dimensions[dim.dim_param].name
    network = import_model(model, None, {}, output_names(model), sizes_of_floats=False)
    # Only now: what torch states need not hold (a minimum of 2), so nothing may be built upon it.
    for dimension in dimensions.values():
        if dimension.name in network.symbols:
            network.set_range(dimension.name, dimension.min, dimension.opt, dimension.max)
    return network


def shapes_of(program: torch.export.ExportedProgram) -> dict[str, list[int | str]]:
    """The shapes of a program's inputs, with names for their dynamic dimensions."""
    dimensions = _dimensions(program)
    return {
        name: [dimensions[_text(size)].name if isinstance(size, torch.SymInt) else size for size in value.shape]
        for name, value in _inputs(program)
    }


def _inputs(program: torch.export.ExportedProgram) -> Iterator[tuple[str, Any]]:
    """The user's tensors, by name."""
    wanted = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name in wanted and isinstance(value, torch.Tensor):
            yield node.name, value


def _dimensions(program: torch.export.ExportedProgram) -> dict[str, Dimension]:
    """The dynamic dimensions of the inputs, by torch's own text."""
    ranges = {str(expression): limits for expression, limits in program.range_constraints.items()}
    found: dict[str, Dimension] = {}
    for _, value in _inputs(program):
        for size in value.shape:
            if isinstance(size, torch.SymInt) and _text(size) not in found:
                found[_text(size)] = _dimension(size, ranges.get(_text(size)))
    return found


def _dimension(size: torch.SymInt, limits: Any) -> Dimension:
    text, node = _text(size), size.node
    low, high = (limits.lower, limits.upper) if limits is not None else (0, _UNBOUNDED)
    high = int(high) if high < _UNBOUNDED else _UNBOUNDED
    low = 0 if high == _UNBOUNDED and low == _UNSTATED else int(low)
    seen = getattr(node, "hint", None)
    opt = min(max(low, seen if isinstance(seen, int) else 1), high)
    return Dimension(_given_names(node.shape_env).get(text, text), low, opt, high)


def _given_names(environment: Any) -> dict[str, str]:
    """What users called dimensions, by torch's text; a file does not keep that."""
    names = getattr(environment, "source_name_to_debug_name", {})
    symbols = getattr(environment, "source_to_var", {})
    return {str(symbols[source]): name for source, name in names.items() if source in symbols}


def _text(size: torch.SymInt) -> str:
    return str(size.node.expr)
