"""Other engines, set up as fairly as we set up ourselves: same threads, same inputs, latency first."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neurenix import _native, arrays
from neurenix.cli.common import Arrays, load_model
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.packages import need


class Peer:
    """One other engine, ready to run on the inputs; used in a `with`."""

    def __init__(self, name: str, version: str, run: Callable[[], Sequence[Any]]) -> None:
        self.name = name
        self.version = version
        self.run = run

    @classmethod
    def of(cls, name: str, model: Any, inputs: Arrays, arguments: argparse.Namespace) -> Peer:
        """The engine of a name.

        Raises `InvalidArgumentError` for an unknown one, `MissingPackageError` for one that is not installed, and
        `UnsupportedError` for one that can't run this kind of model.
        """
        if name not in _MAKERS:
            raise InvalidArgumentError(f"there is no peer {name!r}", expected=", ".join(_MAKERS))
        threads = arguments.threads or _native.default_threads()
        return _MAKERS[name](model, inputs, threads, arguments)

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Its outputs as numpy arrays."""
        return [arrays.to_numpy(value) for value in self.run()]

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self.run = lambda: ()


def relative_error(array: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    """The greatest difference over the greatest value of the reference; infinite where shapes differ."""
    if array.shape != reference.shape:
        return float("inf")
    if array.size == 0:
        return 0.0
    a, b = array.astype(np.float64), reference.astype(np.float64)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def _onnx_file(model: Any, name: str) -> str | bytes:
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    raise UnsupportedError(f"{name} needs the model as a file", expected="a path of an .onnx file")


def _onnxruntime(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    ort = need("onnxruntime", "bench", "comparing with ONNX Runtime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(_onnx_file(model, "onnxruntime"), options, providers=["CPUExecutionProvider"])
    return Peer("onnxruntime", ort.__version__, lambda: session.run(None, inputs))


def _openvino(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    ov = need("openvino", "bench", "comparing with OpenVINO")
    core = ov.Core()
    read = core.read_model(_onnx_file(model, "openvino"))
    read.reshape({name: list(array.shape) for name, array in inputs.items()})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if arguments.precision == "bf16" else "f32",
    }
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    return Peer("openvino", ov.__version__.partition("-")[0], lambda: list(request.infer(inputs).values()))


def _torch(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    torch = need("torch", "torch", "comparing with PyTorch")
    module = load_model(arguments.torch_module) if getattr(arguments, "torch_module", None) else model
    if isinstance(module, str) and module.endswith((".pt", ".pth")):
        module = torch.load(module, map_location="cpu", weights_only=False)
    if not isinstance(module, torch.nn.Module):
        raise UnsupportedError(
            "torch can't run an ONNX file",
            hint="give the module too: --torch-module package.module:factory, or a .pt file",
        )
    torch.set_num_threads(threads)
    module.eval()
    tensors = [torch.from_numpy(array) for array in inputs.values()]

    def run() -> Sequence[Any]:
        with torch.inference_mode():
            result = module(*tensors)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    return Peer("torch", torch.__version__, run)


_MAKERS: dict[str, Callable[[Any, Arrays, int, argparse.Namespace], Peer]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch": _torch,
}
