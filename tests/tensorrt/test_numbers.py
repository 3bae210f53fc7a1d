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
#: Cases besides, whose attributes change which layers are written; float16 is worth one of each shape of loop.
MORE = {
    "LSTM": {
        "lengths": ("", "float16"),
        "batch_first": ("",),
        "peepholes": ("",),
        "clip": ("",),
        "input_forget": ("",),
    },
    "GRU": {"linear_before_reset": ("float16",), "lengths": ("",), "batch_first": ("",)},
    "RNN": {"batch_first": ("",), "thresholdedrelu": ("",), "affine_scaled": ("",), "scaledtanh_scaled": ("",)},
}
#: Ops of which no document says in which order the rows of the result stand.
UNORDERED = {"NonMaxSuppression"}


def parameters() -> list[Any]:
    """The first cases of each op, and more of some; in float32, or in their first dtype, unless a dtype is named."""
    made = []
    for op, module in MODULES.items():
        for index, case in enumerate(module.CASES):
            dtypes = ("",) if index < EACH else ()
            for dtype in dtypes + MORE.get(op, {}).get(case.name, ()):
                made.append(pytest.param(op, index, dtype, id="-".join(filter(None, (op, case.name, dtype)))))
    return made


@pytest.mark.parametrize(("op", "index", "dtype"), parameters())
def test_op(op: str, index: int, dtype: str, process: Process) -> None:
    case = MODULES[op].CASES[index]
    refusal, found = process.run(case_jobs.of_case, op, index, dtype)
    if refusal:
        pytest.skip(refusal.splitlines()[0])
    chosen, arrays = case_jobs.inputs_of(op, index, dtype)
    wanted = expected(case, op, arrays, chosen)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        if op in UNORDERED:
            got, want = (np.unique(rows, axis=0) for rows in (got, want))
        check(got, want, case, dtype_of(case.result or chosen.name))
