"""Other engines, set up as fairly as we set up ourselves: same threads, same inputs, latency first."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neurenix import __version__, _native, arrays, names, nn
from neurenix.cli.common import Arrays
from neurenix.cli.models import is_engine, load_model, no_original
from neurenix.errors import InvalidArgumentError, MissingPackageError, UnsupportedError
from neurenix.hardware.options import check, rest_of
from neurenix.importers.dispatch import to_network
from neurenix.importers.tensorflow import kinds
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
            raise InvalidArgumentError(
                f"there is no peer {name!r}", expected=", ".join(_MAKERS), hint=names.hint(name, _MAKERS)
            )
        threads = arguments.threads or _native.default_threads()
        return _MAKERS[name](model, inputs, threads, arguments)

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Its outputs as numpy arrays."""
        return [arrays.to_numpy(value) for value in self.run()]

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self.run = lambda: ()


def reference_of(model: Any, inputs: Arrays, arguments: argparse.Namespace) -> Peer:
    """Whom to trust about a model: torch for its own, else ONNX Runtime where it is, else ONNX's reference."""
    if isinstance(model, nn.Module):
        network = to_network(model, {name: array.shape for name, array in inputs.items()})
        return Peer("float64 evaluation", __version__, lambda: list(network.evaluate(inputs).values()))
    if kinds.is_source(model):
        from neurenix.importers.tensorflow.peer import name_of

        return Peer.of(name_of(model), model, inputs, arguments)
    if not isinstance(model, (str, os.PathLike)):
        return Peer.of("torch", model, inputs, arguments)
    try:
        return Peer.of("onnxruntime", model, inputs, arguments)
    except MissingPackageError:
        return Peer.of("onnx", model, inputs, arguments)


def relative_error(array: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    """The greatest difference over the greatest value of the reference; infinite where shapes differ."""
    return _relative(array, reference, np.max)


def _relative(array: np.ndarray[Any, Any], reference: np.ndarray[Any, Any], statistic: Callable[[Any], Any]) -> float:
    if array.shape != reference.shape:
        return float("inf")
    if array.size == 0:
        return 0.0
    a, b = array.astype(np.float64), reference.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        away = np.where(same, 0.0, np.abs(a - b))
    if np.isnan(away).any():
        return float("inf")
    finite = np.abs(b[np.isfinite(b)])
    return float(statistic(away) / max(finite.max(initial=0.0), 1e-30))


#: What an error may be: each over the greatest value of the reference.
STATISTICS: dict[str, Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], float]] = {
    "max": relative_error,
    "mean": lambda array, reference: _relative(array, reference, np.mean),
    "median": lambda array, reference: _relative(array, reference, np.median),
    "p99": lambda array, reference: _relative(array, reference, lambda away: np.percentile(away, 99)),
}


def _onnx_file(model: Any, name: str) -> str | bytes:
    if kinds.is_source(model):
        from neurenix.importers.tensorflow.peer import onnx_bytes

        return onnx_bytes(model)
    if isinstance(model, (str, os.PathLike)):
        if is_engine(os.fspath(model)):
            raise no_original(model)
        return os.fspath(model)
    raise UnsupportedError(f"{name} needs the model as a file", expected="a path of an .onnx file")


def _reference(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    onnx = need("onnx", "comparing with ONNX's reference")
    reference = need("onnx.reference", "comparing with ONNX's reference")
    given = _onnx_file(model, "onnx")
    evaluator = reference.ReferenceEvaluator(onnx.load_from_string(given) if isinstance(given, bytes) else given)
    return Peer("onnx", onnx.__version__, lambda: evaluator.run(None, inputs))


def _onnxruntime(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    ort = need("onnxruntime", "comparing with ONNX Runtime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(_onnx_file(model, "onnxruntime"), options, providers=["CPUExecutionProvider"])
    return Peer("onnxruntime", ort.__version__, lambda: session.run(None, inputs))


def _openvino(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    ov = need("openvino", "comparing with OpenVINO")
    core = ov.Core()
    read = core.read_model(_onnx_file(model, "openvino"))
    read.reshape({name: list(array.shape) for name, array in inputs.items()})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if rest_of(check("precision", arguments.precision)) == "bf16" else "f32",
    }
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    return Peer("openvino", ov.__version__.partition("-")[0], lambda: list(request.infer(inputs).values()))


def _torch(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    torch = need("torch", "comparing with PyTorch")
    module = load_model(arguments.torch_module) if getattr(arguments, "torch_module", None) else model
    if isinstance(module, torch.nn.Module):
        module.eval()
    elif not isinstance(module, torch.export.ExportedProgram):
        raise UnsupportedError(
            "torch can't run a file of this kind",
            hint="give the module too: --torch-module package.module:factory, or a .pt2 file",
        )
    torch.set_num_threads(threads)
    from neurenix.importers.torch.trying import prepared

    call = prepared(module, {name: torch.from_numpy(array) for name, array in inputs.items()})
    return Peer("torch", torch.__version__, call)


def _tensorflow(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    tensorflow = need("tensorflow", "comparing with TensorFlow")
    if not kinds.is_source(model):
        raise UnsupportedError(
            "tensorflow can't run a model of this kind",
            expected=kinds.NAMES,
            got=str(getattr(model, "__name__", model)),
        )
    from neurenix.importers.tensorflow.peer import runner

    call, compiled = runner(model, inputs, threads)
    return Peer("tensorflow", tensorflow.__version__ + (" with XLA" if compiled else " without XLA"), call)


def _keras(model: Any, inputs: Arrays, threads: int, arguments: argparse.Namespace) -> Peer:
    need("keras", "comparing with Keras")
    if not kinds.is_source(model):
        raise UnsupportedError(
            "Keras can't run a model of this kind",
            expected="a keras.Model or a .keras file",
            got=str(getattr(model, "__name__", model)),
        )
    from neurenix.importers.tensorflow.peer import keras_runner

    call, version = keras_runner(model, inputs, threads)
    return Peer("keras", version, call)


_MAKERS: dict[str, Callable[[Any, Arrays, int, argparse.Namespace], Peer]] = {
    "keras": _keras,
    "onnx": _reference,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "tensorflow": _tensorflow,
    "torch": _torch,
}
