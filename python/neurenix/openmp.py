"""Loads the native module with OpenMP told to park idle threads soon.

libgomp reads its settings once, when it is loaded, and by default lets a thread spin for about 15 ms before it parks:
on a busy machine the team then waits for itself, and an idle team takes a core from its neighbours.
"""

import os

# Iterations of its waiting loop: about a millisecond, longer than what a kernel leaves to one thread alone.
_SPINS = "20000"
_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def _load() -> None:
    decided = any(name in os.environ for name in _SETTINGS)
    if not decided:
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        import neurenix._native  # noqa: F401
    finally:
        if not decided:
            del os.environ["GOMP_SPINCOUNT"]


_load()
