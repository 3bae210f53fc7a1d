"""Inputs of which one extent does not fit the others: refused with an error of ours, or computed as the reference does.

A kernel relies on what the rule of its op has checked; what that left out shows as a crash or as another result.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from fuzz.generate import Network, dtype_of, model_of
from fuzz.recipes import MODULES
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

helper = pytest.importorskip("onnx").helper

#: So many cases of each op.
CASES = 4
#: Those that give a limit where the formula of the reference gives NaN.
LIMITED = {"Gelu", "Mish"}
OPS = sorted(op for op in MODULES if op not in LIMITED and any(case.opset for case in MODULES[op].CASES))


def stretched(array: Any, axis: int, extent: int) -> Any:
    """The array with another extent along an axis, its elements repeated."""
    places = np.arange(extent) % max(1, array.shape[axis])
    empty = np.zeros((*array.shape[:axis], extent, *array.shape[axis + 1 :]), array.dtype)
    return np.take(array, places, axis=axis) if array.size else empty


def run(op: str, case: Any, arrays: list[Any]) -> None:
    """Builds and runs a case with other arrays."""
    network = Network(random.Random(op), 21)
    given = [
        None if array is None else network.give(array, held=port.constant)
        for array, port in zip(arrays, case.inputs, strict=True)
    ]
    attrs = {
        name: helper.np_dtype_to_tensor_dtype(value) if isinstance(value, np.dtype) else value
        for name, value in case.attrs.items()
    }
    names = [f"y{at}" for at in range(case.outputs)]
    node = helper.make_node(op, ["" if v is None else v.name for v in given], names, **attrs)
    inputs = {v.name: v.array for v in given if v is not None and not v.held}
    backend = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False, verify=False)
    built = from_onnx(model_of([node], network.values, network.opset, names))
    want = built.evaluate(inputs)
    for name, got in backend.optimize_model(built, None).run(inputs).items():
        assert got.shape == want[name].shape
        wide = (np.asarray(y).astype(np.complex128) for y in (got, want[name]))
        np.testing.assert_allclose(*wide, rtol=1e-2, atol=1e-2, err_msg=f"{op} {[a.shape for a in inputs.values()]}")


@pytest.mark.parametrize("op", OPS)
def test_one_extent_that_may_not_fit(op: str) -> None:
    numbers = np.random.default_rng(0)
    for case in [case for case in MODULES[op].CASES if case.opset][:CASES]:
        dtype = dtype_of(case.dtypes[0])
        arrays = [None if port is None else port.make(numbers, dtype) for port in case.inputs]
        for at, array in enumerate(arrays):
            for axis in range(0 if array is None else array.ndim):
                for extent in (array.shape[axis] + 7, max(0, array.shape[axis] - 1)):
                    changed = [*arrays[:at], stretched(array, axis, extent), *arrays[at + 1 :]]
                    try:
                        run(op, case, changed)
                    except (nx.InternalError, nx.DeviceError):
                        raise
                    except nx.Error:
                        continue
