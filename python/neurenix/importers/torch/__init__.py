"""PyTorch models: `from_torch`, `from_exported_program`, through torch's own ONNX exporters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neurenix._native import Network
from neurenix.packages import load_triton, need

if TYPE_CHECKING:
    import torch

__all__ = ["from_exported_program", "from_torch"]


def from_torch(
    module: torch.nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    input_shapes: Any = None,
    dynamic: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    dynamo: bool = True,
    refittable: bool = False,
) -> Network:
    """Imports a module as it computes in eval mode.

    The module is run on `inputs`, examples in the order of `forward` or by name, or on arrays of `input_shapes`: a
    dict from name to shape, a `Shape` or three tuples (min, opt, max) where a dimension is dynamic. Names that are not
    those of `forward`'s arguments name them in their order. `dynamic` says which dimensions of `inputs` are dynamic:
    `{"input": {0: "batch"}}` or `{"input": [0]}`. Without names the inputs are "input", "input_1", ... and the outputs
    "output", "output_1", ...

    Where a shape alone is given, the name says what the array holds, and the module is run to see whether it agrees:
    int64 for ids (`input_ids`, `position_ids`, `idx`), int64 or bool for masks (`attention_mask`), else the module's
    own floating-point dtype.

    `refittable`: the exporters change no weight (they multiply those of normalisations into others, else), so that
    each keeps its name.

    `dynamo=False` uses the TorchScript exporter, which is also tried when the other one fails; the log says why.

    Raises `MissingPackageError` where torch, onnx or, with `dynamo`, onnxscript is not installed,
    `InvalidArgumentError` where the module itself fails on such inputs (with the call to write where it needs
    integers), `UnsupportedError` with both exporters' reasons when neither can export it, and as `from_onnx`.
    """
    _need_exporter("importing a PyTorch module", dynamo)
    from neurenix.importers.torch.export import export_module
    from neurenix.importers.torch.request import Request

    return export_module(module, Request.of(module, inputs, input_shapes, dynamic), dynamo, refittable)


def from_exported_program(program: torch.export.ExportedProgram, refittable: bool = False) -> Network:
    """Imports what `torch.export.export` gave. `refittable` as in `from_torch`.

    Inputs have the names that the program has for them, outputs are "output", "output_1", ... Dynamic dimensions stay
    so, in the ranges of their `Dim`, and are optimised for the example that was exported with. They are called as their
    `Dim`, or, as a file does not keep that, as torch calls them (`s77`).

    Raises `MissingPackageError` where torch, onnx or onnxscript is not installed, `UnsupportedError` when torch can't
    write it as ONNX, and as `from_onnx`.
    """
    _need_exporter("importing a torch.export program")
    from neurenix.importers.torch.program import export_program

    return export_program(program, refittable)


def _need_exporter(purpose: str, dynamo: bool = True) -> None:
    """Raises unless torch and what its exporters import are there."""
    packages = ("torch", "onnx", "onnxscript") if dynamo else ("torch", "onnx")
    for package in packages:
        need(package, purpose, packages)
    if "tensorflow" in sys.modules:
        load_triton()
