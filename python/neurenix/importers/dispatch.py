"""Any model that Neurenix knows, as a Network."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurenix import nn
from neurenix._native import Network
from neurenix.errors import FileError, InvalidArgumentError, UnsupportedError
from neurenix.importers import files
from neurenix.importers.jax import from_jax
from neurenix.importers.jax.kinds import is_jax
from neurenix.importers.onnx import from_onnx
from neurenix.importers.tensorflow import from_tensorflow, kinds, network_of
from neurenix.importers.torch import from_exported_program, from_torch
from neurenix.shapes import parse, union

if TYPE_CHECKING:
    import torch

KINDS = (
    "a path of an .onnx file, its bytes, an onnx.ModelProto, a torch.nn.Module, a torch.export.ExportedProgram, "
    f"{kinds.NAMES}, a jitted function of JAX's, a flax.nnx.Module, a neurenix.nn.Module, or a neurenix.Network"
)
#: What a path may name.
PATHS = f".onnx, {', '.join(files.TENSORFLOW)}, or the folder of a SavedModel"


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
    if kinds.is_source(model):
        return network_of(model, shapes)
    if is_jax(model):
        return from_jax(model, input_shapes=_given(shapes))
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
    if isinstance(model, Mapping):
        raise InvalidArgumentError(
            "this is a dict, as of weights, and no model",
            expected=KINDS,
            got=f"{type(model).__name__} with {', '.join(map(repr, islice(model, 3))) or 'nothing in it'}",
            hint="load a state dict into its module, module.load_state_dict(weights), and give the module",
        )
    hint = "this is a class: give an object of it" if isinstance(model, type) else None
    raise InvalidArgumentError("this is no model", expected=KINDS, got=type(model).__name__, hint=hint)


def scripted(model: torch.nn.Module, input_shapes: Any, refittable: bool) -> Network:
    """The network of a PyTorch module by the exporter that `to_network` takes second. Raises as `from_torch`."""
    shapes = union(parse(input_shapes) if isinstance(input_shapes, str) else input_shapes)
    return from_torch(model, input_shapes=_given(shapes), dynamo=False, refittable=refittable)


def _given(shapes: Any) -> Any:
    if shapes is None:
        raise InvalidArgumentError(
            "the shapes of the inputs must be known to trace a module", hint="give input_shapes={'input': (1, ...)}"
        )
    return shapes


def _from_path(path: Path, values: Mapping[str, Any] | None) -> Network:
    if path.is_dir():
        raise files.refuse_folder(path, PATHS)
    if path.suffix != ".onnx" and not path.exists():
        raise FileError("the model can't be read: No such file or directory", expected=PATHS, got=str(path))
    if path.suffix in files.KERAS_2:
        raise files.refuse_keras_2(path, PATHS)
    if path.suffix in files.TORCH:
        load = "safetensors.torch.load_file" if path.suffix == ".safetensors" else "torch.load"
        raise files.refuse_torch(
            path,
            PATHS,
            "give the module that it was scripted from, or save it with torch.onnx.export (.onnx)",
            f"give the torch.nn.Module that they belong to, after module.load_state_dict({load}({str(path)!r}))",
        )
    if path.suffix in (".onnx", ""):
        return from_onnx(path, input_values=values)
    hints = {
        ".pt2": "load it with torch.export.load and give the program",
        ".engine": "open it with TensorRTBackend().load(path)",
        ".plan": "TensorRT's own plans run only in TensorRT; give the ONNX model they were built from",
    }
    hint = hints.get(path.suffix, "export the model to ONNX")
    raise UnsupportedError("files of this kind are not models", expected=PATHS, got=path.name, hint=hint)


def is_onnx(model: Any) -> bool:
    """Whether this is an ONNX model: a path that is not another kind's, bytes, or a ModelProto."""
    if isinstance(model, (str, os.PathLike)):
        return not kinds.is_path(Path(model))
    return isinstance(model, (bytes, bytearray, memoryview)) or _is(model, "onnx", "ModelProto")


def with_shapes(model: Any, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> Network:
    """The network of an ONNX or TensorFlow model with these shapes in place of its own. Raises as the importers do."""
    if kinds.is_source(model):
        return from_tensorflow(model, input_shapes=shapes)
    return from_onnx(model, input_shapes=shapes, input_values=values)


def takes_shapes(model: Any) -> bool:
    """Whether `with_shapes` takes this."""
    return is_onnx(model) or kinds.is_source(model)


def _is(model: Any, package: str, name: str) -> bool:
    """Whether this is an instance of a class of a package, which is not imported to find out."""
    found: Any = sys.modules.get(package)
    for part in name.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(model, found)
