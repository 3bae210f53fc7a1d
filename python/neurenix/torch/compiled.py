"""Modules with engines in them, as files of torch's: TorchScript and programs of `torch.export`."""

from __future__ import annotations

import contextlib
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
from neurenix.torch import stats
from neurenix.torch.engine_module import EngineModule


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
        fixed: Mapping[int, Any] | None = None,
    ) -> None:
        super().__init__()
        self.graph_module = graph
        self._examples = (tuple(args), dict(kwargs))
        #: The dynamic dimensions of the inputs by their names, as torch.export takes them.
        self.axes = axes
        self.report = report
        #: The arguments that torch's exporter made constants, by their places among all of the leaves.
        self.fixed = dict(fixed or {})
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives. Raises `InvalidArgumentError` for another constant than it was compiled for."""
        if self.fixed:
            self._check(args, kwargs)
        with torch.no_grad():
            return self.graph_module(*args, **kwargs)

    def _check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        bound = inspect.signature(self.graph_module.forward).bind(*args, **kwargs)
        leaves = pytree.tree_leaves(dict(bound.arguments))
        for place, wanted in self.fixed.items():
            found = leaves[place] if place < len(leaves) else None
            if found is not wanted and (isinstance(found, torch.Tensor) or found != wanted):
                raise InvalidArgumentError(
                    "an argument that is no tensor is a constant of the compiled module",
                    expected=repr(wanted),
                    got=type(found).__name__ if isinstance(found, torch.Tensor) else repr(found),
                    hint="compile again with the other value, or use torch.compile",
                )

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
        with _told_once(tell), restored(written(self.graph_module)):
            trace: Any = torch.jit.trace
            traced: torch.jit.ScriptModule = trace(self, copied(tuple(args)), check_trace=False, strict=False)
        return traced

    def save(self, path: Any, _extra_files: Any = None) -> None:
        """Writes it as TorchScript; `torch.jit.save`, which warns by itself, calls this."""
        script: Any = self._scripted()
        script.save(path, _extra_files=_extra_files or {})

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        """TorchScript as bytes; `torch.jit.save` calls this."""
        script: Any = self._scripted()
        return bytes(script.save_to_buffer(_extra_files=_extra_files or {}))


def copied(values: Any) -> Any:
    """The same with copies of the tensors, since a run of a module may write into these. Those that are one stay so."""
    made: dict[int, torch.Tensor] = {}

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = leaf.detach().clone()
        return made[id(leaf)]

    return pytree.tree_map(one, values)


def attribute(graph: fx.GraphModule, node: fx.Node) -> Any:
    """What a node of a graph gets from its module."""
    return operator.attrgetter(str(node.target))(graph)


def written(graph: fx.GraphModule) -> list[torch.Tensor]:
    """The buffers that a call writes into: they are no constants."""
    found = [
        attribute(graph, arg)
        for node in graph.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for arg in node.all_input_nodes
        if arg.op == "get_attr"
    ]
    return [one for one in found if isinstance(one, torch.Tensor)]


@contextlib.contextmanager
def restored(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Leaves the buffers that a run writes into as they were."""
    before = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, elements in before:
                tensor.copy_(elements)


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
        text = (
            "TorchScript is deprecated in this version of torch: torch_tensorrt.save writes .pt2 files of torch.export"
        )
        warnings.warn(text, FutureWarning, stacklevel=5)
