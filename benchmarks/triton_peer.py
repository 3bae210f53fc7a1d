"""A model of Triton's python backend around ONNX Runtime or OpenVINO, as its users write one: what waits is one call.

`bench_triton_resnet` copies it into a repository. The parameter `peer` says which of the two, `threads` how many
threads it has; `model.onnx` stands beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import triton_python_backend_utils as triton


def onnxruntime(path: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """ONNX Runtime with all its optimisations, as in benchmarks.measure."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"input": x})[0]


def openvino(path: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """OpenVINO in float32 for one batch after another, any number of rows."""
    import openvino

    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({"input": [openvino.Dimension(1, 16), 3, 224, 224]})
    request = core.compile_model(model, "CPU", options).create_infer_request()
    return lambda x: request.infer({"input": x}, share_inputs=True)[0]


class TritonPythonModel:
    """What Triton calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the model."""
        given = {name: one["string_value"] for name, one in json.loads(args["model_config"])["parameters"].items()}
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        self._run = {"onnxruntime": onnxruntime, "openvino": openvino}[given["peer"]](path, int(given["threads"]))

    def execute(self, requests: list[Any]) -> list[Any]:
        """One call for all of them."""
        # In place, with the numpy before 2 that this release wants.
        arrays = [triton.get_input_tensor_by_name(request, "input").as_numpy() for request in requests]
        outputs = self._run(np.concatenate(arrays) if len(arrays) > 1 else arrays[0])
        ends = np.cumsum([len(array) for array in arrays])[:-1]
        return [triton.InferenceResponse([triton.Tensor("output", part)]) for part in np.split(outputs, ends)]
