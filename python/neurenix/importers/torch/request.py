"""What a module is exported with: its inputs by name, and how `forward` is called with them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from neurenix import shapes
from neurenix.arrays import settled
from neurenix.errors import InvalidArgumentError
from neurenix.importers.torch import guesses


@dataclass(frozen=True)
class Request:
    """The inputs to export with."""

    names: list[str]
    examples: list[torch.Tensor]
    #: For each input, the dynamic axes and the names of their dimensions.
    dynamic: list[dict[int, str]]
    #: How many inputs are given by position; the others are by their names.
    positional: int
    #: Other examples of the same shapes, the likelier ones first, where the names alone say what inputs hold.
    others: list[list[torch.Tensor]] = field(default_factory=list)
    #: Whether the dtypes of some examples were nowhere said.
    is_guessed: bool = False
    #: What the outputs are called, where it is not "output", "output_1", ...
    outputs: Sequence[str] | None = None
    #: How many arguments `forward` has in front of its `*args`; None where it has no such.
    named: int | None = None

    @classmethod
    def of(cls, module: torch.nn.Module, inputs: Any, input_shapes: Any, dynamic: Any) -> Request:
        """What the arguments of `from_torch` ask for."""
        if inputs is not None:
            return cls._of_examples(module, inputs, dict(dynamic or {}))
        if input_shapes is None:
            raise InvalidArgumentError(
                "torch must run the module to export it", hint="give example inputs, or input_shapes"
            )
        return cls._of_shapes(module, input_shapes)

    @classmethod
    def _of_examples(cls, module: torch.nn.Module, inputs: Any, dynamic: dict[str, Any]) -> Request:
        if isinstance(inputs, Mapping):
            named, positional = _ordered(module, dict(inputs))
        else:
            given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
            named = {default_name("input", i): example for i, example in enumerate(given)}
            positional = len(named)
        for name in dynamic:
            if name not in named:
                raise InvalidArgumentError(f"there is no input {name!r}", expected=", ".join(named))
        examples = [_tensor(module, name, value) for name, value in named.items()]
        axes = [_axes(name, dynamic.get(name, {})) for name in named]
        return cls(list(named), examples, axes, positional, named=_named(module))

    @classmethod
    def _of_shapes(cls, module: torch.nn.Module, input_shapes: Any) -> Request:
        if shapes.is_by_name(input_shapes):
            given, positional = _ordered(module, dict(input_shapes))
        else:
            given, positional = {"input": input_shapes}, 1
        sizes, dynamic = [], []
        for name, value in given.items():
            wanted = shapes.shape(value, name)
            axes = {
                axis: f"{name}_{axis}" if axis else "batch"
                for axis, (low, high) in enumerate(zip(wanted.min, wanted.max, strict=True))
                if low != high
            }
            # torch takes a dimension of 0 or 1 for fixed.
            sizes.append([max(2, d) if axis in axes else d for axis, d in enumerate(wanted.opt)])
            dynamic.append(axes)
        device, floating = _place(module)
        kinds = _kinds(module, list(given))
        # An array stands for itself, not for its shape alone.
        arrays = {name: _tensor(module, name, value) for name, value in given.items() if hasattr(value, "dtype")}
        candidates = [
            [
                arrays[name] if name in arrays else guesses.example(kind, dtype, dims, device)
                for name, kind, dtype, dims in zip(given, kinds, dtypes, sizes, strict=True)
            ]
            for dtypes in guesses.dtypes(kinds, floating)
        ]
        is_guessed = len(arrays) < len(given)
        others = candidates[1:] if is_guessed else []
        return cls(list(given), candidates[0], dynamic, positional, others, is_guessed, named=_named(module))

    @property
    def args(self) -> tuple[torch.Tensor, ...]:
        """The examples that go to `forward` by position."""
        return tuple(self.examples[: self.positional])

    @property
    def kwargs(self) -> dict[str, torch.Tensor]:
        """The examples that go to `forward` by name."""
        return dict(zip(self.names[self.positional :], self.examples[self.positional :], strict=True))

    @property
    def dynamic_shapes(self) -> Any:
        """The dynamic axes as torch.export takes them; None where there are none."""
        if not any(self.dynamic):
            return None
        axes = [dict(one) or None for one in self.dynamic]
        if self.positional < len(axes):
            return dict(zip(self.names, axes, strict=True))
        if self.named is None or self.named >= len(axes):
            return tuple(axes)
        return *axes[: self.named], tuple(axes[self.named :])

    def with_examples(self, examples: Sequence[torch.Tensor]) -> Request:
        """The same with other examples, and none besides."""
        return replace(self, examples=list(examples), others=[])

    def describe(self) -> str:
        """The inputs with their dtypes and shapes."""
        return ", ".join(
            f"{name} {str(example.dtype).removeprefix('torch.')}{list(example.shape)}"
            for name, example in zip(self.names, self.examples, strict=True)
        )

    def line(self) -> str:
        """The call of `from_torch` that says these inputs."""
        values = ", ".join(
            f"{name!r}: torch.zeros({tuple(example.shape)}, dtype={example.dtype})"
            for name, example in zip(self.names, self.examples, strict=True)
        )
        axes = {name: one for name, one in zip(self.names, self.dynamic, strict=True) if one}
        return f"neurenix.importers.from_torch(module, inputs={{{values}}}{f', dynamic={axes}' if axes else ''})"


def default_name(word: str, index: int) -> str:
    """What an input or output without a name is called."""
    return word if index == 0 else f"{word}_{index}"


def _parameters(module: torch.nn.Module) -> list[inspect.Parameter]:
    """The arguments of `forward`; none where they are not known."""
    try:
        return list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return []


def _named(module: torch.nn.Module) -> int | None:
    """How many arguments stand in front of `*args`; None where `forward` has none."""
    kinds = [p.kind for p in _parameters(module)]
    return kinds.index(inspect.Parameter.VAR_POSITIONAL) if inspect.Parameter.VAR_POSITIONAL in kinds else None


def _ordered(module: torch.nn.Module, given: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """In the order of forward's arguments, and how many come by position, when the names are theirs.

    Those behind an argument that is left out come by name. Other names stand for arguments in their order.
    """
    parameters = [p for p in _parameters(module) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not set(given) <= {p.name for p in parameters}:
        return given, len(given)
    leading = 0
    for parameter in parameters:
        if parameter.name not in given or parameter.kind is parameter.KEYWORD_ONLY:
            break
        leading += 1
    return {p.name: given[p.name] for p in parameters if p.name in given}, leading


def _kinds(module: torch.nn.Module, names: Sequence[str]) -> list[guesses.Kind]:
    """What inputs hold, as their names say: those of forward's arguments at their places, where theirs say nothing."""
    arguments = [p.name for p in _parameters(module)]
    found = []
    for index, name in enumerate(names):
        kind = guesses.kind(name)
        if name not in arguments and index < len(arguments) and kind is guesses.Kind.NUMBERS:
            kind = guesses.kind(arguments[index])
        found.append(kind)
    return found


def _axes(name: str, dynamic: Mapping[int, str] | Sequence[int]) -> dict[int, str]:
    if isinstance(dynamic, Mapping):
        return dict(dynamic)
    return {axis: f"{name}_{axis}" if axis else "batch" for axis in dynamic}


def _place(module: torch.nn.Module) -> tuple[torch.device, torch.dtype]:
    """The device of the module and its floating-point dtype."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.device, tensor.dtype
    return torch.device("cpu"), torch.float32


def _tensor(module: torch.nn.Module, name: str, value: Any) -> torch.Tensor:
    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    try:
        found: torch.Tensor = settled(tensor).detach().to(_place(module)[0])
    except InvalidArgumentError as error:
        error.tensor = name
        raise
    return found
