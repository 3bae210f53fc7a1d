"""`torch.ops.neurenix.run`: an engine as an operator of torch's, for TorchScript and export files.

    neurenix::run(Tensor engine, Tensor[] inputs, str signature) -> Tensor[]

`engine` has the bytes of an engine file, `inputs` are in the order of its inputs, and `signature` says dtypes and
shapes to torch's tracers, which see no bytes. Opening the engine executes nothing from it; on another machine than that
of the build it is planned anew.
"""

from __future__ import annotations

import ast
import functools
import json
import operator
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from neurenix.errors import FormatError, InvalidArgumentError
from neurenix.hardware.optimized import OptimizedModel
from neurenix.hardware.tensorrt.backend import TensorRTBackend
from neurenix.torch.calls import EngineCall

_LIBRARY: Any = torch.library.Library("neurenix", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("run(Tensor engine, Tensor[] inputs, str signature) -> Tensor[]")


@dataclass(frozen=True)
class _Open:
    """An engine that is open for a tensor of bytes."""

    call: EngineCall
    #: Says whether the bytes are still there.
    storage: Any
    #: How often something was written into them.
    version: int


#: Engines by the address and the size of their bytes, and by the device.
_OPEN: dict[tuple[int, int, torch.device], _Open] = {}
_LOCK = threading.Lock()


def to_bytes(model: OptimizedModel) -> torch.Tensor:
    """An engine as a tensor of bytes."""
    with tempfile.TemporaryDirectory(prefix="neurenix-") as folder:
        path = Path(folder) / "engine"
        model.save(path)
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)


def signature(model: OptimizedModel) -> str:
    """The dtypes and shapes of an engine's inputs and outputs."""

    def ports(found: Sequence[Any]) -> list[list[Any]]:
        return [[port.dtype.name, *port.shape] for port in found]

    return json.dumps({"inputs": ports(model.inputs), "outputs": ports(model.outputs)})


def adopt(engine: torch.Tensor, model: OptimizedModel, device: torch.device) -> None:
    """Has an engine that is open run for its bytes on a device."""
    with _LOCK:
        _keep(engine, EngineCall(model, device), device)


def opened(engine: torch.Tensor, device: torch.device) -> EngineCall:
    """What calls the engine of these bytes on a device; it is opened once, for as long as the bytes are there.

    Raises `FormatError` for bytes that are no engine.
    """
    found = _found(engine, device)
    if found is not None:
        return found.call
    with _LOCK:
        found = _found(engine, device) or _keep(engine, EngineCall(_load(engine, device), device), device)
        return found.call


def _found(engine: torch.Tensor, device: torch.device) -> _Open | None:
    found = _OPEN.get((engine.data_ptr(), engine.numel(), device))
    if found is None or found.version != _version(engine) or found.storage.expired():
        return None
    return found


def _keep(engine: torch.Tensor, call: EngineCall, device: torch.device) -> _Open:
    from torch.multiprocessing.reductions import StorageWeakRef

    for gone in [key for key, one in _OPEN.items() if one.storage.expired()]:
        del _OPEN[gone]
    reference: Any = StorageWeakRef
    made = _Open(call, reference(engine.untyped_storage()), _version(engine))
    _OPEN[engine.data_ptr(), engine.numel(), device] = made
    return made


def _version(engine: torch.Tensor) -> int:
    # Tensors of inference mode have no count.
    return 0 if engine.is_inference() else int(engine._version)


def device_of(inputs: Sequence[torch.Tensor]) -> torch.device:
    """Where an engine runs for these inputs: on the GPU that has one of them, or on the processor."""
    return next((one.device for one in inputs if one.device.type != "cpu"), torch.device("cpu"))


def _load(engine: torch.Tensor, device: torch.device) -> OptimizedModel:
    if engine.dtype != torch.uint8 or engine.ndim != 1:
        raise FormatError("this is no engine", expected="a tensor of bytes", got=f"{engine.dtype}{list(engine.shape)}")
    options: dict[str, Any] = {} if device.type == "cuda" else {"providers": ("cpu",)}
    with tempfile.TemporaryDirectory(prefix="neurenix-") as folder:
        # What is mapped stays, and nobody else has its name.
        path = Path(folder) / "engine"
        path.write_bytes(engine.detach().cpu().contiguous().numpy().data)
        return TensorRTBackend(device=device.index or 0, **options).load(path)


def run(engine: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the engine of these bytes gives, past torch's dispatcher.

    Raises `FormatError` for bytes that are no engine, `InvalidArgumentError` for another number or dtype of inputs, and
    as the engine.
    """
    call = opened(engine, device_of(inputs))
    if [one.dtype for one in inputs] != call.input_dtypes:
        raise _refused(call, inputs)
    return call.run(inputs)


def _refused(call: EngineCall, inputs: Sequence[torch.Tensor]) -> InvalidArgumentError:
    ports = call.model.inputs
    if len(inputs) != len(ports):
        return InvalidArgumentError(
            "the number of tensors differs from that of the engine's inputs",
            expected=", ".join(port.name for port in ports),
            got=str(len(inputs)),
        )
    port, given, wanted = next(
        (port, given, wanted)
        for port, given, wanted in zip(ports, inputs, call.input_dtypes, strict=True)
        if given.dtype != wanted
    )
    return InvalidArgumentError(
        "an input has another dtype than the engine's",
        tensor=port.name,
        expected=port.dtype.name,
        got=str(given.dtype),
        hint=f"x.to({wanted})",
    )


def _run(engine: torch.Tensor, inputs: list[torch.Tensor], signature: str) -> list[torch.Tensor]:
    return run(engine, inputs)


def _shapes(engine: torch.Tensor, inputs: list[torch.Tensor], signature: str) -> list[torch.Tensor]:
    """What torch's tracers take for the results."""
    known: dict[str, Any] = {}
    ports = json.loads(signature)
    for (_, *shape), given in zip(ports["inputs"], inputs, strict=True):
        known |= {one: extent for one, extent in zip(shape, given.shape, strict=True) if isinstance(one, str)}
    return [
        torch.empty([_extent(one, known) for one in shape], dtype=getattr(torch, dtype), device=device_of(inputs))
        for dtype, *shape in ports["outputs"]
    ]


def _extent(dim: int | str, known: Mapping[str, Any]) -> Any:
    if isinstance(dim, int):
        return dim
    if dim in known:
        return known[dim]
    try:
        return _value(_parsed(dim), known)
    except (KeyError, SyntaxError, TypeError):
        return torch.library.get_ctx().new_dynamic_size()


@functools.lru_cache(maxsize=1024)
def _parsed(dim: str) -> ast.expr:
    return ast.parse(dim.replace("'", ""), mode="eval").body


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "ceildiv": lambda a, b: (a + b - 1) // b,
    "min": torch.sym_min,
    "max": torch.sym_max,
}


def _value(tree: ast.expr, known: Mapping[str, Any]) -> Any:
    """What an expression of sizes is; raises `KeyError` for what is none."""
    if isinstance(tree, ast.Constant):
        return int(tree.value)  # type: ignore[arg-type]
    if isinstance(tree, ast.Name):
        return known[tree.id]
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_value(tree.operand, known)
    if isinstance(tree, ast.BinOp):
        return _BINARY[type(tree.op)](_value(tree.left, known), _value(tree.right, known))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return functools.reduce(_FUNCTIONS[tree.func.id], (_value(one, known) for one in tree.args))
    raise KeyError(type(tree).__name__)


_LIBRARY.impl("run", _run, "CompositeExplicitAutograd")
torch.library.register_fake("neurenix::run", _shapes, lib=_LIBRARY)
