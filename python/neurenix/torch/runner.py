"""Calls of an engine on the arguments of a partition."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from neurenix.errors import UnsupportedError
from neurenix.hardware.optimized import OptimizedModel
from neurenix.torch.calls import EngineCall, laid_out
from neurenix.torch.conversion import Built
from neurenix.torch.weights import Stamp, picker, stamps

if TYPE_CHECKING:
    from neurenix.torch.partition import Arguments


#: Bytes of results that are kept.
_MOST_KEPT = 1 << 22


class Runner:
    """An engine with the constants that it was made with."""

    def __init__(
        self,
        built: Built,
        arguments: Arguments,
        args: Sequence[Any],
        before: Mapping[int, Stamp],
        device: torch.device,
    ) -> None:
        """`before`: the stamps of the constants from before the engine was built, by their places."""
        self._built = built
        self._device = device
        self._use(built.model)
        check_dtypes(self._call, built)
        self._sources = _sources(built.inputs, arguments)
        self._weights = picker([place for place, _ in built.weights])
        self._remember(args, [before[place] for place, _ in built.weights])

    def _use(self, model: OptimizedModel) -> None:
        self._model = model
        self._call = EngineCall(model, self._device)
        #: The results, on a GPU, of an engine that has no inputs.
        self._kept: list[torch.Tensor] | None = None

    def _remember(self, args: Sequence[Any], stamped: Sequence[Stamp]) -> None:
        self.calls = 0
        self._stamps = tuple(stamped)
        #: Where the constants lie.
        self.addresses = tuple(address for address, _, _ in stamped)
        #: Their memory is not given to others as long as its address says who they are.
        self.held = [weight.detach() for weight in self._weights(args)]

    def addresses_of(self, args: Sequence[Any]) -> tuple[int, ...]:
        """Where the constants among the arguments lie."""
        return tuple(constant.data_ptr() for constant in self._weights(args))

    def changed(self, args: Sequence[Any]) -> list[int]:
        """The places of the constants that are not those that the engine has."""
        pairs = zip(self._built.weights, self.stamps(args), self._stamps, strict=True)
        return [place for (place, _), new, old in pairs if new != old]

    def stamps(self, args: Sequence[Any]) -> tuple[Stamp, ...]:
        """Which tensors the constants are, and, unless they are frozen, how often they were written to."""
        return tuple(stamps(self._weights(args), self._built.frozen))

    def can_refit(self, places: Sequence[int]) -> bool:
        """Whether the engine can take new elements for these constants."""
        names = {name for name, _, _ in self._call.engine.weights}
        return all(name in names for place, name in self._built.weights if place in set(places))

    def refitted(self, args: Sequence[Any], places: Sequence[int]) -> Runner:
        """A runner with these constants as they are in the arguments; this one stays as it is."""
        wanted = set(places)
        stamped = self.stamps(args)
        model = copy.copy(self._model)
        model.update_weights({name: args[place] for place, name in self._built.weights if place in wanted})
        made = copy.copy(self)
        made._use(model)
        made._remember(args, stamped)
        return made

    def run(self, every: Sequence[Any], args: Sequence[Any]) -> list[torch.Tensor]:
        """The results, laid out as torch would have laid them out, from the graph's arguments and the partition's own.

        Raises errors of ours for what the engine refuses.
        """
        self.calls += 1
        if self._kept is not None:
            return [result.clone() for result in self._kept]
        given = [as_tensor(args[place] if own else every[place]) for own, place in self._sources]
        results = self._call.run(given)
        for place, order in enumerate(self._built.orders):
            if order is not None:
                results[place] = laid_out(results[place], order)
        if not self._sources and self._device.type == "cuda":
            self._keep(results)
        return results

    def _keep(self, results: Sequence[torch.Tensor]) -> None:
        if sum(result.nbytes for result in results) > _MOST_KEPT or torch.cuda.is_current_stream_capturing():
            return
        kept = [result.clone() for result in results]
        # Other streams read them.
        torch.cuda.current_stream(self._device).synchronize()
        self._kept = kept


def as_tensor(arg: Any) -> torch.Tensor:
    """An input of an engine: a tensor, or a size as the extent of an empty one."""
    return arg if isinstance(arg, torch.Tensor) else torch.empty((arg, 0))


def _sources(inputs: Sequence[int], arguments: Arguments) -> list[tuple[bool, int]]:
    """For each input of an engine, whether it is an argument of the partition's own, and its place among these."""
    own = [p for p in range(arguments.count) if p not in arguments.constant and p not in arguments.fixed]
    places = {place: index for index, place in enumerate(own)}
    return [(place in places, places[place] if place in places else arguments.constant[place]) for place in inputs]


def check_dtypes(call: EngineCall, built: Built) -> None:
    """Raises `UnsupportedError` unless an engine gives what torch would."""
    for port, found, wanted in zip(call.model.outputs, call.dtypes, built.dtypes, strict=True):
        if found != wanted:
            raise UnsupportedError(
                "an output has another dtype than torch's", tensor=port.name, expected=str(wanted), got=str(found)
            )
