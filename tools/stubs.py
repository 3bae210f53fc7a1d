"""Writes python/neurenix/_native.pyi from the native module itself; `--check` says whether it is up to date.

PyO3 knows the names, the arguments and their defaults; what it can't know (what is in a dict or a tuple) stands here.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUB = ROOT / "python" / "neurenix" / "_native.pyi"

HEAD = '''"""
The extension module `neurenix._native`; users meet its contents through `neurenix`. Written by tools/stubs.py.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex, final

import numpy as np

_Array = np.ndarray[Any, Any]
_Shapes = tuple[Sequence[int], Sequence[int], Sequence[int]]

__version__: str
onednn_version: str

'''

#: How PyO3 writes a profile.
_PROFILE = "dict[str, tuple[" + ", ".join(["Sequence[SupportsIndex]"] * 3) + "]]"

#: (class or "", function) -> {what PyO3 says: what it is}.
EXACT = {
    ("Context", "run"): {"inputs: dict": "inputs: dict[str, Any]", "-> dict": "-> dict[str, _Array]"},
    ("Dim", "ceildiv"): {"-> Any": "-> int | Dim"},
    ("Dim", "maximum"): {"-> Any": "-> int | Dim"},
    ("Dim", "minimum"): {"-> Any": "-> int | Dim"},
    ("Engine", "run"): {"inputs: dict": "inputs: dict[str, Any]", "-> dict": "-> dict[str, _Array]"},
    ("Engine", "profile"): {"inputs: dict": "inputs: dict[str, Any]"},
    ("Engine", "time_on_device"): {"inputs: dict": "inputs: dict[str, Any]"},
    ("Engine", "build"): {
        "options: dict": "options: dict[str, Any]",
        _PROFILE: "Mapping[str, _Shapes]",
    },
    ("Engine", "prepare"): {"dict[str, Sequence[SupportsIndex]]": "Mapping[str, Sequence[int]]"},
    ("Engine", "load"): {"options: dict": "options: dict[str, Any]"},
    ("Engine", "refit"): {"weights: dict": "weights: dict[str, Any]", "options: dict": "options: dict[str, Any]"},
    ("Engine", "weights"): {"-> list": "-> list[tuple[str, np.dtype[Any], list[int]]]"},
    ("Engine", "inputs"): {"-> list": "-> list[tuple[str, np.dtype[Any], tuple[int | str, ...]]]"},
    ("Engine", "specs"): {"-> list": "-> list[tuple[np.dtype[Any], list[int]]]"},
    ("Engine", "outputs"): {"-> list": "-> list[tuple[str, np.dtype[Any], tuple[int | str, ...]]]"},
    ("Histogram", "range"): {"SupportsFloat | SupportsIndex": "float"},
    ("Layer", "attrs"): {"-> dict": "-> dict[str, Any]"},
    ("Network", "add_control"): {
        "bodies: dict": "bodies: dict[str, tuple[Network, list[Tensor]]]",
        "attrs: dict | None": "attrs: dict[str, Any] | None",
    },
    ("Network", "add_layer"): {"attrs: dict | None": "attrs: dict[str, Any] | None"},
    ("Network", "add_registered_plugin"): {
        "dict[str, tuple[str, Sequence[SupportsIndex], Sequence[SupportsIndex]]]": (
            "Mapping[str, tuple[str, Sequence[int], bytes]]"
        ),
    },
    ("Network", "evaluate"): {
        "inputs: dict": "inputs: dict[str, Any]",
        "-> dict": "-> dict[str, _Array]",
    },
    ("Network", "outputs"): {"-> dict": "-> dict[str, Tensor]"},
    ("Network", "quantized"): {"dict[str, SupportsFloat | SupportsIndex]": "dict[str, float]"},
    ("Network", "residuals_in_floats"): {"dict[str, SupportsFloat | SupportsIndex]": "dict[str, float]"},
    ("Tensor", "dtype"): {"-> Incomplete": "-> np.dtype[Any]"},
    ("Tensor", "numpy"): {"-> Any | None": "-> _Array | None"},
    ("TensorRTPlan", "build"): {
        "options: dict": "options: dict[str, Any]",
        _PROFILE: "Mapping[str, _Shapes]",
    },
    ("Tensor", "shape"): {"-> tuple": "-> tuple[int | str, ...]"},
    ("TimingCache", "__new__"): {"options: dict": "options: dict[str, Any]"},
    ("TimingCache", "add"): {"dict[str, SupportsIndex]": "dict[str, int]"},
    ("Tensor", "value"): {"-> tuple | None": "-> tuple[int | str, ...] | None"},
    ("", "gpu_info"): {"-> dict": "-> dict[str, Any]"},
    ("", "knobs"): {"-> list": "-> list[dict[str, Any]]"},
    ("", "ops"): {"-> list": "-> list[dict[str, Any]]"},
    ("", "run_every_form"): {"inputs: dict": "inputs: dict[str, Any]", "-> list": "-> list[dict[str, Any]]"},
}


def generate(profile: str) -> str:
    """The stub, from a build by a profile whose library keeps its symbols, where PyO3 leaves what it knows."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["maturin", "generate-stubs", "--quiet", "--profile", profile, "--out", folder]
        subprocess.run(command, cwd=ROOT, check=True)
        raw = next(Path(folder).rglob("*.pyi")).read_text()
    return polish(raw)


def polish(raw: str) -> str:
    """PyO3's stub with everything that it leaves open filled in, in this project's format."""
    body = raw.split("\n\n", 2)[2] if raw.startswith('"""') else raw
    body = body[re.search(r"^(@final|def |class )", body, re.M).start() :]  # type: ignore[union-attr]
    body = body.replace("\ndef __getattr__(name: str) -> Incomplete: ...\n", "\n")
    body = re.sub(r"SupportsGetItem\[int, ", "Sequence[", body)
    lines, owner, used = [], "", set()
    for line in body.splitlines():
        if line.startswith("class "):
            owner = re.match(r"class (\w+)", line)[1]  # type: ignore[index]
        elif line.startswith(("def ", "@")):
            owner = ""
        name = re.match(r"\s*def (\w+)", line)
        key = (owner, name[1]) if name else None
        for found, exact in EXACT.get(key, {}).items() if key else ():
            if found not in line:
                sys.exit(f"{key}: PyO3 no longer says {found!r}: {line.strip()}")
            line = re.sub(re.escape(found) + r"(?![\w\[])", exact, line)
            used.add(key)
        lines.append(line)
    if unused := set(EXACT) - used:
        sys.exit(f"nothing in the module is called {sorted(unused)}")
    formatted = ["ruff", "format", "--stdin-filename", "x.pyi", "-"]
    names = re.findall(r"^(?:def|class) (\w+)", "\n".join(lines), re.M)
    listed = "".join(f"    {name!r},\n" for name in sorted([*names, "__version__", "onednn_version"]))
    text = f"{HEAD}__all__ = [\n{listed}]\n\n" + "\n".join(lines) + "\n"
    return subprocess.run(formatted, input=text, text=True, capture_output=True, check=True, cwd=ROOT).stdout


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if the stub is out of date")
    parser.add_argument("--profile", default="dev", help="of the build; one that was built before builds nothing again")
    arguments = parser.parse_args()
    stub = generate(arguments.profile)
    if arguments.check:
        return int(stub != STUB.read_text())
    STUB.write_text(stub)
    return 0


if __name__ == "__main__":
    sys.exit(main())
