"""Lets `import tensorrt` find this module, for tools that are written for NVIDIA's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.host_memory import under_polygraphy


@contextlib.contextmanager
def stand_in(name: str = "tensorrt", host_memory: bool | None = None) -> Iterator[None]:
    """While it lasts, `import tensorrt` gives `neurenix.hardware.tensorrt`.

    What imports it then keeps it. `host_memory`: whether Polygraphy's device arrays lie in the processor's memory,
    where the CPU provider's pointers point; None: where no GPU is seen. Polygraphy is not needed.

    Raises `InvalidArgumentError` where NVIDIA's package was imported before: there can be only one of the two in what
    runs already.
    """
    ours = sys.modules[__name__.rpartition(".")[0]]
    before = sys.modules.get(name)
    if before is not None and before is not ours:
        raise InvalidArgumentError(
            f"another module of the name {name!r} was imported before", got=str(before), hint="stand in for it earlier"
        )
    if host_memory is None:
        from neurenix.hardware import get_backend

        host_memory = get_backend().native_options()["providers"][0] == "cpu"
    sys.modules[name] = ours
    try:
        with under_polygraphy() if host_memory else contextlib.nullcontext():
            yield
    finally:
        if before is None:
            sys.modules.pop(name, None)
