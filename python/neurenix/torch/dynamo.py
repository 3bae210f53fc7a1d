"""The backend "neurenix" of `torch.compile`, which torch finds by the entry point of this package."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.exc import RestartAnalysis

from neurenix import names
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware.options import eight_bits_of
from neurenix.importers.torch.silence import first_line
from neurenix.log import LOG
from neurenix.torch import graphs, stats
from neurenix.torch.gradients import Deferred
from neurenix.torch.operators import decompositions, kept_whole
from neurenix.torch.partition import Arguments, Partition
from neurenix.torch.settings import Settings
from neurenix.torch.weights import Weights

_NUMBERS = itertools.count()

#: What torch.compile's `mode` asks for. Captured graphs ("reduce-overhead") are used anyway.
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"optimization_level": 5},
    "max-autotune-no-cudagraphs": {"optimization_level": 5},
}


_NO_BATCHES = "torch.compile takes no batches to calibrate on: it sees a graph at a time"
#: How they are given.
_AHEAD = "neurenix.torch_tensorrt.compile(model, inputs=[...], calibrator=...) compiles ahead of calls"


def neurenix(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What `torch.compile(model, backend="neurenix", options={...})` calls for each graph.

    `options` are those of `Settings`, those of `optimize_model`, and Torch-TensorRT's settings; `mode` is torch's.

    Raises `InvalidArgumentError` for unknown options (with the nearest name), and with `require_full_compilation` or
    `pass_through_build_failures` what went wrong.
    """
    given = _of_mode(mode) | dict(options or {})
    if any(given.get(name) is not None for name in ("calibration", "calibrator")):
        raise UnsupportedError(_NO_BATCHES, hint=_AHEAD)
    settings = Settings.of(given, _AHEAD)
    precision, strict = settings.build.get("precision", "fp32"), settings.build.get("strict", False)
    word = eight_bits_of(precision)
    if word == "mixed" or (word and strict):
        raise UnsupportedError(
            _NO_BATCHES,
            expected='"int8" or "fp8", without strict=True, for weights in 8 bits; or a precision of floats',
            got=f"precision={precision!r}, strict={strict}",
            hint=_AHEAD,
        )
    return compile_graph(module, example_inputs, settings)


def _of_mode(mode: str | None) -> dict[str, Any]:
    if mode is None or mode in _MODES:
        return dict(_MODES[mode or "default"])
    raise InvalidArgumentError(
        f"there is no mode {mode!r}", expected=", ".join(_MODES), hint=names.hint(mode, list(_MODES))
    )


def compile_graph(module: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Callable[..., Any]:
    """A function that does what a graph of torch's operators does, in engines as far as they can."""
    report = stats.GraphReport(f"graph {next(_NUMBERS)}", 0)
    stats.add(report)
    compiler = _Compiler(settings, report)
    try:
        function = compiler.traced(module, example_inputs)
    except (InvalidArgumentError, UnsupportedError):
        raise
    except Exception as error:
        if isinstance(error, RestartAnalysis):
            # torch's own, by which its compiler starts anew.
            stats.discard(report)
            raise
        if settings.pass_through_build_failures or settings.require_full_compilation:
            raise
        return _given_back(module, report, f"torch can't trace it: {first_line(error)}")
    if not _wants_gradients(module, example_inputs):
        return function
    if compiler.once is not None:
        return _given_back(module, report, f"gradients are wanted, and {compiler.once}")
    return Deferred(module, function, report)


def _wants_gradients(module: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    given = (one for one in example_inputs if isinstance(one, torch.Tensor))
    return torch.is_grad_enabled() and any(one.requires_grad for one in given)


def _given_back(module: fx.GraphModule, report: stats.GraphReport, reason: str) -> Callable[..., Any]:
    report.given_back = reason
    gradients = reason.startswith("gradients")
    stats.count("training" if gradients else "fallbacks")
    LOG.log(20 if gradients else 30, "%s runs in torch: %s", report.name, reason)
    return _InTorch(module, report)


class _InTorch:
    """A graph that torch runs."""

    def __init__(self, module: fx.GraphModule, report: stats.GraphReport) -> None:
        self._module = module
        self._report = report

    def __call__(self, *args: Any) -> Any:
        began = time.perf_counter_ns()
        results = self._module.forward(*args)
        self._report.calls += 1
        self._report.nanoseconds += time.perf_counter_ns() - began
        return results


class _Compiler:
    """Compiles one graph."""

    def __init__(self, settings: Settings, report: stats.GraphReport) -> None:
        self._settings = settings
        self._report = report
        #: Why the graph can't be run a second time for its gradients.
        self.once: str | None = None

    def traced(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Takes the graph apart into operators without side effects, and compiles these."""
        from torch._dynamo.backends.common import aot_autograd

        backend = aot_autograd(
            fw_compiler=self.compiled,
            inference_compiler=self.compiled,
            decompositions=decompositions(),
            keep_inference_input_mutations=False,
        )
        with torch.no_grad(), kept_whole():
            function: Callable[..., Any] = backend(module, example_inputs)
        return function

    def compiled(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Cuts a graph of operators into partitions."""
        constant = self._constants(module)
        self.once = self.once or _random(module)
        graphs.drop_fresh_copies(module)
        graphs.hoist_sizes(module)
        graphs.set_apart_views(module)
        device = graphs.device(module)
        support = graphs.Support(module.graph, self._settings, device)
        found = graphs.partitions(module.graph, support, self._settings.min_block_size)
        self._report.operations = sum(map(graphs.is_work, module.graph.nodes))
        self._report.refusals = [*support.refusals.values(), *graphs.too_small(module.graph, support, found)]
        if self._settings.require_full_compilation:
            graphs.require_all(module.graph, self._report.refusals)
        weights = Weights([] if self._settings.dryrun else list(constant.values()), self._settings.freeze)
        self._fuse(module, found, constant, device)
        if self._settings.dryrun:
            stats.tell(self._report, self._settings.dryrun)
        return _Graph(module, weights, self._report, _begins_early(device, self._report))

    def _constants(self, module: fx.GraphModule) -> dict[str, int]:
        """The placeholders that are parameters and buffers to which nothing is written here: names and places."""
        context = torch._guards.TracingContext.try_get()
        metadata = getattr(context, "fw_metadata", None)
        places = set(getattr(metadata, "static_input_indices", None) or ())
        written = set(getattr(metadata, "mutated_inp_runtime_indices", None) or ())
        if written:
            self.once = self.once or "it writes into its inputs"
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        return {
            node.name: place
            for place, node in enumerate(placeholders)
            if place in places - written and isinstance(graphs.value(node), torch.Tensor)
        }

    def _fuse(
        self,
        module: fx.GraphModule,
        found: list[list[fx.Node]],
        constant: dict[str, int],
        device: torch.device,
    ) -> None:
        from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

        sizes = [sum(map(graphs.is_work, nodes)) for nodes in found]
        fuse_by_partitions(module, [dict.fromkeys(nodes) for nodes in found], prefix="neurenix_")
        first = next(iter(module.graph.nodes))
        with module.graph.inserting_before(first):
            every = module.graph.placeholder("every")
        calls = {str(node.target): node for node in module.graph.nodes if node.op == "call_module"}
        for number, size in enumerate(sizes):
            name = f"neurenix_{number}"
            call, part = calls[name], getattr(module, name)
            report = stats.PartitionReport(f"{self._report.name} partition {number}", size)
            self._report.partitions.append(report)
            stats.count("partitions")
            if self._settings.dryrun:
                report.runs, report.reason = "torch", "dryrun"
                continue
            arguments = _arguments(module, call, constant)
            delattr(module, name)
            module.add_submodule(name, Partition(part, arguments, self._settings, device, report))
            own = (a for i, a in enumerate(call.args) if i not in arguments.constant and i not in arguments.fixed)
            call.args = (every, *own)
        module.graph.eliminate_dead_code()
        module.recompile()


class _Graph:
    """A compiled graph, as torch calls it: with a list of arguments, which it empties."""

    _boxed_call = True

    def __init__(self, module: fx.GraphModule, weights: Weights, report: stats.GraphReport, ahead: bool) -> None:
        """`ahead`: work may begin before the constants are looked at."""
        self._forward = _alone(module) or module.forward
        self._weights = weights
        self._report = report
        self._ahead = ahead

    def __call__(self, args: list[Any]) -> Any:
        began = time.perf_counter_ns()
        given = tuple(args)
        args.clear()
        results = self._run(given)
        report = self._report
        report.calls += 1
        report.nanoseconds += time.perf_counter_ns() - began
        return results

    def _run(self, given: tuple[Any, ...]) -> Any:
        # Partitions find the state of the constants behind the arguments.
        expected = self._weights.expected if self._ahead else None
        if expected is not None:
            # The look at hundreds of constants takes as long as a small model; meanwhile a GPU works.
            results = self._forward((*given, expected), *given)
            state = self._weights.look(given)
            if state is expected:
                return results
        else:
            state = self._weights.look(given)
        return self._forward((*given, state), *given)


def _alone(module: fx.GraphModule) -> Callable[..., Any] | None:
    """What a graph does that is one partition and nothing else: torch's code of a graph and its calls of modules take
    as long as some engines.
    """
    nodes = list(module.graph.nodes)
    calls = [node for node in nodes if node.op == "call_module"]
    # The first one is all of them.
    places = {node: place - 1 for place, node in enumerate(node for node in nodes if node.op == "placeholder")}
    if len(calls) != 1 or not all(isinstance(arg, fx.Node) and arg in places for arg in calls[0].args):
        return None
    call = calls[0]
    partition = module.get_submodule(str(call.target))
    if not isinstance(partition, Partition):
        return None
    gives = {node: node.args[1] for node in nodes if node.target is operator.getitem and node.args[0] is call}
    results = nodes[-1].args[0]
    if len(places) + len(gives) + 2 != len(nodes) or not isinstance(results, (list, tuple)):
        return None
    if any(result not in gives and result is not call for result in results):
        return None
    own = [places[arg] for arg in call.args[1:]]
    given = [gives.get(result) for result in results]

    def forward(every: Sequence[Any], *args: Any) -> list[Any]:
        found = partition.forward(every, *[args[place] for place in own])
        return [found if place is None else found[place] for place in given]

    return forward


def _begins_early(device: torch.device, report: stats.GraphReport) -> bool:
    """Whether a call may begin before its constants are known to be as they were, and be done again: a GPU works beside
    us, and engines, in which all of the graph must be, change nothing.
    """
    return device.type == "cuda" and not report.refusals


def _arguments(module: fx.GraphModule, call: fx.Node, constant: dict[str, int]) -> Arguments:
    """Where the arguments of a partition's call come from."""
    places, fixed = {}, {}
    for place, arg in enumerate(call.args):
        if not isinstance(arg, fx.Node):
            continue
        if arg.op == "get_attr":
            fixed[place] = operator.attrgetter(str(arg.target))(module)
        elif arg.name in constant:
            places[place] = constant[arg.name]
    return Arguments(places, fixed, len(call.args))


def _random(module: fx.GraphModule) -> str | None:
    for node in module.graph.nodes:
        if graphs.is_random(node):
            return "it draws random numbers"
    return None
