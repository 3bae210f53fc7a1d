"""Other people's packages, imported when something needs them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from neurenix.errors import MissingPackageError
from neurenix.log import LOG

#: What pip is asked for to bring each package, as in the extras of pyproject.toml.
REQUIREMENTS = {
    "PIL": "pillow>=10",
    "ai_edge_litert": "ai-edge-litert>=2",
    "av": "av>=12",
    "cv2": "opencv-python>=4.8",
    "dask": "dask[array]>=2024.1",
    "google": "protobuf>=5.26",
    "grpc": "grpcio>=1.60",
    "httptools": "httptools>=0.6",
    "hydra": "hydra-core>=1.3",
    "jax": "jax>=0.5",
    "jax2onnx": "jax2onnx>=0.17",
    "keras": "keras>=3.5",
    "lightning": "lightning>=2.4",
    "omegaconf": "omegaconf>=2.3",
    "onnx": "onnx>=1.17",
    "onnxruntime": "onnxruntime>=1.20",
    "onnxscript": "onnxscript>=0.3",
    "openvino": "openvino>=2025.0",
    "opentelemetry": "opentelemetry-api>=1.20",
    "ray": "ray[serve]>=2.40",
    "starlette": "starlette>=0.30",
    "tensorflow": "tensorflow-cpu>=2.18",
    "tensorrt": "tensorrt-cu13>=11.4",
    "tensorrt_rtx": "tensorrt-rtx-cu13-libs>=1.7",
    "tf2onnx": "tf2onnx>=1.17",
    "tifffile": "tifffile>=2024.1",
    "torch": "torch>=2.5",
    "transformers": "transformers>=4.50",
    "uvicorn": "uvicorn>=0.30",
    "uvloop": "uvloop>=0.19",
    "zarr": "zarr>=3",
}


def install(*packages: str) -> str:
    """The command that installs packages.

    It never names our own distribution: that of the name `neurenix` in the registry is another project.
    """
    return "pip install " + " ".join(f'"{REQUIREMENTS[package]}"' for package in packages)


def is_installed(package: str) -> bool:
    """Whether a package could be imported, without doing so."""
    return importlib.util.find_spec(package) is not None


def load_triton() -> None:
    """Loads Triton, if it is installed, for a process that has or will have TensorFlow.

    Both bring an LLVM. Where PyTorch loads Triton behind TensorFlow, the two meet, and that ends the process.
    """
    if "triton" in sys.modules or not is_installed("triton"):
        return
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | os.RTLD_DEEPBIND)
    try:
        importlib.import_module("triton")
    except Exception as error:
        LOG.debug("Triton can't be loaded", exc_info=error)
    finally:
        sys.setdlopenflags(flags)


def need(package: str, purpose: str, beside: Sequence[str] = ()) -> ModuleType:
    """Imports `package`, or a module of it.

    Raises `MissingPackageError` if it is not installed; its hint installs those of `beside` that are missing too.
    """
    top = package.partition(".")[0]
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != top:
            raise
        missing = [name for name in beside if name != top and not is_installed(name)]
        raise MissingPackageError(
            f"{purpose} needs the package {error.name!r}, which is not installed", hint=install(top, *missing)
        ) from None
