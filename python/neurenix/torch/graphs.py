"""Graphs of torch's compiler: sizes out of the way, and cut into what runs here and what runs in torch."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from neurenix.errors import UnsupportedError
from neurenix.importers.torch.faults import fault
from neurenix.torch.operators import LEFT_TO_TORCH, exportable
from neurenix.torch.settings import Settings, operator_name

#: What our networks compute with.
DTYPES = frozenset(
    {
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    }
)

#: Operations that compute nothing, beside those that torch calls views.
_FREE = frozenset({"aten._unsafe_view.default", "aten._assert_scalar.default", "aten._assert_async.msg"})

#: Operations of which one alone is worth an engine.
_HEAVY = frozenset(
    f"aten.{name}"
    for name in (
        "addmm.default",
        "baddbmm.default",
        "bmm.default",
        "conv1d.default",
        "conv2d.default",
        "conv3d.default",
        "convolution.default",
        "gru.input",
        "linear.default",
        "lstm.input",
        "matmul.default",
        "mm.default",
        "scaled_dot_product_attention.default",
    )
)
#: So many of the others are worth one.
_ENOUGH = 3


@dataclass(frozen=True)
class Refusal:
    """An operation that runs in torch, and why."""

    operator: str
    node: str
    reason: str


def value(node: fx.Node) -> Any:
    """What torch's tracer noted for a node: a tensor without elements, a size, or several."""
    return node.meta.get("val")


def is_open(extent: Any) -> bool:
    """Whether an extent is one that only a call tells: torch also has symbols that it found to be a number."""
    return isinstance(extent, torch.SymInt) and bool(extent.node.expr.free_symbols)


def is_size(node: fx.Node) -> bool:
    """Whether a node gives a number that only a call tells."""
    return isinstance(value(node), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def hoist_sizes(module: fx.GraphModule) -> None:
    """Computes every size from the sizes that come in, so that none of them waits for a tensor in between."""
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    known: dict[Any, Any] = {}
    for node in placeholders:
        found = value(node)
        if isinstance(found, torch.SymInt) and found.node.expr.is_symbol:
            known.setdefault(found.node.expr, fx.Proxy(node))
    first = _name_sizes(graph, placeholders, known)
    if first is None or not known:
        return
    made: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        found = value(node)
        if node.op != "call_function" or not isinstance(found, torch.SymInt):
            continue
        expression = found.node.expr
        if not expression.free_symbols or not expression.free_symbols <= set(known):
            continue
        if expression not in made:
            with graph.inserting_before(first):
                proxy = evaluated(expression, known)
            if not isinstance(proxy, fx.Proxy):
                continue
            made[expression] = proxy.node
            proxy.node.meta.setdefault("val", found)
        if node is not made[expression]:
            node.replace_all_uses_with(made[expression])
    graph.eliminate_dead_code()
    for node in graph.nodes:
        if node.op == "call_function" and "val" not in node.meta:
            # Steps of an expression: integers, whatever their value.
            node.meta["val"] = 0
    module.recompile()


def drop_fresh_copies(module: fx.GraphModule) -> None:
    """Reads the tensors of the graph itself in place of fresh copies: an engine on a GPU gives none on a processor."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten.lift_fresh_copy.default:
            continue
        source = node.args[0]
        # Whoever gets a copy, or a view of it, may write into it.
        if isinstance(source, fx.Node) and source.op == "get_attr" and all(map(_only_reads, node.users)):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _only_reads(node: fx.Node) -> bool:
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return all(found.alias_info is None for found in target._schema.returns)


def _name_sizes(graph: fx.Graph, placeholders: list[fx.Node], known: dict[Any, Any]) -> fx.Node | None:
    """Adds the symbols that come in as the extent of a tensor alone. The first node that may read all of them."""
    if not placeholders:
        return None
    first = placeholders[-1].next
    for node in placeholders:
        found = value(node)
        if not isinstance(found, torch.Tensor):
            continue
        for axis, extent in enumerate(found.shape):
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_symbol and extent.node.expr not in known:
                with graph.inserting_before(first):
                    size = graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
                size.meta["val"] = extent
                known[extent.node.expr] = fx.Proxy(size)
    return first


class SizeArithmetic(PythonReferenceAnalysis):
    """Expressions of sizes in sums and products alone, which ONNX has for integers and our networks follow."""

    @staticmethod
    def sym_sum(terms: Any) -> Any:
        """A sum of several."""
        return functools.reduce(operator.add, terms)

    @staticmethod
    def pow(base: Any, exponent: Any) -> Any:
        """A power, by products where the exponent is a small number."""
        if isinstance(exponent, int) and 1 <= exponent <= 8:
            return functools.reduce(operator.mul, [base] * exponent)
        return base**exponent

    pow_by_natural = pow


def evaluated(expression: Any, known: dict[Any, Any]) -> Any:
    """A size in terms of proxies of those that are known: a proxy, or a number."""
    return sympy_interp(SizeArithmetic, known, expression)


def is_random(node: fx.Node) -> bool:
    """Whether an operator draws random numbers: dropout of 0, or of a model in eval mode, does not."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    given = _arguments(node)
    chances = [one for name, one in given.items() if name in ("dropout", "dropout_p")]
    has_chance = any(argument.name in ("dropout", "dropout_p") for argument in target._schema.arguments)
    return not (has_chance and (given.get("train") is False or not any(chances)))


def _is_trained(node: fx.Node) -> bool:
    """Whether a node normalises by its batch and counts it: the exporter writes such a one with the running statistics.

    One without running statistics is written as it is.
    """
    given = _arguments(node)
    training = bool(given.get("training") or given.get("train"))
    return training and "batch_norm" in str(node.target) and given.get("running_mean") is not None


def _arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of an operator by their names."""
    target: Any = node.target
    return {one.name: given for one, given in zip(target._schema.arguments, node.args, strict=False)} | node.kwargs


class Support:
    """Says which nodes of a graph an engine may run."""

    def __init__(self, graph: fx.Graph, settings: Settings, device: torch.device) -> None:
        self._left = settings.torch_executed_ops
        self._device = device
        self._shared = aliases(graph)
        self._expanded = expanded(graph)
        self._read_raw = read_raw(graph)
        self.refusals: dict[str, Refusal] = {}

    def takes(self, node: fx.Node) -> bool:
        """Whether an engine may run it; where not, `refusals` says why."""
        reason = self._reason(node)
        if reason is not None:
            self.refusals[node.name] = Refusal(named(node), node.name, reason)
        return reason is None

    def _reason(self, node: fx.Node) -> str | None:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            return "it is no operator of torch's"
        name = operator_name(target)
        if {name, name.rpartition(".")[0], name.split(".")[1]} & self._left:
            return "it is named in torch_executed_ops"
        if node.name in self._shared:
            return "its result shares memory with another one"
        if node.name in self._expanded:
            return "its elements share memory, as torch expands them"
        if node.name in self._read_raw:
            return "aten.as_strided reads its memory"
        if name in LEFT_TO_TORCH:
            return "what it gives is no value"
        if is_random(node):
            return "it draws random numbers"
        if target._schema.is_mutable:
            return "it writes into its arguments"
        if _is_trained(node):
            return "torch's ONNX exporter writes what it gives outside of training"
        if name not in exportable():
            return "torch's ONNX exporter does not write it"
        return fault(node) or self._unfit(node)

    def _unfit(self, node: fx.Node) -> str | None:
        for one in (*_tensors(value(node)), *(t for arg in node.all_input_nodes for t in _tensors(value(arg)))):
            if one.layout is not torch.strided:
                return f"it has a tensor of layout {one.layout}"
            if one.dtype not in DTYPES:
                return f"it has a tensor of {one.dtype}"
            if one.device != self._device and (one.device.type != "cpu" or one.ndim > 0):
                return f"it has a tensor on {one.device}"
        if any(t.device != self._device for t in _tensors(value(node))):
            return "its result lies on another device"
        if any(isinstance(value(arg), (torch.SymFloat, torch.SymBool, float)) for arg in node.all_input_nodes):
            return "it takes a number that only a call tells"
        return None


def named(node: fx.Node) -> str:
    """The operator of a node, by name."""
    try:
        return operator_name(node.target)
    except ValueError:
        return str(node.target)


def _tensors(found: Any) -> list[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        return [found]
    return [one for one in found if isinstance(one, torch.Tensor)] if isinstance(found, (tuple, list)) else []


def is_work(node: fx.Node) -> bool:
    """Whether a node computes something."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or is_size(node):
        return False
    return not node.target.is_view and named(node) not in _FREE


def _is_worth(nodes: list[fx.Node], least: int | None) -> bool:
    """Whether a partition is worth its call; where nobody says how many operations that takes, a heavy one does."""
    work = [node for node in nodes if is_work(node)]
    if least is not None:
        return len(work) >= least
    return len(work) >= _ENOUGH or any(named(node) in _HEAVY for node in work)


def aliases(graph: fx.Graph) -> set[str]:
    """The names of nodes whose results share memory with each other among those of the graph: torch makes these."""
    ways: dict[fx.Node, list[list[fx.Node]]] = {}
    for result in _results(graph):
        way, base = _way(result)
        ways.setdefault(base, []).append(way)
    return {node.name for found in ways.values() if len(found) > 1 for way in found for node in way}


def expanded(graph: fx.Graph) -> set[str]:
    """The names of the views that lead to results whose elements share memory: torch makes these."""
    return {node.name for result in _results(graph) if _is_expanded(result) for node in _way(result)[0]}


def set_apart_views(module: fx.GraphModule) -> None:
    """Gives results that torch makes views of their own, so that engines go on from theirs."""
    graph = module.graph
    output = next(node for node in graph.nodes if node.op == "output")
    by_torch = aliases(graph) | expanded(graph)
    made: dict[fx.Node, fx.Node] = {}
    for result in _results(graph):
        if result.name not in by_torch:
            continue
        for node in reversed(_way(result)[0]):
            if node not in made:
                with graph.inserting_before(output):
                    made[node] = graph.node_copy(node, lambda one: made.get(one, one))
        output.replace_input_with(result, made[result])
    if made:
        graph.eliminate_dead_code()
        module.recompile()


def _results(graph: fx.Graph) -> list[fx.Node]:
    output = next(node for node in graph.nodes if node.op == "output")
    return list(dict.fromkeys(output.all_input_nodes))


def _way(result: fx.Node) -> tuple[list[fx.Node], fx.Node]:
    """The views that lead to a node, the last one first, and what they are of."""
    way, base = [], result
    while _is_view(base):
        way.append(base)
        base = base.all_input_nodes[0]
    return way, base


def _is_expanded(node: fx.Node) -> bool:
    found = value(node)
    if not _is_view(node) or not isinstance(found, torch.Tensor) or found.layout is not torch.strided:
        return False
    pairs = zip(found.shape, found.stride(), strict=True)
    return any(isinstance(stride, int) and stride == 0 and not _is_one(extent) for extent, stride in pairs)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, int) and extent == 1


def read_raw(graph: fx.Graph) -> set[str]:
    """The names of nodes whose memory `aten.as_strided` reads as torch lays it out: the views, and what they are of."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.target is not torch.ops.aten.as_strided.default:
            continue
        base = node.all_input_nodes[0]
        while base.op == "call_function" and base.name not in found:
            found.add(base.name)
            if not _is_view(base) and not _may_be_view(base):
                break
            base = base.all_input_nodes[0]
    return found


def _may_be_view(node: fx.Node) -> bool:
    return bool(node.all_input_nodes) and named(node) in ("aten.reshape.default", "aten.contiguous.default")


def _is_view(node: fx.Node) -> bool:
    if node.op != "call_function" or not node.all_input_nodes:
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and _is_view(node.args[0])
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def partitions(graph: fx.Graph, support: Support, least: int | None) -> list[list[fx.Node]]:
    """The nodes of each partition, as few partitions as the nodes that stay in torch allow.

    A node's stage is the number of times that the way to it has left torch for an engine: nodes of one stage need
    nothing of each other through torch, and so make one partition. Partitions with less work than `least` stay in
    torch, unless all of the graph is one.
    """
    stages: dict[fx.Node, int] = {}
    taken: dict[fx.Node, bool] = {}
    for node in graph.nodes:
        if node.op != "call_function" or is_size(node):
            stages[node], taken[node] = _highest(stages, taken, node, False), False
            continue
        if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
            stages[node], taken[node] = stages[node.args[0]], taken[node.args[0]]
            continue
        taken[node] = support.takes(node)
        stages[node] = _highest(stages, taken, node, taken[node])
    found: dict[int, list[fx.Node]] = {}
    for node, one in taken.items():
        if one:
            found.setdefault(stages[node], []).append(node)
    rest = any(is_work(node) and not taken[node] for node in graph.nodes)
    kept = [nodes for nodes in found.values() if any(map(is_work, nodes))]
    if len(kept) == 1 and not rest:
        return kept
    return [nodes for nodes in kept if _is_worth(nodes, least)]


def _highest(stages: dict[fx.Node, int], taken: dict[fx.Node, bool], node: fx.Node, enters: bool) -> int:
    ways = (stages[one] + (1 if enters and not taken[one] else 0) for one in node.all_input_nodes)
    return max(ways, default=1 if enters else 0)


def device(module: fx.GraphModule) -> torch.device:
    """Where a graph computes: on the first device of its tensors that is not the processor."""
    found = [value(node) for node in module.graph.nodes]
    devices = [one.device for one in found if isinstance(one, torch.Tensor)]
    return next((one for one in devices if one.type != "cpu"), torch.device("cpu"))


def too_small(graph: fx.Graph, support: Support, found: list[list[fx.Node]]) -> list[Refusal]:
    """The operations that engines could run, whose partitions are not worth one."""
    inside = {node for nodes in found for node in nodes}
    return [
        Refusal(named(node), node.name, "its partition is too small (min_block_size)")
        for node in graph.nodes
        if is_work(node) and node not in inside and node.name not in support.refusals
    ]


def require_all(graph: fx.Graph, refusals: list[Refusal]) -> None:
    """Raises `UnsupportedError` for the first operation that runs in torch; views compute nothing."""
    views = {node.name for node in graph.nodes if _is_view(node)}
    for refusal in refusals:
        if refusal.node not in views:
            raise UnsupportedError(
                "the graph has operators that run in torch",
                layer=refusal.node,
                got=f"{refusal.operator}: {refusal.reason}",
                hint="leave out require_full_compilation",
            )
