"""Modules and `torch.export` programs with engines in them, compiled ahead of calls; they can be saved."""

from __future__ import annotations

import contextlib
import copy
import inspect
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.torch.silence import first_line
from neurenix.log import LOG
from neurenix.torch import conversion, graphs, stats
from neurenix.torch.calls import EngineCall, laid_out
from neurenix.torch.engine_op import signature, to_bytes
from neurenix.torch.operators import decompositions
from neurenix.torch.runner import as_tensor, check_dtypes
from neurenix.torch.settings import Settings


class EngineModule(torch.nn.Module):
    """A part of a module that an engine runs. Its bytes are a buffer, so that files of torch's hold them."""

    engine: torch.Tensor

    def __init__(self, built: conversion.Built, own: Sequence[int], several: bool, device: torch.device) -> None:
        super().__init__()
        self._several = several
        self._device = device
        self._orders = built.orders
        self._inputs = tuple(list(own).index(place) for place in built.inputs)
        #: The names of constants in the engine, and in the module that was compiled.
        self.names: dict[str, str] = {}
        self._use(built.model)
        check_dtypes(self._call, built)

    def _use(self, model: Any) -> None:
        self._call = EngineCall(model, self._device)
        self._signature = signature(model)
        self.register_buffer("engine", to_bytes(model))

    @property
    def model(self) -> Any:
        """The engine, as `optimize_model` gives it."""
        return self._call.model

    def forward(self, *args: Any) -> Any:
        """What the part gives for its arguments."""
        given = [as_tensor(args[place]) for place in self._inputs]
        results = (
            list(torch.ops.neurenix.run(self.engine, given, self._signature)) if _traced() else self._call.run(given)
        )
        for place, order in enumerate(self._orders):
            if order is not None:
                results[place] = laid_out(results[place], order)
        return tuple(results) if self._several else results[0]

    def refitted(self, state: Mapping[str, Any]) -> EngineModule:
        """The same with the weights of a state dict; raises as `OptimizedModel.update_weights`."""
        made = copy.copy(self)
        made._buffers = dict(self._buffers)
        model = copy.copy(self.model)
        known = {name for name, _, _ in model._engine.weights}
        wanted = {name: state[source] for name, source in self.names.items() if source in state}
        missing = [self.names[name] for name in wanted if name not in known]
        if missing:
            raise UnsupportedError(
                "weights can't be replaced in this engine",
                got=", ".join(missing[:3]),
                hint="compile with immutable_weights=False",
            )
        model.update_weights(wanted)
        made._use(model)
        return made


def _traced() -> bool:
    """Whether torch writes down what is called."""
    return (
        torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._guards.detect_fake_mode() is not None
    )


class CompiledModule(torch.nn.Module):
    """A module whose parts run in engines; `report` says which, and what runs in torch.

    `torch.jit.save` writes it as TorchScript, traced on the inputs that it was compiled for. `torch.export.export`
    takes it as any module.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        axes: Any,
        report: stats.GraphReport,
    ) -> None:
        super().__init__()
        self.graph_module = graph
        self._examples = (tuple(args), dict(kwargs))
        #: The dynamic dimensions of the inputs by their names, as torch.export takes them.
        self.axes = axes
        self.report = report
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        with torch.no_grad():
            return self.graph_module(*args, **kwargs)

    @property
    def engines(self) -> list[EngineModule]:
        """The parts that run in engines."""
        return [part for part in self.graph_module.children() if isinstance(part, EngineModule)]

    def exported(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, axes: Any = None
    ) -> torch.export.ExportedProgram:
        """The module as a program, for the inputs that it was compiled for, or others.

        Raises `UnsupportedError` where torch can't export it.
        """
        given, named = self._examples if args is None and kwargs is None else (tuple(args or ()), dict(kwargs or {}))
        try:
            with torch.no_grad():
                return torch.export.export(
                    self.graph_module, given, named, dynamic_shapes=axes or self.axes, strict=False
                )
        except Exception as error:
            raise UnsupportedError(f"torch can't export the compiled module: {first_line(error)}") from error

    def script(self) -> torch.jit.ScriptModule:
        """The module as TorchScript, which calls `torch.ops.neurenix.run`; one warning where torch gives that up."""
        return self._scripted(tell=True)

    def _scripted(self, tell: bool = False) -> torch.jit.ScriptModule:
        args, kwargs = self._examples
        if kwargs:
            raise UnsupportedError(
                "TorchScript is traced with arguments by position",
                got=", ".join(kwargs),
                hint="compile with arg_inputs",
            )
        with _told_once(tell):
            trace: Any = torch.jit.trace
            traced: torch.jit.ScriptModule = trace(self, args, check_trace=False, strict=False)
        return traced

    def save(self, path: Any, _extra_files: Any = None) -> None:
        """Writes it as TorchScript; `torch.jit.save`, which warns by itself, calls this."""
        script: Any = self._scripted()
        script.save(path, _extra_files=_extra_files or {})

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        """TorchScript as bytes; `torch.jit.save` calls this."""
        script: Any = self._scripted()
        return bytes(script.save_to_buffer(_extra_files=_extra_files or {}))


@contextlib.contextmanager
def _told_once(tell: bool) -> Iterator[None]:
    """Makes one warning of all that torch says where it gives TorchScript up, or none."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    deprecated = [one for one in found if issubclass(one.category, (FutureWarning, DeprecationWarning))]
    for one in found:
        if one not in deprecated:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if deprecated and tell:
        text = "TorchScript is deprecated in this version of torch: torch_tensorrt.save writes .pt2 files of torch.export"
        warnings.warn(text, FutureWarning, stacklevel=5)


def compile_program(
    program: torch.export.ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings
) -> CompiledModule:
    """Compiles a program for inputs like these.

    Raises `UnsupportedError` for what must run in engines (`require_full_compilation`) and can't, and what goes wrong
    in a build with `pass_through_build_failures`; otherwise such a part runs in torch, with one warning.
    """
    graph = _unlifted(program)
    graphs.hoist_sizes(graph)
    device = graphs.device(graph)
    support = graphs.Support(graph.graph, settings, device)
    found = graphs.partitions(graph.graph, support, settings.min_block_size)
    report = stats.GraphReport("program", sum(map(graphs.is_work, graph.graph.nodes)))
    report.refusals = [*support.refusals.values(), *graphs.too_small(graph.graph, support, found)]
    stats.add(report)
    if settings.require_full_compilation and report.refusals:
        raise graphs.incomplete(report.refusals[0])
    _fill(graph, found, args, kwargs, settings, device, report)
    if settings.dryrun:
        stats.tell(report, settings.dryrun)
    return CompiledModule(graph, args, kwargs, _dynamic(program, graph, args, kwargs), report)


def _dynamic(
    program: torch.export.ExportedProgram, graph: fx.GraphModule, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """The dynamic dimensions of a program's inputs by their names, as torch.export takes them; None without any."""
    wanted = set(program.graph_signature.user_inputs)
    shapes = [
        getattr(node.meta.get("val"), "shape", ())
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in wanted
    ]
    axes = [
        dict.fromkeys((i for i, one in enumerate(shape) if isinstance(one, torch.SymInt)), torch.export.Dim.AUTO)
        for shape in shapes
    ]
    if not any(axes):
        return None
    _, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    given, named = pytree.tree_unflatten([one or None for one in axes], spec)
    return dict(inspect.signature(graph.forward).bind(*given, **named).arguments)


def _unlifted(program: torch.export.ExportedProgram) -> fx.GraphModule:
    lowered = program.run_decompositions(decompositions())
    try:
        module = lowered.module(check_guards=False)
    except TypeError:
        module = lowered.module()
    assert isinstance(module, fx.GraphModule)
    for node in list(module.graph.nodes):
        if node.op == "get_attr" and not isinstance(graphs.value(node), torch.Tensor):
            node.meta["val"] = operator.attrgetter(str(node.target))(module)
        elif node.op == "call_module" and str(node.target) == "_guards_fn":
            module.graph.erase_node(node)
    # A plain module: that of a program refuses eval().
    return fx.GraphModule(module, module.graph)


def _fill(
    graph: fx.GraphModule,
    found: list[list[fx.Node]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    settings: Settings,
    device: torch.device,
    report: stats.GraphReport,
) -> None:
    """Puts engines in place of partitions: one run on the examples says what each of them gets."""
    from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

    sizes = [sum(map(graphs.is_work, nodes)) for nodes in found]
    fuse_by_partitions(graph, [dict.fromkeys(nodes) for nodes in found], prefix="neurenix_")
    calls = {str(node.target): node for node in graph.graph.nodes if node.op == "call_module"}
    places: dict[str, _Place] = {}
    for number, size in enumerate(sizes):
        name = f"neurenix_{number}"
        part = stats.PartitionReport(f"{report.name} partition {number}", size)
        report.partitions.append(part)
        if settings.dryrun:
            part.runs, part.reason = "torch", "dryrun"
            continue
        places[name] = _Place(getattr(graph, name), calls[name], settings, device, part)
        setattr(graph, name, places[name])
    with torch.no_grad():
        graph(*args, **kwargs)
    for name, place in places.items():
        setattr(graph, name, place.found)
        if isinstance(place.found, EngineModule):
            calls[name].args = tuple(calls[name].args[one] for one in place.own)
    graph.graph.eliminate_dead_code()
    graph.delete_all_unused_submodules()
    graph.recompile()
    _forget(graph)


def _forget(graph: fx.GraphModule) -> None:
    """Removes the weights that engines have and torch no longer reads."""
    read = {str(node.target) for node in graph.graph.nodes if node.op == "get_attr"}
    kept = ("neurenix_",)
    for name in [*dict(graph.named_parameters()), *dict(graph.named_buffers())]:
        if name not in read and not name.startswith(kept):
            owner, _, last = name.rpartition(".")
            delattr(graph.get_submodule(owner), last)


class _Place(torch.nn.Module):
    """Where an engine belongs: the first call builds it."""

    def __init__(
        self,
        module: fx.GraphModule,
        call: fx.Node,
        settings: Settings,
        device: torch.device,
        report: stats.PartitionReport,
    ) -> None:
        super().__init__()
        self._settings, self._device, self._report = settings, device, report
        self.own = [p for p, arg in enumerate(call.args) if not (isinstance(arg, fx.Node) and arg.op == "get_attr")]
        self._names = {f"w{p}": str(arg.target) for p, arg in enumerate(call.args) if p not in self.own}  # type: ignore[union-attr]
        self._constant = frozenset(range(len(call.args))) - frozenset(self.own)
        self._part = conversion.Part(module, self._constant)
        self.found: torch.nn.Module = module

    def forward(self, *args: Any) -> Any:
        """What the part gives; `found` is then its engine, or torch's module."""
        turn = conversion.Turn.of_this_thread(lambda: True)
        try:
            built = conversion.build(self._part, args, self._settings, self._device, turn)
            several = isinstance(self._part.output, tuple)
            made = EngineModule(built, self.own, several, self._device)
            results = made(*(args[place] for place in self.own))
        except Exception as error:
            if self._settings.pass_through_build_failures or self._settings.require_full_compilation:
                raise
            stats.count("fallbacks")
            self._report.runs, self._report.reason = "torch", first_line(error)
            LOG.warning("%s runs in torch: it can't be built: %s", self._report.name, first_line(error))
            return self.found(*args)
        made.names = self._names
        stats.count("engines_from_cache" if built.cached else "engines_built")
        self._report.runs, self._report.from_cache = "engine", built.cached
        self.found = made
        return results


def refitted(compiled: CompiledModule, state: Mapping[str, Any]) -> CompiledModule:
    """The same with other weights, by the names that they have in the module; `compiled` stays as it is.

    Raises `UnsupportedError` where an engine was compiled with constants for good, `InvalidArgumentError` where a
    weight is missing, and `ShapeError` for another shape.
    """
    graph = copy.copy(compiled.graph_module)
    known = {source for part in compiled.engines for source in part.names.values()}
    missing = sorted(known - set(state))
    if missing:
        raise InvalidArgumentError("weights are missing", expected=", ".join(missing[:5]), got=f"{len(state)} others")
    for name, part in compiled.graph_module.named_children():
        if isinstance(part, EngineModule):
            setattr(graph, name, part.refitted(state))
    own = {name: tensor for name, tensor in state.items() if name in dict(graph.named_parameters())}
    if own:
        graph = copy.deepcopy(graph)
        graph.load_state_dict(own, strict=False)
    args, kwargs = compiled._examples
    return CompiledModule(graph, args, kwargs, compiled.axes, compiled.report)
