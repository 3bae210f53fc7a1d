"""`torch_tensorrt.compile`, `save` and `load`."""

from __future__ import annotations

import functools
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import torch

from neurenix import files, names
from neurenix.errors import Error, FileError, FormatError, InvalidArgumentError, UnsupportedError
from neurenix.importers.torch.silence import first_line
from neurenix.torch.compiled import CompiledModule
from neurenix.torch.dynamo import neurenix
from neurenix.torch.files import read_program
from neurenix.torch.settings import Settings
from neurenix.torch_tensorrt import dynamo

#: The ways to compile, and what each of them is also called.
_WAYS = {
    "default": "dynamo",
    "dynamo": "dynamo",
    "exported_program": "dynamo",
    "torch_compile": "torch_compile",
    "ts": "ts",
    "torchscript": "ts",
}


def compile(
    module: Any,
    ir: str = "default",
    inputs: Any = None,
    arg_inputs: Any = None,
    kwarg_inputs: Mapping[str, Any] | None = None,
    enabled_precisions: Any = None,
    **kwargs: Any,
) -> Any:
    """Compiles a `torch.nn.Module` or a program of `torch.export` for inputs, as Torch-TensorRT's function does.

    `ir`: "dynamo" (and "default") gives a module with engines in it, "ts" a ScriptModule of the same, "torch_compile"
    what `torch.compile(module, backend="neurenix")` gives. `inputs`: `Input`s and tensors. `enabled_precisions`: the
    narrowest of them is computed in; float32 without any. `kwargs`: settings, ours and Torch-TensorRT's.

    Raises `InvalidArgumentError` for unknown options and ways, `UnsupportedError` for TorchScript and for what
    torch can't export, and as `dynamo.trace` and `dynamo.compile`.
    """
    way = _way(ir)
    if not isinstance(module, (torch.nn.Module, torch.export.ExportedProgram)):
        raise InvalidArgumentError(
            "this is no module",
            expected="torch.nn.Module or torch.export.ExportedProgram",
            got=type(module).__name__,
            hint='torch.compile(function, backend="neurenix") takes functions' if callable(module) else None,
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(
            "TorchScript is not compiled",
            hint="give the torch.nn.Module that it was scripted from, or a torch.export program",
        )
    if enabled_precisions is not None:
        kwargs["enabled_precisions"] = enabled_precisions
    # What can't be had is said before anything is traced.
    Settings.of({name: value for name, value in kwargs.items() if name != "strict"})
    if way == "torch_compile":
        return torch.compile(module, backend=neurenix, dynamic=kwargs.pop("dynamic", None), options=kwargs)
    program = dynamo.trace(module, inputs, arg_inputs=arg_inputs, kwarg_inputs=kwarg_inputs, **_of_trace(kwargs))
    made = dynamo.compile(program, inputs, arg_inputs=arg_inputs, kwarg_inputs=kwarg_inputs, **kwargs)
    return made.script() if way == "ts" else made


def _of_trace(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"strict": kwargs.pop("strict")} if "strict" in kwargs else {}


def convert_method_to_trt_engine(
    module: torch.nn.Module,
    method_name: str = "forward",
    inputs: Any = None,
    ir: str = "default",
    arg_inputs: Any = None,
    kwarg_inputs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> bytes:
    """The engine of a module as bytes, which `trt.Runtime` opens. Raises as `compile`, and where it takes several."""
    if method_name != "forward":
        raise UnsupportedError("forward alone is compiled", got=method_name)
    _way(ir)
    given: dict[str, Any] = {"arg_inputs": arg_inputs, "kwarg_inputs": kwarg_inputs}
    program = dynamo.trace(module, inputs, **given)
    return dynamo.convert_exported_program_to_serialized_trt_engine(program, inputs, **given, **kwargs)


def _way(ir: str) -> str:
    way = _WAYS.get(ir)
    if way is None:
        if ir == "fx":
            raise UnsupportedError('ir="fx" is not supported', hint='ir="dynamo" takes its place')
        raise InvalidArgumentError(f"there is no ir {ir!r}", expected=", ".join(_WAYS), hint=names.hint(ir, _WAYS))
    return way


def save(
    module: Any,
    file_path: Any = "",
    *,
    output_format: str = "exported_program",
    inputs: Any = None,
    arg_inputs: Any = None,
    kwarg_inputs: Mapping[str, Any] | None = None,
    retrace: bool = True,
    dynamic_shapes: Any = None,
    **kwargs: Any,
) -> None:
    """Saves a compiled module: as a program that `torch.export.load` reads, or with "torchscript" for `torch.jit.load`.

    Where the file is read, `neurenix.torch_tensorrt` (or `neurenix.torch.engine_op`) must have been imported.

    Raises `InvalidArgumentError` for another format, `UnsupportedError` for what can't be saved, `FileError` when the
    file can't be written.
    """
    formats = ("exported_program", "torchscript")
    if output_format not in formats:
        raise InvalidArgumentError(
            f"there is no output_format {output_format!r}",
            expected=", ".join(formats),
            hint=names.hint(output_format, formats),
        )
    if isinstance(module, torch.jit.ScriptModule) or output_format == "torchscript":
        write = _script(module).save
    else:
        is_program = isinstance(module, torch.export.ExportedProgram)
        program = module if is_program else _program(module, inputs, arg_inputs, kwarg_inputs, dynamic_shapes)
        write = functools.partial(torch.export.save, program)
    try:
        write(os.fspath(file_path))
    except (OSError, RuntimeError) as error:
        raise FileError(f"the module can't be written: {first_line(error)}", got=str(file_path)) from error


def _script(module: Any) -> Any:
    if isinstance(module, torch.jit.ScriptModule):
        return module
    if isinstance(module, CompiledModule):
        return module.script()
    raise UnsupportedError("this is no compiled module", expected="what compile gave", got=type(module).__name__)


def _program(module: Any, inputs: Any, args: Any, kwargs: Any, dynamic: Any) -> torch.export.ExportedProgram:
    if not isinstance(module, CompiledModule):
        raise UnsupportedError(
            "this is no compiled module",
            expected='what compile gave with ir="dynamo"',
            got=type(module).__name__,
            hint="what torch.compile gives is not saved: compile ahead of calls",
        )
    if inputs is None and args is None and not kwargs:
        return module.exported(axes=dynamic)
    found, keywords = dynamo._inputs(inputs, args, kwargs)
    given, named = dynamo.examples(module, found), dynamo.examples(module, keywords)
    axes = dynamic or dynamo._by_name(module.graph_module, dynamo._axes(found), dynamo._axes(keywords))
    return module.exported(given, named, axes)


def load(file_path: Any = "", extra_files: Any = None) -> Any:
    """Opens what `save` or `torch.jit.save` wrote: an `ExportedProgram` (call its `module()`), or a ScriptModule.

    Nothing but torch's own graphs is executed from it. Raises `FileError` when it can't be read, `FormatError` when it
    is none of these, and `UnsupportedError` for TorchScript without engines of ours.
    """
    path = os.fspath(file_path)
    files.check(path, "the file")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.namelist()
    except OSError as error:
        raise FileError(f"the file can't be read: {error.strerror}", got=path) from error
    except zipfile.BadZipFile:
        raise FormatError("this is no file of torch's", expected="what torch_tensorrt.save wrote", got=path) from None
    if not any(name.endswith("constants.pkl") for name in entries):
        return read_program(path, extra_files)
    try:
        return _loaded_script(path, extra_files)
    except RuntimeError as error:
        if isinstance(error, Error):
            raise
        raise FormatError(f"torch can't read it: {first_line(error)}", got=path) from error


def _loaded_script(path: str, extra_files: Any) -> Any:
    read: Any = torch.jit.load
    module = read(path, _extra_files=extra_files)
    if "neurenix::run" not in str(module.inlined_graph):
        raise UnsupportedError(
            "this TorchScript has no engine of ours",
            expected="what torch_tensorrt.save or torch.jit.save wrote of a compiled module",
            got=path,
            hint="torch.jit.load opens it; compile the torch.nn.Module that it was made from",
        )
    return module
