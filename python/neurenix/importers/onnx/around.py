"""Layers that an import puts in front of the inputs of a model and behind its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from neurenix._native import Network, Tensor

#: Gets the network and the name, dtype and shape of an input of the model; adds an input of its own, and gives what
#: the model reads.
Front = Callable[[Network, str, Any, Sequence[int | str]], Tensor]
#: Gets the network, the name of an output and what the model gives; gives what becomes the output.
Behind = Callable[[Network, str, Tensor], Tensor]


class _Around(NamedTuple):
    front: Front
    behind: Behind


_around: ContextVar[_Around | None] = ContextVar("around", default=None)


@contextmanager
def layers(front: Front | None = None, behind: Behind | None = None) -> Iterator[None]:
    """Imports inside of the block, of ONNX models and of what becomes one, have these layers around them."""
    token = _around.set(_Around(front or _plain, behind or _as_it_is))
    try:
        yield
    finally:
        _around.reset(token)


def is_active() -> bool:
    """Whether imports have layers around them here."""
    return _around.get() is not None


def add_input(network: Network, name: str, dtype: Any, shape: Sequence[int | str]) -> Tensor:
    """What a model reads as one of its inputs."""
    around = _around.get()
    return (around.front if around else _plain)(network, name, dtype, shape)


def mark_output(network: Network, tensor: Tensor, name: str) -> None:
    """Makes what a model gives a result."""
    around = _around.get()
    network.mark_output(around.behind(network, name, tensor) if around else tensor, name)


def _plain(network: Network, name: str, dtype: Any, shape: Sequence[int | str]) -> Tensor:
    return network.add_input(name, dtype, shape)


def _as_it_is(network: Network, name: str, tensor: Tensor) -> Tensor:
    return tensor
