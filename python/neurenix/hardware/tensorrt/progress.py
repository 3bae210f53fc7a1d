"""From the steps of a build to the phases of an IProgressMonitor."""

from __future__ import annotations

from neurenix.hardware.tensorrt.interfaces import IProgressMonitor

#: The phase around all others.
WHOLE = "Building the engine"


class Follower:
    """Tells a monitor of a build; what the monitor raises ends the build, which raises it."""

    def __init__(self, monitor: IProgressMonitor) -> None:
        self._monitor = monitor
        self._phase: str | None = None
        monitor.phase_start(WHOLE, None, 1)

    def __call__(self, phase: str, done: int, steps: int) -> bool:
        """Whether the build goes on."""
        if self._phase != phase or done == 0:
            self._finish()
            self._phase = phase
            self._monitor.phase_start(phase, WHOLE, steps)
        goes_on = done == 0 or self._monitor.step_complete(phase, done - 1) is not False
        if done == steps or not goes_on:
            self._finish()
        return goes_on

    def _finish(self) -> None:
        if self._phase is not None:
            self._monitor.phase_finish(self._phase)
            self._phase = None

    def end(self, built: bool) -> None:
        """The build is over."""
        self._finish()
        if built:
            self._monitor.step_complete(WHOLE, 0)
        self._monitor.phase_finish(WHOLE)
