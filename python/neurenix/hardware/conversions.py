"""Models of PyTorch against the engines that were made from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from neurenix import _native
from neurenix._native import Network
from neurenix.errors import Error, UnsupportedError
from neurenix.importers.dispatch import scripted
from neurenix.importers.onnx import around
from neurenix.importers.tensorflow import kinds
from neurenix.log import LOG
from neurenix.shapes import sized


def is_checkable(model: Any) -> bool:
    """Whether it is a model of PyTorch, whose inputs and outputs are those of the engine."""
    torch = sys.modules.get("torch")
    if torch is None or around.is_active():
        return False
    return isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)) and not kinds.is_source(model)


def departure(engine: _native.Engine, model: Any, precision: str) -> str | None:
    """What the engine gives otherwise than the model, on numbers that are made up; None where nothing is known."""
    from neurenix.importers.torch import comparing

    if engine.staged:
        return None

    def run(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(engine.run(dict(inputs)))

    opt = {name: likely for name, (_, likely, _) in next(iter(engine.profiles), {}).items()}
    ports = [(name, dtype, sized(shape, opt)) for name, dtype, shape in engine.inputs]
    bits = comparing.bits_of(precision, json.loads(engine.report())["layers_per_dtype"])
    return comparing.of_model(model, run, ports, bool(engine.devices), bits)


def by_other_exporter(model: Any, input_shapes: Any, refittable: bool) -> Network | None:
    """The network of a module by the exporter that is not taken first; None where that can't write it."""
    torch = sys.modules["torch"]
    try:
        return scripted(model, input_shapes, refittable) if isinstance(model, torch.nn.Module) else None
    except Error as error:
        LOG.debug("the other exporter failed", exc_info=error)
        return None


def refusal(reason: str) -> UnsupportedError:
    """The error for a model that no exporter writes as it is."""
    return UnsupportedError(
        "torch's exporters write the model otherwise than PyTorch computes it",
        expected="the results of model.eval()(...)",
        got=reason,
        hint="torch.compile(model, backend='neurenix') leaves to PyTorch what the exporter gets wrong; verify=False "
        "takes the engine as it is",
    )
