"""A part of a graph that an engine runs, or torch where that can't be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from neurenix.errors import DTypeError, Error, ShapeError, UnsupportedError
from neurenix.importers.torch.silence import first_line
from neurenix.log import LOG
from neurenix.torch import conversion, engines, stats
from neurenix.torch.engines import Engines
from neurenix.torch.runner import Runner
from neurenix.torch.settings import Settings
from neurenix.torch.weights import stamps

_is_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled

#: A constant that changed before each of so many calls in a row is no constant.
_PATIENCE = 8


@dataclass(frozen=True)
class Arguments:
    """Where a partition's arguments come from, in the order of its graph."""

    #: By the place among the partition's arguments: the place of a constant among those of the graph.
    constant: dict[int, int]
    #: Tensors that belong to the graph itself.
    fixed: dict[int, torch.Tensor]
    #: How many arguments there are.
    count: int

    def all(self, every: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """The partition's arguments, from those of the graph and those that the partition is called with."""
        rest = iter(given)
        return [
            every[self.constant[place]]
            if place in self.constant
            else self.fixed[place]
            if place in self.fixed
            else next(rest)
            for place in range(self.count)
        ]


class Partition(torch.nn.Module):
    """Runs a part of a graph: its engine is built at the first call, whose arguments say the shapes to optimise for.

    Where the build fails, or a call does, torch runs the part, with one warning; `report` says why.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        arguments: Arguments,
        settings: Settings,
        device: torch.device,
        report: stats.PartitionReport,
    ) -> None:
        super().__init__()
        # Not as a submodule: nothing of this is a part of the user's model.
        self._graph = (module,)
        self._arguments = arguments
        self._constant = frozenset(arguments.constant) | frozenset(arguments.fixed)
        self._settings = settings
        self._device = device
        self._report = report
        self._lock = threading.Lock()
        self._engines = Engines()
        self._in_torch = False
        self._building = False
        self._warned = False
        self._changes: dict[int, int] = {}
        self._several = isinstance(conversion.Part(module, self._constant).output, tuple)

    def forward(self, every: Sequence[Any], *given: Any) -> Any:
        """What the part gives: for all arguments of the graph with the state of the constants behind them, and those of
        its own that are no constants.
        """
        if _is_profiled():
            # Ranges of torch.profiler, and of NVTX under torch.autograd.profiler.emit_nvtx().
            with torch.profiler.record_function(f"neurenix: {self._report.name}"):
                return self._timed(every, given)
        return self._timed(every, given)

    def _timed(self, every: Sequence[Any], given: Sequence[Any]) -> Any:
        began = time.perf_counter_ns()
        runner = self._engines.at(every[-1]) or self._prepared(every, given)
        results = self._in_engine(runner, every, given) if runner is not None else self._by_torch(every, given)
        report = self._report
        report.calls += 1
        report.nanoseconds += time.perf_counter_ns() - began
        return results

    def _in_engine(self, runner: Runner, every: Sequence[Any], given: Sequence[Any]) -> Any:
        try:
            results = runner.run(every, given)
        except Error as error:
            if self._device.type == "cuda" and not isinstance(error, (ShapeError, DTypeError, UnsupportedError)):
                # It may be of a call before this one, whose results are out already.
                raise
            self._fall_back(error, "a call of it failed")
            return self._by_torch(every, given)
        return tuple(results) if self._several else results[0]

    def _by_torch(self, every: Sequence[Any], given: Sequence[Any]) -> Any:
        return self._graph[0](*self._arguments.all(every, given))

    def _prepared(self, every: Sequence[Any], given: Sequence[Any]) -> Runner | None:
        """A runner for the constants as they are now; None where torch runs this call."""
        if self._in_torch:
            return None
        args = self._arguments.all(every, given)
        if self._settings.background and self._engines.newest is None:
            self._build_beside(args)
            return None
        with self._lock:
            if self._in_torch:
                return None
            if self._engines.newest is None:
                self._build_apart(args)
            else:
                self._renew(args)
            # A build may have ended with torch.
            runner = self._engines.of(args)
            if runner is not None:
                self._engines.remember(every[-1], runner)
            return runner

    def _build_apart(self, args: Sequence[Any]) -> None:
        """Builds in a thread without the modes that torch's tracers have on this one; raises what goes wrong."""
        failed: list[BaseException] = []
        cancelled = threading.Event()
        turn = conversion.Turn.of_this_thread(lambda: not cancelled.is_set())

        def work() -> None:
            try:
                self._build(args, turn)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work, name="neurenix-build", daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:
            # Ctrl-C: the build ends at its next step.
            cancelled.set()
            raise
        if failed:
            raise failed[0]

    def _build_beside(self, args: Sequence[Any]) -> None:
        with self._lock:
            if self._building:
                return
            self._building = True
        # What the caller writes into its arrays meanwhile must not show.
        kept = [
            arg.detach().clone() if isinstance(arg, torch.Tensor) and place not in self._constant else arg
            for place, arg in enumerate(args)
        ]
        threading.Thread(target=self._build_caught, args=(kept,), name="neurenix-build", daemon=True).start()

    def _build_caught(self, args: Sequence[Any]) -> None:
        try:
            self._build(args, conversion.Turn(lambda: True, False))
        except Exception as error:
            self._report.runs, self._report.reason = "torch", first_line(error)
            self._fall_back(error, "it can't be built")

    def _build(self, args: Sequence[Any], turn: conversion.Turn) -> None:
        """Builds the engine; where it can't, torch runs the part from now on, or the reason is raised."""
        began = time.perf_counter()
        # Tensors of inference mode say nothing of what is written into them.
        self._constant = frozenset(place for place in self._constant if not args[place].is_inference())
        part = conversion.Part(self._graph[0], self._constant)
        places = sorted(self._constant)
        # Before the build: what is written into them meanwhile must show.
        before = stamps([args[place] for place in places], self._settings.freeze)
        try:
            built = conversion.build(part, args, self._settings, self._device, turn)
            runner = Runner(built, self._arguments, args, dict(zip(places, before, strict=True)), self._device)
        except Exception as error:
            if not turn.goes_on():
                return
            self._in_torch = True
            if self._settings.pass_through_build_failures or self._settings.require_full_compilation:
                raise
            self._report.runs, self._report.reason = "torch", first_line(error)
            self._fall_back(error, "it can't be built")
            return
        self._report.build_seconds += time.perf_counter() - began
        self._report.runs = "engine"
        self._report.from_cache = built.cached
        stats.count("engines_from_cache" if built.cached else "engines_built")
        self._engines.keep(runner)

    def _renew(self, args: Sequence[Any]) -> None:
        """Sees to it that there is an engine with the constants as they are."""
        found, newest = self._engines.of(args), self._engines.newest
        assert newest is not None
        base = found or newest
        changed = base.changed(args)
        if found is not None and not changed:
            return
        dropped = self._engines.drop_dead()
        if self._settings.freeze:
            # Another module of the same class, with constants of its own.
            self._engines.drop_oldest()
            self._build_apart(args)
            return
        inconstant = self._inconstant(changed, dropped if found is None else [found])
        if inconstant:
            LOG.info("%s: weights that change before each call become inputs", self._report.name)
            self._constant -= inconstant
            self._engines.clear()
        if inconstant or not base.can_refit(changed):
            stats.count("rebuilds")
            self._build_apart(args)
            return
        self._engines.keep(base.refitted(args, changed))
        self._report.refits += 1
        stats.count("refits")

    def _inconstant(self, changed: Sequence[int], replaced: Sequence[Runner]) -> frozenset[int]:
        """Which of the constants that are not those of an engine are none, where that takes the place of others."""
        if not replaced:
            # One more module.
            return frozenset(changed) if len(self._engines) >= engines.MOST else frozenset()
        in_a_row = self._changes if all(runner.calls <= 1 for runner in replaced) else {}
        self._changes = {place: in_a_row.get(place, 0) + 1 for place in changed}
        return frozenset(place for place, times in self._changes.items() if times >= _PATIENCE)

    def _fall_back(self, error: Exception, what: str) -> None:
        stats.count("fallbacks")
        LOG.debug("%s falls back to torch", self._report.name, exc_info=error)
        if self._warned:
            return
        self._warned = True
        text = "%s (%d operations) runs in torch: %s: %s"
        LOG.warning(text, self._report.name, self._report.operations, what, first_line(error))
