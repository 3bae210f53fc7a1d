"""The interpreter of .tflite files, as a peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neurenix.packages import need


def runner(path: Any, inputs: Mapping[str, np.ndarray[Any, Any]], threads: int) -> Callable[[], list[Any]]:
    """What runs a .tflite file on these inputs; its outputs are in the order of the file."""
    litert = need("ai_edge_litert.interpreter", "running a .tflite file")
    interpreter = litert.Interpreter(str(Path(path)), num_threads=threads)
    keys = list(interpreter.get_signature_list())
    if keys:
        signed = interpreter.get_signature_runner(keys[0])
        return lambda: [value for _, value in sorted(signed(**inputs).items())]
    given = interpreter.get_input_details()
    for detail, array in zip(given, inputs.values(), strict=True):
        interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def run() -> list[Any]:
        for detail, array in zip(given, inputs.values(), strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return run
