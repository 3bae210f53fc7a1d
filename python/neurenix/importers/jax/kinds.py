"""What is of JAX, told without importing it."""

from __future__ import annotations

from typing import Any

from neurenix.importers.tensorflow.kinds import is_instance


def is_module(model: Any) -> bool:
    """Whether this is a module of Flax's NNX."""
    return is_instance(model, "flax", "nnx.Module")


def is_linen(model: Any) -> bool:
    """Whether this is a module of Flax's Linen, which does not have its own variables."""
    return is_instance(model, "flax", "linen.Module")


def is_jax(model: Any) -> bool:
    """Whether this is a jitted function, or a module of Flax's."""
    jitted = type(model).__name__ == "PjitFunction" and hasattr(model, "lower")
    return jitted or is_module(model) or is_linen(model)
