"""What is said of lists that can't be tensors."""

from __future__ import annotations

from neurenix.errors import UnsupportedError


def refusal(reason: str, layer: str, hint: str) -> UnsupportedError:
    """The error about a TensorArray that a node uses."""
    return UnsupportedError(f"a TensorArray can't be converted: {reason}", layer=layer, hint=hint)


def without_shape(layer: str) -> UnsupportedError:
    """The error about elements whose shape has to be known before anything is written."""
    return refusal(
        "it is needed before all of it is written, and the shape of its elements is not known",
        layer,
        "give all of element_shape= to tf.TensorArray, or write each element once and read only behind the loop",
    )
