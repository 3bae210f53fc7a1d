"""Inputs and outputs of a model: what they are called, and what the caller says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from neurenix import names as naming
from neurenix._native import Tensor
from neurenix.errors import Error, InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx import around
from neurenix.importers.onnx.node import Array
from neurenix.importers.onnx.values import Element, EmptyOptional, KnownSequence, RaggedSequence, StackedSequence, kind
from neurenix.importers.onnx.weights import dtype_of

if TYPE_CHECKING:
    import onnx

    from neurenix.importers.onnx.graph import Graph

Shapes = Mapping[str, Sequence[int | str]]


def forget_defaults(graph: Graph, inputs: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> None:
    """Makes inputs of those weights that are inputs with a default value and whose shape the caller names."""
    for port in inputs:
        if port.name in shapes:
            graph.constants.pop(port.name, None)


def add_values(graph: Graph, inputs: Sequence[onnx.ValueInfoProto], values: Mapping[str, Any]) -> None:
    """Takes inputs whose elements the caller knows: they are constants.

    A sequence is a list of arrays, an optional value without an element None. Raises `InvalidArgumentError` for names
    that the model does not have, and for values that do not fit.
    """
    ports = {port.name: port.type for port in inputs}
    for name, value in values.items():
        if name not in ports:
            raise InvalidArgumentError(
                f"the model has no input {name!r}, of which a value is given",
                expected=", ".join(ports),
                hint=naming.hint(name, ports),
            )
        add_value(graph, name, value, ports[name])


def add_value(graph: Graph, name: str, value: Any, port: onnx.TypeProto) -> None:
    """Takes the value of one input."""
    held = _held(port)
    if value is None and port.HasField("optional_type"):
        graph.values[name] = EmptyOptional()
    elif held.HasField("sequence_type"):
        if not isinstance(value, (list, tuple)):
            raise InvalidArgumentError(
                "the input is a sequence", tensor=name, expected="a list of arrays", got=type(value).__name__
            )
        element = held.sequence_type.elem_type.tensor_type
        arrays = [_fitting(f"{name}_{index}", array, element) for index, array in enumerate(value)]
        graph.values[name] = KnownSequence(tuple(Element(None, array, determined=True) for array in arrays))
    else:
        graph.constants[name] = _fitting(name, value, held.tensor_type)


def _held(port: onnx.TypeProto) -> onnx.TypeProto:
    """A type; of an optional value, that of its element."""
    held: onnx.TypeProto = port.optional_type.elem_type if port.HasField("optional_type") else port
    return held


def add_inputs(graph: Graph, inputs: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> None:
    """Takes the inputs; older files list the weights among them.

    A sequence `x` becomes the inputs `x_0`, `x_1` and so on, as many as `shapes` names. An optional value has an
    element unless `add_value` said otherwise. Raises `InvalidArgumentError` for shapes that fit no input,
    `UnsupportedError` for an input that is no tensor of numbers, or whose rank or length nothing tells.
    """
    wanted = [(port.name, _held(port.type)) for port in inputs if not graph.has(port.name)]
    lengths = {name: _length(name, shapes, inputs) for name, held in wanted if held.HasField("sequence_type")}
    names = [one for name, _ in wanted for one in _names(name, lengths)]
    for name in shapes:
        if name not in names:
            raise InvalidArgumentError(
                f"the model has no input {name!r}", expected=", ".join(names), hint=naming.hint(name, names)
            )
    for name, held in wanted:
        if name not in lengths:
            graph.tensors[name] = _add(graph, name, held, shapes)
            continue
        if lengths[name] == 0:
            raise UnsupportedError(
                "the model does not say how many tensors a sequence has",
                tensor=name,
                hint=f"say it by the shapes of its elements, {{'{name}_0': (1, 3), '{name}_1': (1, 3)}}, of an empty "
                f"one by input_values={{{name!r}: []}}",
            )
        elements = [_add(graph, one, held.sequence_type.elem_type, shapes) for one in _names(name, lengths)]
        graph.values[name] = KnownSequence(tuple(map(Element, elements)))


def _length(name: str, shapes: Shapes, inputs: Sequence[onnx.ValueInfoProto]) -> int:
    """How many elements of a sequence have shapes."""
    free = set(shapes) - {port.name for port in inputs}
    return next(index for index in count() if f"{name}_{index}" not in free)


def _names(name: str, lengths: Mapping[str, int]) -> list[str]:
    """What an input is called in the network, element by element."""
    return [f"{name}_{index}" for index in range(lengths[name])] if name in lengths else [name]


def _add(graph: Graph, name: str, held: onnx.TypeProto, shapes: Shapes) -> Tensor:
    """Adds one tensor."""
    given = shapes.get(name)
    if not held.HasField("tensor_type"):
        raise UnsupportedError("an input is no tensor", tensor=name, got=str(held.WhichOneof("value")))
    info = held.tensor_type
    if not info.HasField("shape") and given is None:
        raise UnsupportedError(
            "the model does not say how many dimensions an input has",
            tensor=name,
            hint=f"say it: input_shapes={{{name!r}: ('batch', 3, 224, 224)}}",
        )
    dims = [_dim(d, f"{name}.{axis}") for axis, d in enumerate(info.shape.dim)]
    if given is not None:
        if info.HasField("shape") and len(given) != len(dims):
            raise InvalidArgumentError(
                "the given shape has another number of dimensions than the input",
                tensor=name,
                expected=str(tuple(dims)),
                got=str(tuple(given)),
            )
        dims = [_named(d, f"{name}.{axis}") for axis, d in enumerate(given)]
    try:
        return around.add_input(graph.network, graph.names.get(name, name), dtype_of(info.elem_type), dims)
    except Error as error:
        error.tensor = error.tensor or name
        raise


def mark_outputs(graph: Graph, outputs: Sequence[onnx.ValueInfoProto]) -> None:
    """Makes results of what the model gives.

    A sequence `y` whose length the import knows becomes the results `y_0`, `y_1` and so on, any other one result `y`
    with its elements along a new first axis; where their extents along an axis differ, side by side along that axis,
    with the extents as `y_lengths`. Raises `UnsupportedError` for an optional value without an element.
    """
    for port in outputs:
        name = graph.names.get(port.name, port.name)
        value = graph.value(port.name)
        if isinstance(value, KnownSequence):
            for index, element in enumerate(value.elements):
                around.mark_output(graph.network, graph.bring(element), f"{name}_{index}")
        elif isinstance(value, StackedSequence):
            around.mark_output(graph.network, value.tensor, name)
        elif isinstance(value, RaggedSequence):
            around.mark_output(graph.network, value.tensor, name)
            around.mark_output(graph.network, value.lengths, f"{name}_lengths")
        elif value is not None:
            raise UnsupportedError("an output of the model is no tensor", tensor=port.name, got=kind(value))
        else:
            around.mark_output(graph.network, graph.tensor(port.name), name)


def _fitting(name: str, value: ArrayLike, port: onnx.TypeProto.Tensor) -> Array:
    """A given value as the array that an input of this type takes."""
    array, dtype = np.asarray(value), dtype_of(port.elem_type)
    if not hasattr(value, "dtype") and (array.size == 0 or np.can_cast(array.dtype, dtype, "same_kind")):
        # A plain number or list has no dtype of its own.
        array = array.astype(dtype)
    dims = [_dim(dim, f"{name}.{axis}") for axis, dim in enumerate(port.shape.dim)]
    fits = len(dims) == array.ndim and all(isinstance(d, str) or d == n for d, n in zip(dims, array.shape, strict=True))
    if array.dtype != dtype or (port.HasField("shape") and not fits):
        raise InvalidArgumentError(
            "the given value does not fit the input",
            tensor=name,
            expected=f"{dtype}{dims if port.HasField('shape') else ''}",
            got=f"{array.dtype}{list(array.shape)}",
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _dim(proto: onnx.TensorShapeProto.Dimension, own: str) -> int | str:
    if proto.HasField("dim_value"):
        return _named(proto.dim_value, own)
    return _named(proto.dim_param, own)


def _named(dim: int | str, own: str) -> int | str:
    """A dimension as the Network has it; `own` names one that has no name."""
    if isinstance(dim, str):
        name = dim.strip().replace("'", "")
        return f"'{own}'" if name in ("", "?") else f"'{name}'"
    return int(dim) if dim >= 0 else f"'{own}'"
