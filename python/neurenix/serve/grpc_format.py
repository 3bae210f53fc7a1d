"""Requests and responses for inference as gRPC carries them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neurenix.serve import messages, parameters
from neurenix.serve.http_format import settled
from neurenix.serve.served import Served
from neurenix.serve.spec import Array, Request, TensorSpec, complete, from_bytes, tensor_of, wanted_outputs
from neurenix.serve.status import Refused, Status

#: The field that has the elements of each datatype; the others come as bytes alone.
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip


def parameters_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a map of parameters."""
    found = {}
    for name, value in given.items():
        choice = value.WhichOneof("parameter_choice")
        if choice is not None:
            found[name] = getattr(value, choice)
    return found


def decode(served: Served, message: Any, remaining_s: float | None) -> Request:
    """The request of a message, which its client waits for so long; raises `Refused` for what does not fit."""
    spec = served.spec
    given = parameters_of(message.parameters)
    parameters.check(given)
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise Refused(
            Status.INVALID, "raw_input_contents does not have an element for each input",
            expected=str(len(message.inputs)), got=str(len(raw)),
        )  # fmt: skip
    arrays: dict[str, Array] = {}
    for index, entry in enumerate(message.inputs):
        if entry.name in arrays:
            raise Refused(Status.INVALID, f"input {entry.name!r} is given twice")
        if entry.parameters:
            parameters.check(parameters_of(entry.parameters))
        shape = list(entry.shape)
        tensor = tensor_of(spec, entry.name, entry.datatype, shape)
        arrays[entry.name] = (
            settled(from_bytes(tensor, shape, raw[index])) if raw else _from_contents(tensor, shape, entry.contents)
        )
    for entry in message.outputs:
        if entry.parameters:
            parameters.check(parameters_of(entry.parameters))
    return Request(
        message.id,
        arrays,
        complete(spec, arrays),
        wanted_outputs(spec, [entry.name for entry in message.outputs]),
        parameters.priority(given),
        _earlier(parameters.deadline(given, served.default_timeout_us), parameters.deadline_in(remaining_s)),
    )


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((deadline for deadline in (one, other) if deadline is not None), default=None)


def _from_contents(tensor: TensorSpec, shape: Sequence[int], contents: Any) -> Array:
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        raise Refused(
            Status.INVALID, f"input {tensor.name!r} comes as bytes alone", expected="raw_input_contents",
            got=f"{tensor.datatype} in contents",
        )  # fmt: skip
    values = getattr(contents, field)
    count = int(np.prod(shape, dtype=object)) if len(shape) else 1
    if len(values) != count:
        raise Refused(
            Status.INVALID, f"input {tensor.name!r} has the wrong number of elements",
            expected=f"{count} in {field}", got=str(len(values)),
        )  # fmt: skip
    found = np.array(values)
    cast = found.astype(tensor.dtype)
    if tensor.dtype.kind in "iu" and count and not np.array_equal(cast, found):
        raise Refused(Status.INVALID, f"input {tensor.name!r} has elements out of the range of {tensor.datatype}")
    return from_bytes(tensor, shape, cast.tobytes())


def encode(served: Served, request: Request, outputs: Mapping[str, Array]) -> Any:
    """The message of a response."""
    response = messages.load().ModelInferResponse(
        model_name=served.name, model_version=str(served.version), id=request.id
    )
    for tensor in served.spec.outputs:
        if tensor.name in request.outputs:
            array = outputs[tensor.name]
            response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=array.shape)
            response.raw_output_contents.append(array.tobytes())
    return response
