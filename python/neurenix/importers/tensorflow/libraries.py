"""TensorFlow, Keras and tf2onnx, imported when something needs them, and quiet."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from neurenix.importers.muted import muted
from neurenix.packages import load_triton, need

PACKAGES = ("tensorflow", "keras", "tf2onnx", "onnx")
#: TensorFlow's C++ part writes warnings and worse only.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def tensorflow(purpose: str) -> ModuleType:
    """TensorFlow, and what converts its models.

    Raises `MissingPackageError` with the command that installs all that is missing.
    """
    before = "tensorflow" in sys.modules
    load_triton()
    with environment(QUIET):
        found = need("tensorflow", purpose, PACKAGES)
        for package in ("tf2onnx", "onnx"):
            need(package, purpose, PACKAGES)
    if not before:
        _share_memory(found)
    return found


def _share_memory(tf: Any) -> None:
    """Who did not ask for TensorFlow does not want it to take all memory of the GPUs, as it does by default."""
    for gpu in tf.config.list_physical_devices("GPU"):
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.experimental.set_memory_growth(gpu, True)


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables that have these values for a while, unless they have others already."""
    new = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in new})
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


class Records(logging.Handler):
    """Keeps what a library logs as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a record."""
        self.records.append(record)


@contextlib.contextmanager
def quiet() -> Iterator[Records]:
    """Keeps TensorFlow and tf2onnx from printing; what tf2onnx logs as errors is in the records."""
    records, converter = Records(), logging.getLogger("tf2onnx")
    propagates = converter.propagate
    converter.addHandler(records)
    converter.propagate = False
    try:
        with warnings.catch_warnings(), muted(("tensorflow", "absl"), "TensorFlow"):
            warnings.simplefilter("ignore")
            yield records
    finally:
        converter.removeHandler(records)
        converter.propagate = propagates
