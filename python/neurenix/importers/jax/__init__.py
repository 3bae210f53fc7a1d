"""JAX functions and Flax modules: `from_jax`, through jax2onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neurenix._native import Network

__all__ = ["from_jax"]


def from_jax(
    function: Any,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    input_shapes: Any = None,
    variables: Any = None,
) -> Network:
    """Imports a function of JAX's, as it computes now: what it closes over becomes weights.

    `function`: a function of arrays, jitted or not, a module of Flax's NNX, or one of Linen's with its `variables`.
    `inputs`: an example of each argument in their order, or by name: an array, a `jax.ShapeDtypeStruct`, or a shape (of
    float32) in which a text names a dimension that stays open. `input_shapes`: shapes of float32 by name alone, also
    ranges as `optimize_model` takes them.

    Inputs are called as the function's arguments; outputs by their key where the function gives a dict, else "output",
    "output_1", ... JAX's 64-bit types become what JAX makes of them without `jax_enable_x64`.

    Raises `MissingPackageError` where JAX or jax2onnx is missing, `InvalidArgumentError` where the function fails on
    such inputs, `UnsupportedError` with the primitive that nothing converts and the way out, and as `from_onnx`.
    """
    from neurenix.importers.jax.export import export_function

    return export_function(function, inputs, input_shapes, variables)
