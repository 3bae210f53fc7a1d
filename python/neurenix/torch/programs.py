"""Programs of `torch.export`, compiled ahead of calls: engines in place of what they can run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from neurenix.errors import InvalidArgumentError
from neurenix.importers.torch.silence import first_line
from neurenix.log import LOG
from neurenix.torch import conversion, graphs, stats
from neurenix.torch.calibration import Calibration
from neurenix.torch.compiled import CompiledModule, attribute, copied, restored, written
from neurenix.torch.engine_module import EngineModule
from neurenix.torch.operators import decompositions
from neurenix.torch.runner import as_tensor
from neurenix.torch.settings import Settings


def compile_program(
    program: torch.export.ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings
) -> CompiledModule:
    """Compiles a program for inputs like these.

    Raises `UnsupportedError` for what must run in engines (`require_full_compilation`) and can't, and what goes wrong
    in a build with `pass_through_build_failures`; otherwise such a part runs in torch, with one warning.
    """
    graph = _unlifted(program)
    graphs.hoist_sizes(graph)
    graphs.set_apart_views(graph)
    device = graphs.device(graph)
    support = graphs.Support(graph.graph, settings, device)
    found = graphs.partitions(graph.graph, support, settings.min_block_size)
    report = stats.GraphReport("program", sum(map(graphs.is_work, graph.graph.nodes)))
    report.refusals = [*support.refusals.values(), *graphs.too_small(graph.graph, support, found)]
    stats.add(report)
    if settings.require_full_compilation:
        graphs.require_all(graph.graph, report.refusals)
    _fill(graph, found, args, kwargs, settings, device, report)
    if settings.dryrun:
        stats.tell(report, settings.dryrun)
    axes, fixed = _dynamic(program, graph, args, kwargs), _fixed(program, graph, args, kwargs)
    return CompiledModule(graph, args, kwargs, axes, report, fixed)


def _fixed(
    program: torch.export.ExportedProgram, graph: fx.GraphModule, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[int, Any]:
    """The arguments that are no tensors, which torch's exporter takes for constants, by their places."""
    specs = [one.arg for one in program.graph_signature.input_specs if one.kind is InputKind.USER_INPUT]
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if len(leaves) != len(specs):
        return {}
    given, named = pytree.tree_unflatten(specs, spec)
    bound = dict(inspect.signature(graph.forward).bind(*given, **named).arguments)
    found = pytree.tree_leaves(bound)
    return {place: one.value for place, one in enumerate(found) if isinstance(one, ConstantArgument)}


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
        dict.fromkeys((i for i, one in enumerate(shape) if graphs.is_open(one)), torch.export.Dim.AUTO)
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
            node.meta["val"] = attribute(module, node)
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

    changed = written(graph)
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
        constant = [
            place
            for place, arg in enumerate(calls[name].args)
            if isinstance(arg, fx.Node) and arg.op == "get_attr" and not _shares(attribute(graph, arg), changed)
        ]
        places[name] = _Place(getattr(graph, name), calls[name], constant, settings, device, part)
        setattr(graph, name, places[name])
    if "calibration" in settings.build:
        calibration = Calibration(settings.build["calibration"], graph, args, kwargs, len(places), device)
        for number, place in enumerate(places.values()):
            place.calibrate(calibration, number)
    with torch.no_grad(), restored(changed):
        given, named = copied((tuple(args), dict(kwargs)))
        graph(*given, **named)
    for name, place in places.items():
        setattr(graph, name, place.found)
        if isinstance(place.found, EngineModule):
            calls[name].args = tuple(calls[name].args[one] for one in place.own)
    graph.graph.eliminate_dead_code()
    graph.delete_all_unused_submodules()
    graph.recompile()
    _forget(graph)


def _shares(tensor: Any, changed: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor lies in the memory of one that is written into."""
    if not isinstance(tensor, torch.Tensor):
        return False
    return any(tensor.untyped_storage().data_ptr() == one.untyped_storage().data_ptr() for one in changed)


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
        constant: Sequence[int],
        settings: Settings,
        device: torch.device,
        report: stats.PartitionReport,
    ) -> None:
        super().__init__()
        self._settings, self._device, self._report = settings, device, report
        self._constant = frozenset(constant)
        self.own = [p for p in range(len(call.args)) if p not in self._constant]
        self._names = {f"w{p}": str(arg.target) for p, arg in enumerate(call.args) if p in self._constant}  # type: ignore[union-attr]
        self._part = conversion.Part(module, self._constant)
        self.found: torch.nn.Module = module
        self._calibration: Calibration | None = None
        self._calibrator: Any = None

    def calibrate(self, calibration: Calibration, number: int) -> None:
        """Has the engine calibrated on batches of the module."""
        self._calibration = calibration
        self._calibrator = calibration.of(self, number, lambda args: {f"x{p}": as_tensor(args[p]) for p in self.own})

    def forward(self, *args: Any) -> Any:
        """What the part gives; `found` is then its engine, or torch's module."""
        if self._calibration is not None and self._calibration.reached(self, args):
            return self._part.module(*args)
        turn = conversion.Turn.of_this_thread(lambda: True)
        try:
            built = conversion.build(self._part, args, self._settings, self._device, turn, self._calibrator)
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
    return CompiledModule(graph, args, kwargs, compiled.axes, compiled.report, compiled.fixed)
