"""Regions of 8 bits against the same layers in floats: what is faster in floats stays in them."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from neurenix import _native
from neurenix.arrays import Array
from neurenix.errors import FileError
from neurenix.log import LOG
from neurenix.quantization.calibrate import NEEDED, Calibrated
from neurenix.quantization.compare import CALLS, Batch, at_opt, made_up, milliseconds
from neurenix.quantization.sensitivity import products

#: From this level on times decide.
TIMED = 3
#: The least time of each kernel counts, over so many runs of an engine, or over more until so many seconds are over.
RUNS, MOST_RUNS, SECONDS = 2, 40, 0.5
#: Rounds in which the engines run in turn, whose times decide: so many at least, and as fit into so many seconds.
ROUNDS, MOST_ROUNDS, ROUND_SECONDS = 3, 50, 5.0
#: On a GPU, whose clock differs less from call to call.
MOST_ROUNDS_ON_GPUS = 10
#: Nothing is timed where the weights of products have more bytes than these in float32: up to five engines hold them.
MOST_WEIGHTS = 2 << 30
#: So many engines with some products in floats are tried.
TRIALS = 3
#: A product is slower in 8 bits if it takes more than so many times as long as in floats, and so many microseconds more
SLOWER, SLOWER_US = 1.05, 1.0
#: Networks that take less in 8 bits, in milliseconds, are not worth a choice: what else a call does takes as long.
LEAST_MS = 0.05
#: An engine with products in floats is taken where it takes less than this share of the time of the one in 8 bits.
WORTH = 0.98
#: Options that times depend on, beside providers and the machine, which the timing cache knows of.
TIMED_WITH = ("compute", "tf32", "io", "hint", "optimization_level", "threads", "workspace", "exclude")
#: Names of times in the timing cache: of the whole in 8 bits and as it was chosen; of a product that stays in floats.
ALL_IN_8_BITS, ALL, IN_8_BITS, IN_FLOATS = "all in 8 bits", "all", "{} in 8 bits", "{} in floats"

#: How the note begins where all products stay in floats.
_ALL_IN_FLOATS = re.compile(r"\w+: (\d+) of \1 products stay in ")

#: Kernels in order: their layers, and the least time in nanoseconds.
Rows = Sequence[tuple[str, int]]


class Trial(NamedTuple):
    """An engine with some products in floats, and its kernels."""

    keep: frozenset[str]
    engine: _native.Engine
    rows: Rows


def slower_in_8_bits(
    found: Calibrated,
    batches: Sequence[Batch],
    profiles: Sequence[Any],
    options: Mapping[str, Any],
    dtype: str,
    keep: Collection[str] = (),
) -> tuple[Collection[str], list[str]]:
    """The products of a calibrated network that are slower in 8 bits than in floats, and what the report says of them.

    Engines in 8 bits, in floats, and with the products of regions that lost in floats are timed at the shapes to
    optimise for, on the first batch or on numbers that are made up; what was found stands in the timing cache, and is
    found again there. Nothing is timed with `deterministic` or `strict`, below optimisation level 3, before TensorRT,
    and where the sizes of tensors depend on data. Products that `keep` names are in floats anyway.
    """
    if found.has_8_bits and _may_time(options):
        return _Search(found, batches, profiles, options, dtype, keep).run()
    return (), []


def all_in_floats(notes: Iterable[str]) -> bool:
    """Whether the notes of a report say that each product is faster in floats than in 8 bits, and so none has these."""
    return any(_ALL_IN_FLOATS.match(note) for note in notes)


def _may_time(options: Mapping[str, Any]) -> bool:
    fixed = options["deterministic"] or options["strict"] or options["optimization_level"] < TIMED
    return not fixed and options["providers"][0] != "tensorrt"


class _Search:
    """Looks for the products that stay in floats."""

    def __init__(
        self,
        found: Calibrated,
        batches: Sequence[Batch],
        profiles: Sequence[Any],
        options: Mapping[str, Any],
        dtype: str,
        keep: Collection[str],
    ) -> None:
        self._found, self._profiles, self._dtype = found, list(profiles), dtype
        self._keep = set(found.floats(keep))
        self._options = {**options, "verify": False, "refittable": False, "samples": []}
        self._batches = batches
        self._batch: dict[str, Array] = {}
        self._names = products(found.full, self._keep)
        how = [options.get(name) for name in TIMED_WITH]
        whole = found.residuals_in_floats(sorted(keep)) if dtype == "int8" else []
        kinds = [whole, found.per_token, sorted(self._keep)]
        about = [found.full.dump(), sorted(found.ranges), kinds, self._profiles, dtype, how]
        self._digest = f"region benchmark {hashlib.sha256(repr(about).encode()).hexdigest()[:32]} "

    def run(self) -> tuple[Collection[str], list[str]]:
        """The products that are slower in 8 bits, and the note of the report."""
        if self._weight_bytes() > MOST_WEIGHTS:
            kind = f"{self._dtype.partition('_')[0]} was not timed against {self._options['compute']}"
            return (), [f"{kind}: five engines would hold {5 * self._weight_bytes() / 1e9:.0f} GB of weights"]
        cache = _native.TimingCache(self._options)
        found = self._known(cache)
        if not found:
            found = self._measured()
            self._remember(cache, found)
        keep = [name for name in self._names if IN_FLOATS.format(name) in found]
        return keep, [self._note(keep, found)] if keep else []

    def _measured(self) -> dict[str, int]:
        """What is timed, under its names in the timing cache; nothing where there is no choice."""
        eight = self._trial(frozenset())
        if eight is None:
            return {}
        # Kept too: on a busy machine another build might find the choice worth it.
        as_it_is = dict.fromkeys((ALL_IN_8_BITS, ALL), int(1e6 * _kernels(eight)))
        floats = self._trial(frozenset(self._names)) if _kernels(eight) >= LEAST_MS else None
        if floats is None:
            return as_it_is
        trials = [eight, floats]
        keep = self._slower(eight, floats)
        while keep and len(trials) < 2 + TRIALS and all(trial.keep != keep for trial in trials):
            trial = self._trial(keep)
            if trial is None:
                break
            trials.append(trial)
            keep = self._refined(trial, eight, floats)
        best, before, after = self._fastest(trials)
        found = {ALL_IN_8_BITS: int(1e6 * before), ALL: int(1e6 * after)}
        groups = _groups(self._names, [eight, best])
        slow, fast = (_times(trial.rows, groups) for trial in (eight, best))
        for name in best.keep:
            # One that runs in no kernel of its own name takes no time.
            found[IN_8_BITS.format(name)] = int(slow.get(groups.get(name, ""), 0))
            found[IN_FLOATS.format(name)] = int(fast.get(groups.get(name, ""), 0))
        return found

    def _fastest(self, trials: Sequence[Trial]) -> tuple[Trial, float, float]:
        """The engine to take, and the milliseconds of the first one, in 8 bits, and of it: the first one unless another
        wins clearly, among all and once more against it alone, as the least of several times may be so by chance."""
        times = self._whole(trials)
        best = trials[min(range(len(trials)), key=times.__getitem__)]
        if best is not trials[0] and min(times) < WORTH * times[0]:
            before, after = self._whole([trials[0], best])
            if after < WORTH * before:
                return best, before, after
        return trials[0], times[0], times[0]

    def _known(self, cache: _native.TimingCache) -> dict[str, int]:
        """What an earlier build found for this network, if any."""
        if cache.known(self._digest + ALL) is None:
            return {}
        products = [form.format(name) for name in self._names for form in (IN_8_BITS, IN_FLOATS)]
        times = {name: cache.known(self._digest + name) for name in (ALL_IN_8_BITS, ALL, *products)}
        return {name: taken for name, taken in times.items() if taken is not None}

    def _remember(self, cache: _native.TimingCache, found: Mapping[str, int]) -> None:
        try:
            cache.add({self._digest + name: taken for name, taken in found.items()})
        except FileError as error:
            # The build says so too, of the times of kernels.
            LOG.info("the timing cache was not written: %s", error)

    def _whole(self, trials: Sequence[Trial]) -> list[float]:
        """The milliseconds of each engine as a whole: on a GPU kernels in a graph overlap, and find other things in its
        cache than alone."""
        # Each round calls each engine twice on a processor; on a GPU some twenty times, behind a copy of the inputs.
        calls, most = (CALLS, MOST_ROUNDS_ON_GPUS) if trials[0].engine.devices else (2, MOST_ROUNDS)
        whole = sum(_kernels(trial) for trial in trials)
        rounds = min(max(int(1e3 / calls * ROUND_SECONDS / whole), ROUNDS), most)
        return milliseconds([trial.engine for trial in trials], self._batch, rounds)

    def _weight_bytes(self) -> int:
        names, found = set(self._names), 0
        for layer in self._found.full.layers:
            weights = layer.inputs[1] if layer.name in names else None
            found += 0 if weights is None else 4 * math.prod(int(size) for size in weights.shape)
        return found

    def _trial(self, keep: frozenset[str]) -> Trial | None:
        """An engine with its times; none where a range is missing, or sizes depend on data."""
        names = sorted({*self._keep, *keep})
        points = self._found.points(names)
        needed = {name for _, name, _, role in points if role in NEEDED}
        if not needed <= set(self._found.ranges):
            return None
        network = self._found.quantized(names, rough=True, dtype=self._dtype)
        engine = _native.Engine.build(network, self._profiles, self._options)
        if engine.staged:
            return None
        self._batch = self._batch or (at_opt(self._batches[0], engine) if self._batches else made_up(engine))
        runs, begin = [engine.profile(self._batch)], time.perf_counter()
        while len(runs) < RUNS or (len(runs) < MOST_RUNS and time.perf_counter() - begin < SECONDS):
            runs.append(engine.profile(self._batch))
        return Trial(keep, engine, [(row[0][0], min(taken for *_, taken in row)) for row in zip(*runs, strict=True)])

    def _slower(self, eight: Trial, floats: Trial) -> frozenset[str]:
        """The products that take longer in 8 bits than in floats."""
        groups = _groups(self._names, [eight, floats])
        slow, fast = (_times(trial.rows, groups) for trial in (eight, floats))
        return _members(groups, {group for group in fast if _is_slower(slow[group], fast[group])})

    def _refined(self, trial: Trial, in_eight: Trial, in_floats: Trial) -> frozenset[str]:
        """The products to keep, after what a trial showed: without regions in floats that cost more around them than
        they gain, and with products that now are slower in 8 bits, as those that quantize what a region gives."""
        groups = _groups(self._names, [in_eight, in_floats, trial])
        eight, floats, now = (_times(one.rows, groups) for one in (in_eight, in_floats, trial))
        kept = {groups[name] for name in trial.keep if name in groups}
        found: set[str] = set()
        order = list(eight)
        for region in _regions(order, kept):
            gain = sum(eight[group] - now[group] for group in region)
            after = order.index(region[-1]) + 1
            gain += eight[order[after]] - now[order[after]] if after < len(order) else 0
            found |= set(region) if gain > 0 else set()
        found |= {group for group in order if group not in kept and _is_slower(now[group], floats[group])}
        return _members(groups, found)

    def _note(self, keep: Sequence[str], found: Mapping[str, int]) -> str:
        dtype, rest = self._dtype.partition("_")[0], self._options["compute"]
        rows = [
            f"{name}: {found[IN_8_BITS.format(name)] / 1e3:.1f} -> {found[IN_FLOATS.format(name)] / 1e3:.1f}"
            for name in keep
            if found[IN_FLOATS.format(name)]
        ]
        return (
            f"{dtype}: {len(keep)} of {len(self._names)} products stay in {rest}, where they are faster: "
            f"{found[ALL_IN_8_BITS] / 1e6:.3f} -> {found[ALL] / 1e6:.3f} ms in all; us of each with what comes before "
            f"it and shares its kernels: {'; '.join(rows)}"
        )


def _kernels(trial: Trial) -> float:
    """The milliseconds of all kernels."""
    return sum(taken for _, taken in trial.rows) / 1e6


def _is_slower(eight: float, floats: float) -> bool:
    return eight > SLOWER * floats and eight > floats + 1e3 * SLOWER_US


def _groups(names: Sequence[str], trials: Sequence[Trial]) -> dict[str, str]:
    """Of each product that runs in all engines the first one of those that share kernels with it in any."""
    leaders = {name: name for name in names}

    def first(name: str) -> str:
        while leaders[name] != name:
            name = leaders[name]
        return name

    seen = []
    for trial in trials:
        kernels = [[name for name in layers.split(" + ") if name in leaders] for layers, _ in trial.rows]
        seen.append({name for kernel in kernels for name in kernel})
        for kernel in kernels:
            for name in kernel[1:]:
                leaders[first(name)] = first(kernel[0])
    return {name: first(name) for name in names if all(name in ran for ran in seen)}


def _members(groups: Mapping[str, str], chosen: Collection[str]) -> frozenset[str]:
    return frozenset(name for name, group in groups.items() if group in chosen)


def _times(rows: Rows, groups: Mapping[str, str]) -> dict[str, float]:
    """The nanoseconds of each group in the order of execution, with those of the kernels before it that are of no
    product: some quantize what it reads."""
    found: dict[str, float] = defaultdict(float)
    waiting, last = 0.0, None
    for layers, taken in rows:
        waiting += taken
        group = next((groups[name] for name in layers.split(" + ") if name in groups), None)
        if group is not None:
            found[group] += waiting
            waiting, last = 0.0, group
    if last is not None:
        found[last] += waiting
    return found


def _regions(order: Sequence[str], kept: Collection[str]) -> list[list[str]]:
    """The groups that are kept, those that run one after another together."""
    found: list[list[str]] = []
    for at, group in enumerate(order):
        if group in kept:
            if at and order[at - 1] in kept:
                found[-1].append(group)
            else:
                found.append([group])
    return found
