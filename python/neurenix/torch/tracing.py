"""torch's exporter beside threads that call modules."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

_LOCK = threading.Lock()
#: The threads that export, each as often as it does.
_EXPORTING: list[int] = []
#: What is replaced meanwhile: of what, its name, and what stood there; None where that is inherited.
_REPLACED: list[tuple[Any, str, Any]] = []
#: The thread of a tracer, by its attribute.
_OWNER = "_neurenix_thread"


@contextlib.contextmanager
def beside_others() -> Iterator[None]:
    """Lets other threads call modules while this one exports.

    While torch traces, it replaces `Module.__call__` and `Module.__getattr__` in the whole process, and the exporter's
    tracer takes a call of any thread for a part of what it traces; compiled functions of other threads write notes into
    its graph. Here the tracer passes on what other threads do, and these are not told that something is exported.
    """
    with _LOCK:
        _EXPORTING.append(threading.get_ident())
        if len(_EXPORTING) == 1:
            _replace_in_tracer()
            _replace_flag()
    try:
        yield
    finally:
        with _LOCK:
            _EXPORTING.remove(threading.get_ident())
            while _REPLACED and not _EXPORTING:
                owner, name, found = _REPLACED.pop()
                delattr(owner, name) if found is None else setattr(owner, name, found)


def _put(owner: Any, name: str, made: Any) -> None:
    _REPLACED.append((owner, name, vars(owner).get(name)))
    setattr(owner, name, made)


def _replace_in_tracer() -> None:
    try:
        from torch.fx.experimental.proxy_tensor import _ModuleStackTracer as Tracer
    except ImportError:
        # Another version of torch, with another tracer.
        return
    tracer: Any = Tracer
    if not all(hasattr(tracer, name) for name in ("trace", "call_module", "getattr")):
        return
    trace, call_module, getattr_ = tracer.trace, tracer.call_module, tracer.getattr

    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        setattr(self, _OWNER, threading.get_ident())
        return trace(self, *args, **kwargs)

    def called(self: Any, module: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if _is_foreign(self):
            return forward(*args, **kwargs)
        return call_module(self, module, forward, args, kwargs)

    def read(self: Any, name: str, found: Any, cache: Any) -> Any:
        return found if _is_foreign(self) else getattr_(self, name, found, cache)

    _put(tracer, "trace", traced)
    _put(tracer, "call_module", called)
    _put(tracer, "getattr", read)


def _is_foreign(tracer: Any) -> bool:
    ident = threading.get_ident()
    return bool(getattr(tracer, _OWNER, ident) != ident)


def _replace_flag() -> None:
    is_exporting: Callable[[], bool] | None = getattr(torch.compiler, "is_exporting", None)
    if is_exporting is None:
        return

    def here() -> bool:
        return is_exporting() and threading.get_ident() in _EXPORTING

    _put(torch.compiler, "is_exporting", here)
