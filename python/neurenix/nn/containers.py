"""Modules that hold others, or weights."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from numpy.typing import ArrayLike

from neurenix.nn.module import Module

L = TypeVar("L", bound="ModuleList")


class ModuleList(Module):
    """Modules by number."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def append(self: L, module: Module) -> L:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: L, modules: Iterable[Module]) -> L:
        """Adds modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Adds a module before the one of a number."""
        everything = list(self)
        everything.insert(index, module)
        self._renumber(everything)

    def pop(self, index: int | slice = -1) -> Any:
        """Takes a module out, by number, and gives it."""
        taken = self[index]
        del self[index]
        return taken

    def __delitem__(self, index: int | slice) -> None:
        left = list(self)
        del left[index]
        self._renumber(left)

    def _renumber(self, modules: Iterable[Module]) -> None:
        for name in list(self._modules):
            delattr(self, name)
        self.extend(modules)

    def __add__(self: L, other: Iterable[Module]) -> L:
        made = type(self)()
        made.extend([*self, *other])
        return made

    def __iadd__(self: L, other: Iterable[Module]) -> L:
        self.extend(list(other))
        return self

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return list(self)[operator.index(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(self._modules)[operator.index(index)], module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return self.children()


class Sequential(ModuleList):
    """Modules one after another: `Sequential(a, b)`, or a dict with names."""

    def __init__(self, *modules: Any) -> None:
        Module.__init__(self)
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named = list(modules[0].items())
        else:
            named = [(str(i), module) for i, module in enumerate(modules)]
        for name, module in named:
            self.add_module(name, module)

    def forward(self, x: Any) -> Any:
        """Each module on what the one before gave."""
        for module in self.children():
            x = module(x)
        return x

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Sequential(dict(list(self.named_children())[index]))
        return super().__getitem__(index)


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Adds modules under their names."""
        for name, module in modules.items():
            self.add_module(name, module)

    def __getitem__(self, name: str) -> Module:
        module = self._modules[name]
        assert module is not None
        return module

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> list[Module]:
        """The modules."""
        return list(self.children())

    def items(self) -> list[tuple[str, Module]]:
        """Names and modules."""
        return list(self.named_children())


class ParameterList(Module):
    """Weights by number."""

    def __init__(self, values: Iterable[ArrayLike] | None = None) -> None:
        super().__init__()
        for value in values or ():
            self.append(value)

    def append(self, value: ArrayLike) -> ParameterList:
        """Adds a weight at the end."""
        self.register_parameter(str(len(self)), value)
        return self

    def __getitem__(self, index: int) -> Any:
        return list(self._arrays.values())[operator.index(index)]

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._arrays.values())


class ParameterDict(Module):
    """Weights by name."""

    def __init__(self, parameters: Mapping[str, ArrayLike] | None = None) -> None:
        super().__init__()
        for name, value in (parameters or {}).items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __setitem__(self, name: str, value: ArrayLike) -> None:
        self.register_parameter(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and weights."""
        return self._arrays.items()


class Identity(Module):
    """Gives what it gets."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        """The input."""
        return x
