"""Names under which `torch.compile` finds backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def register(name: str, backend: Callable[..., Any]) -> bool:
    """Gives a backend a name unless something has it, in this process or as an installed package's entry point.

    Says whether it did.
    """
    from importlib.metadata import entry_points

    from torch._dynamo.backends import registry

    if name in registry._COMPILER_FNS or any(one.name == name for one in entry_points(group="torch_dynamo_backends")):
        return False
    registry.register_backend(backend, name=name)
    return True
