"""Whether this process may read and write at an address that somebody gave."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class _Piece(ctypes.Structure):
    """`iovec` of the C library."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_LIBRARY = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
#: Copy bytes between processes, and fail where a plain access would end this one.
_READ, _WRITE = (getattr(_LIBRARY, f"process_vm_{word}", None) for word in ("readv", "writev"))
#: At most so many pieces are copied at once.
_MOST = 1024


def reachable(addresses: Sequence[int], write: bool = False) -> int:
    """At how many of the addresses, from the first on, this process may read a byte, and with `write` write it.

    What is there stays. Where the system does not tell, all may be read.
    """
    numbers = next((index for index, address in enumerate(addresses) if not 0 < address < 1 << 64), len(addresses))
    for start in range(0, numbers, _MOST):
        some = addresses[start : min(start + _MOST, numbers)]
        count = _copied(some, write)
        if count < len(some):
            return start + count
    return numbers


def is_readable(begin: int, end: int) -> bool:
    """Whether this process may read the first and the last of these bytes."""
    return reachable((begin, max(begin, end - 1))) == 2


def _copied(addresses: Sequence[int], write: bool) -> int:
    """As `reachable`: copies each byte out, and back in with `write`."""
    done = len(addresses)
    kept = ctypes.create_string_buffer(done)
    own = _Piece(ctypes.addressof(kept), done)
    there = (_Piece * done)(*(_Piece(address, 1) for address in addresses))
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    for call in (_READ, _WRITE) if write else (_READ,):
        if call is None:
            return _listed(addresses, write)
        # The first byte that is out of reach ends the copy; where that is the first of all the call fails.
        found = call(ctypes.c_int(os.getpid()), ctypes.byref(own), one, there, ctypes.c_ulong(done), none)
        if found < 0 and ctypes.get_errno() != errno.EFAULT:
            # Some sandboxes forbid these calls.
            return _listed(addresses, write)
        own.length = done = max(found, 0)
        if not done:
            break
    return done


def _listed(addresses: Sequence[int], write: bool) -> int:
    """As `reachable`, by the system's list of what is mapped."""
    with suppress(OSError):
        lines = [line.split()[:2] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
        rights = "rw" if write else "r"
        spans = [[int(word, 16) for word in span.split("-")] for span, given in lines if given.startswith(rights)]
        lost = (i for i, one in enumerate(addresses) if not any(low <= one < high for low, high in spans))
        return next(lost, len(addresses))
    return len(addresses)
