"""Any model that Neurenix knows, as a Network."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neurenix import nn
from neurenix._native import Network
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx import from_onnx
from neurenix.importers.torch import from_exported_program, from_torch
from neurenix.shapes import parse, union

KINDS = (
    "a path of an .onnx file, its bytes, an onnx.ModelProto, a torch.nn.Module, a torch.export.ExportedProgram, "
    "a neurenix.nn.Module, or a neurenix.Network"
)


def to_network(
    model: Any,
    input_shapes: Any = None,
    input_values: Mapping[str, Any] | None = None,
    refittable: bool = False,
) -> Network:
    """The network of a model; `input_shapes` (of one profile, or of several) tells torch and nn the shapes.

    `input_values` says what is always given for some inputs of an ONNX model. `refittable`: every weight of a torch
    module stays as it is, under its name.

    Raises `InvalidArgumentError` for what is no model, `UnsupportedError` for a kind that is not known yet, and as the
    importers do.
    """
    shapes = union(parse(input_shapes) if isinstance(input_shapes, str) else input_shapes)
    if input_values and not is_onnx(model):
        raise InvalidArgumentError(
            "input_values are for ONNX models",
            expected="an ONNX model, or no input_values",
            got=type(model).__name__,
            hint="make them constants of the model itself",
        )
    if isinstance(model, Network):
        return model
    if isinstance(model, nn.Module):
        return nn.trace(model, _given(shapes))
    if isinstance(model, (str, os.PathLike)):
        return _from_path(Path(model), input_values)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return from_onnx(bytes(model), input_values=input_values)
    if _is(model, "torch", "nn.Module"):
        return from_torch(model, input_shapes=_given(shapes), refittable=refittable)
    if _is(model, "torch", "export.ExportedProgram"):
        return from_exported_program(model, refittable)
    if _is(model, "onnx", "ModelProto"):
        return from_onnx(model, input_values=input_values)
    if type(model).__module__.partition(".")[0] in ("keras", "tensorflow", "tf_keras"):
        raise UnsupportedError(
            "TensorFlow and Keras models are not imported yet", hint="export the model to ONNX with tf2onnx"
        )
    raise InvalidArgumentError("this is no model", expected=KINDS, got=type(model).__name__, hint=_hint(model))


def _hint(model: Any) -> str | None:
    """What somebody who gave this may have meant."""
    if isinstance(model, Mapping):
        return "a state dict is weights alone: load it into its module, and give that"
    if isinstance(model, type):
        return "this is a class: give an object of it"
    return None


def _given(shapes: Any) -> Any:
    if shapes is None:
        raise InvalidArgumentError(
            "the shapes of the inputs must be known to trace a module", hint="give input_shapes={'input': (1, ...)}"
        )
    return shapes


def _from_path(path: Path, values: Mapping[str, Any] | None) -> Network:
    if path.suffix in (".onnx", ""):
        return from_onnx(path, input_values=values)
    hints = {
        ".pt": "load the module with torch.load and give it",
        ".pth": "load the module with torch.load and give it",
        ".pt2": "load it with torch.export.load and give the program",
        ".engine": "open it with TensorRTBackend().load(path)",
        ".plan": "TensorRT's own plans run only in TensorRT; give the ONNX model they were built from",
    }
    hint = hints.get(path.suffix, "export the model to ONNX")
    raise UnsupportedError("files of this kind are not models", expected=".onnx", got=path.name, hint=hint)


def is_onnx(model: Any) -> bool:
    """Whether this is an ONNX model: a path, bytes, or a ModelProto."""
    return isinstance(model, (str, os.PathLike, bytes, bytearray, memoryview)) or _is(model, "onnx", "ModelProto")


def _is(model: Any, package: str, name: str) -> bool:
    """Whether this is an instance of a class of a package, which is not imported to find out."""
    found: Any = sys.modules.get(package)
    for part in name.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(model, found)
