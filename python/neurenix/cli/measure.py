"""Measures calls as trtexec does, and says what it found in its words."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurenix.cli.progress import Tell

PERCENTILES = (90.0, 95.0, 99.0)

#: Engines take turns of so many calls, so that a busy moment of the machine meets all of them.
TURN = 5
#: Seconds before each turn in which the threads of the engine before go to sleep.
PAUSE = 0.1
#: Coefficient of variation, in percent, from which on trtexec calls times unstable.
UNSTABLE = 2.5

Runners = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Times:
    """The latencies of one engine, in milliseconds, and what follows from them."""

    samples: list[float]
    walltime_s: float
    throughput_qps: float
    images_per_s: float
    latency_ms: dict[str, float]

    @classmethod
    def of(cls, seconds: Sequence[float], batch: int, percentiles: Sequence[float] = PERCENTILES) -> Times:
        """From the seconds of each call."""
        total = sum(seconds)
        samples = [1e3 * s for s in seconds]
        latency = {"min": min(samples), "max": max(samples), "mean": statistics.mean(samples)}
        latency["median"] = statistics.median(samples)
        latency |= {f"percentile({p:g}%)": float(np.percentile(samples, p)) for p in percentiles}
        rate = len(samples) / total
        return cls(samples, total, rate, rate * batch, latency)

    @property
    def variation(self) -> float:
        """The standard deviation in percent of the mean."""
        return 100 * statistics.pstdev(self.samples) / self.latency_ms["mean"]

    def records(self) -> list[dict[str, float]]:
        """Each call as trtexec's `--exportTimes` has it. A processor has nothing to transfer."""
        found, now = [], 0.0
        for ms in self.samples:
            begin, now = now, now + ms
            found.append(
                {"startEnqMs": begin, "endEnqMs": begin, "startH2dMs": begin, "endH2dMs": begin}
                | {"startComputeMs": begin, "endComputeMs": now, "startD2hMs": now, "endD2hMs": now}
                | {"h2dMs": 0.0, "computeMs": ms, "d2hMs": 0.0, "latencyMs": ms}
            )
        return found

    def warnings(self) -> Iterator[str]:
        """What trtexec warns of, where it applies."""
        if self.variation > UNSTABLE:
            yield (
                f"compute time is unstable: its coefficient of variation is {self.variation:.3g} %; other work on the "
                "machine, or a processor that changes its clock, does that"
            )

    def summary(self) -> list[str]:
        """trtexec's performance summary, in its words, of what was measured: whole calls."""
        return [
            "=== Performance summary ===",
            f"Throughput: {_rate(self.throughput_qps)} qps ({_rate(self.images_per_s)} images/s)",
            "Latency: " + ", ".join(f"{key} = {ms:.4g} ms" for key, ms in self.latency_ms.items()),
            f"Total Host Walltime: {self.walltime_s:.4g} s",
        ]


def _rate(value: float) -> str:
    """Four digits, or all of those in front of the point."""
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def measure(
    runners: Runners, warmup: float, duration: float, iterations: int | None, tell: Tell | None = None
) -> dict[str, list[float]]:
    """The seconds of each call of each engine, which take turns."""
    for runner in runners.values():
        end = time.perf_counter() + warmup
        runner()
        while time.perf_counter() < end:
            runner()
    times: dict[str, list[float]] = {name: [] for name in runners}
    alone = len(runners) == 1
    begin = time.perf_counter()
    gc.collect()
    gc.disable()
    try:
        while not _enough(min(map(len, times.values())), time.perf_counter() - begin, duration, iterations):
            for name, runner in runners.items():
                if not alone:
                    time.sleep(PAUSE)
                    runner()
                for _ in range(TURN):
                    start = time.perf_counter()
                    runner()
                    times[name].append(time.perf_counter() - start)
            if tell is not None:
                calls = min(map(len, times.values()))
                share = calls / iterations if iterations else (time.perf_counter() - begin) / max(duration, 1e-9)
                tell(share, f"{calls} calls")
    finally:
        gc.enable()
    return {name: found[: iterations or None] for name, found in times.items()}


def _enough(count: int, elapsed: float, duration: float, iterations: int | None) -> bool:
    return count >= iterations if iterations else count >= 10 and elapsed >= duration
