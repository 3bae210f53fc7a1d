"""From a partition of torch's graph to an engine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._dynamo.convert_frame import compile_lock
from torch.utils import _pytree as pytree

from neurenix._native import Network
from neurenix.errors import UnsupportedError
from neurenix.hardware.optimized import OptimizedModel
from neurenix.hardware.tensorrt.backend import TensorRTBackend
from neurenix.importers import from_exported_program
from neurenix.importers.torch import comparing
from neurenix.importers.torch.constants import model_of
from neurenix.importers.torch.program import imported
from neurenix.importers.torch.silence import first_line
from neurenix.log import LOG
from neurenix.torch import cache
from neurenix.torch.graphs import evaluated, value
from neurenix.torch.operators import registry
from neurenix.torch.rewrites import is_part_of, rewritten
from neurenix.torch.settings import Settings
from neurenix.torch.tracing import beside_others

#: torch takes a dynamic dimension of 0 or 1 for a fixed one.
_LEAST = 2


@dataclass(frozen=True)
class Built:
    """An engine for a partition, and how a call of it is made of the partition's arguments."""

    model: OptimizedModel
    #: Where the engine's inputs stand among the arguments: the place of a tensor, or of a size, which becomes the
    #: extent of an empty tensor.
    inputs: tuple[int, ...]
    #: The constants: their places, and their names in the engine.
    weights: tuple[tuple[int, str], ...]
    #: For each result the order of its dimensions in memory, outermost first; None where it is that of its shape.
    orders: tuple[tuple[int, ...] | None, ...]
    #: The dtypes of the results.
    dtypes: tuple[torch.dtype, ...]
    #: Whether it was found in the cache.
    cached: bool
    #: Whether the constants are in it for good.
    frozen: bool


@dataclass(frozen=True)
class Part:
    """A partition as it is converted: its graph, and which of its arguments are constants."""

    module: fx.GraphModule
    constant: frozenset[int]

    @property
    def placeholders(self) -> list[fx.Node]:
        """Its arguments."""
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]

    @property
    def output(self) -> fx.Node | tuple[fx.Node, ...]:
        """What it gives: one tensor, or several."""
        found: Any = next(node for node in self.module.graph.nodes if node.op == "output").args[0]
        return found if isinstance(found, fx.Node) else tuple(found)

    @property
    def results(self) -> list[fx.Node]:
        """What it gives."""
        found = self.output
        return [found] if isinstance(found, fx.Node) else list(found)


def _owns(lock: Any) -> bool:
    return bool(lock._is_owned())


@dataclass(frozen=True)
class Turn:
    """A build beside whatever else goes on in the process."""

    #: Whether to go on.
    goes_on: Callable[[], bool]
    #: Whether the thread that waits for the build compiles something itself.
    in_compiler: bool

    @classmethod
    def of_this_thread(cls, goes_on: Callable[[], bool]) -> Turn:
        """A build that this thread waits for."""
        return cls(goes_on, _owns(compile_lock))

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Keeps torch's compiler from tracing meanwhile in other threads: its tracers share state."""
        if self.in_compiler:
            yield
            return
        with compile_lock:
            yield


def build(
    part: Part,
    args: Sequence[Any],
    settings: Settings,
    device: torch.device,
    turn: Turn,
    calibration: Any = None,
) -> Built:
    """An engine for a partition, from the cache or new, for arguments like these.

    `calibration`: of the engine's inputs, which are called "x" and their place among the arguments.

    Raises errors of ours for what can't be imported or built, and torch's own where it can't be exported.
    """
    module, order, weights = _module(part, args)
    options = _options(settings, device)
    if calibration is None:
        place = cache.place(settings, lambda: _described(part, args, order, weights, options))
    else:
        # What an engine's ranges are says its calibrator's own cache.
        options["calibration"], place = calibration, None
    if "progress" not in options:
        options["progress"] = lambda phase, done, steps: turn.goes_on()
    backend = TensorRTBackend(device=device.index or 0)
    model = cache.opened(place, backend) if place is not None else None
    found = model is not None
    if model is None:
        model = _built(part, module, args, order, backend, options, turn)
        if place is not None:
            cache.keep(place, model, settings)
    results = part.results
    return Built(
        model,
        _in_engine_order(model, order),
        tuple(weights.items()),
        tuple(_order(value(node)) for node in results),
        tuple(value(node).dtype for node in results),
        found,
        settings.freeze,
    )


def _in_engine_order(model: OptimizedModel, order: Sequence[int]) -> tuple[int, ...]:
    places = {f"x{place}": place for place in order}
    names = [port.name for port in model.inputs]
    if set(names) - set(places):
        raise UnsupportedError("the exported partition has other inputs", got=", ".join(names))
    return tuple(places[name] for name in names)


def _options(settings: Settings, device: torch.device) -> dict[str, Any]:
    options: dict[str, Any] = {"refittable": not settings.freeze} | dict(settings.build)
    if device.type != "cuda":
        options.setdefault("providers", ("cpu",))
    return options


def _built(
    part: Part,
    module: torch.nn.Module,
    args: Sequence[Any],
    order: Sequence[int],
    backend: TensorRTBackend,
    options: Mapping[str, Any],
    turn: Turn,
) -> OptimizedModel:
    examples, dynamic = _examples(part, args, order)
    with turn.tracing(), beside_others(), torch.no_grad():
        program = torch.export.export(
            module, tuple(examples), dynamic_shapes=tuple(dynamic) if any(dynamic) else None, strict=False
        )
        network = _network(program)
    wanted = {f"x{place}": axes for place, axes in zip(order, dynamic, strict=True)}
    for tensor in network.inputs:
        fixed = [axis for axis in wanted.get(tensor.name) or () if isinstance(tensor.shape[axis], int)]
        if fixed:
            raise UnsupportedError(
                "torch's exporter made a dynamic dimension a constant",
                tensor=tensor.name,
                got=f"{list(tensor.shape)}, axes {fixed}",
                hint="torch.compile(..., dynamic=False) compiles each shape by itself",
            )
    given = _sample(network, examples, order)
    precision = options.get("precision", "fp32")
    model = backend.optimize_model(network, **{**options, **({} if precision == "fp32" else {"sample": given})})
    shapes = [getattr(args[place], "shape", None) for place in order]
    # Rows of zeros, of which masks hide everything, mean nothing.
    reason = _departure(model, program, examples, given) if [one.shape for one in examples] == shapes else None
    if reason is not None and precision != "fp32":
        # A lower precision may lose as much as the exporter.
        kept = {name: value for name, value in options.items() if name in ("providers", "threads")}
        exact = backend.optimize_model(network, optimization_level=0, verify=False, **kept)
        reason = _departure(exact, program, examples, given)
    if reason is not None:
        raise UnsupportedError("torch's exporter writes the partition otherwise than torch computes it", got=reason)
    return model


def _departure(
    model: OptimizedModel,
    program: torch.export.ExportedProgram,
    examples: Sequence[torch.Tensor],
    given: Mapping[str, torch.Tensor],
) -> str | None:
    """Which result of an engine is another one than torch's; None where none is, or torch fails."""
    try:
        with torch.no_grad():
            wanted = pytree.tree_leaves(program.module()(*examples))
    except Exception as error:
        LOG.debug("the partition was not compared with torch", exc_info=error)
        return None
    got = [torch.as_tensor(one) for one in model.run(dict(given)).values()]
    if len(wanted) != len(got):
        return f"{len(got)} results instead of {len(wanted)}"
    report = model.report()
    return comparing.departure(wanted, got, comparing.bits_of(report["precision"], report["layers_per_dtype"]))


def _network(program: torch.export.ExportedProgram) -> Network:
    """The network of a program whose operators are all known to torch's exporter.

    The exporter's public function would read its library and take operators apart again, which takes seconds. Where its
    parts are others in this version of torch, it is called.
    """
    try:
        from torch.onnx._internal.exporter import _core, _fx_passes

        _fx_passes.insert_type_promotion_nodes(program.graph_module)
        _fx_passes.remove_assertion_nodes(program.graph_module)
        model = model_of(_core._exported_program_to_onnx_program(program, registry=registry()))
    except (AttributeError, ImportError, TypeError) as error:
        LOG.debug("the exporter's public function is called", exc_info=error)
        return from_exported_program(program, refittable=True)
    except Exception as error:
        raise UnsupportedError(f"torch can't write the partition as ONNX: {first_line(error)}") from error
    return imported(program, model)


def _sample(network: Any, examples: Sequence[torch.Tensor], order: Sequence[int]) -> dict[str, torch.Tensor]:
    given = dict(zip((f"x{place}" for place in order), examples, strict=True))
    return {tensor.name: given[tensor.name] for tensor in network.inputs}


def _module(part: Part, args: Sequence[Any]) -> tuple[fx.GraphModule, list[int], dict[int, str]]:
    """The partition with its constants inside: it takes tensors alone. The places of these, and the constants' names.

    A size is read from a tensor that has it; where none has, it comes as the extent of an empty tensor.
    """
    root: dict[str, torch.Tensor] = {}
    graph = fx.Graph()
    made: dict[fx.Node, Any] = {}
    order: list[int] = []
    for place, node in enumerate(part.placeholders):
        if place in part.constant or not isinstance(value(node), torch.Tensor):
            continue
        made[node] = graph.placeholder(f"x{place}")
        made[node].meta = dict(node.meta)
        order.append(place)
    symbols = _symbols(graph, made)
    sizes: dict[fx.Node, Any] = {}
    for place, node in enumerate(part.placeholders):
        found = value(node)
        if node in made or place in part.constant:
            continue
        if isinstance(found, torch.SymInt) and not found.node.expr.free_symbols <= set(symbols):
            made[node] = graph.placeholder(f"x{place}")
            order.append(place)
            sizes[node] = None
    for place, node in enumerate(part.placeholders):
        found = value(node)
        if node in sizes:
            made[node] = graph.call_function(torch.ops.aten.sym_size.int, (made[node], 0))
        elif place in part.constant:
            name = f"w{place}"
            root[name] = args[place].detach()
            made[node] = graph.get_attr(name)
            made[node].meta = dict(node.meta)
        elif node not in made:
            made[node] = _size(found, symbols)
    for node in part.module.graph.nodes:
        if node.op == "get_attr":
            name = str(node.target).replace(".", "_")
            root[name] = getattr(part.module, str(node.target))
            made[node] = graph.get_attr(name)
        elif node.op == "call_function" and is_part_of(node, made):
            made[node] = made[node.args[0]][node.args[1]]
        elif node.op == "call_function":
            made[node] = rewritten(graph, node, made)
    graph.output(tuple(made[node] for node in part.results))
    weights = {place: f"w{place}" for place in sorted(part.constant)}
    return fx.GraphModule(_Root(root), graph), order, weights


class _Root(torch.nn.Module):
    """Holds constants as buffers."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)


def _symbols(graph: fx.Graph, made: Mapping[fx.Node, fx.Node]) -> dict[Any, Any]:
    """The sizes that are an extent of a tensor, by their symbols."""
    found: dict[Any, Any] = {}
    for node, copy in made.items():
        for axis, extent in enumerate(value(node).shape):
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_symbol and extent.node.expr not in found:
                found[extent.node.expr] = fx.Proxy(graph.call_function(torch.ops.aten.sym_size.int, (copy, axis)))
    return found


def _size(found: Any, symbols: Mapping[Any, Any]) -> Any:
    if not isinstance(found, torch.SymInt):
        return found
    result = evaluated(found.node.expr, dict(symbols))
    return result.node if isinstance(result, fx.Proxy) else int(result)


def _examples(part: Part, args: Sequence[Any], order: Sequence[int]) -> tuple[list[torch.Tensor], list[Any]]:
    """Arguments to export with, and for each the dimensions that are dynamic."""
    found = part.placeholders
    examples: list[torch.Tensor] = []
    dynamic: list[Any] = []
    for place in order:
        if isinstance(value(found[place]), torch.SymInt):
            examples.append(torch.empty((max(_LEAST, int(args[place])), 0)))
            dynamic.append({0: torch.export.Dim.AUTO})
            continue
        axes = [axis for axis, extent in enumerate(value(found[place]).shape) if isinstance(extent, torch.SymInt)]
        examples.append(args[place].detach().contiguous())
        dynamic.append(dict.fromkeys(axes, torch.export.Dim.AUTO) or None)
    if any(
        example.shape[axis] < _LEAST for example, axes in zip(examples, dynamic, strict=True) for axis in axes or ()
    ):
        return _enlarged(part, order, examples), dynamic
    return examples, dynamic


def _enlarged(part: Part, order: Sequence[int], examples: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Zeros in place of examples, with each size that only a call tells at least 2, as far as it is a symbol alone."""
    sizes: dict[Any, int] = {}
    found = part.placeholders
    for place, example in zip(order, examples, strict=True):
        shape = getattr(value(found[place]), "shape", ())
        for extent, actual in zip(shape, example.shape, strict=False):
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_symbol:
                sizes[extent.node.expr] = max(_LEAST, actual)
    made = []
    for place, example in zip(order, examples, strict=True):
        shape = getattr(value(found[place]), "shape", None)
        dims = example.shape if shape is None else [_at(extent, sizes) for extent in shape]
        made.append(torch.zeros(tuple(dims), dtype=example.dtype, device=example.device))
    return made


def _at(extent: Any, sizes: Mapping[Any, int]) -> int:
    return int(extent.node.expr.xreplace(dict(sizes))) if isinstance(extent, torch.SymInt) else int(extent)


def _order(found: torch.Tensor) -> tuple[int, ...] | None:
    """In which order a tensor's dimensions lie in memory; None where it is that of its shape. Dimensions that torch
    expands lie nowhere.
    """
    if found.ndim < 2:
        return None
    strides = [_hint(stride) for stride in found.stride()]
    extents = [_hint(extent) for extent in found.shape]
    order = tuple(sorted(range(found.ndim), key=lambda axis: (-strides[axis], axis)))
    moved = [axis for axis in order if extents[axis] != 1 and strides[axis] != 0]
    return None if moved == sorted(moved) else order


def _hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint if size.node.has_hint() else None
    return int(hint) if hint is not None else 1 << 20


def _described(
    part: Part, args: Sequence[Any], order: Sequence[int], weights: Mapping[int, str], options: Mapping[str, Any]
) -> tuple[str, list[tuple[str, torch.Tensor]]]:
    """All that an engine depends on: a text, and the elements of the constants."""
    names: dict[str, str] = {}

    def shape(found: Any) -> list[Any]:
        if not isinstance(found, torch.Tensor):
            return [_renamed(found, names) if isinstance(found, torch.SymInt) else repr(found)]
        return [str(found.dtype), *(e if isinstance(e, int) else _renamed(e, names) for e in found.shape)]

    inputs = [(place, shape(value(node))) for place, node in enumerate(part.placeholders)]
    hints = [[int(args[p])] if isinstance(args[p], int) else list(args[p].shape) for p in order]
    lines = [f"{node.name} {node.op} {node.target} {_args(node)}" for node in part.module.graph.nodes]
    kept = [(name, args[place]) for place, name in weights.items()]
    kept += [
        (str(node.target), getattr(part.module, str(node.target)))
        for node in part.module.graph.nodes
        if node.op == "get_attr"
    ]
    described = {
        name: repr(given) for name, given in options.items() if name not in ("progress", "sample", "timing_cache")
    }
    return json.dumps([inputs, hints, lines, sorted(part.constant), described]), kept


def _args(node: fx.Node) -> str:
    return repr(fx.map_arg((node.args, node.kwargs), lambda one: one.name))


def _renamed(size: torch.SymInt, names: dict[str, str]) -> str:
    """A size in symbols that are numbered as they come, since torch's depend on the program around."""
    for symbol in sorted(map(str, size.node.expr.free_symbols)):
        names.setdefault(symbol, f"n{len(names)}")
    return str(size.node.expr.xreplace({s: type(s)(names[str(s)]) for s in size.node.expr.free_symbols}))
