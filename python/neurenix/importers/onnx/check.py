"""What is asked of an ONNX model before its nodes are read: that it is sound, and that every node is known."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from neurenix.errors import Error, FormatError, OutOfMemoryError, UnsupportedError
from neurenix.importers.onnx import plugin, rules
from neurenix.importers.onnx.convert import NEWEST_OPSET, OLDEST_OPSET

if TYPE_CHECKING:
    import onnx

#: Graphs inside of nodes, and functions that call functions, may be so deep.
DEEPEST = 32
#: So many nodes may a model have when the bodies of its functions are written out.
MOST_NODES = 1 << 20


@contextlib.contextmanager
def only_our_errors() -> Iterator[None]:
    """Turns whatever a damaged model makes Python or a library raise into an error of ours."""
    try:
        yield
    except Error:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(
            f"there is not enough memory for what the model asks for: {error}", hint="see that its sizes are as meant"
        ) from error
    except RecursionError as error:
        raise UnsupportedError("the model is nested too deep", hint="export it in a flatter form") from error
    except Exception as error:
        raise FormatError(
            f"the model is damaged, or breaks ONNX's rules: {type(error).__name__}: {error}",
            hint="onnx.checker.check_model may say more",
        ) from error


def own_domain(domain: str) -> str:
    """A domain as the rules have it: ONNX's own has two names."""
    return "" if domain == "ai.onnx" else domain


def versions(model: onnx.ModelProto) -> dict[str, int]:
    """The version of each domain's ops that the model is written in.

    Raises `FormatError` where it contradicts itself, `UnsupportedError` for ONNX's own ops of a version to come.
    """
    found: dict[str, int] = {}
    for opset in model.opset_import:
        domain = own_domain(opset.domain)
        if found.setdefault(domain, opset.version) != opset.version:
            raise FormatError(
                f"the model imports two versions of the ops of {domain or 'ai.onnx'!r}",
                got=f"{found[domain]} and {opset.version}",
            )
    own = found.get("")
    unsaid = [node for node in model.graph.node if own_domain(node.domain) == ""] if own is None else []
    if unsaid or (own is not None and own < 1):
        raise FormatError(
            "the model does not say of which version its ops are",
            layer=f"{unsaid[0].name} ({unsaid[0].op_type})" if unsaid else None,
            expected=f"an opset_import of {OLDEST_OPSET} to {NEWEST_OPSET}",
            got="none" if own is None else f"version {own}",
        )
    if own is not None and own > NEWEST_OPSET:
        raise UnsupportedError(
            "the model is written in ops that are newer than those that Neurenix knows",
            expected=f"opset {NEWEST_OPSET} or older",
            got=f"opset {own}",
            hint=f"export the model with opset {NEWEST_OPSET}, or use a newer Neurenix",
        )
    return found


def depth(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Raises `UnsupportedError` if graphs lie too deep in each other: the walks over them call themselves."""
    pending = [(node, 1) for node in graph.node]
    while pending:
        node, level = pending.pop()
        if level > DEEPEST:
            raise UnsupportedError(f"graphs are nested more than {DEEPEST} deep", layer=f"{node.name} ({node.op_type})")
        pending += [(inner, level + 1) for body in bodies(node) for inner in body.node]


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that a node holds."""
    return [body for attr in node.attribute for body in ((attr.g, *attr.graphs) if attr.HasField("g") else attr.graphs)]


def functions(model: onnx.ModelProto) -> None:
    """Raises `FormatError` if functions call themselves, `UnsupportedError` if their bodies are too many nodes."""
    known = {(own_domain(f.domain), f.name, f.overload): f for f in model.functions}
    if len(known) != len(model.functions):
        twice = Counter(f"{f.domain}::{f.name}" for f in model.functions).most_common(1)[0][0]
        raise FormatError("two functions of the model have the same name", got=twice)
    sizes: dict[tuple[str, str, str], int] = {}

    def size(nodes: Iterable[onnx.NodeProto], path: tuple[tuple[str, str, str], ...]) -> int:
        total = 0
        for node in nodes:
            key = (own_domain(node.domain), node.op_type, node.overload)
            total += 1 + sum(size(body.node, path) for body in bodies(node))
            if key not in known:
                continue
            if key in path or len(path) == DEEPEST:
                calls = " -> ".join(f"{domain}::{name}" for domain, name, _ in (*path, key))
                raise FormatError("a function of the model calls itself, or calls are too deep", got=calls)
            if key not in sizes:
                depth(known[key])
                sizes[key] = size(known[key].node, (*path, key))
            total += sizes[key]
        return total

    if (nodes := size(model.graph.node, ())) > MOST_NODES:
        raise UnsupportedError(
            "the functions of the model are too many nodes when they are written out",
            expected=f"at most {MOST_NODES}",
            got=str(nodes),
        )


def names(graph: onnx.GraphProto) -> None:
    """Raises `FormatError` where a name stands for two tensors, or a result for none."""
    given: dict[str, str] = {}
    weights = [*(t.name for t in graph.initializer), *(t.values.name for t in graph.sparse_initializer)]
    for name in weights:
        _new(given, name, "a weight")
    # A weight that is an input too is that input's default value.
    held = frozenset(weights)
    for port in graph.input:
        if port.name not in held:
            _new(given, port.name, "an input")
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name:
                _new(given, name, f"node {node.name or index} ({node.op_type})")
    for port in graph.output:
        if port.name not in given:
            raise FormatError(
                "nothing gives this output of the model", tensor=port.name, hint="the model may be cut short"
            )


def _new(given: dict[str, str], name: str, by: str) -> None:
    if name in given:
        raise FormatError("two parts of the model give one tensor", tensor=name, got=f"{given[name]} and {by}")
    given[name] = by


def ordered(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes in an order in which each comes after those that it reads; their own, if it is one.

    Raises `FormatError` with the nodes of a cycle.
    """
    giver = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    reads = [{giver[name] for name in tensors_read(node) if name in giver} for node in nodes]
    if all(read < index for index, before in enumerate(reads) for read in before):
        return list(nodes)
    waiting = [len(before) for before in reads]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, before in enumerate(reads):
        for read in before:
            readers[read].append(index)
    ready, order = deque(index for index, count in enumerate(waiting) if count == 0), []
    while ready:
        order.append(ready.popleft())
        for reader in readers[order[-1]]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if len(order) < len(nodes):
        raise FormatError("nodes form a cycle", got=_some(_cycle(nodes, reads, waiting)))
    return [nodes[index] for index in order]


def _cycle(nodes: Sequence[onnx.NodeProto], reads: list[set[int]], waiting: list[int]) -> list[str]:
    """The names of the nodes of one cycle: going back from a node that waits, one must come by some node twice."""
    path, places = [next(i for i, count in enumerate(waiting) if count)], {}
    while path[-1] not in places:
        places[path[-1]] = len(path) - 1
        path.append(next(i for i in reads[path[-1]] if waiting[i]))
    ring = path[places[path[-1]] : -1][::-1]
    first = ring.index(min(ring))
    ring = ring[first:] + ring[:first]
    return [f"{nodes[i].name or nodes[i].output[0]} ({nodes[i].op_type})" for i in ring]


def tensors_read(node: onnx.NodeProto) -> set[str]:
    """The tensors that a node reads, through the graphs that it holds too."""
    found = {name for name in node.input if name}
    for body in bodies(node):
        own = {t.name for t in body.initializer} | {i.name for i in body.input}
        own |= {name for inner in body.node for name in inner.output}
        read = {name for inner in body.node for name in tensors_read(inner)} | {o.name for o in body.output}
        found |= read - own
    return found


def known(graph: onnx.GraphProto, opsets: dict[str, int]) -> None:
    """Raises one error with all nodes that no rule knows."""
    unknown: dict[str, list[str]] = {}
    plugins: dict[str, None] = {}
    for node in walk(graph):
        domain = own_domain(node.domain)
        if not rules.known(domain, node.op_type) and plugin.identity(node) is None:
            plugins[plugin.wanted(node)] = None
            kind = f"{domain}::{node.op_type}" if domain else f"{node.op_type} (opset {opsets.get('', 1)})"
            unknown.setdefault(kind, []).append(node.name or (node.output[0] if node.output else "?"))
    if not unknown:
        return
    listed = "; ".join(f"{kind}: {_some(nodes)}" for kind, nodes in sorted(unknown.items()))
    nodes, kinds = sum(map(len, unknown.values())), len(unknown)
    raise UnsupportedError(
        f"the model has {nodes} node{'s' * (nodes > 1)} of {kinds} op{'s' * (kinds > 1)} that can't be imported",
        got=listed,
        hint=rules.hint(sorted(unknown), list(plugins)),
    )


def _some(found: list[str]) -> str:
    shown = ", ".join(found[:8])
    return f"{shown}, ... ({len(found)} in all)" if len(found) > 8 else shown


def walk(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those inside of others too."""
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from walk(body)
