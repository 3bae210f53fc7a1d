"""torch's exporters as they are used here: a module in eval mode, and nothing printed."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator

import torch

from neurenix.importers.muted import muted
from neurenix.log import LOG

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@contextlib.contextmanager
def eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Puts every part of the module into eval mode for a while."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keeps the exporters from printing, and passes on the one warning that matters: a branch that tracing froze."""
    with (
        warnings.catch_warnings(record=True) as caught,
        muted(("torch.onnx", "onnxscript", "onnx_ir"), "torch's exporter"),
    ):
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if warning.category.__name__ == "TracerWarning":
            LOG.warning("%s:%d: %s", warning.filename, warning.lineno, warning.message)


def first_line(error: BaseException) -> str:
    """What failed at the bottom of a chain of exceptions."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
