"""Calls of an engine on the arguments of a partition."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neurenix.errors import UnsupportedError
from neurenix.torch.conversion import Built
from neurenix.torch.weights import picker, stamps

if TYPE_CHECKING:
    from neurenix.torch.partition import Arguments

#: The shapes of results are kept for so many shapes of arguments.
_KEPT_SHAPES = 256


class Runner:
    """An engine with the constants that it was made with."""

    def __init__(self, built: Built, arguments: Arguments, args: Sequence[Any], device: torch.device) -> None:
        self._built = built
        self._device = device
        self._use(built.model)
        _check_dtypes(built)
        self._sources = _sources(built.inputs, arguments)
        self._weights = picker([place for place, _ in built.weights])
        self._remember(args)

    def _use(self, model: Any) -> None:
        self._model = model
        self._engine = model._engine
        self._names = tuple(port.name for port in model.inputs)
        self._direct = self._device.type == "cpu" and not self._engine.staged
        self._shapes: dict[tuple[torch.Size, ...], list[tuple[int, ...]]] = {}

    def _remember(self, args: Sequence[Any]) -> None:
        self.calls = 0
        self._stamps = stamps(self._weights(args))
        # Their memory is not given to others as long as its address says who they are.
        self._held = [weight.detach() for weight in self._weights(args)]

    def changed(self, args: Sequence[Any]) -> list[int]:
        """The places of the constants that are not those that the engine has."""
        now = stamps(self._weights(args))
        return [
            place for (place, _), new, old in zip(self._built.weights, now, self._stamps, strict=True) if new != old
        ]

    def can_refit(self, places: Sequence[int]) -> bool:
        """Whether the engine can take new elements for these constants."""
        names = {name for name, _, _ in self._engine.weights}
        return all(name in names for place, name in self._built.weights if place in set(places))

    def refitted(self, args: Sequence[Any], places: Sequence[int]) -> Runner:
        """A runner with these constants as they are in the arguments; this one stays as it is."""
        wanted = set(places)
        model = copy.copy(self._model)
        model.update_weights({name: args[place] for place, name in self._built.weights if place in wanted})
        made = copy.copy(self)
        made._use(model)
        made._remember(args)
        return made

    def run(self, every: Sequence[Any], args: Sequence[Any]) -> list[torch.Tensor]:
        """The results, laid out as torch would have laid them out, from the graph's arguments and the partition's own.

        Raises errors of ours for what the engine refuses.
        """
        self.calls += 1
        given = [self._input(args[place] if own else every[place]) for own, place in self._sources]
        results = self._run_direct(given) if self._direct else self._run_by_name(given)
        for place, order in enumerate(self._built.orders):
            if order is not None:
                results[place] = _laid_out(results[place], order)
        return results

    def _input(self, arg: Any) -> torch.Tensor:
        if not isinstance(arg, torch.Tensor):
            return torch.empty((int(arg), 0))
        if arg.is_contiguous() and not arg.is_neg():
            return arg
        return arg.detach().resolve_neg().contiguous()

    def _run_direct(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        shapes = tuple([tensor.shape for tensor in given])
        wanted = self._shapes.get(shapes)
        if wanted is None:
            wanted = [tuple(shape) for _, shape in self._engine.specs([list(shape) for shape in shapes])]
            if len(self._shapes) >= _KEPT_SHAPES:
                self._shapes.clear()
            self._shapes[shapes] = wanted
        made = [torch.empty(shape, dtype=dtype) for shape, dtype in zip(wanted, self._built.dtypes, strict=True)]
        self._engine.run_at(
            [(tensor.data_ptr(), None) for tensor in given],
            shapes,
            [(tensor.data_ptr(), None) for tensor in made],
            None,
        )
        return made

    def _run_by_name(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        named = zip(self._names, given, strict=True)
        # The first one says where the results are wanted.
        inputs = dict(sorted(named, key=lambda one: one[1].device != self._device))
        results = self._model.run(inputs).values()
        return [_tensor(result, self._device) for result in results]


def _sources(inputs: Sequence[int], arguments: Arguments) -> list[tuple[bool, int]]:
    """For each input of an engine, whether it is an argument of the partition's own, and its place among these."""
    own = [p for p in range(arguments.count) if p not in arguments.constant and p not in arguments.fixed]
    places = {place: index for index, place in enumerate(own)}
    return [(place in places, places[place] if place in places else arguments.constant[place]) for place in inputs]


def _tensor(result: Any, device: torch.device) -> torch.Tensor:
    tensor = result if isinstance(result, torch.Tensor) else torch.from_numpy(result)
    return tensor if tensor.device == device else tensor.to(device)


def _laid_out(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The same elements with the dimensions in this order in memory."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(tuple(order)).contiguous().permute(back)


def _check_dtypes(built: Built) -> None:
    """Raises `UnsupportedError` unless an engine gives what torch would."""
    for port, wanted in zip(built.model.outputs, built.dtypes, strict=True):
        if np.dtype(port.dtype).name != str(wanted).removeprefix("torch."):
            raise UnsupportedError(
                "an output has another dtype than torch's",
                tensor=port.name,
                expected=str(wanted),
                got=np.dtype(port.dtype).name,
            )
