"""Tries one wheel on every Python of this machine: `python tools/other_pythons.py [PYTHON ...] [-- PYTEST_ARGUMENTS]`.

The suite runs on one Python; here each of the others gets a fresh environment in a temporary folder, the wheel with the
extras that the smoke tests want, and runs them from the checkout, without torch. Pythons are looked for among those of
pyenv, uv and the system (`uv python install 3.14` puts one where this looks), and may be named. Ends with a table; the
exit status is 1 if a test failed somewhere, or if no Python was found. Wants maturin, unless `--wheel` names a wheel.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: The minor versions that should be tried; those that no Python was found for are named.
WANTED = ("3.10", "3.11", "3.12", "3.13", "3.14")

#: Where Pythons lie, each under several names.
PLACES = (
    "~/.pyenv/versions/*/bin/python3.*",
    "~/.local/share/uv/python/*/bin/python3.*",
    "/usr/local/bin/python3.*",
    "/usr/bin/python3.*",
)

#: The smoke tests: what an interpreter may change. Plugins, calls, both network APIs, importers, files, command line.
SMOKE = (
    "tests/test_distribution.py",
    "tests/test_interpreter.py",
    "tests/cli/test_cli.py",
    "tests/engine/test_opening.py",
    "tests/engine/test_saving.py",
    "tests/engine/test_versions.py",
    "tests/errors/test_command_line.py",
    "tests/errors/test_messages.py",
    "tests/errors/test_network.py",
    "tests/errors/test_silence.py",
    "tests/examples/test_examples.py",
    "tests/importers/test_external.py",
    "tests/importers/test_functions.py",
    "tests/importers/test_missing_packages.py",
    "tests/importers/test_onnx.py",
    "tests/plugins/test_failures.py",
    "tests/plugins/test_files.py",
    "tests/plugins/test_onnx.py",
    "tests/plugins/test_plugins.py",
    "tests/plugins/test_provider.py",
    "tests/plugins/test_registry.py",
    "tests/runtime/test_arrays.py",
    "tests/runtime/test_async_queue.py",
    "tests/runtime/test_calls.py",
    "tests/runtime/test_network_api.py",
    "tests/runtime/test_options.py",
    "tests/tensorrt_api/test_control.py",
    "tests/tensorrt_api/test_network.py",
)

#: What the smoke tests import beside the wheel's own requirements.
PACKAGES = (
    "hypothesis>=6.100",
    "onnx>=1.17",
    "onnxruntime>=1.20",
    "pytest>=8.3",
    "pytest-timeout>=2.3",
    "rich>=13",
    "safetensors>=0.4",
    "xxhash>=3.4",
)

#: Seconds that installing or testing may take on one Python.
LIMIT = 1200

_ASK = """
import json, os, platform, sys, sysconfig
print(json.dumps([platform.python_implementation(), platform.python_version(),
                  bool(sysconfig.get_config_var("Py_GIL_DISABLED")), os.path.realpath(sys.executable)]))
"""


@dataclasses.dataclass(frozen=True)
class Python:
    """An interpreter that runs."""

    path: str
    implementation: str
    version: str
    free_threaded: bool
    real: str

    @property
    def minor(self) -> tuple[int, ...]:
        """Its major and minor version."""
        return tuple(map(int, self.version.split(".")[:2]))

    @property
    def refusal(self) -> str | None:
        """Why it is not tried."""
        if self.implementation != "CPython":
            return f"is {self.implementation}"
        return "is a free-threaded build, which Neurenix refuses" if self.free_threaded else None


@dataclasses.dataclass
class Row:
    """What came of one Python."""

    python: Python
    outcome: str
    passed: bool
    seconds: float


def candidates(named: Sequence[str]) -> Iterable[str]:
    """Paths that may be Pythons: those named, or else those in the usual places."""
    if named:
        yield from named
        return
    for place in PLACES:
        folder, pattern = Path(place).expanduser().anchor, str(Path(place).expanduser())[1:]
        for path in sorted(Path(folder).glob(pattern)):
            if re.fullmatch(r"python3\.\d+t?", path.name):
                yield str(path)


def ask(path: str) -> Python | None:
    """What a path is, if it runs."""
    try:
        done = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True)
        return Python(path, *json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def find(named: Sequence[str]) -> list[Python]:
    """Each Python from 3.10 on once, the oldest first."""
    found = {python.real: python for path in candidates(named) if (python := ask(path)) is not None}
    new = [python for python in found.values() if python.minor >= (3, 10)]
    return sorted(new, key=lambda python: (python.minor, python.version, python.path))


def build(folder: Path) -> Path:
    """The wheel of this checkout, which serves every Python (abi3)."""
    command = [sys.executable, "-m", "maturin", "build", "--out", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return next(folder.glob("*.whl"))


def attempt(python: Python, wheel: Path, folder: Path, arguments: Sequence[str]) -> Row:
    """Installs and tests on one Python."""
    start = time.monotonic()
    unwanted = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}"
    steps = (
        [python.path, "-m", "venv", str(folder)],
        [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel), *PACKAGES],
        [str(folder / "bin/python"), "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *SMOKE, *arguments],
    )
    outcome = ""
    for command in steps:
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return Row(python, f"took longer than {LIMIT} s: {' '.join(command[1:4])}", False, time.monotonic() - start)
        except OSError as error:
            return Row(python, str(error), False, time.monotonic() - start)
        outcome = next(reversed((done.stdout + done.stderr).splitlines()), "")
        if done.returncode != 0:
            print(done.stdout[-6000:], done.stderr[-3000:], sep="\n", flush=True)
            return Row(python, outcome or f"exit status {done.returncode}", False, time.monotonic() - start)
    return Row(python, outcome, True, time.monotonic() - start)


def table(rows: Sequence[Row], left: Sequence[Python]) -> str:
    """A line for each Python, and those that there are none of."""
    lines = [f"{'Python':<9} {'seconds':>7}  outcome"]
    lines += [f"{row.python.version:<9} {row.seconds:>7.0f}  {row.outcome}  ({row.python.path})" for row in rows]
    lines += [f"{python.version:<9} {'':>7}  not tried: {python.path} {python.refusal}" for python in left]
    tried = {".".join(map(str, row.python.minor)) for row in rows}
    lines += [f"{version:<9} {'':>7}  not tried: none was found" for version in WANTED if version not in tried]
    return "\n".join(lines)


def main() -> int:
    """Tries them all."""
    own = sys.argv[1:]
    own, passed_on = (own[: own.index("--")], own[own.index("--") + 1 :]) if "--" in own else (own, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="*", help="an interpreter; without any, all that are found")
    parser.add_argument("--wheel", type=Path, help="take this one and build none")
    parser.add_argument("--list", action="store_true", help="only say which Pythons there are")
    arguments = parser.parse_args(own)
    found = find(arguments.python)
    usable = [python for python in found if python.refusal is None]
    left = [python for python in found if python.refusal is not None]
    if arguments.list:
        print(table([Row(python, "found", True, 0) for python in usable], left))
        return 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="neurenix-pythons-") as temporary:
        wheel = arguments.wheel.resolve() if arguments.wheel else build(Path(temporary))
        for python in usable:
            print(f"== {python.version}, {python.path}", flush=True)
            rows.append(attempt(python, wheel, Path(temporary) / f"{len(rows)}-{python.version}", passed_on))
            print(rows[-1].outcome, flush=True)
    print(table(rows, left))
    return 0 if rows and all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
