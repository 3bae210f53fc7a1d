"""A model of Triton's python backend: runs the engine file beside it. `neurenix export --triton` copies this file.

Arrays go through DLPack: with numpy from 2 on, the python backend of many releases gives arrays of zeros otherwise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # type: ignore[import-not-found]

from neurenix.errors import Error
from neurenix.inference.opening import Device


class _Capsule:
    """A tensor of Triton's as an object with DLPack's methods, which older releases do not give it."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return self._tensor.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # The processor's memory, as config.pbtxt leaves it.


class TritonPythonModel:
    """What Triton calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the engine on the device of this instance."""
        config = json.loads(args["model_config"])
        folder = os.path.join(args["model_repository"], args["model_version"])
        given = config.get("parameters", {}).get("engine", {}).get("string_value", "model.engine")
        device = f"cuda:{args['model_instance_device_id']}" if args["model_instance_kind"] == "GPU" else "cpu"
        self._model = Device.of(device).backend.load(os.path.join(folder, os.path.basename(given)))
        self._batched = config.get("max_batch_size", 0) > 0
        self._inputs = [port.name for port in self._model.inputs]
        self._outputs = [port.name for port in self._model.outputs]

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response for each request; those that fit together share a call."""
        responses: dict[int, Any] = {}
        groups: dict[Any, list[tuple[int, dict[str, Any]]]] = {}
        for index, request in enumerate(requests):
            arrays = {name: self._array(request, name) for name in self._inputs}
            alike = tuple(arrays[name].shape[1:] for name in self._inputs) if self._batched else index
            groups.setdefault(alike, []).append((index, arrays))
        for members in groups.values():
            responses.update(self._answer(members))
        return [responses[index] for index in range(len(requests))]

    def _array(self, request: Any, name: str) -> np.ndarray[Any, Any]:
        return np.from_dlpack(_Capsule(triton.get_input_tensor_by_name(request, name)))

    def _answer(self, members: list[tuple[int, dict[str, Any]]]) -> Iterable[tuple[int, Any]]:
        try:
            together = {name: np.concatenate([arrays[name] for _, arrays in members]) for name in self._inputs} \
                if len(members) > 1 else members[0][1]  # fmt: skip
            outputs = self._model.run(together)
        except Error as error:
            if len(members) > 1:
                # An error meets none but its own request.
                return [answer for member in members for answer in self._answer([member])]
            failed = triton.InferenceResponse(output_tensors=[], error=triton.TritonError(str(error)))
            return [(members[0][0], failed)]
        found, begin = [], 0
        for index, arrays in members:
            end = begin + len(arrays[self._inputs[0]]) if self._batched else None
            parts = {name: outputs[name][begin:end] if self._batched else outputs[name] for name in self._outputs}
            tensors = [triton.Tensor.from_dlpack(name, np.ascontiguousarray(part)) for name, part in parts.items()]
            found.append((index, triton.InferenceResponse(output_tensors=tensors)))
            begin = end or 0
        return found

    def finalize(self) -> None:
        """Gives the memory back."""
        del self._model
