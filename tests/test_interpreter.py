"""The kinds of Python that are refused at import, by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neurenix import interpreter

#: Imports the package in a new interpreter of this process, once before and once after the main one did.
INNER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
inner = f'''
import sys
sys.path[:] = {sys.path!r}
try:
    import neurenix
    print("loaded", flush=True)
except ImportError as error:
    print(str(error).splitlines()[0], flush=True)
'''
run(interpreters.create(), inner)
import neurenix
run(interpreters.create(), inner)
"""


def test_this_python_is_taken() -> None:
    assert interpreter.refusal() is None


def test_free_threaded_builds_are_refused() -> None:
    code = "import sys; sys.abiflags = 't'; import neurenix"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 1
    assert f"ImportError: Neurenix does not run on a free-threaded build of Python ({version}t)" in done.stderr
    assert done.stderr.splitlines()[-1] == f"  hint: use the usual build, python{version}"


def test_subinterpreters_are_refused() -> None:
    done = subprocess.run([sys.executable, "-c", INNER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = "Neurenix does not run in a subinterpreter: its native module and numpy keep one state per process"
    assert done.stdout.splitlines() == [told] * 2


def test_without_a_module_for_interpreters_the_main_one_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_interpreters", "_xxsubinterpreters"):
        monkeypatch.setitem(sys.modules, name, None)
    assert interpreter.refusal() is None
