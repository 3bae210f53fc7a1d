"""Which providers can run here, and what the others lack."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from neurenix import _native
from neurenix.log import LOG

#: The libraries that hold TensorRT, the preferred one first.
TENSORRT_LIBRARIES = ("libnvinfer.so.10", "libnvinfer.so.11", "libnvinfer.so.8", "libtensorrt_rtx.so.1")
#: The packages of PyPI that bring them, by their import names.
TENSORRT_PACKAGES = ("tensorrt_libs", "tensorrt_rtx_libs")


@dataclass(frozen=True)
class State:
    """Whether a provider can run here, and why not."""

    provider: str
    reason: str | None = None

    @property
    def available(self) -> bool:
        """Whether it can run here."""
        return self.reason is None


@cache
def state(provider: str, device: int = 0) -> State:
    """The state of a provider on this machine, on the GPU of this number."""
    built = dict(_native.provider_states(device))
    if provider in built:
        return State(provider, built[provider])
    missing = [f"Neurenix {_native.__version__} has no {provider} provider yet"]
    driver = driver_problem()
    if driver is not None:
        missing.append(f"no NVIDIA GPU ({driver})")
    if provider == "tensorrt" and find_tensorrt() is None:
        missing.append(f"none of {', '.join(TENSORRT_LIBRARIES)} found")
    return State(provider, "; ".join(missing))


def driver_problem() -> str | None:
    """Why NVIDIA's driver can't be used; None if it can, and sees a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "libcuda.so.1 not found"
    code = driver.cuInit(0)
    if code != 0:
        return f"cuInit gives error {code}"
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    return None if code == 0 and count.value > 0 else "the driver sees none"


def find_tensorrt() -> str | None:
    """The path or name of a TensorRT library; it is not loaded."""
    named = os.environ.get("NEURENIX_TENSORRT_LIB")
    if named:
        return named if Path(named).exists() else None
    folders = []
    for package in TENSORRT_PACKAGES:
        spec = importlib.util.find_spec(package)
        folders += list(spec.submodule_search_locations or ()) if spec else []
    folders += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders += ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/tensorrt/lib"]
    for library in TENSORRT_LIBRARIES:
        for folder in filter(None, folders):
            path = Path(folder) / library
            if path.exists():
                return str(path)
    return None


def choose(wanted: Sequence[str], device: int = 0) -> tuple[list[str], list[State]]:
    """Of the wanted providers those that can run here, on the GPU of this number, and the states of the others."""
    states = [state(provider, device) for provider in wanted]
    return [s.provider for s in states if s.available], [s for s in states if not s.available]


_told: set[tuple[str, ...]] = set()


def tell(chosen: Sequence[str], refused: Sequence[State]) -> None:
    """Logs a fall back, once."""
    key = tuple(s.provider for s in refused)
    if not refused or not chosen or key in _told:
        return
    _told.add(key)
    reasons = ", ".join(f"not on {s.provider}: {s.reason}" for s in refused)
    LOG.warning("running on %s; %s", chosen[0], reasons)
