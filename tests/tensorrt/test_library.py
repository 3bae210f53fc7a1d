"""Where the library is looked for, and that one of another version is never touched. The libraries here are doubles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neurenix import _native
from neurenix.packages import install

DOUBLE = Path(__file__).with_name("double.c")
#: As getInferLibVersion gives it.
FITS = 110400

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Builds a double of a version, under a name."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to build the doubles with")

    def build(version: int, name: str = "libnvinfer.so.11", folder: str = "lib") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["cc", "-shared", "-fPIC", f"-DVERSION={version}", f"-Wl,-soname,{name}", "-o", path, DOUBLE]
        subprocess.run(command, check=True)
        return path

    return build


def ask(code: str, **environment: str) -> Any:
    """What `found` is after the code ran in a process of its own: a library stays open once it was found."""
    inherited = {key: value for key, value in os.environ.items() if key != "NEURENIX_TENSORRT_LIB"}
    inherited["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    script = f"from neurenix import _native\nimport json\n{code}\nprint(json.dumps(found))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=inherited | environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SEARCH = "found = _native.tensorrt_library()"
#: The packages that CI brings would be found first.
ALONE = "_native.look_in([])\n"


def test_this_build_has_headers_of_both_families() -> None:
    headers = _native.tensorrt_library()[2]
    assert {name.partition("_")[0] for name in headers} == {"enterprise", "rtx"}


@pytest.mark.parametrize("version", [8601, 100900, 110300, 120000, 10300, 20000])
def test_a_library_of_another_version_is_refused_and_not_touched(make: Make, version: int) -> None:
    path = make(version)
    library, tried, headers = ask(SEARCH, NEURENIX_TENSORRT_LIB=str(path))
    assert library is None
    ((place, reason),) = tried
    assert place == str(path)
    assert f"version {version}" in reason and ", ".join(headers) in reason and "TENSORRT_ROOT" in reason


def test_the_variable_names_a_file_or_its_folder_and_nothing_else_is_looked_at(make: Make, tmp_path: Path) -> None:
    path = make(FITS)
    for named in (path, path.parent):
        library, tried, _ = ask(SEARCH, NEURENIX_TENSORRT_LIB=str(named))
        assert library == [str(path), "11.4.0", "enterprise_11_4"] and tried == []
    library, tried, _ = ask(SEARCH, NEURENIX_TENSORRT_LIB=str(tmp_path / "none.so"))
    assert library is None and [place for place, _ in tried] == [str(tmp_path / "none.so")]


def test_what_is_open_comes_before_packages_and_those_before_the_system(make: Make) -> None:
    packaged = make(FITS, folder="site/tensorrt_libs")
    opened = make(FITS + 1, folder="open")
    of_system = make(FITS + 2, folder="system")
    look = f"_native.look_in([{str(packaged.parent.parent)!r}])\n"
    system = {"LD_LIBRARY_PATH": str(of_system.parent)}
    load = f"import ctypes; ctypes.CDLL({str(opened)!r})\n"
    assert ask(load + look + SEARCH, **system)[0][1] == "11.4.1"
    assert ask(look + SEARCH, **system)[0][:2] == [str(packaged), "11.4.0"]
    assert ask(ALONE + SEARCH, **system)[0][1] == "11.4.2"


def test_a_package_of_another_version_is_passed_over(make: Make) -> None:
    old = make(100900, "libnvinfer.so.10", "site/tensorrt_libs")
    new = make(FITS, folder="site/nvidia/tensorrt/lib")
    library, tried, _ = ask(f"_native.look_in([{str(old.parent.parent)!r}])\n" + SEARCH)
    assert library[0] == str(new)
    assert any(place == str(old) and "version 100900" in reason for place, reason in tried)


def test_every_place_stands_in_the_error_and_in_info(make: Make, tmp_path: Path) -> None:
    path = make(8601)
    code = (
        "import neurenix\nfrom neurenix.hardware.tensorrt.plan import build_plan\n"
        "network = neurenix.Network()\nx = network.add_input('x', 'float32', [4])\n"
        "network.mark_output(network.add_layer('Relu', [x])[0], 'y')\n"
        "try:\n    build_plan(network)\n    found = None\n"
        "except neurenix.errors.DeviceError as error:\n    found = [error.message, error.got, error.hint]"
    )
    message, got, hint = ask(code, NEURENIX_TENSORRT_LIB=str(path))
    assert "TensorRT" in message and str(path) in got and "8601" in got
    assert install("tensorrt") in hint and install("tensorrt_rtx") in hint
    info = "from neurenix.cli.info import collect; found = collect()['tensorrt']"
    told = ask(info, NEURENIX_TENSORRT_LIB=str(path))
    assert told["library"] is None and told["tried"][0]["place"] == str(path)


def test_a_library_that_gives_no_builder_is_an_error(make: Make) -> None:
    code = (
        "import neurenix\nfrom neurenix.hardware.tensorrt.plan import build_plan\n"
        "network = neurenix.Network()\nx = network.add_input('x', 'float32', [4])\n"
        "network.mark_output(network.add_layer('Relu', [x])[0], 'y')\n"
        "try:\n    build_plan(network)\n    found = None\n"
        "except neurenix.errors.Error as error:\n    found = error.message"
    )
    told = ask(code, NEURENIX_TENSORRT_LIB=str(make(FITS)), NEURENIX_TEST_DOUBLE_GIVES_NULL="1")
    assert told == "the library gives no builder"
