"""torch's exporter beside threads that call modules."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

_LOCK = threading.Lock()
#: How many traces go on, and what they replaced.
_STATE: dict[str, Any] = {"count": 0, "replaced": {}}
#: The thread of a tracer, by its attribute.
_OWNER = "_neurenix_thread"


@contextlib.contextmanager
def beside_others() -> Iterator[None]:
    """Lets other threads call modules while this one exports.

    While torch traces, it replaces `Module.__call__` and `Module.__getattr__` in the whole process, and the exporter's
    tracer takes a call of any thread for a part of what it traces. Here it passes on what other threads do.
    """
    tracer = _tracer()
    if tracer is None:
        yield
        return
    with _LOCK:
        _STATE["count"] += 1
        if _STATE["count"] == 1:
            _replace(tracer)
    try:
        yield
    finally:
        with _LOCK:
            _STATE["count"] -= 1
            if _STATE["count"] == 0:
                for name, (own, found) in _STATE["replaced"].items():
                    setattr(tracer, name, found) if own else delattr(tracer, name)


def _tracer() -> Any:
    """The exporter's tracer; None where this version of torch has another."""
    try:
        from torch.fx.experimental.proxy_tensor import _ModuleStackTracer
    except ImportError:
        return None
    names = ("trace", "call_module", "getattr")
    return _ModuleStackTracer if all(hasattr(_ModuleStackTracer, name) for name in names) else None


def _replace(tracer: Any) -> None:
    trace, call_module, getattr_ = tracer.trace, tracer.call_module, tracer.getattr
    _STATE["replaced"] = {
        name: (name in vars(tracer), vars(tracer).get(name)) for name in ("trace", "call_module", "getattr")
    }

    def owned(self: Any, *args: Any, **kwargs: Any) -> Any:
        setattr(self, _OWNER, threading.get_ident())
        return trace(self, *args, **kwargs)

    def called(self: Any, module: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if _is_foreign(self):
            return forward(*args, **kwargs)
        return call_module(self, module, forward, args, kwargs)

    def read(self: Any, name: str, found: Any, cache: Any) -> Any:
        return found if _is_foreign(self) else getattr_(self, name, found, cache)

    tracer.trace, tracer.call_module, tracer.getattr = owned, called, read


def _is_foreign(tracer: Any) -> bool:
    ident = threading.get_ident()
    return bool(getattr(tracer, _OWNER, ident) != ident)
