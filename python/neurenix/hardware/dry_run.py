"""What a build would do, layer by layer, without a build that could be used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from neurenix.hardware.optimized import Report


class Row(NamedTuple):
    """One layer: who would run it, in which kernel, and why nobody before that provider would.

    `estimate_ms` is what its kernel took in its first form; it stands at the first of the layers that share a kernel,
    and is None at the others and where nothing was timed.
    """

    layer: str
    op: str
    provider: str
    kernel: str
    reason: str
    estimate_ms: float | None


class DryRun(list[Row]):
    """The layers after the passes, in order. A list; `str()` is a table.

    `fallbacks` are the providers that can't run here at all; `notes` what the build had to say; `report` is everything.
    """

    def __init__(self, rows: Iterable[Row], report: Report) -> None:
        super().__init__(rows)
        self.report = report
        self.fallbacks: Sequence[Mapping[str, Any]] = report["fallbacks"]
        self.notes: Sequence[str] = report["notes"]

    @classmethod
    def of(cls, report: Report) -> DryRun:
        """The table of a report."""
        reasons: dict[str, list[str]] = {}
        for refusal in report["refusals"]:
            reasons.setdefault(refusal["layer"], []).append(f"{refusal['provider']}: {refusal['reason']}")
        rows, timed = [], set()
        for layer in (layer for graph in report["graph"]["after"] for layer in graph["layers"]):
            number = layer["kernel"]
            kernel = report["kernels"][number]
            time = kernel["tuned_nanoseconds"] / 1e6 if number not in timed and kernel["tuned_nanoseconds"] else None
            timed.add(number)
            reason = "; ".join(reasons.get(layer["name"], []))
            rows.append(Row(layer["name"], layer["op"], kernel["provider"], kernel["kernel"], reason, time))
        return cls(rows, report)

    @property
    def estimate_ms(self) -> float:
        """Milliseconds of all kernels that were timed."""
        return sum(row.estimate_ms or 0.0 for row in self)

    def __str__(self) -> str:
        wide = max((len(row.layer) for row in self), default=5)
        lines = [f"{'layer':<{wide}}  {'op':<20} {'provider':<9} {'ms':>9}  kernel"]
        for row in self:
            time = "" if row.estimate_ms is None else f"{row.estimate_ms:.4f}"
            reason = f"  ({row.reason})" if row.reason else ""
            lines.append(f"{row.layer:<{wide}}  {row.op:<20} {row.provider:<9} {time:>9}  {row.kernel}{reason}")
        lines.append(f"{len(self)} layers, about {self.estimate_ms:.4f} ms")
        lines += [f"not {state['provider']}: {state['reason']}" for state in self.fallbacks]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])
