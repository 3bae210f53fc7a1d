"""One version of a model, ready to answer."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neurenix import checkpoint
from neurenix.errors import Error
from neurenix.hardware.optimized import OptimizedModel
from neurenix.importers.files import ENGINES, WITH_ENGINES
from neurenix.log import LOG
from neurenix.serve import config as configs
from neurenix.serve.batcher import Arrays, Batcher
from neurenix.serve.config import ModelOptions
from neurenix.serve.loading import efficient_batch, greatest_batch, open_file, warm_up
from neurenix.serve.spec import Request, Spec
from neurenix.serve.statistics import Statistics

#: Beside a model's file: weights to take in place of its own.
WEIGHTS = "weights.safetensors"

#: What tells whether a file is still the one that was read: its number, size and time of change.
Stamp = tuple[int, int, int] | None


def stamp(path: str | os.PathLike[str]) -> Stamp:
    """The stamp of a file; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class Files:
    """The files of a version. `weights` is None where nothing stands in place of the model's own."""

    model: str
    weights: str | None = None

    @property
    def stamps(self) -> tuple[Stamp, Stamp]:
        """The stamps of both."""
        return stamp(self.model), stamp(self.weights) if self.weights else None


@dataclass(frozen=True)
class Ready:
    """A model that was opened and warmed up: what a `Served` is made of.

    `batch`: the rows of requests that are put together; one request may bring more, up to the spec's `max_batch`.
    `replaced`: the weights that are not the model's own.
    """

    model: OptimizedModel
    spec: Spec
    options: ModelOptions
    files: Files
    stamps: tuple[Stamp, Stamp]
    batch: int
    replaced: frozenset[str] = frozenset()


def prepare(name: str, files: Files, options: ModelOptions) -> Ready:
    """Opens a version's files, or makes an engine of them, and warms it up. Takes long: not for the event loop.

    Raises as `Backend.optimize_model`, `Backend.load`, `OptimizedModel.update_weights`, and `FormatError` for a config
    that does not fit the model.
    """
    stamps = files.stamps
    given = options.options
    if files.weights and Path(files.model).suffix not in (*ENGINES, *WITH_ENGINES):
        given = replace(given, optimize={**given.optimize, "refittable": True})
    model = open_file(files.model, given)
    weights = checkpoint.load(files.weights) if files.weights else {}
    if weights:
        model.update_weights(weights)
    return replace(_warmed(name, model, files, stamps, options), replaced=frozenset(weights))


def refitted(name: str, ready: Ready, files: Files) -> Ready:
    """The same engine with the weights of a file; the one that is there stays as it is, for whoever calls it.

    Where the file leaves out weights that another one replaced, the model is made anew: what is served depends on the
    files alone. Raises as `OptimizedModel.update_weights` and `prepare`.
    """
    stamps = files.stamps
    weights = checkpoint.load(str(files.weights))
    if not ready.replaced <= weights.keys():
        return prepare(name, files, ready.options)
    model = copy.copy(ready.model)
    model.update_weights(weights)
    return replace(_warmed(name, model, files, stamps, ready.options), replaced=frozenset(weights))


def _warmed(
    name: str, model: OptimizedModel, files: Files, stamps: tuple[Stamp, Stamp], options: ModelOptions
) -> Ready:
    declared = options.config is not None and options.config.max_batch_size > 0
    most = greatest_batch(model, options.options.max_batch, name, declared)
    spec = Spec.of(model.inputs, model.outputs, most)
    if options.config is not None:
        configs.check_tensors(options.config, spec)
    if options.options.warmup:
        count = warm_up(model, most)
        LOG.info("model %s: warmed up for %d shapes", name, count)
    return Ready(model, spec, options, files, stamps, _batch(name, model, most, options))


def _batch(name: str, model: OptimizedModel, most: int, options: ModelOptions) -> int:
    """How many rows of requests are put together: what the config prefers, else what answers most rows a second."""
    preferred = list(options.config.dynamic_batching.preferred_batch_size) if options.config is not None else []
    if preferred or most < 2 or not options.options.tune:
        return min(most, max(preferred, default=most))
    try:
        found = efficient_batch(model, most)
    except Error as error:
        # Such as random indices that are out of range.
        LOG.info("model %s: batches are not tuned, because a trial failed: %s", name, error.message)
        return most
    if found < most:
        LOG.info("model %s: up to %d rows are put together: more at once take longer a row", name, found)
    return found


class Served:
    """A version of a model that answers requests. Made in the event loop."""

    def __init__(self, name: str, version: int, ready: Ready, statistics: Statistics | None = None) -> None:
        self.name = name
        self.version = version
        self.ready = ready
        self.spec = ready.spec
        self.statistics = statistics or Statistics()
        limits = replace(ready.options.limits, rows=ready.batch)
        self.batcher = Batcher(ready.model.run, self.spec, self.statistics, limits, f"{name}-{version}")

    async def infer(self, request: Request) -> Arrays:
        """The outputs of a request; raises as `Batcher.infer`."""
        return await self.batcher.infer(request)

    def config(self) -> Any:
        """The message that describes how it is served."""
        config = configs.describe(self.name, self.spec, self.ready.options.options)
        if self.spec.max_batch:
            config.dynamic_batching.preferred_batch_size.append(self.ready.batch)
        return config

    @property
    def default_timeout_us(self) -> int:
        """The timeout of a request that has none; 0: none."""
        return self.ready.options.options.default_timeout_us
