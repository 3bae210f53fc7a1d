"""Models of one node, and what ONNX Runtime and Neurenix make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from neurenix.hardware.tensorrt import TensorRTBackend

ort = pytest.importorskip("onnxruntime")

Array = NDArray[Any]


def model_of(
    op: str,
    inputs: Mapping[str, Array | None],
    outputs: Sequence[str],
    constants: Sequence[str] = (),
    domain: str = "",
    version: int = 21,
    **attrs: Any,
) -> onnx.ModelProto:
    """A model of one node; an input that is None is left out, those of `constants` are held by the model."""
    node = helper.make_node(op, [n if a is not None else "" for n, a in inputs.items()], outputs, "node", domain=domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attrs.items())
    given = {name: array for name, array in inputs.items() if array is not None}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
        if name not in constants
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    held = [numpy_helper.from_array(given[name], name) for name in constants]
    graph = helper.make_graph([node], "single", infos, results, held)
    imports = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def feeds(model: onnx.ModelProto, inputs: Mapping[str, Array | None]) -> dict[str, Array]:
    """The arrays that the model does not hold."""
    wanted = [i.name for i in model.graph.input]
    return {name: array for name, array in inputs.items() if name in wanted and array is not None}


def ours(model: onnx.ModelProto, given: Mapping[str, Array]) -> dict[str, Array]:
    """What an engine answers."""
    shapes = {name: array.shape for name, array in given.items()}
    answer = TensorRTBackend().optimize_model(model, shapes, threads=1, optimization_level=0)(dict(given))
    names = [o.name for o in model.graph.output]
    return dict(answer) if isinstance(answer, dict) else {names[0]: answer}


def theirs(model: onnx.ModelProto, given: Mapping[str, Array]) -> dict[str, Array]:
    """What ONNX Runtime's CPU kernels answer, without its own rewrites."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(given)), strict=True))


def agree(
    op: str, inputs: Mapping[str, Array | None], outputs: Sequence[str] = ("y",), off_by: int = 0, **options: Any
) -> None:
    """Both give the same: floating-point numbers within a few roundings, integers exactly, or nearly so."""
    model = model_of(op, inputs, outputs, **options)
    given = feeds(model, inputs)
    got, want = ours(model, given), theirs(model, given)
    for name in want:
        assert got[name].dtype == want[name].dtype and got[name].shape == want[name].shape, name
        if want[name].dtype.kind == "f":
            scale = max(1.0, float(np.abs(want[name]).max(initial=0)))
            np.testing.assert_allclose(got[name], want[name], rtol=2e-5, atol=2e-6 * scale, err_msg=name)
        else:
            away = np.abs(got[name].astype(np.int64) - want[name].astype(np.int64))
            assert away.max(initial=0) <= off_by and np.mean(away > 0) <= 0.05, name
