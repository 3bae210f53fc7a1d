"""precision="mixed": the fastest within a budget of int8 with some products in floats, bf16, fp16 and float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from neurenix import _native
from neurenix._native import Network
from neurenix.errors import InvalidArgumentError
from neurenix.log import LOG
from neurenix.quantization.calibrate import Calibrated, found_ranges, is_explicit
from neurenix.quantization.calibrators import calibrator
from neurenix.quantization.compare import COMPARED, Batch, Reference, as_called, milliseconds, untimed
from neurenix.quantization.kept import fewest, multiplications, once
from neurenix.quantization.region_benchmark import slower_in_8_bits
from neurenix.quantization.sensitivity import least, losses, products

if TYPE_CHECKING:
    from neurenix.hardware.options import Options

#: The signal-to-noise ratio that each output has at least, in dB, where nobody says.
BUDGET = 30.0
#: Rounds of timing; the engines run in turn.
ROUNDS = 15

#: An engine as the caller's metric sees it.
Metric = Callable[[Callable[..., Any]], float]


class Judge:
    """Says whether an engine is near enough to float32.

    Without a metric, `budget` is the least signal-to-noise ratio of an output in dB. With one, which takes a function
    from arrays by name to arrays by name and gives a number that is the better the greater, `budget` is how much less
    than float32's it may be.
    """

    def __init__(self, reference: Reference, budget: float, metric: Metric | None) -> None:
        self.reference, self._budget, self._metric = reference, budget, metric
        self._best = 0.0 if metric is None else self._measured(metric, reference.engine)
        if not math.isfinite(self._best):
            raise InvalidArgumentError(
                "the metric of the network in float32 is not finite", got=repr(self._best), hint="look at the metric"
            )

    def score(self, engine: _native.Engine) -> float:
        """The signal-to-noise ratio, or the metric."""
        if self._metric is None:
            return least(self.reference, engine)
        return self._measured(self._metric, engine)

    def _measured(self, metric: Metric, engine: _native.Engine) -> float:
        found: Any = metric(engine.run)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                "the metric does not give a number", expected="a number, the better the greater", got=repr(found)[:80]
            ) from error

    def accepts(self, score: float) -> bool:
        """Whether a score is within the budget. Not a number is not."""
        return score >= self._budget if self._metric is None else score >= self._best - self._budget

    def describe(self, score: float) -> str:
        """A score with its unit."""
        return f"{score:.1f} dB" if self._metric is None else f"metric {score:.6g}"


class Form(NamedTuple):
    """A way to compute the network: its name, the network, and native options; where products have 8 bits, those that
    are in floats because they lose too much."""

    name: str
    network: Network
    options: dict[str, Any]
    keep: Sequence[str] | None = None


class Built(NamedTuple):
    """A form that is near enough, and its time."""

    form: Form
    engine: _native.Engine
    score: float
    milliseconds: float


def mixed(
    network: Network, wanted: Options, sample: Sequence[Batch], profiles: Sequence[Any], options: Mapping[str, Any]
) -> tuple[_native.Engine, list[str]]:
    """The fastest engine within the budget, and what the report says of the search.

    It is judged on `sample`, or on the first batches of the calibration. Raises `InvalidArgumentError` where there is
    no calibration, or the network says itself what is quantized.
    """
    if wanted.calibration is None:
        raise InvalidArgumentError(
            'precision="mixed" finds the ranges of tensors on data, and there is none', hint="give calibration="
        )
    if is_explicit(network):
        raise InvalidArgumentError(
            "the model says itself what is quantized: there is nothing to mix", hint='take precision="int8"'
        )
    given = calibrator(wanted.calibration)
    calibrated = found_ranges(network, given, options, wanted.keep, search=True, accuracy=wanted.accuracy)
    batches = list(sample) or [as_called(batch, options) for batch in given.seen]
    if not batches:
        raise InvalidArgumentError("there is no batch to judge by", hint="give sample=, beside a cache alone")
    budget = BUDGET if wanted.accuracy_budget is None else wanted.accuracy_budget
    reference = Reference(network, batches, profiles, options, len(sample) or COMPARED)
    judge = Judge(reference, budget, wanted.metric)
    first = Reference(network, batches, profiles, options) if len(sample) > COMPARED else reference
    forms = [*_floats(network, options), *_with_8_bits(calibrated, judge, first, profiles, options)]
    near = _near_enough(forms, judge, profiles, options)
    built = _fastest_first(near, judge)
    eight = next((one.form for one in built if one.form.keep is not None), None)
    better = eight and _where_faster(eight, calibrated, judge, profiles, options)
    if better:
        built = _fastest_first([*near, *_near_enough([better], judge, profiles, options)], judge)
    best = built[0]
    notes = calibrated.notes(best.form.keep or (), "float32" if best.form.keep is None else "int8")
    return best.engine, notes + [
        f"mixed: {one.form.name}: {one.milliseconds:.3f} ms, {judge.describe(one.score)}"
        + (", which was taken" if one is best else "")
        for one in built
    ]


def _dtypes(options: Mapping[str, Any]) -> list[str]:
    """What the preferred provider computes in; float32 first."""
    first = options["providers"][0]
    return ["float32", *(dtype for dtype in ("bfloat16", "float16") if _native.computes(first, dtype))]


def _floats(network: Network, options: Mapping[str, Any]) -> list[Form]:
    return [Form(dtype, network, {"compute": dtype, "tf32": False}) for dtype in _dtypes(options)]


def _with_8_bits(
    calibrated: Calibrated, judge: Judge, first: Reference, profiles: Sequence[Any], options: Mapping[str, Any]
) -> list[Form]:
    """int8 with as few of the most sensitive products in float32 as the budget asks for, and the same with all that
    is not 8 bits in 16; none where it asks for all."""
    if not calibrated.has_8_bits:
        return []

    @once
    def near(kept: Collection[str]) -> bool:
        made = calibrated.quantized(list(kept), rough=True)
        return judge.accepts(judge.score(_native.Engine.build(made, list(profiles), untimed(options))))

    kept: list[str] | None = []
    if not near([]):
        # An order is found on a few batches: there is an engine for each product.
        found = losses(calibrated, first, profiles, options, rough=True)
        kept = fewest(found, multiplications(calibrated.full, first.batches[0], options), near)
    if kept is None:
        return []
    made = calibrated.quantized(kept, bool(options["refittable"]))
    count = len(products(calibrated.full, calibrated.keep))
    forms = []
    for dtype in _dtypes(options):
        name = "int8" if dtype == "float32" else f"int8 + {dtype}"
        if kept:
            shown = ", ".join(kept[:4]) + ", ..." * (len(kept) > 4)
            name += f" with {len(kept)} of {count} products in {dtype} ({shown})"
        forms.append(Form(name, made, {"compute": dtype, "tf32": False}, kept))
    return forms


def _where_faster(
    form: Form, calibrated: Calibrated, judge: Judge, profiles: Sequence[Any], options: Mapping[str, Any]
) -> Form | None:
    """A form with the products in floats that are faster in them; none where there is no such product."""
    native, batches, keep = {**options, **form.options}, judge.reference.batches, form.keep or ()
    slower, _ = slower_in_8_bits(calibrated, batches, profiles, native, "int8", keep)
    if not slower:
        return None
    both = sorted({*keep, *slower})
    network = calibrated.quantized(both, bool(options["refittable"]))
    return Form(f"{form.name}, where that is faster", network, form.options, both)


def _near_enough(
    forms: Sequence[Form], judge: Judge, profiles: Sequence[Any], options: Mapping[str, Any]
) -> list[tuple[Form, _native.Engine, float]]:
    """The forms within the budget with their engines and scores; float32 always is."""
    found = []
    for form in forms:
        # What is near enough is judged here, by the budget of the caller.
        engine = _native.Engine.build(form.network, list(profiles), {**options, **form.options, "samples": []})
        score = judge.score(engine)
        if judge.accepts(score) or form.name == "float32":
            found.append((form, engine, score))
        else:
            LOG.info("mixed: %s is not near enough: %s", form.name, judge.describe(score))
    return found


def _fastest_first(near: Sequence[tuple[Form, _native.Engine, float]], judge: Judge) -> list[Built]:
    """By their times, which are taken in turn."""
    times = milliseconds([engine for _, engine, _ in near], judge.reference.batches[0], ROUNDS)
    built = [Built(*each, taken) for each, taken in zip(near, times, strict=True)]
    return sorted(built, key=lambda one: one.milliseconds)
