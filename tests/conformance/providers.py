"""How a one-layer network runs on each provider, and what a provider is known not to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import neurenix as nx
from neurenix import _native
from tests.conformance.case import Array

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Run = Callable[[dict[str, Array]], dict[str, Array]]


def reference(network: nx.Network) -> Run:
    """Op by op in double precision: the op's own reference evaluation, which constant folding uses too."""
    return network.evaluate


def cpu(network: nx.Network) -> Run:
    """The passes, the cover and the kernels of the CPU."""
    options = {"providers": ["cpu"], "threads": 2, "timing_cache": None}
    return _native.Engine.build(network, [], options).run


def cuda(network: nx.Network) -> Run:
    """The passes, the cover and the kernels of the GPU; what they do not take runs on the CPU."""
    options = {"providers": ["cuda", "cpu"], "threads": 2, "timing_cache": None, "optimization_level": 0}
    return _native.Engine.build(network, [], options).run


PROVIDERS: dict[str, Callable[[nx.Network], Run]] = {"reference": reference, "cpu": cpu}
if dict(_native.provider_states())["cuda"] is None:
    PROVIDERS["cuda"] = cuda


def exceptions(provider: str) -> list[dict[str, Any]]:
    """What stands in `exceptions/<provider>.toml`: `op`, perhaps `case` and `dtype` (one or a list), and a `reason`."""
    path = Path(__file__).parent / "exceptions" / f"{provider}.toml"
    return tomllib.loads(path.read_text())["exception"] if path.exists() else []


def listed(value: str | list[str]) -> list[str]:
    """One or several, as a list."""
    return [value] if isinstance(value, str) else value


def excepted(known: list[dict[str, Any]], **place: str) -> str | None:
    """The reason why this place is excepted, if it is."""
    for exception in known:
        if all(place[key] in listed(value) for key, value in exception.items() if key != "reason"):
            return str(exception["reason"])
    return None
