"""The conformance suite through TensorRT: that the layers which Neurenix writes compute what the ops do.

NVIDIA's real builder takes them; the double of its runtime computes them as its documentation says (`interpret.py`),
and the suite's references, which are not ours, say what must come out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conformance.reference import expected
from tests.conformance.test_conformance import MODULES, check, dtype_of
from tests.tensorrt import case_jobs
from tests.tensorrt.doubled import Process

#: Cases of each op.
EACH = 3
#: Ops of which no document says in which order the rows of the result stand.
UNORDERED = {"NonMaxSuppression"}


def parameters() -> list[Any]:
    """The first cases of each op in float32, or in their first dtype."""
    return [
        pytest.param(op, index, id=f"{op}-{case.name}")
        for op, module in MODULES.items()
        for index, case in enumerate(module.CASES[:EACH])
    ]


@pytest.mark.parametrize(("op", "index"), parameters())
def test_op(op: str, index: int, process: Process) -> None:
    case = MODULES[op].CASES[index]
    refusal, found = process.run(case_jobs.of_case, op, index)
    if refusal:
        pytest.skip(refusal.splitlines()[0])
    dtype, arrays = case_jobs.inputs_of(op, index)
    wanted = expected(case, op, arrays, dtype)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        if op in UNORDERED:
            got, want = (np.unique(rows, axis=0) for rows in (got, want))
        check(got, want, case, dtype_of(case.result or dtype.name))
