"""Cases of the conformance suite in a process whose TensorRT is the double."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np

from neurenix import errors
from neurenix.hardware.tensorrt.plan import build_plan
from tests.conformance.case import dtype_of
from tests.conformance.test_conformance import MODULES, arrays_of, network_of, symbolic
from tests.tensorrt.doubled import call


def of_case(op: str, index: int, dtype: str = "") -> tuple[str, list[Any]]:
    """A case of the conformance suite: why it has no plan, or what its plan gives."""
    case = MODULES[op].CASES[index]
    _, arrays = inputs_of(op, index, dtype)
    static: list[list[int | str]] = [[] if array is None else list(array.shape) for array in arrays]
    made = network_of(case, op, arrays, symbolic(case, arrays) if case.dynamic else static)
    for symbol in made.symbols:
        extent = int(re.sub(r"\D", "", symbol))
        made.set_range(symbol, 1, extent, extent + 8)
    try:
        context = build_plan(made, targets=["8.6"]).open().context()
    except errors.UnsupportedError as error:
        return str(error), []
    feeds = {
        f"x{i}": array
        for i, (given, array) in enumerate(zip(case.inputs, arrays, strict=True))
        if given is not None and array is not None and not given.constant
    }
    # What the passes have found to be of no use is no input of the plan.
    used = {port.name for port in context.engine.tensors if port.is_input}
    found = call(context, {name: array for name, array in feeds.items() if name in used})
    return "", [found[f"y{i}"] for i in range(case.outputs)]


def inputs_of(op: str, index: int, dtype: str = "") -> tuple[np.dtype[Any], list[Any]]:
    """The dtype and the inputs of a case: float32, where it has that and none is named."""
    case = MODULES[op].CASES[index]
    chosen = dtype_of(dtype or ("float32" if "float32" in case.dtypes else case.dtypes[0]))
    return chosen, arrays_of(case, chosen, zlib.crc32(f"{op} {case.name}".encode()))
