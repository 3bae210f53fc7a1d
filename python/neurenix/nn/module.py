"""Module: what models are made of. It holds weights and parts, and `forward` says how they work together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurenix import arrays, checkpoint
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.nn.tracing import current

Array = NDArray[Any]
M = TypeVar("M", bound="Module")


class Parameter(np.ndarray[Any, Any]):
    """An array that is a weight: `state_dict` has it, and layers call it by its name."""

    def __new__(cls, data: ArrayLike) -> Parameter:
        return np.ascontiguousarray(data).reshape(np.shape(data)).view(cls)


class Module:
    """A part of a model, with PyTorch's ways: assign parts and `Parameter`s in `__init__`, write `forward`.

    Modules compute nothing by themselves: `optimize_model` traces `forward` and builds an engine.
    """

    #: Keys of PyTorch's state dicts that mean nothing in inference.
    ignored: ClassVar[frozenset[str]] = frozenset({"num_batches_tracked"})

    def __init__(self) -> None:
        self._modules: dict[str, Module | None]
        self._arrays: dict[str, Array | None]
        self._prepare()

    def _prepare(self) -> None:
        if "_modules" not in self.__dict__:
            self.__dict__["_modules"] = {}
            self.__dict__["_arrays"] = {}

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

    def register_parameter(self, name: str, value: ArrayLike | None) -> None:
        """Adds a weight under a name; None takes its place where there is none."""
        self._prepare()
        self._arrays[name] = None if value is None else Parameter(value)
        object.__setattr__(self, name, self._arrays[name])

    #: A buffer is what a parameter is: inference trains neither.
    register_buffer = register_parameter

    def add_module(self, name: str, module: Module) -> None:
        """Adds a part under a name. Raises `InvalidArgumentError` for what is no module."""
        if not isinstance(module, Module):
            raise InvalidArgumentError(
                f"part {name!r} is no module", expected="an instance of neurenix.nn.Module", got=repr(module)[:80]
            )
        setattr(self, name, module)

    def children(self) -> Iterator[Module]:
        """The parts."""
        return (module for module in self._modules.values() if module is not None)

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
        """Every weight below this module, with its name."""
        for path, module in self.named_modules():
            for name, array in module._arrays.items():
                if array is not None:
                    yield (f"{path}.{name}" if path else name), array

    named_parameters = named_arrays

    def parameters(self) -> Iterator[Array]:
        """Every weight below this module."""
        return (array for _, array in self.named_arrays())

    def state_dict(self) -> dict[str, Array]:
        """Every weight by name, as plain arrays that share memory with the module."""
        return {name: array.view(np.ndarray) for name, array in self.named_arrays()}

    def load_state_dict(self, source: Mapping[str, Any] | str | os.PathLike[str], strict: bool = True) -> None:
        """Takes weights by name: a mapping to arrays or torch tensors, or the path of a safetensors or torch file.

        Floating-point weights are converted to the dtypes of the module. Nothing changes unless all fits.

        Raises `InvalidArgumentError` when names are missing or left over (unless `strict=False`), `ShapeError` and
        `DTypeError` for a weight that does not fit, `FileError` and `FormatError` for a file that can't be read.
        """
        given = source if isinstance(source, Mapping) else checkpoint.load(source)
        own = {
            f"{path}.{name}" if path else name: (module, name)
            for path, module in self.named_modules()
            for name, array in module._arrays.items()
            if array is not None
        }
        unknown = [n for n in given if n not in own and n.rpartition(".")[2] not in self.ignored]
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

    def eval(self: M) -> M:
        """The module: it only knows inference."""
        return self

    def _describe(self) -> str:
        return ""

    def __repr__(self) -> str:
        parts = [f"  ({name}): {module!r}".replace("\n", "\n  ") for name, module in self._modules.items()]
        inside = "\n" + "\n".join(parts) + "\n" if parts else self._describe()
        return f"{type(self).__name__}({inside})"


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


class Sequential(Module):
    """Modules one after another: `Sequential(a, b)`, or a dict or list of pairs with names."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
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

    def __getitem__(self, index: int) -> Module:
        return list(self.children())[index]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def append(self, module: Module) -> Sequential:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self


class ModuleList(Module):
    """Modules by number."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def __getitem__(self, index: int) -> Module:
        return list(self.children())[index]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return self.children()


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            self.add_module(name, module)

    def __getitem__(self, name: str) -> Module:
        module = self._modules[name]
        assert module is not None
        return module

    def __len__(self) -> int:
        return len(self._modules)

    def items(self) -> list[tuple[str, Module]]:
        """Names and modules."""
        return [(name, module) for name, module in self._modules.items() if module is not None]


class Identity(Module):
    """Gives what it gets."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        """The input."""
        return x
