"""Spans of OpenTelemetry for requests, where somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from neurenix.packages import need


class Tracer:
    """Makes a span for each request for inference; without OpenTelemetry it does nothing."""

    def __init__(self, enabled: bool) -> None:
        """With `enabled`, spans go to the program's tracer provider, as `opentelemetry-instrument` sets it up.

        Raises `MissingPackageError` where the library is missing then.
        """
        self._trace: Any = None
        if enabled:
            self._trace = need("opentelemetry.trace", "tracing")
            self._propagate = need("opentelemetry.propagate", "tracing")
            self._tracer = self._trace.get_tracer("neurenix.serve")

    @contextmanager
    def request(self, model: str, version: str, headers: Mapping[str, str]) -> Iterator[Any]:
        """The span of a request, a child of the one that its headers name (W3C `traceparent`)."""
        if self._trace is None:
            yield None
            return
        parent = self._propagate.extract(headers)
        kind = self._trace.SpanKind.SERVER
        with self._tracer.start_as_current_span("infer", context=parent, kind=kind) as span:
            span.set_attribute("neurenix.model", model)
            span.set_attribute("neurenix.version", version)
            yield span

    @property
    def enabled(self) -> bool:
        """Whether spans are made."""
        return self._trace is not None
