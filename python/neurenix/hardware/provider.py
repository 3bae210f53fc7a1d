"""Providers from outside of the package: other packages bring them, and they run layers in the processor's memory.

A package names its provider in the entry point group `neurenix.providers`; it is imported when somebody asks for it by
name: `optimize_model(..., providers=["toy", "cpu"])`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurenix import _native
from neurenix.errors import Error, InvalidArgumentError, PluginError

GROUP = "neurenix.providers"

#: Fills outputs; an input that is left out is None.
Kernel = Callable[[list[Any], list[Any]], None]


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a layer: element type and shape. What only a call tells of a shape is a `Dim`."""

    dtype: np.dtype[Any]
    shape: tuple[Any, ...]


@dataclass(frozen=True)
class LayerInfo:
    """A layer that a provider is asked about; `_native.ops()` tells of ops and their attributes."""

    name: str
    op: str
    attrs: dict[str, Any]
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]


class Provider:
    """To be derived from: says which layers it runs, and how."""

    #: Its name in options and reports.
    name = ""
    #: What its timings depend on.
    version = ""

    def offer(self, layer: LayerInfo) -> Kernel | str | None:
        """A function that runs the layer on arrays; or the reason why there is none, or None."""
        raise NotImplementedError(f"{type(self).__name__} defines no offer")


def register_provider(provider: Provider) -> None:
    """Adds a provider, for the life of the process.

    Raises `InvalidArgumentError` for what is none, and where its name is taken.
    """
    if not isinstance(provider, Provider) or not provider.name:
        raise InvalidArgumentError(
            "this is no provider",
            expected="an instance of a class derived from neurenix.hardware.provider.Provider, with a name",
            got=type(provider).__name__,
        )
    _native.register_provider(provider.name, str(provider.version), _Face(provider))


def entries() -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of installed packages, by the names of the providers; nothing is imported."""
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}


def is_known(name: str) -> bool:
    """Whether there is a provider of a name; one of an entry point is imported and registered to find out.

    Raises `PluginError` where that fails.
    """
    if name in dict(_native.provider_states()):
        return True
    entry = entries().get(name)
    if entry is None:
        return False
    try:
        found = entry.load()
        provider = found if isinstance(found, Provider) else found()
        if provider.name != name:
            raise InvalidArgumentError("the provider has another name than its entry point", got=repr(provider.name))
        register_provider(provider)
    except Exception as error:
        text = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
        raise PluginError(f"provider {name!r} can't be had from its entry point {entry.value!r}: {text}") from error
    return True


class _Face:
    """What the native module asks of a provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def offer(
        self, which: tuple[str, str], attrs: dict[str, Any], present: list[bool], inputs: list[Any], outputs: list[Any]
    ) -> Any:
        from neurenix.hardware.tensorrt.plugins.calling import calling

        given = iter(_infos(inputs))
        wanted = tuple(next(given) if there else None for there in present)
        layer = LayerInfo(*which, attrs, wanted, tuple(_infos(outputs)))
        with calling(f"offer of provider {self._provider.name}"):
            found = self._provider.offer(layer)
        if callable(found):
            return _Kernel(found, present)
        return found if isinstance(found, str) else f"it does not run {layer.op}"


class _Kernel:
    """The kernel of a layer."""

    def __init__(self, kernel: Kernel, present: Sequence[bool]) -> None:
        self._kernel = kernel
        self._present = present

    def prepare(self, ordinal: None, inputs: Any, outputs: Any) -> _Ready:
        return _Ready(self._kernel, self._present, inputs, outputs)


class _Ready:
    """A kernel at concrete shapes."""

    workspace = 0
    capturable = False

    def __init__(self, kernel: Kernel, present: Sequence[bool], inputs: Any, outputs: Any) -> None:
        from neurenix.hardware.tensorrt.plugins.memory import Loan, Views
        from neurenix.hardware.tensorrt.plugins.written import Watch

        self._kernel = kernel
        self._present = present
        self._inputs = Views(None, inputs, False)
        self._outputs = Views(None, outputs, True)
        self._watch = Watch(None, outputs)
        self._loan = Loan("its kernel", inputs=self._inputs, outputs=self._outputs)

    def run(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        # The names of arrays end with the inner call.
        with self._loan:
            if self._watch.over:
                self._run(inputs, outputs)
            else:
                way = "write into the arrays of its second argument"
                self._watch.run(lambda: self._run(inputs, outputs), outputs, "its kernel", way)

    def _run(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        from neurenix.hardware.tensorrt.plugins.calling import calling

        given = iter(self._inputs.at(inputs))
        wanted = [next(given) if there else None for there in self._present]
        with calling("its kernel"):
            self._kernel(wanted, self._outputs.at(outputs))


def _infos(types: Sequence[tuple[Any, ...]]) -> list[TensorInfo]:
    return [TensorInfo(np.dtype(dtype), tuple(shape)) for dtype, shape, _ in types]
