"""Runs torch's ONNX exporters, silenced and in memory."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import torch

from neurenix import shapes
from neurenix._native import Network
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx.graph import import_model
from neurenix.log import LOG
from neurenix.packages import need

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

#: The newest opset that the TorchScript exporter writes well.
SCRIPT_OPSET = 17


@dataclass(frozen=True)
class Request:
    """The inputs to export with."""

    names: list[str]
    examples: list[torch.Tensor]
    #: For each input, the dynamic axes and the names of their dimensions.
    dynamic: list[dict[int, str]]

    @classmethod
    def of(cls, module: torch.nn.Module, inputs: Any, input_shapes: Any, dynamic: Any) -> Request:
        """What the arguments of `from_torch` ask for."""
        if inputs is not None:
            return cls._of_examples(module, inputs, dict(dynamic or {}))
        if input_shapes is None:
            raise InvalidArgumentError(
                "torch must run the module to export it", hint="give example inputs, or input_shapes"
            )
        return cls._of_shapes(module, input_shapes)

    @classmethod
    def _of_examples(cls, module: torch.nn.Module, inputs: Any, dynamic: dict[str, Any]) -> Request:
        if isinstance(inputs, Mapping):
            named = _ordered(module, dict(inputs))
        else:
            given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
            named = {_default("input", i): example for i, example in enumerate(given)}
        for name in dynamic:
            if name not in named:
                raise InvalidArgumentError(f"there is no input {name!r}", expected=", ".join(named))
        examples = [_tensor(module, value) for value in named.values()]
        return cls(list(named), examples, [_axes(name, dynamic.get(name, {})) for name in named])

    @classmethod
    def _of_shapes(cls, module: torch.nn.Module, input_shapes: Any) -> Request:
        if isinstance(input_shapes, Mapping) and not set(input_shapes) <= {"min", "opt", "max"}:
            given = _ordered(module, dict(input_shapes))
        else:
            given = {"input": input_shapes}
        examples, dynamic = [], []
        for name, value in given.items():
            wanted = shapes.shape(value, name)
            axes = {
                axis: f"{name}_{axis}" if axis else "batch"
                for axis, (low, high) in enumerate(zip(wanted.min, wanted.max, strict=True))
                if low != high
            }
            # torch takes a dimension of 0 or 1 for fixed.
            dims = [max(2, d) if axis in axes else d for axis, d in enumerate(wanted.opt)]
            examples.append(_example(module, value, dims))
            dynamic.append(axes)
        return cls(list(given), examples, dynamic)


def export_module(module: torch.nn.Module, request: Request, dynamo: bool, refittable: bool) -> Network:
    """The network of a module, by the first exporter that can write it; with `refittable` as its weights are."""
    refusals = []
    for exporter in (_dynamo, _script) if dynamo else (_script,):
        try:
            with _eval_mode(module), _silence(), torch.no_grad():
                model = exporter(module, request, refittable)
        except Exception as error:
            refusals.append(f"{exporter.__doc__}: {first_line(error)}")
            LOG.info("torch's exporter failed. %s", refusals[-1])
            continue
        if refusals:
            LOG.warning("exported with %s, because of %s", exporter.__doc__, "; ".join(refusals))
        return _import(model, request)
    _check_runs(module, request)
    raise UnsupportedError(
        "torch can't export the module as ONNX",
        got="; ".join(refusals),
        hint="export it with torch.onnx.export yourself and give the ONNX model",
    )


def _check_runs(module: torch.nn.Module, request: Request) -> None:
    """Raises where it is not the exporters that fail, but the module itself."""
    try:
        with _eval_mode(module), _silence(), torch.no_grad():
            module(*request.examples)
    except Exception as error:
        given = zip(request.names, request.examples, strict=True)
        raise InvalidArgumentError(
            "the module fails on inputs of these shapes",
            expected="shapes that module(*inputs) runs on",
            got=f"{', '.join(f'{name} {list(example.shape)}' for name, example in given)}: {first_line(error)}",
        ) from error


def export_program(program: torch.export.ExportedProgram, refittable: bool) -> Network:
    """The network of an exported program; with `refittable` as its weights are."""
    try:
        with _silence():
            exported = torch.onnx.export(program, dynamo=True, verbose=False, optimize=not refittable)
        assert exported is not None
        model = exported.model_proto
    except Exception as error:
        raise UnsupportedError(f"torch can't write the program as ONNX: {first_line(error)}") from error
    count = len(model.graph.input)
    return _import(model, Request([_default("input", i) for i in range(count)], [], [{}] * count))


def quiet_export(model: torch.nn.Module | torch.export.ExportedProgram, request: Request | None) -> Any:
    """What torch's dynamo exporter makes of a model: the ONNX model, and the program that it was written from."""
    need("onnxscript", "torch's ONNX exporter")
    with _silence(), torch.no_grad():
        if request is None:
            return torch.onnx.export(model, dynamo=True, verbose=False)
        assert isinstance(model, torch.nn.Module)
        with _eval_mode(model):
            return torch.onnx.export(
                model, tuple(request.examples), dynamo=True, verbose=False, input_names=request.names
            )


def _dynamo(module: torch.nn.Module, request: Request, refittable: bool) -> onnx.ModelProto:
    """the dynamo exporter"""
    dynamic = tuple(dict(axes) or None for axes in request.dynamic) if any(request.dynamic) else None
    program = torch.onnx.export(
        module,
        tuple(request.examples),
        dynamo=True,
        verbose=False,
        dynamic_shapes=dynamic,
        input_names=request.names,
        optimize=not refittable,
    )
    assert program is not None
    return program.model_proto


def _script(module: torch.nn.Module, request: Request, refittable: bool) -> onnx.ModelProto:
    """the TorchScript exporter"""
    # Whatever `verbose` says, its C++ part writes the graph of a failed export, by itself to stdout.
    torch._C._jit_set_onnx_log_output_stream("stderr")
    file = io.BytesIO()
    torch.onnx.export(
        module,
        tuple(request.examples),
        file,  # type: ignore[arg-type]
        dynamo=False,
        input_names=request.names,
        dynamic_axes={name: axes for name, axes in zip(request.names, request.dynamic, strict=True) if axes},
        opset_version=SCRIPT_OPSET,
        do_constant_folding=not refittable,
        # The module is in eval mode; told of that, the exporter would multiply its normalisations into its weights.
        training=torch.onnx.TrainingMode.PRESERVE if refittable else torch.onnx.TrainingMode.EVAL,
    )
    return onnx.load_from_string(file.getvalue())


def _import(model: onnx.ModelProto, request: Request) -> Network:
    """Imports the exporter's model under the names that were asked for."""
    inputs = model.graph.input
    weights = {t.name for t in model.graph.initializer}
    inputs = [i for i in inputs if i.name not in weights]
    if len(inputs) != len(request.names):
        raise UnsupportedError(
            "the exported model has another number of inputs than forward",
            expected=", ".join(request.names),
            got=", ".join(i.name for i in inputs),
            hint="an argument that does not influence the result must be left out",
        )
    renamed = {i.name: name for i, name in zip(inputs, request.names, strict=True)}
    renamed |= {o.name: _default("output", index) for index, o in enumerate(model.graph.output)}
    return import_model(model, None, {}, renamed)


def _default(word: str, index: int) -> str:
    return word if index == 0 else f"{word}_{index}"


def _ordered(module: torch.nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """In the order of forward's arguments, when the names are theirs; else as they stand."""
    try:
        parameters = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return given
    if set(given) <= set(parameters):
        return {name: given[name] for name in parameters if name in given}
    return given


def _axes(name: str, dynamic: Mapping[int, str] | Sequence[int]) -> dict[int, str]:
    if isinstance(dynamic, Mapping):
        return dict(dynamic)
    return {axis: f"{name}_{axis}" if axis else "batch" for axis in dynamic}


def _place(module: torch.nn.Module) -> tuple[torch.device, torch.dtype]:
    """The device of the module and its floating-point dtype."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.device, tensor.dtype
    return torch.device("cpu"), torch.float32


def _tensor(module: torch.nn.Module, value: Any) -> torch.Tensor:
    return (value if isinstance(value, torch.Tensor) else torch.as_tensor(value)).detach().to(_place(module)[0])


def _example(module: torch.nn.Module, value: Any, dims: Sequence[int]) -> torch.Tensor:
    if hasattr(value, "dtype"):
        return _tensor(module, value)
    device, dtype = _place(module)
    return torch.zeros(tuple(dims), dtype=dtype, device=device)


@contextlib.contextmanager
def _eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Puts every part of the module into eval mode for a while."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps the exporters from printing, and passes on the one warning that matters: a branch that tracing froze."""
    text = io.StringIO()
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(text),
            contextlib.redirect_stderr(text),
        ):
            warnings.simplefilter("always")
            yield
        for warning in caught:
            if warning.category.__name__ == "TracerWarning":
                LOG.warning("%s:%d: %s", warning.filename, warning.lineno, warning.message)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if text.getvalue():
            LOG.debug("torch's exporter wrote: %s", text.getvalue())


def first_line(error: BaseException) -> str:
    """What failed at the bottom of a chain of exceptions."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in COLOUR.sub("", str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
