"""Runs torch's ONNX exporters, silenced and in memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import onnx
import torch

from neurenix._native import Network
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.graph import import_model
from neurenix.importers.torch import faults
from neurenix.importers.torch.bounds import BoundsWithinDtype, bounds_within_dtype
from neurenix.importers.torch.constants import model_of
from neurenix.importers.torch.request import Request, default_name
from neurenix.importers.torch.results import NARROW, in_16_bits
from neurenix.importers.torch.silence import eval_mode, first_line, silence
from neurenix.importers.torch.translations import translations
from neurenix.importers.torch.trying import check_loaded, check_runs, settled
from neurenix.importers.torch.unused import without_unused
from neurenix.log import LOG
from neurenix.packages import need

#: The newest opset that the TorchScript exporter writes well.
SCRIPT_OPSET = 17


def export_module(module: torch.nn.Module, request: Request, dynamo: bool, refittable: bool) -> Network:
    """The network of a module, by the first exporter that can write it; with `refittable` as its weights are."""
    # What the exporter multiplies into weights of 16 bits it rounds twice, or leaves in float32.
    narrow = any(tensor.dtype in NARROW for tensor in (*module.parameters(), *module.buffers()))
    model, names = exported(module, request, dynamo, refittable or narrow)
    return import_model(without_unused(model), None, {}, names)


def exported(
    module: torch.nn.Module, request: Request, dynamo: bool, refittable: bool
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """As `export_module`: the exporter's model, and what its inputs and outputs are called here."""
    check_loaded((*module.named_parameters(), *module.named_buffers()))
    request = settled(module, request)
    refusals: list[str] = []
    for exporter in (_dynamo, _script) if dynamo else (_script,):
        try:
            with eval_mode(module), silence(), torch.no_grad(), BoundsWithinDtype():
                model = exporter(module, request, refittable)
        except Exception as error:
            LOG.debug("%s failed", exporter.__doc__, exc_info=error)
            refusals.append(f"{exporter.__doc__}: {first_line(error)}")
        else:
            if refusals:
                LOG.warning("exported with %s, because of %s", exporter.__doc__, "; ".join(refusals))
            return model, _names(model, request)
        if len(refusals) == 1:
            check_runs(module, request)
    raise UnsupportedError(
        "torch can't export the module as ONNX",
        got="; ".join(refusals),
        hint=_way_out(module, refusals),
    )


def _way_out(module: torch.nn.Module, refusals: list[str]) -> str:
    caching = {id(c): path for path, c in _configs(module) if getattr(c, "use_cache", False)}
    if caching and any("Cache" in text for text in refusals):
        lines = "; ".join(f"{path}.use_cache = False" for path in caching.values())
        return f"the module gives its cache of keys and values too; this leaves it out: {lines}"
    return "export it with torch.onnx.export yourself and give the ONNX model"


def _configs(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The settings of parts of a model of transformers, the inner ones first: parts may share them."""
    for name, part in reversed(list(module.named_modules())):
        if hasattr(part, "config"):
            yield ".".join(filter(None, ("module", name, "config"))), part.config


def quiet_export(model: torch.nn.Module | torch.export.ExportedProgram, request: Request | None) -> Any:
    """What torch's dynamo exporter makes of a model: the ONNX model, and the program that it was written from."""
    need("onnxscript", "torch's ONNX exporter")
    with silence(), torch.no_grad():
        if request is None:
            assert isinstance(model, torch.export.ExportedProgram)
            with bounds_within_dtype(model.graph):
                return torch.onnx.export(model, dynamo=True, verbose=False, custom_translation_table=translations())
        assert isinstance(model, torch.nn.Module)
        with eval_mode(model), BoundsWithinDtype():
            return torch.onnx.export(
                model,
                request.args,
                kwargs=request.kwargs,
                dynamo=True,
                verbose=False,
                input_names=request.names,
                custom_translation_table=translations(),
            )


def _dynamo(module: torch.nn.Module, request: Request, refittable: bool) -> onnx.ModelProto:
    """the dynamo exporter"""
    program = torch.onnx.export(
        module,
        request.args,
        kwargs=request.kwargs,
        dynamo=True,
        verbose=False,
        dynamic_shapes=request.dynamic_shapes,
        input_names=request.names,
        optimize=not refittable,
        custom_translation_table=translations(),
    )
    assert program is not None
    if program.exported_program is not None:
        faults.check(program.exported_program.graph)
        return in_16_bits(model_of(program), program.exported_program)
    return model_of(program)


def _script(module: torch.nn.Module, request: Request, refittable: bool) -> onnx.ModelProto:
    """the TorchScript exporter"""
    # Whatever `verbose` says, its C++ part writes the graph of a failed export, by itself to stdout.
    torch._C._jit_set_onnx_log_output_stream("stderr")
    file = io.BytesIO()
    torch.onnx.export(
        module,
        request.args,
        file,  # type: ignore[arg-type]
        kwargs=request.kwargs or None,
        dynamo=False,
        input_names=request.names,
        dynamic_axes={name: axes for name, axes in zip(request.names, request.dynamic, strict=True) if axes},
        opset_version=SCRIPT_OPSET,
        do_constant_folding=not refittable,
        # The module is in eval mode; told of that, the exporter would multiply its normalisations into its weights.
        training=torch.onnx.TrainingMode.PRESERVE if refittable else torch.onnx.TrainingMode.EVAL,
    )
    return onnx.load_from_string(file.getvalue())


def _names(model: onnx.ModelProto, request: Request) -> dict[str, str]:
    """The names that were asked for, by those that the exporter gave."""
    inputs = input_ports(model)
    if len(inputs) != len(request.names):
        raise UnsupportedError(
            "the exported model has another number of inputs than forward",
            expected=", ".join(request.names),
            got=", ".join(i.name for i in inputs),
            hint="an argument that does not influence the result must be left out",
        )
    renamed = {i.name: name for i, name in zip(inputs, request.names, strict=True)}
    given = request.outputs or ()
    named = {o.name: name for o, name in zip(model.graph.output, given, strict=False)}
    return renamed | (named if len(named) == len(given) > 0 else output_names(model))


def input_ports(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that are no weights."""
    weights = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in weights]


def output_names(model: onnx.ModelProto) -> dict[str, str]:
    """What the outputs of an exported model are called here."""
    return {o.name: default_name("output", index) for index, o in enumerate(model.graph.output)}
