"""Importers: models of other frameworks become a `neurenix.Network` through its public API."""

from neurenix.importers.jax import from_jax
from neurenix.importers.onnx import from_onnx
from neurenix.importers.tensorflow import from_tensorflow
from neurenix.importers.torch import from_exported_program, from_torch

__all__ = ["from_exported_program", "from_jax", "from_onnx", "from_tensorflow", "from_torch"]
