"""A part of a graph that an engine runs, or torch where that can't be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from neurenix.errors import DTypeError, Error, ShapeError, UnsupportedError
from neurenix.importers.torch.silence import first_line
from neurenix.log import LOG
from neurenix.torch import conversion, stats
from neurenix.torch.runner import Runner
from neurenix.torch.settings import Settings

#: A constant that changed before each of so many calls in a row is no constant.
_PATIENCE = 3


class Partition(torch.nn.Module):
    """Runs a part of a graph: its engine is built at the first call, whose arguments say the shapes to optimise for.

    Where the build fails, or a call does, torch runs the part, with one warning; `report` says why.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        constant: frozenset[int],
        settings: Settings,
        device: torch.device,
        report: stats.PartitionReport,
    ) -> None:
        super().__init__()
        # Not as a submodule: nothing of this is a part of the user's model.
        self.__dict__["_module"] = module
        self._constant = constant
        self._settings = settings
        self._device = device
        self._report = report
        self._lock = threading.Lock()
        self._runner: Runner | None = None
        self._in_torch = False
        self._building = False
        self._warned = False
        self._changes: dict[int, int] = {}
        self._several = isinstance(conversion.Part(module, constant).output, tuple)

    def forward(self, *args: Any) -> Any:
        """What the part gives for these arguments."""
        began = time.perf_counter_ns()
        try:
            return self._run(args)
        finally:
            self._report.calls += 1
            self._report.nanoseconds += time.perf_counter_ns() - began

    def _run(self, args: Sequence[Any]) -> Any:
        runner = self._runner
        if runner is None:
            if not self._in_torch:
                runner = self._start(args)
            if runner is None:
                return self._module(*args)
        try:
            if not runner.is_current(args):
                runner = self._renewed(args)
                if runner is None:
                    return self._module(*args)
            results = runner.run(args)
        except Error as error:
            if self._device.type == "cuda" and not isinstance(error, (ShapeError, DTypeError, UnsupportedError)):
                # It may be of a call before this one, whose results are out already.
                raise
            self._fall_back(error, "a call of it failed")
            return self._module(*args)
        return tuple(results) if self._several else results[0]

    def _start(self, args: Sequence[Any]) -> Runner | None:
        """Builds the engine unless another thread does; None where torch runs this call."""
        if not self._settings.background:
            with self._lock:
                if self._runner is None and not self._in_torch:
                    _in_fresh_thread(lambda: self._build(args))
            return self._runner
        with self._lock:
            if not self._building:
                self._building = True
                # What the caller writes into its arrays meanwhile must not show.
                kept = [a.detach().clone() if self._is_input(i, a) else a for i, a in enumerate(args)]
                threading.Thread(target=self._build, args=(kept,), name="neurenix-build", daemon=True).start()
        return None

    def _is_input(self, place: int, arg: Any) -> bool:
        return isinstance(arg, torch.Tensor) and place not in self._constant

    def _build(self, args: Sequence[Any]) -> None:
        """Builds the engine; where it can't, torch runs the part from now on, or the reason is raised."""
        began = time.perf_counter()
        # Tensors of inference mode say nothing of what is written into them.
        constant = frozenset(place for place in self._constant if not args[place].is_inference())
        try:
            built = conversion.build(conversion.Part(self._module, constant), args, self._settings, self._device)
            runner = Runner(built, args, self._device)
        except Exception as error:
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
        self._runner = runner

    def _renewed(self, args: Sequence[Any]) -> Runner | None:
        """A runner with the constants as they are now."""
        with self._lock:
            runner = self._runner
            if runner is None or runner.is_current(args):
                return runner
            changed = runner.changed(args)
            calls = self._report.calls
            # Calls are counted when they end: as many as changes when each of them brought one.
            self._changes = {place: self._changes.get(place, 0) + 1 for place in changed if runner.calls <= 1}
            inconstant = frozenset(place for place, times in self._changes.items() if times >= _PATIENCE)
            if inconstant:
                LOG.info("%s: weights that change in each call become inputs (call %d)", self._report.name, calls)
                self._constant -= inconstant
            if inconstant or not runner.can_refit(changed):
                stats.count("rebuilds")
                self._runner = None
                _in_fresh_thread(lambda: self._build(args))
                return self._runner
            self._runner = runner.refitted(args, changed)
            self._report.refits += 1
            stats.count("refits")
            return self._runner

    def _fall_back(self, error: Exception, what: str) -> None:
        stats.count("fallbacks")
        LOG.debug("%s falls back to torch", self._report.name, exc_info=error)
        if not self._warned:
            self._warned = True
            LOG.warning(
                "%s (%d operations) runs in torch: %s: %s",
                self._report.name,
                self._report.operations,
                what,
                first_line(error),
            )


def _in_fresh_thread(work: Callable[[], None]) -> None:
    """Runs it in a thread without the modes that torch's tracers have on this one; raises what it raised."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="neurenix-build", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
