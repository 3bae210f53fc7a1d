"""Metrics in Prometheus' text format, under Triton's names, which have no `_total` behind counters."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator
from typing import Any

from neurenix.serve.registry import Registry
from neurenix.serve.served import Served

#: The content type of what `render` gives.
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

#: Type and description of every metric.
METRICS = {
    "nv_inference_request_success": ("counter", "Requests that were answered with outputs"),
    "nv_inference_request_failure": ("counter", "Requests that were not, by reason"),
    "nv_inference_count": ("counter", "Inferences: rows of batches"),
    "nv_inference_exec_count": ("counter", "Executions of the model"),
    "nv_inference_request_duration_us": ("counter", "Time of answered requests from arrival to outputs"),
    "nv_inference_queue_duration_us": ("counter", "Time that answered requests waited"),
    "nv_inference_compute_input_duration_us": ("counter", "Time to put inputs together"),
    "nv_inference_compute_infer_duration_us": ("counter", "Time in the model"),
    "nv_inference_compute_output_duration_us": ("counter", "Time to take outputs apart"),
    "nv_inference_pending_request_count": ("gauge", "Requests that wait"),
    "neurenix_model_ready": ("gauge", "1 for a version that is served, 0 for one that could not be loaded"),
    "neurenix_request_duration_seconds": ("histogram", "Time of answered requests from arrival to outputs"),
    "neurenix_batch_rows": ("histogram", "Rows of executions"),
    "neurenix_server_ready": ("gauge", "1 while requests are taken"),
    "neurenix_pending_bytes": ("gauge", "Bytes of HTTP requests that are being read or answered"),
    "process_resident_memory_bytes": ("gauge", "Memory of the process"),
    "process_cpu_seconds_total": ("counter", "Processor time of the process"),
}

Sample = tuple[dict[str, str], float]


def render(registry: Registry, ready: bool, pending_bytes: int) -> bytes:
    """All metrics as they are now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    alone = {
        "neurenix_server_ready": float(ready),
        "neurenix_pending_bytes": float(pending_bytes),
        "process_resident_memory_bytes": float(_resident()),
        "process_cpu_seconds_total": usage.ru_utime + usage.ru_stime,
    }
    served = list(registry.served())
    lines: list[str] = []
    for name, (kind, description) in METRICS.items():
        lines += [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
        if name in alone:
            lines.append(f"{name} {_number(alone[name])}")
        elif name == "neurenix_model_ready":
            lines += _lines(name, _ready(registry))
        elif kind == "histogram":
            lines += [line for one in served for line in _histogram(name, one)]
        else:
            lines += _lines(name, (sample for one in served for sample in _samples(name, one)))
    return ("\n".join(lines) + "\n").encode()


def _samples(name: str, served: Served) -> Iterator[Sample]:
    statistics, labels = served.statistics, _labels(served)
    if name == "nv_inference_request_failure":
        for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
            found = statistics.failures.get(reason)
            yield labels | {"reason": reason}, found.count if found else 0
        return
    values: dict[str, float] = {
        "nv_inference_request_success": statistics.success.count,
        "nv_inference_count": statistics.inferences,
        "nv_inference_exec_count": statistics.executions,
        "nv_inference_request_duration_us": statistics.success.ns // 1000,
        "nv_inference_queue_duration_us": statistics.queue.ns // 1000,
        "nv_inference_compute_input_duration_us": statistics.compute_input.ns // 1000,
        "nv_inference_compute_infer_duration_us": statistics.compute_infer.ns // 1000,
        "nv_inference_compute_output_duration_us": statistics.compute_output.ns // 1000,
        "nv_inference_pending_request_count": served.batcher.pending,
    }
    yield labels, values[name]


def _ready(registry: Registry) -> Iterator[Sample]:
    for row in registry.states():
        if row["version"]:
            yield {"model": row["name"], "version": row["version"]}, float(row["state"] == "READY")


def _histogram(name: str, served: Served) -> Iterator[str]:
    statistics = served.statistics
    histogram = statistics.requests_s if name == "neurenix_request_duration_seconds" else statistics.rows
    labels, counts = _labels(served), histogram.cumulative()
    for bound, count in zip([*map(str, histogram.bounds), "+Inf"], counts, strict=True):
        yield _line(f"{name}_bucket", labels | {"le": bound}, count)
    yield _line(f"{name}_sum", labels, histogram.sum)
    yield _line(f"{name}_count", labels, counts[-1])


def _labels(served: Served) -> dict[str, str]:
    return {"model": served.name, "version": str(served.version)}


def _lines(name: str, samples: Iterable[Sample]) -> list[str]:
    return [_line(name, labels, value) for labels, value in samples]


def _line(name: str, labels: dict[str, str], value: float) -> str:
    # Names of models and versions have nothing that must be escaped.
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}"


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
