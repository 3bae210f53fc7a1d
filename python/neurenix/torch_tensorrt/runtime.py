"""`torch_tensorrt.runtime`: settings of calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from neurenix.log import LOG


def set_cudagraphs_mode(mode: bool) -> None:
    """Takes the word: engines on a GPU capture their launches by themselves, whatever it is."""
    if not mode:
        LOG.info("captured graphs stay in use: they are a part of how engines run on a GPU")


def get_cudagraphs_mode() -> bool:
    """True: engines on a GPU capture their launches by themselves."""
    return True


@contextlib.contextmanager
def enable_cudagraphs(compiled_module: Any = None) -> Iterator[Any]:
    """The module itself: its engines capture their launches by themselves."""
    yield compiled_module


def set_multi_device_safe_mode(mode: bool) -> None:
    """Takes the word: an engine knows its device."""


@contextlib.contextmanager
def enable_pre_allocated_outputs(module: Any = None) -> Iterator[Any]:
    """The module itself: results are new tensors in each call."""
    yield module
