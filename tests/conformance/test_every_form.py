"""Every kernel in every form that the planner may choose: dense, in place and on slices, beside the reference.

Conformance (`test_conformance.py`) runs what the planner chooses for one layer at one shape, and holds the reference
evaluation to references that are not ours. Here whatever it might choose elsewhere is run: each tactic, each layout.
"""

from __future__ import annotations

import operator
import zlib
from itertools import compress
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native
from neurenix.hardware import options
from tests.conformance.case import Array, dtype_of
from tests.conformance.chains import CHAINS, LARGE, Chain
from tests.conformance.providers import PROVIDERS, excepted, exceptions
from tests.conformance.quantized_chains import (
    ACTIVATED,
    ATTENDED,
    FLOATS_OF_8_BITS,
    NORMALIZED,
    QUANTIZED,
    TILED,
    TOKENS,
)
from tests.conformance.reference import is_float
from tests.conformance.test_conformance import UNITS, Place, arrays_of, cases_on, network_of, unit

#: Providers whose kernels are run in every form.
HELD = [name for name in PROVIDERS if name != "reference"]


def marks(provider: str) -> list[Any]:
    """Where a provider's tests run."""
    return [pytest.mark.gpu] if provider == "cuda" else []


def of_ops() -> list[Any]:
    """Provider x op x case x dtype."""
    made = []
    for provider in HELD:
        known = exceptions(provider)
        for op, case in cases_on(provider):
            for dtype in case.dtypes:
                if excepted(known, op=op, case=case.name, dtype=dtype) is None:
                    name = f"{provider}-{op}-{case.name}-{dtype}"
                    made.append(pytest.param(Place(provider, op, case, dtype, False), id=name, marks=marks(provider)))
    return made


def of_chains() -> list[Any]:
    """Provider x chain x dtype, in tf32 besides where the provider rounds."""
    made = []
    for provider in HELD:
        for chain in (*CHAINS, *(LARGE if provider == "cuda" else [])):
            for dtype in (*chain.dtypes, *(["tf32"] if provider == "cuda" else [])):
                name = f"{provider}-{chain.name}-{dtype}"
                made.append(pytest.param(provider, chain, dtype, id=name, marks=marks(provider)))
    return made


@pytest.mark.parametrize("place", of_ops())
def test_each_op(place: Place) -> None:
    provider, op, case, dtype, _ = place
    of = dtype_of(dtype)
    arrays = arrays_of(case, of, zlib.crc32(f"{op} {case.name} {dtype}".encode()))
    network = network_of(case, op, arrays, [[] if a is None else list(a.shape) for a in arrays])
    feeds = {
        f"x{i}": array
        for i, (given, array) in enumerate(zip(case.inputs, arrays, strict=True))
        if given is not None and array is not None and not given.constant
    }
    hold(_native.run_every_form(network, provider, feeds), case.slack, case.sums)


@pytest.mark.parametrize(("provider", "chain", "dtype"), of_chains())
def test_each_chain(provider: str, chain: Chain, dtype: str) -> None:
    tf32 = dtype == "tf32"
    of = "float32" if tf32 else dtype
    network, feeds = chain.network(of), chain.feeds(of)
    outcomes = _native.run_every_form(network, provider, feeds, tf32)
    assert outcomes
    # Ten binary digits are left of what is multiplied, and 128 summands are the most here. What is widened need not be
    # rounded to the eight or eleven digits that it has in between.
    widened = chain.name.endswith("widened")
    hold(outcomes, 2.0**17 if widened else 2.0**12 if tf32 else 16.0, sums=True)


def of_8_bits(chains: list[Chain], on_gpus: list[Chain]) -> list[Any]:
    """Provider x chain, whose dtypes are its own; some are for GPUs alone."""
    of = {provider: [*chains, *(on_gpus if provider == "cuda" else [])] for provider in HELD}
    return [pytest.param(p, c, id=f"{p}-{c.name}", marks=marks(p)) for p in HELD for c in of[p]]


@pytest.mark.parametrize(("provider", "chain"), of_8_bits(QUANTIZED, TILED))
def test_each_chain_of_8_bits(provider: str, chain: Chain) -> None:
    """Kernels that multiply integers give the bits of the layers one by one."""
    outcomes = _native.run_every_form(chain.network("float32"), provider, chain.feeds("float32"), False)
    whole = [outcome for outcome in outcomes if outcome["kernel"].startswith("int8 ")]
    assert whole or not options.has_int8(provider)
    hold(whole, 0.0, sums=False)
    # Kernels of floats, by themselves, may add in another order.
    hold([outcome for outcome in outcomes if outcome not in whole], 16.0, sums=True)


@pytest.mark.parametrize(("provider", "chain"), of_8_bits(FLOATS_OF_8_BITS, []))
def test_each_chain_of_floats_of_8_bits(provider: str, chain: Chain) -> None:
    """Tensor cores keep some 13 binary digits of a sum, which may bring a number to the next one of 8 bits."""
    outcomes = _native.run_every_form(chain.network("float32"), provider, chain.feeds("float32"), False)
    whole = [outcome for outcome in outcomes if outcome["kernel"].startswith("fp8 ")]
    assert whole or not _native.computes(provider, "float8_e4m3fn")
    # A product that the model rounds to float16 has ten binary digits behind the first.
    hold_codes(whole, digits=10 if "halves" in chain.name else 11)
    others = [outcome for outcome in outcomes if not outcome["kernel"].startswith("fp8 ")]
    # What is quantized at once may be computed in fewer steps.
    short = [outcome["kernel"].endswith("Gelu+QuantizeLinear") and outcome["fault"] is None for outcome in others]
    hold_codes(list(compress(others, short)), most=0.001)
    hold(list(compress(others, map(operator.not_, short))), 16.0, sums=True)


@pytest.mark.parametrize(
    ("provider", "chain", "dtype"),
    [
        pytest.param(p, chain, dtype, id=f"{p}-{chain.name}-{dtype}", marks=marks(p))
        for p in HELD
        for chain in (*NORMALIZED, *ATTENDED, *ACTIVATED, *TOKENS)
        for dtype in chain.dtypes
    ],
)
def test_each_chain_that_ends_in_8_bits(provider: str, chain: Chain, dtype: str) -> None:
    """What is quantized by the kernel of another layer may be next to where that layer by itself has it."""
    outcomes = _native.run_every_form(chain.network(dtype), provider, chain.feeds(dtype), False)
    whole = [outcome for outcome in outcomes if chain.name.split("_")[0] in outcome["kernel"]]
    quantizing = [outcome for outcome in whole if outcome["kernel"].endswith(("QuantizeLinear", "PerToken"))]
    assert quantizing or provider == "cpu"
    # Scales of tokens come from what bfloat16 rounds to eight digits, or from sums that are not rounded.
    rough = "PerToken" in chain.name and dtype == "bfloat16"
    hold_codes(whole, most=0.02 if dtype == "float32" else 0.1 if rough else 0.06, digits=7 if rough else 11)


def hold_codes(outcomes: list[dict[str, Any]], *, most: float = 0.02, digits: int = 11) -> None:
    """Numbers of 8 bits are the reference's or next to it, these so many of all at most; others have so many digits."""
    wrong = []
    for outcome in outcomes:
        if outcome["fault"] is not None:
            wrong.append(f"{outcome['kernel']} {outcome['form']}: {outcome['fault']}")
            continue
        for name, got, want in outcome["outputs"]:
            exact, found = want.astype(np.float64), got.astype(np.float64)
            off, narrow = np.abs(found - exact), want.dtype.itemsize == 1
            sums = np.abs(exact).max() + np.abs(exact)
            if want.dtype.kind in "iu":
                step: Any = 1.0
            elif narrow:
                step = np.maximum(2.0**-3 * np.abs(exact) + 2.0**-9, 2.0**-digits * sums)
            else:
                step = max(2.0**-digits, 2 * unit(want.dtype)) * sums
            if (off > step).any() or (narrow and (off > 0).mean() > most):
                worst = f"off by {off.max()} of {np.abs(exact).max()}, {(off > 0).mean():.4f} of all"
                wrong.append(f"{outcome['kernel']} {outcome['form']}, {outcome['implementation']}, {name}: {worst}")
    assert not wrong, "\n".join(wrong)


def hold(outcomes: list[dict[str, Any]], slack: float, sums: bool) -> None:
    """Every form gives what the reference gives, or says that it does not take these shapes."""
    wrong = []
    for outcome in outcomes:
        fault = outcome["fault"]
        if fault is not None:
            # A form that takes no such shapes is passed over by the planner.
            if not isinstance(fault, (nx.UnsupportedError, nx.ShapeError)):
                wrong.append(f"{outcome['kernel']} {outcome['form']}: {fault}")
            continue
        for name, got, want in outcome["outputs"]:
            if worst := departure(got, want, slack, sums):
                found = f"{outcome['implementation']}, output {name!r}: {worst}"
                wrong.append(f"{outcome['kernel']} {outcome['form']}, {found}")
    assert not wrong, "\n".join(wrong)


def departure(got: Array, want: Array, slack: float, sums: bool) -> str | None:
    """Where two arrays differ by more than roundings, if they do; what is not finite is not a matter of tactics."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if not is_float(want.dtype):
        count = int((got != want).sum())
        return f"{count} of {want.size} elements differ" if count else None
    exact, found = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(exact)
    exact, found = exact[finite], found[finite]
    if exact.size == 0:
        return None
    greatest = np.abs(exact).max()
    units = UNITS[want.dtype.name] * slack * unit(want.dtype)
    allowed = units * (np.abs(exact) + (greatest if sums else min(greatest, 1.0)))
    off = ~(np.abs(found - exact) <= allowed)
    if not off.any():
        return None
    first = int(np.argmax(off))
    return f"{int(off.sum())} of {exact.size} elements, got {found[first]!r}, expected {exact[first]!r}"


@pytest.mark.parametrize("slack", [1.0])
def test_what_departs_is_seen(slack: float) -> None:
    want = np.ones(4, np.float32)
    assert departure(want, want, slack, False) is None
    for other in (np.float32(1.001), np.float32(np.nan)):
        got = want.copy()
        got[2] = other
        assert "1 of 4" in str(departure(got, want, slack, False))
