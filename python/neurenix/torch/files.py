"""Engines in files of torch's: TorchScript (.ts) and programs of `torch.export` (.pt2) that call `neurenix::run`."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neurenix.torch import needed  # isort: skip  # noqa: F401 - first: it says where torch is missing
import torch

from neurenix.errors import FileError, FormatError, UnsupportedError
from neurenix.hardware.optimized import OptimizedModel
from neurenix.importers.files import has_engine
from neurenix.importers.torch.silence import first_line
from neurenix.torch.engine_op import signature, to_bytes


class _Alone(torch.nn.Module):
    """An engine, called with its inputs in their order."""

    engine: torch.Tensor

    def __init__(self, model: OptimizedModel) -> None:
        super().__init__()
        self._signature = signature(model)
        self._several = len(model.outputs) > 1
        self.register_buffer("engine", to_bytes(model))

    def forward(self, *args: torch.Tensor) -> Any:
        """The engine's outputs: a tensor, or a tuple of several."""
        results = torch.ops.neurenix.run(self.engine, args, self._signature)
        return tuple(results) if self._several else results[0]


def save(model: OptimizedModel, path: str | os.PathLike[str]) -> None:
    """Writes an engine as TorchScript (.ts), or as a program of `torch.export` (.pt2), which takes the engine's inputs.

    The file appears whole or not at all. Raises `FileError` when it can't be written, `UnsupportedError` where torch
    can't write such a file.
    """
    place = Path(path)
    whole = place.with_name(f".{os.getpid()}.{place.name}")
    try:
        if place.suffix == ".pt2":
            torch.export.save(_program(model), str(whole))
        else:
            _script(model).save(str(whole))
        os.replace(whole, place)
    except (OSError, RuntimeError) as error:
        raise FileError(f"the engine can't be written: {first_line(error)}", got=str(path)) from error
    finally:
        whole.unlink(missing_ok=True)


def _script(model: OptimizedModel) -> Any:
    names = [f"x{place}" for place in range(len(model.inputs))]
    given = ", ".join(f"{name}: Tensor" for name in names)
    called = f"torch.ops.neurenix.run(self.engine, [{', '.join(names)}], {json.dumps(signature(model))})"
    found = [f"y[{place}]" for place in range(len(model.outputs))]
    kind = "Tensor" if len(found) == 1 else f"Tuple[{', '.join(['Tensor'] * len(found))}]"
    text = f"def forward(self, {given}) -> {kind}:\n  y = {called}\n  return {', '.join(found)}\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return _script_class()(to_bytes(model), text)


def _script_class() -> Any:
    class Script(torch.jit.ScriptModule):
        """An engine, and the TorchScript that calls it."""

        def __init__(self, engine: torch.Tensor, text: str) -> None:
            super().__init__()
            self.register_buffer("engine", engine)
            self.define(text)

    return Script


def _program(model: OptimizedModel) -> torch.export.ExportedProgram:
    examples, axes = [], []
    for port in model.inputs:
        open_ = [axis for axis, extent in enumerate(port.shape) if isinstance(extent, str)]
        # Unlike each other, for torch takes equal extents for one.
        shape = [extent if isinstance(extent, int) else 2 + axis for axis, extent in enumerate(port.shape)]
        examples.append(torch.zeros(shape, dtype=getattr(torch, port.dtype.name)))
        axes.append(dict.fromkeys(open_, torch.export.Dim.AUTO) or None)
    dynamic = {"args": tuple(axes)} if any(axes) else None
    try:
        with torch.no_grad():
            return torch.export.export(_Alone(model).eval(), tuple(examples), dynamic_shapes=dynamic, strict=False)
    except Exception as error:
        raise UnsupportedError(f"torch can't write the engine as a program: {first_line(error)}") from error


def engine_of(path: str | os.PathLike[str]) -> bytes:
    """The bytes of the engine that is all that a file of torch's holds; nothing of it is executed.

    Raises `FileError` when the file can't be read, `FormatError` when torch can't read it, and `UnsupportedError` where
    it holds more than one engine, or none.
    """
    if not os.path.isfile(path):
        raise FileError("there is no such file", expected="a .ts or .pt2 file with an engine", got=str(path))
    if not has_engine(path):
        raise UnsupportedError(
            "this file has no engine of ours", expected="what torch_tensorrt.save wrote of a compiled module",
            got=str(path), hint="compile the torch.nn.Module that it was made from",
        )  # fmt: skip
    engine = _of_program(path) if Path(path).suffix == ".pt2" else _of_script(path)
    if engine is None:
        raise UnsupportedError(
            "the file holds more than one engine with its inputs and outputs in order",
            got=str(path),
            hint="torch_tensorrt.load opens it as a module of torch",
        )
    return engine.detach().numpy().tobytes()


def _of_script(path: str | os.PathLike[str]) -> torch.Tensor | None:
    read: Any = torch.jit.load
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            module = read(os.fspath(path), map_location="cpu")
    except RuntimeError as error:
        raise FormatError(f"torch can't read it: {first_line(error)}", got=str(path)) from error
    graph = module.inlined_graph
    calls = list(graph.findAllNodes("neurenix::run", recurse=True))
    buffers = [one for name, one in module.named_buffers() if name.rpartition(".")[2] == "engine"]
    if len(calls) != 1 or len(buffers) != 1 or {node.kind() for node in graph.nodes()} - _STEPS:
        return None
    taken = [one.debugName() for one in list(calls[0].inputs())[1].node().inputs()]
    names = [one.debugName() for one in graph.inputs()][1:]
    return buffers[0] if taken == names and _in_order(graph, calls[0]) else None


#: What a graph of TorchScript consists of that only calls an engine.
_STEPS = {
    "neurenix::run",
    "aten::__getitem__",
    "prim::Constant",
    "prim::GetAttr",
    "prim::ListConstruct",
    "prim::ListUnpack",
    "prim::TupleConstruct",
}


def _in_order(graph: Any, call: Any) -> bool:
    """Whether a graph gives what a call gives, all of it and in its order."""
    results = list(graph.outputs())
    if len(results) == 1 and results[0].node().kind() == "prim::TupleConstruct":
        results = list(results[0].node().inputs())
    places = []
    for one in results:
        node = one.node()
        if list(node.inputs())[:1] == [] or next(iter(node.inputs())).debugName() != call.output().debugName():
            return False
        if node.kind() == "prim::ListUnpack":
            places.append([other.debugName() for other in node.outputs()].index(one.debugName()))
        else:
            places.append(list(node.inputs())[1].toIValue())
    return places == list(range(len(places)))


def _of_program(path: str | os.PathLike[str]) -> torch.Tensor | None:
    program = read_program(path)
    calls = [node for node in program.graph.nodes if node.op == "call_function" and "getitem" not in str(node.target)]
    if len(calls) != 1 or calls[0].target != torch.ops.neurenix.run.default:
        return None
    engine, given = calls[0].args[:2]
    signed = program.graph_signature
    results = next(node for node in program.graph.nodes if node.op == "output").args[0]
    places = [node.args[1] for node in results if node.op == "call_function" and node.args[0] is calls[0]]
    in_order = _names(given) == list(signed.user_inputs) and places == list(range(len(results)))
    name = {**signed.inputs_to_buffers, **signed.inputs_to_lifted_tensor_constants}.get(getattr(engine, "name", ""))
    if not in_order or name is None:
        return None
    found: torch.Tensor = {**program.constants, **program.state_dict}[name]
    return found


def _names(given: Sequence[Any]) -> list[str]:
    return [one.name for one in given]


def read_program(
    path: str | os.PathLike[str], extra_files: dict[str, str] | None = None
) -> torch.export.ExportedProgram:
    """A program of torch.export, of which nothing is unpickled but tensors; `extra_files` as torch.export.load.

    Raises `FileError` when the file can't be read, `FormatError` when it is none, or holds code.
    """
    from neurenix.cli.models import load_program

    program = load_program(Path(path), extra_files)
    assert isinstance(program, torch.export.ExportedProgram)
    return program
