"""Opens the files of models, and finds out whether their rows may share a call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from neurenix.errors import Error
from neurenix.hardware.optimized import OptimizedModel, Port
from neurenix.hardware.options import Options
from neurenix.importers.files import ENGINES
from neurenix.inference.opening import Device, open_model
from neurenix.inference.rows import ANY_SIZE
from neurenix.log import LOG
from neurenix.serve.config import MAX_BATCH, ServeOptions
from neurenix.serve.spec import Array
from neurenix.shapes import Shape, sized

#: How far the rows of a call may be from those of calls of their own, relative to the greatest value: what another
#: order of additions in a low precision makes is less, and what rows make of each other is more.
_TOLERANCE = 0.05

#: A size of batch that gives this share of the greatest rate is as good as the one that gives that.
_AS_GOOD = 0.9
#: Seconds in which one size of batch is timed, when that takes several calls.
_TUNING_S = 0.2

#: Dimensions of unknown size have this one in trial calls.
_TRIAL = 8


def open_file(path: str | os.PathLike[str], options: ServeOptions) -> OptimizedModel:
    """The model of a file (or of package.module:factory), made ready for any batch up to the greatest.

    Raises as `Backend.optimize_model` and `Backend.load`.
    """
    # The command line imports this module.
    from neurenix.cli.models import load_model

    text = os.fspath(path)
    device = Device.of(options.device)
    given = dict(options.optimize)
    # A model whose ops are plugins can't even be looked at without them.
    Options.of(**given).register_plugins()
    if Path(text).suffix in ENGINES:
        return open_model(text, None, device, None, given)
    source = text if Path(text).suffix == ".ts" else load_model(text)
    shapes = _ranges(source, options.max_batch)
    if isinstance(source, str) and Path(source).suffix == ".ts":
        return open_model(source, None, device, None, given)
    return device.backend.optimize_model(source, shapes, options.precision, **given)


def _ranges(source: Any, max_batch: int | None) -> dict[str, Shape] | None:
    """The range of batches of a model all of whose other dimensions are known; None where they are not."""
    from neurenix.cli.models import input_ports

    ports = input_ports(source)
    first = {str(dims[0]) for dims in ports.values() if dims and not isinstance(dims[0], int)}
    known = all(dims and all(isinstance(d, int) for d in dims[1:]) for dims in ports.values())
    if not ports or not known or len(first) != 1 or max_batch == 0:
        return None
    most = max_batch or MAX_BATCH
    return {
        name: Shape((1, *dims[1:]), (max(1, most // 2), *dims[1:]), (most, *dims[1:]))
        for name, dims in ports.items()
        if not isinstance(dims[0], int)
    }


def greatest_batch(model: OptimizedModel, asked: int | None, name: str, declared: bool) -> int:
    """How many rows a call may have: 0 where rows may not share one.

    They may where the first dimension of all inputs and outputs is the same size, and a call with two rows gives what
    two calls with one row each give. `declared`: a config says so; then it is not tried.
    """
    first = {port.shape[0] if port.shape else None for port in (*model.inputs, *model.outputs)}
    symbol = first.pop() if len(first) == 1 else None
    if asked == 0 or not isinstance(symbol, str):
        if asked:
            LOG.warning("model %s: max_batch_size %d is not used, because its first dimension is no batch", name, asked)
        return 0
    built = max(
        (high for p in model.profiles for key, (_, _, high) in p.items() if key == symbol.strip("'")), default=0
    )
    most = asked or (built if 0 < built < ANY_SIZE else MAX_BATCH)
    if 0 < built < most:
        LOG.warning("model %s: its engine was built for batches up to %d, and gets no more", name, built)
        most = built
    if most < 2 or declared:
        return most
    reason = _mixing(model)
    if reason:
        LOG.warning("model %s: requests do not share calls, because %s", name, reason)
        return 0
    return most


def _mixing(model: OptimizedModel) -> str | None:
    """Why rows may not share a call; None where they may."""
    generator = np.random.default_rng(0)
    rows = [_trial(model.inputs, 1, generator) for _ in range(2)]
    try:
        apart = [model.run(row) for row in rows]
        both = model.run({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
    except Error as error:
        return f"a trial failed: {error.message}"
    for name, array in both.items():
        for index, alone in enumerate(apart):
            part = array[index : index + 1]
            if array.shape[:1] != (2,) or part.shape != alone[name].shape or _differ(part, alone[name]):
                return f"output {name!r} of a row depends on the other rows"
    return None


def _differ(one: Array, other: Array) -> bool:
    a, b = one.astype(np.float64), other.astype(np.float64)
    scale = np.max(np.abs(b), initial=0.0, where=np.isfinite(b)) or 1.0
    return not np.allclose(a / scale, b / scale, rtol=0, atol=_TOLERANCE, equal_nan=True)


def _trial(ports: Sequence[Port], rows: int, generator: np.random.Generator) -> dict[str, Array]:
    from neurenix.cli.common import random_array

    return {
        port.name: random_array(
            generator, port.dtype, [rows, *(d if isinstance(d, int) else _TRIAL for d in port.shape[1:])]
        )
        for port in ports
    }


def warm_up(model: OptimizedModel, max_batch: int) -> int:
    """Calls the model once for each shape that its profiles name, and prepares it for the batches between.

    Gives how many shapes those are. Raises what a call raises.
    """
    from neurenix.cli.common import random_array

    generator = np.random.default_rng(0)
    wanted: dict[tuple[tuple[int, ...], ...], dict[str, tuple[int, ...]]] = {}
    for profile in model.profiles:
        for position in range(3):
            sizes = {name: limits[position] for name, limits in profile.items()}
            found = {port.name: _shape(port, sizes, max_batch) for port in model.inputs}
            if all(extent < ANY_SIZE for shape in found.values() for extent in shape):
                wanted[tuple(found.values())] = found
    if not wanted:
        found = {name: array.shape for name, array in model.example().items()}
        wanted[tuple(found.values())] = found
    for shapes in wanted.values():
        model.run({port.name: random_array(generator, port.dtype, shapes[port.name]) for port in model.inputs})
    example = next(iter(wanted.values()))
    for rows in range(1, min(max_batch, 4 * MAX_BATCH) + 1):
        model.memory_required({name: (rows, *shape[1:]) for name, shape in example.items()})
    return len(wanted)


def efficient_batch(model: OptimizedModel, most: int) -> int:
    """The rows of an execution that answer most rows a second, found by calling the model.

    More rows are slower on some: where a layer's activations no longer fit into a processor's cache. Of sizes that are
    as good within `_AS_GOOD` the least is taken, for the sake of latency.
    """
    generator = np.random.default_rng(0)
    rates: dict[int, float] = {}
    rows = 1
    while rows <= most:
        inputs = _trial(model.inputs, rows, generator)
        rates[rows] = rows / _seconds(partial(model.run, inputs))
        if rows == most:
            break
        rows = min(2 * rows, most)
    best = max(rates.values())
    return min(rows for rows, rate in rates.items() if rate >= _AS_GOOD * best)


def _seconds(call: Callable[[], Any]) -> float:
    """The least time of a few calls, of as many as fit into `_TUNING_S`."""
    call()
    end = time.perf_counter() + _TUNING_S
    found: list[float] = []
    while len(found) < 1 or (len(found) < 20 and time.perf_counter() < end):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found)


def _shape(port: Port, sizes: dict[str, int], max_batch: int) -> tuple[int, ...]:
    found = sized(port.shape, sizes)
    if max_batch and found:
        found[0] = min(found[0], max_batch)
    return tuple(found)
