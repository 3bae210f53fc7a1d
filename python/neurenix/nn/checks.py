"""What constructors of modules refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, UnsupportedError


def factory(device: Any, dtype: Any) -> None:
    """Takes PyTorch's words for where new weights lie and what they are: on the processor, of float32.

    Raises `UnsupportedError` for others.
    """
    if device is not None and str(device) != "cpu":
        raise UnsupportedError(
            "new weights lie on the processor",
            expected="device=None or 'cpu'",
            got=repr(device),
            hint="say where the model runs when it is optimised: nx.hardware.get_backend('cuda')",
        )
    if dtype is not None and str(dtype) != "torch.float32" and dtype not in ("float32", np.float32):
        raise UnsupportedError(
            "new weights are of float32",
            expected="dtype=None or float32",
            got=str(dtype),
            hint="say the precision when the model is optimised: precision='fp16'",
        )


def at_least(least: int, **given: Any) -> None:
    """Raises `InvalidArgumentError` unless each is an integer from `least` on, or a list of such; None passes."""
    for name, value in given.items():
        parts = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        if value is not None and not all(isinstance(n, (int, np.integer)) and n >= least for n in parts):
            raise InvalidArgumentError(
                f"{name} is out of range", expected=f"integers from {least} on", got=f"{name}={value!r}"
            )


def one_of(words: Sequence[str], **given: Any) -> None:
    """Raises `InvalidArgumentError` for what is none of these words."""
    for name, value in given.items():
        if value not in words:
            raise InvalidArgumentError(f"the {name} is unknown", expected=", ".join(words), got=repr(value))
