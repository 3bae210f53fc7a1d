"""The first cases of each op in the conformance suite: they become plans, or are refused with a reason.

Nothing runs here; TensorRT's own rules have to agree with ours on every shape and dtype.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import pytest

from neurenix import errors
from neurenix.hardware.tensorrt.plan import build_plan
from tests.conformance.case import Case, dtype_of
from tests.conformance.test_conformance import MODULES, arrays_of, network_of, symbolic

pytest.importorskip("onnx")


def parameters() -> list[Any]:
    """The first cases in float32 of each op, the shapes symbolic where they may be."""
    made = []
    for op, module in MODULES.items():
        cases = [case for case in module.CASES if "float32" in case.dtypes] or module.CASES
        made += [pytest.param(op, case, id=f"{op}-{case.name}") for case in cases[:2]]
    return made


@pytest.mark.parametrize(("op", "case"), parameters())
def test_op(op: str, case: Case, library: tuple[str, str, str]) -> None:
    dtype = dtype_of("float32" if "float32" in case.dtypes else case.dtypes[0])
    arrays = arrays_of(case, dtype, zlib.crc32(f"{op} {case.name}".encode()))
    static = [[] if array is None else list(array.shape) for array in arrays]
    network = network_of(case, op, arrays, symbolic(case, arrays) if case.dynamic else static)
    for symbol in network.symbols:
        extent = int(re.sub(r"\D", "", symbol))
        network.set_range(symbol, 1, extent, extent + 8)
    try:
        plan = build_plan(network, targets=["8.6"])
    except errors.UnsupportedError as error:
        assert error.got or error.message
        return
    assert plan.data and plan.layers > 0
