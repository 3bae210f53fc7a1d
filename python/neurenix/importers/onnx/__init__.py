"""ONNX models: `from_onnx`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from neurenix import files
from neurenix._native import Network
from neurenix.errors import FormatError, InvalidArgumentError
from neurenix.packages import need

if TYPE_CHECKING:
    import onnx

__all__ = ["from_onnx"]

#: So many bytes may a model have by protobuf's own rules.
LARGEST = (1 << 31) - 1

NEED = ("onnx", "reading an ONNX model")


def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    input_values: Mapping[str, ArrayLike | Sequence[ArrayLike] | None] | None = None,
    follow_links: bool = False,
    seed: int | None = None,
) -> Network:
    """Imports an ONNX model.

    `model` is a path, the bytes of one, or an `onnx.ModelProto`. Weights that lie in files beside a path are mapped
    into memory, not copied: those files must stay as they are while the network or an engine of it lives.

    A dimension that the model names becomes the symbol of that name; one without a name, or called "?", a symbol of its
    own. `input_shapes` says otherwise for the inputs that it names: integers fix a dimension, texts name it.
    `input_values` says what is always given for the inputs that it names, such as axes and sizes: they become
    constants, and are no inputs of the network any more; a list of arrays stands for a sequence, None for an optional
    value without an element.

    A sequence `x` among the inputs becomes the inputs `x_0`, `x_1` and so on, as many as `input_shapes` names; an
    optional value is taken to have an element. A sequence `y` among the outputs becomes the outputs `y_0`, `y_1` and
    so on where its length is known at the import, and else one output `y`, its elements along a new first axis.

    An input with a default value (a weight that is listed among the inputs) is a constant too, unless `input_shapes`
    names it. `follow_links` lets links in the model's folder lead out of it to the files of weights, as those of a
    Hugging Face cache do: a model that others may write to could then read any file. A model older than opset 7 goes
    through ONNX's version converter first.

    `seed`, 0 to 2^64 - 1, takes ops of random numbers (RandomNormal, Bernoulli, ...), which are refused without one:
    their numbers are drawn once, here, and are the same in each call. Each node draws its own; nodes with the same
    attribute `seed` draw the same.

    Raises `FormatError` for what is no ONNX model, `FileError` for a file that can't be read, `UnsupportedError` with
    all nodes that can't be imported, and `ShapeError` or `DTypeError` with the node that does not fit its inputs.
    """
    need(*NEED)
    from neurenix.importers.onnx import wire
    from neurenix.importers.onnx.graph import import_model

    if seed is not None and not 0 <= seed < 1 << 64:
        raise InvalidArgumentError("the seed is out of range", expected="0 to 2^64 - 1", got=str(seed))
    apart: dict[str, Any] = {}
    if isinstance(model, (str, os.PathLike)):
        data, apart = wire.read(model)
        proto, folder = _parse(data, str(Path(model))), Path(model).parent
        del data
    else:
        proto, folder = read_model(model)[0], None
    shapes, values = dict(input_shapes or {}), dict(input_values or {})
    return import_model(proto, folder, shapes, None, values, follow_links, seed, apart)


def read_model(model: Any) -> tuple[onnx.ModelProto, Path | None]:
    """A model as it stands in its file, and the folder where the weights beside it lie; raises as `from_onnx`."""
    onnx = need(*NEED)
    if isinstance(model, onnx.ModelProto):
        return model, None
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parse(bytes(model), "the bytes"), None
    path = Path(model)
    return _parse(files.read(path, "the model"), str(path)), path.parent


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        large = "; a model of more than 2 GB must keep its weights in another file" if len(data) > LARGEST else ""
        raise FormatError(
            "this is no ONNX model", got=what, hint=f"give a file that onnx.checker accepts{large}"
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise FormatError("this is no ONNX model: it has no graph, or no opset", got=what)
    return model
