"""References: ONNX's own evaluator, in double precision where the dtype is a floating-point one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.conformance.case import Array, Case


def model_of(case: Case, op: str, arrays: list[Array | None], shapes: list[list[int | str]]) -> onnx.ModelProto:
    """A model of one node; constants stand in it, the other arrays are its inputs "x0", "x1", ..."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    inputs, initializers = [], []
    for given, name, array, shape in zip(case.inputs, names, arrays, shapes, strict=True):
        if given is None or array is None:
            continue
        if given.constant:
            initializers.append(numpy_helper.from_array(array, name))
        else:
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
    attrs = {k: helper.np_dtype_to_tensor_dtype(v) if isinstance(v, np.dtype) else v for k, v in case.attrs.items()}
    results = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(op, names, results, "node", **attrs)
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in results]
    graph = helper.make_graph([node], "case", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def expected(case: Case, op: str, arrays: list[Array | None], dtype: np.dtype[Any]) -> list[Array]:
    """The right answers for these inputs, in double precision or exact integers."""
    wide = [a if a is None or not is_float(a.dtype) else a.astype(np.float64) for a in arrays]
    with np.errstate(all="ignore"):
        if case.reference is not None:
            given = case.reference(*wide, **case.attrs)
            return [np.asarray(y) for y in (given if isinstance(given, tuple) else (given,))]
        # Scales and regions stay float32, as the op's signature has it.
        typed = [
            w if w is None or a is None or a.dtype == dtype or not is_float(a.dtype) else a
            for w, a in zip(wide, arrays, strict=True)
        ]
        model = model_of(case, op, typed, [[] if a is None else list(a.shape) for a in typed])
        feeds = {
            f"x{i}": a
            for i, (given, a) in enumerate(zip(case.inputs, typed, strict=True))
            if given is not None and a is not None and not given.constant
        }
        return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a floating-point one; numpy does not know ml_dtypes'."""
    return dtype.kind == "f" or dtype.name == "bfloat16"
