"""Module: what models are made of. It holds weights and parts, and `forward` says how they work together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurenix import arrays, checkpoint, names
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.nn.tracing import current

Array = NDArray[Any]
M = TypeVar("M", bound="Module")
T = TypeVar("T")


class Parameter(np.ndarray[Any, Any]):
    """An array that is a weight: `state_dict` has it, and layers call it by its name."""

    def __new__(cls, data: ArrayLike) -> Parameter:
        array = arrays.to_numpy(data)
        return np.ascontiguousarray(array).reshape(array.shape).view(cls)

    def __deepcopy__(self, memo: dict[int, Any] | None) -> Parameter:
        copied = Parameter(np.array(self))
        if memo is not None:
            memo[id(self)] = copied
        return copied


class IncompatibleKeys(NamedTuple):
    """Names that `load_state_dict` missed, and names that it left over."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """A part of a model, with PyTorch's ways: assign parts and `Parameter`s in `__init__`, write `forward`.

    Modules compute nothing by themselves: `optimize_model` traces `forward` and builds an engine.
    """

    def __init__(self) -> None:
        self._modules: dict[str, Module | None]
        self._arrays: dict[str, Array | None]
        self._buffers: set[str]
        self._transient: set[str]
        self._prepare()

    def _prepare(self) -> None:
        if "_modules" not in self.__dict__:
            self.__dict__["_modules"] = {}
            self.__dict__["_arrays"] = {}
            self.__dict__["_buffers"] = set()
            self.__dict__["_transient"] = set()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes, on traced tensors."""
        raise InvalidArgumentError(f"{type(self).__name__} has no forward", hint="write one")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with current().inside(self):
            return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        self._prepare()
        if isinstance(value, Module):
            self._modules[name] = value
        elif isinstance(value, Parameter) or name in self._arrays:
            self._arrays[name] = value
        elif name in self._modules:
            del self._modules[name]
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._modules.pop(name, None)
        self._arrays.pop(name, None)
        self._buffers.discard(name)
        self._transient.discard(name)

    def register_parameter(self, name: str, value: ArrayLike | None) -> None:
        """Adds a weight under a name; None takes its place where there is none."""
        self._prepare()
        self._arrays[name] = None if value is None else Parameter(value)
        self._buffers.discard(name)
        object.__setattr__(self, name, self._arrays[name])

    def register_buffer(self, name: str, value: ArrayLike | None, persistent: bool = True) -> None:
        """Adds what is used like a weight; `state_dict` leaves it out unless it is `persistent`."""
        self.register_parameter(name, value)
        self._buffers.add(name)
        (self._transient.discard if persistent else self._transient.add)(name)

    def add_module(self, name: str, module: Module) -> None:
        """Adds a part under a name. Raises `InvalidArgumentError` for what is no module."""
        if not isinstance(module, Module):
            raise InvalidArgumentError(
                f"part {name!r} is no module", expected="an instance of neurenix.nn.Module", got=repr(module)[:80]
            )
        setattr(self, name, module)

    register_module = add_module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The parts, with names."""
        return ((name, module) for name, module in self._modules.items() if module is not None)

    def children(self) -> Iterator[Module]:
        """The parts."""
        return (module for _, module in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and everything below it, with names."""
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and everything below it."""
        return (module for _, module in self.named_modules())

    def named_arrays(self) -> Iterator[tuple[str, Array]]:
        """Every weight and buffer below this module, with its name."""
        for path, module in self.named_modules():
            for name, array in module._arrays.items():
                if array is not None:
                    yield (f"{path}.{name}" if path else name), array

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Array]]:
        """The weights of this module and of those below, with names; one that is shared comes once."""
        return self._named(False, prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Array]]:
        """What `register_buffer` added, as `named_parameters` has weights."""
        return self._named(True, prefix, recurse, remove_duplicate)

    def _named(self, buffers: bool, prefix: str, recurse: bool, once: bool) -> Iterator[tuple[str, Array]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix) if recurse else [(prefix, self)]:
            for name, array in module._arrays.items():
                if array is None or (name in module._buffers) != buffers or (once and id(array) in seen):
                    continue
                seen.add(id(array))
                yield (f"{path}.{name}" if path else name), array

    def get_submodule(self, target: str) -> Module:
        """The module at a path: "layers.0.norm". Raises `InvalidArgumentError` where there is none."""
        return _at(target, dict(self.named_modules()), "module")

    def get_parameter(self, target: str) -> Array:
        """The weight at a path: "layers.0.weight". Raises `InvalidArgumentError` where there is none."""
        return _at(target, dict(self.named_parameters(remove_duplicate=False)), "parameter")

    def get_buffer(self, target: str) -> Array:
        """The buffer at a path: "norm.running_mean". Raises `InvalidArgumentError` where there is none."""
        return _at(target, dict(self.named_buffers(remove_duplicate=False)), "buffer")

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Calls a function with each module below, and with this one last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def parameters(self, recurse: bool = True) -> Iterator[Array]:
        """The weights of `named_parameters`."""
        return (array for _, array in self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Array]:
        """The buffers of `named_buffers`."""
        return (array for _, array in self.named_buffers(recurse=recurse))

    def state_dict(self) -> dict[str, Array]:
        """Every weight by name, as plain arrays that share memory with the module."""
        return {name: module._arrays[own].view(np.ndarray) for name, (module, own) in self._places().items()}  # type: ignore[union-attr]

    def _places(self) -> dict[str, tuple[Module, str]]:
        """Where the weights of a state dict stand."""
        return {
            f"{path}.{name}" if path else name: (module, name)
            for path, module in self.named_modules()
            for name, array in module._arrays.items()
            if array is not None and name not in module._transient
        }

    def load_state_dict(
        self, source: Mapping[str, Any] | str | os.PathLike[str], strict: bool = True
    ) -> IncompatibleKeys:
        """Takes weights by name: a mapping to arrays or torch tensors, or the path of a safetensors or torch file.

        Floating-point weights are converted to the dtypes of the module. Nothing changes unless all fits. Gives the
        names that were missing, and those that were left over.

        Raises `InvalidArgumentError` when names are missing or left over (unless `strict=False`), `ShapeError` and
        `DTypeError` for a weight that does not fit, `FileError` and `FormatError` for a file that can't be read.
        """
        given = source if isinstance(source, Mapping) else checkpoint.load(source)
        own = self._places()
        unknown = [n for n in given if n not in own and n.rpartition(".")[2] not in checkpoint.COUNTERS]
        missing = [n for n in own if n not in given]
        if strict and (unknown or missing):
            raise InvalidArgumentError(
                "the weights do not fit the model",
                expected=f"also {_some(missing)}" if missing else None,
                got=f"also {_some(unknown)}" if unknown else None,
                hint="load_state_dict(..., strict=False) takes what fits",
            )
        fitting = [(place, _fitted(name, given[name], place)) for name, place in own.items() if name in given]
        for (module, name), array in fitting:
            setattr(module, name, Parameter(array))
        return IncompatibleKeys(missing, unknown)

    #: Whether it trains, as PyTorch calls it.
    training = False

    def eval(self: M) -> M:
        """The module: it only knows inference."""
        return self

    def train(self: M, mode: bool = True) -> M:
        """The module. Raises `UnsupportedError` unless `mode` is False: there is no training."""
        if mode:
            raise UnsupportedError("there is no training", hint="train with PyTorch, and load its state dict")
        return self

    def _describe(self) -> str:
        return ""

    def __repr__(self) -> str:
        parts = [f"  ({name}): {module!r}".replace("\n", "\n  ") for name, module in self._modules.items()]
        inside = "\n" + "\n".join(parts) + "\n" if parts else self._describe()
        return f"{type(self).__name__}({inside})"


def _at(target: str, known: Mapping[str, T], what: str) -> T:
    if target in known:
        return known[target]
    raise InvalidArgumentError(f"there is no {what} {target!r}", hint=names.hint(target, known))


def _fitted(name: str, value: Any, place: tuple[Module, str]) -> Array:
    own = place[0]._arrays[place[1]]
    assert own is not None
    array = arrays.floating(arrays.to_numpy(value), own.dtype, name)
    if array.shape != own.shape:
        raise ShapeError("a weight has another shape", tensor=name, expected=str(own.shape), got=str(array.shape))
    return array


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > 8 else shown
