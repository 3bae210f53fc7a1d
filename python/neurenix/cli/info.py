"""What this machine has: providers, versions, what is missing and the command that installs it."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from typing import Any

from neurenix import __version__, _native
from neurenix.cli.common import write_json
from neurenix.hardware import get_backend, probe, provider
from neurenix.hardware.backend import CHAINS
from neurenix.packages import install

#: Packages that something here can use.
PACKAGES = ("onnx", "torch", "onnxscript", "onnxruntime", "openvino")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--knobs", action="store_true", help="list the environment variables that are read")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON, to a file or to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Prints what there is."""
    found = collect()
    if not write_json(arguments.json, found):
        _print(found, arguments.knobs)
    return 0


def collect() -> dict[str, Any]:
    """Everything, as plain values."""
    states = [probe.state(name) for name in CHAINS["tensorrt"]]
    library, tried, headers = _native.tensorrt_library()
    return {
        "neurenix": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "providers": [{"name": s.provider, "available": s.available, "reason": s.reason} for s in states],
        "outside": {name: entry.value for name, entry in provider.entries().items()},
        "tensorrt": {
            "library": dict(zip(("path", "version", "headers"), library, strict=True)) if library else None,
            "tried": [{"place": place, "reason": reason} for place, reason in tried],
            "headers": headers,
        },
        "device": dict(get_backend("cpu").get_device_info(0)),
        "signature": _native.device("cpu"),
        "cache": str(_native.cache_dir() or ""),
        "packages": {name: _version(name) for name in PACKAGES},
        "knobs": _native.knobs(),
    }


def _print_tensorrt(found: dict[str, Any]) -> None:
    library = found["library"]
    here = f"{library['path']}, version {library['version']}" if library else "none that this build can drive"
    print(f"TensorRT library: {here}; headers in this build: {', '.join(found['headers']) or 'none'}")
    for attempt in found["tried"]:
        print(f"  not {attempt['place']}: {attempt['reason']}")
    if not library:
        print(f"  {install('tensorrt')}, or {install('tensorrt_rtx')}, or name the file in NEURENIX_TENSORRT_LIB")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _print(found: dict[str, Any], knobs: bool) -> None:
    print(f"neurenix {found['neurenix']}, Python {found['python']}, {found['system']}")
    print("providers, the preferred one first:")
    for state in found["providers"]:
        print(f"  {state['name']}: {'available' if state['available'] else state['reason']}")
    for name, value in found["outside"].items():
        print(f"  {name}: from outside ({value}), where it is asked for by name")
    _print_tensorrt(found["tensorrt"])
    device = found["device"]
    print(f"device: {device['name']}, {device['threads']} threads, {device['free_memory'] / 2**30:.1f} GiB free")
    print(f"  {found['signature']}")
    print(f"  precisions: {', '.join(device['precisions'])}")
    print(f"cache: {found['cache'] or 'off'}")
    print("packages:")
    for name, version in found["packages"].items():
        print(f"  {name}: {version or f'not installed; {install(name)}'}")
    if knobs:
        print("knobs:")
        for knob in found["knobs"]:
            print(f"  {knob['name']}={knob['value'] or knob['default']}: {knob['doc']}")
