"""Every case of `cases/` on every provider and in every dtype, against references that are not ours."""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native
from neurenix.importers import from_onnx
from tests.conformance.case import Array, Case, dtype_of
from tests.conformance.providers import PROVIDERS, excepted, exceptions, listed
from tests.conformance.reference import expected, is_float, model_of

FOLDER = Path(__file__).parent / "cases"
#: How many units in the last place a result may be off. Low precision is computed wider and rounded once.
UNITS = {"float64": 64.0, "float32": 16.0, "float16": 2.0, "bfloat16": 2.0}


def modules() -> dict[str, Any]:
    """The case files by op."""
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    found = [importlib.import_module(f"tests.conformance.cases.{name}") for name in names]
    return {module.OP: module for module in found}


MODULES = modules()


def cases_on(provider: str) -> Iterator[tuple[str, Case]]:
    """The ops, and the cases of each that a provider is asked for."""
    return ((op, case) for op, module in MODULES.items() for case in module.CASES if case.runs_on(provider))


class Place(NamedTuple):
    """What is run, and where; one parameter of a test, since pytest takes as long for each as for a small test."""

    provider: str
    op: str
    case: Case
    dtype: str
    #: Whether the shapes are symbolic.
    dynamic: bool


def places() -> list[Any]:
    """Op x case x dtype x whether the shapes are symbolic x provider: what has the same answers is side by side."""
    known = {provider: exceptions(provider) for provider in PROVIDERS}
    made = []
    for op, module in MODULES.items():
        for case in module.CASES:
            runs = [(dtype, dynamic) for dtype in case.dtypes for dynamic in (False, True)]
            for dtype, dynamic in runs:
                if dynamic and not (case.dynamic and dtype == case.dtypes[0]):
                    continue
                for provider in filter(case.runs_on, PROVIDERS):
                    reason = excepted(known[provider], op=op, case=case.name, dtype=dtype)
                    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
                    marks += [pytest.mark.gpu] if provider == "cuda" else []
                    name = "-".join([provider, op, case.name, dtype, *(["dynamic"] if dynamic else [])])
                    made.append(pytest.param(Place(provider, op, case, dtype, dynamic), id=name, marks=marks))
    return made


def network_of(case: Case, op: str, arrays: list[Array | None], shapes: list[list[int | str]]) -> nx.Network:
    """The network of a case: imported from ONNX, or built through the Network API where ONNX has no such op."""
    if case.opset:
        return from_onnx(model_of(case, op, arrays, shapes))
    network = nx.Network(op)
    inputs: list[nx.Tensor | None] = []
    for i, (given, array) in enumerate(zip(case.inputs, arrays, strict=True)):
        if given is None or array is None:
            inputs.append(None)
        elif given.constant:
            inputs.append(network.add_constant(f"x{i}", array))
        else:
            inputs.append(network.add_input(f"x{i}", array.dtype, shapes[i]))
    for i, output in enumerate(network.add_layer(op, inputs, case.attrs)):
        network.mark_output(output, f"y{i}")
    return network


def arrays_of(case: Case, dtype: np.dtype[Any], seed: int) -> list[Array | None]:
    """Fresh arrays for all inputs."""
    rng = np.random.default_rng(seed)
    return [None if given is None else given.make(rng, dtype) for given in case.inputs]


def symbolic(case: Case, arrays: list[Array | None]) -> list[list[int | str]]:
    """Shapes with a symbol for each extent above 1: equal extents, the same symbol.

    Channels, and extents that a constant has too, stay as they are: a model could not leave them open either.
    """
    fixed = {0, 1}
    for given, array in zip(case.inputs, arrays, strict=True):
        if given is not None and array is not None:
            fixed.update(array.shape if given.constant else array.shape[1:2] if array.ndim > 2 else ())
    return [[] if array is None else [d if d in fixed else f"d{d}" for d in array.shape] for array in arrays]


@lru_cache(maxsize=1)
def questions(op: str, case: Case, dtype: str) -> list[tuple[list[Array | None], list[Array]]]:
    """The inputs of each turn, with the same constants in all, and the right answers."""
    of = dtype_of(dtype)
    seed = zlib.crc32(f"{op} {case.name} {dtype}".encode())
    arrays = arrays_of(case, of, seed)
    asked = []
    for fresh in (arrays, arrays_of(case, of, seed + 1)):
        inputs = [
            (array if first is not None and given is not None and not given.constant else first)
            for given, first, array in zip(case.inputs, arrays, fresh, strict=True)
        ]
        asked.append((inputs, expected(case, op, inputs, of)))
    return asked


@pytest.mark.parametrize("place", places())
def test_case(place: Place) -> None:
    provider, op, case, dtype, dynamic = place
    asked = questions(op, case, dtype)
    arrays = asked[0][0]
    shapes = symbolic(case, arrays) if dynamic else [[] if a is None else list(a.shape) for a in arrays]
    network = network_of(case, op, arrays, shapes)
    for symbol in network.symbols:
        # Optimised for another extent than the one that comes.
        extent = int(re.sub(r"\D", "", symbol))
        network.set_range(symbol, 1, extent + 3, extent + 8)
    run = PROVIDERS[provider](network)
    for inputs, want in asked:
        feeds = {
            f"x{i}": array
            for i, (given, array) in enumerate(zip(case.inputs, inputs, strict=True))
            if given is not None and array is not None and not given.constant
        }
        got = run(feeds)
        assert len(got) == len(want) == case.outputs
        for i, answer in enumerate(want):
            check(got[f"y{i}"], answer, case, dtype_of(case.result or dtype))


def check(got: Array, want: Array, case: Case, of: np.dtype[Any]) -> None:
    """Compares shape, dtype and every element: exactly for integers, within a few units for the others."""
    if not is_float(want.dtype):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
        return
    assert got.dtype == of
    assert got.shape == want.shape
    rounded = want.astype(of).astype(np.float64)
    got = got.astype(np.float64)
    np.testing.assert_array_equal(
        np.isnan(got), np.isnan(rounded), err_msg="NaN where there should be none, or missing"
    )
    infinite = np.isinf(rounded) | np.isinf(got)
    np.testing.assert_array_equal(got[infinite], rounded[infinite])
    finite = np.isfinite(rounded) & np.isfinite(got)
    got, want = got[finite], want[finite]
    if want.size == 0:
        return
    greatest = np.abs(want).max()
    units = UNITS[of.name] * case.slack * unit(of)
    allowed = units * (np.abs(want) + (greatest if case.sums else min(greatest, 1.0)))
    worst = int(np.argmax(np.abs(got - want) - allowed))
    assert abs(got[worst] - want[worst]) <= allowed[worst], f"got {got[worst]!r}, expected {want[worst]!r}"


def unit(of: np.dtype[Any]) -> float:
    """Half the distance from 1 to the next number: what one rounding may lose."""
    return 2.0**-8 if of.name == "bfloat16" else float(np.finfo(of).eps) / 2


def test_every_op_has_cases() -> None:
    assert {op["name"] for op in _native.ops()} == set(MODULES)


def test_the_files_are_called_as_the_ops() -> None:
    snake = {op: re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op).lower() for op in MODULES}
    for op, module in MODULES.items():
        assert module.__name__.rpartition(".")[2].replace("_", "") == snake[op].replace("_", "")


def test_exceptions_name_what_exists() -> None:
    for provider in PROVIDERS:
        for exception in exceptions(provider):
            assert exception.keys() <= {"op", "case", "dtype", "reason"}
            cases = {case.name for case in MODULES[exception["op"]].CASES}
            assert set(listed(exception.get("case", []))) <= cases
            assert exception["reason"]


def test_no_op_has_two_cases_of_one_name() -> None:
    for op, module in MODULES.items():
        names = [case.name for case in module.CASES]
        assert len(names) == len(set(names)), op
