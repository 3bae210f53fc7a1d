"""What is counted of a version of a model. All of it is changed in the thread of the event loop alone."""

from __future__ import annotations

import bisect
import time
from dataclasses import dataclass, field

#: Bounds of the histogram of how long requests take, in seconds.
SECONDS = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
#: Bounds of the histogram of rows in an execution.
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass
class Duration:
    """How often something was done, and the nanoseconds of it all."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        """Adds `count` of them, which took `ns` together."""
        self.count += count
        self.ns += ns


class Histogram:
    """How many values were at most each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Adds a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[int]:
        """The counts up to each bound, and all of them."""
        total, found = 0, []
        for count in self.counts:
            total += count
            found.append(total)
        return found


@dataclass
class BatchStatistics:
    """Executions of one size of batch."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass
class Statistics:
    """Counts of a version of a model, as the statistics extension has them."""

    last_inference_ms: int = 0
    inferences: int = 0
    executions: int = 0
    success: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    #: Failures by the reason that metrics name.
    failures: dict[str, Duration] = field(default_factory=dict)
    batches: dict[int, BatchStatistics] = field(default_factory=dict)
    requests_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    rows: Histogram = field(default_factory=lambda: Histogram(ROWS))

    def executed(self, rows: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Counts an execution."""
        self.executions += 1
        self.rows.add(rows)
        batch = self.batches.setdefault(rows, BatchStatistics())
        batch.compute_input.add(input_ns)
        batch.compute_infer.add(infer_ns)
        batch.compute_output.add(output_ns)

    def answered(self, rows: int, total_ns: int, queue_ns: int, times: tuple[int, int, int]) -> None:
        """Counts a request that was answered with outputs."""
        self.inferences += rows
        self.last_inference_ms = time.time_ns() // 1_000_000
        self.success.add(total_ns)
        self.queue.add(queue_ns)
        self.compute_input.add(times[0])
        self.compute_infer.add(times[1])
        self.compute_output.add(times[2])
        self.requests_s.add(total_ns / 1e9)

    def failed(self, reason: str, total_ns: int) -> None:
        """Counts a request that was not: REJECTED, CANCELED, BACKEND or OTHER, as metrics name it."""
        self.failures.setdefault(reason, Duration()).add(total_ns)

    @property
    def fail(self) -> Duration:
        """All failures."""
        found = self.failures.values()
        return Duration(sum(one.count for one in found), sum(one.ns for one in found))
