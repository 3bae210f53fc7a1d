"""The C API from C99 and C++17, without Python in the process: results, misuse, threads, memory, cancelling, CMake."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from neurenix import _native, cpp
from neurenix.errors import UnsupportedError
from neurenix.hardware import get_backend
from tests import native
from tests.capi import models

ROOT = Path(__file__).parents[2]
HEADER = (ROOT / "cpp/include/neurenix/neurenix.h").read_text()
RNG = np.random.default_rng()


def call(probe: Path, *arguments: object, timeout: int = 120) -> str:
    """What the program prints; fails with what went wrong in it."""
    command = [str(probe), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr or done.returncode
    return done.stdout


def outputs(probe: Path, engine: Path, inputs: list[Any], folder: Path, bound: bool) -> list[np.ndarray[Any, Any]]:
    """What an engine gives for these inputs."""
    for at, array in enumerate(inputs):
        (folder / f"input.{at}").write_bytes(array.tobytes())
    shapes = ["x".join(map(str, array.shape)) for array in inputs]
    printed = call(probe, "run", engine, folder, int(bound), *shapes)
    found = []
    for at, line in enumerate(printed.splitlines()):
        dtype, *shape = line.split()
        data = (folder / f"output.{at}").read_bytes()
        found.append(np.frombuffer(data, dtype).reshape([int(extent) for extent in shape]))
    return found


def mixture_inputs() -> list[Any]:
    return [
        RNG.integers(0, 10, 7),
        RNG.integers(0, 2, (7, 1)).astype(bool),
        np.asarray(RNG.standard_normal(), np.float32),
    ]


CASES: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[[], list[Any]], float]] = {
    "one row": (models.perceptron, lambda: [RNG.standard_normal((1, 16)).astype(np.float32)], 1e-5),
    "rows": (models.perceptron, lambda: [RNG.standard_normal((13, 16)).astype(np.float32)], 1e-5),
    "fp16": (lambda: models.perceptron(models.HALF), lambda: [RNG.standard_normal((5, 16)).astype(np.float16)], 1e-2),
    "dtypes": (models.mixture, mixture_inputs, 1e-6),
    "sizes of data": (models.of_data, lambda: [RNG.standard_normal(33).astype(np.float32)], 1e-6),
    "no rows of data": (models.of_data, lambda: [-np.ones(4, np.float32)], 1e-6),
}


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_the_reference(case: str, bound: bool, probe: Path, tmp_path: Path) -> None:
    build, draw, tolerance = CASES[case]
    model, inputs = build(), draw()
    names = [port.name for port in model.graph.input]
    engine = tmp_path / "model.engine"
    get_backend("cpu").optimize_model(model, {n: x.shape for n, x in zip(names, inputs, strict=True)}).save(engine)
    wanted = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    got = outputs(probe, engine, inputs, tmp_path, bound)
    assert len(got) == len(wanted)
    for ours, reference in zip(got, wanted, strict=True):
        assert (ours.dtype, ours.shape) == (reference.dtype, reference.shape)
        np.testing.assert_allclose(ours.astype(np.float64), np.float64(reference), rtol=tolerance, atol=tolerance)


def test_as_c_plus_plus_it_compiles_and_runs(
    compile_probe: Callable[[str, list[str]], Path], toy: Path, tmp_path: Path
) -> None:
    probe = compile_probe(os.environ.get("CXX", "c++"), ["-x", "c++", "-std=c++17"])
    x = RNG.standard_normal((3, 16)).astype(np.float32)
    wanted = ReferenceEvaluator(models.perceptron()).run(None, {"x": x})
    np.testing.assert_allclose(outputs(probe, toy, [x], tmp_path, True)[0], wanted[0], rtol=1e-5, atol=1e-5)


def test_an_engine_is_described(probe: Path, toy: Path) -> None:
    described = call(probe, "describe", toy).splitlines()
    assert described == ["toy fp32 1", "x float32 batch 16", "y float32 batch 4", "1 8 16 "]


def test_numbers_of_the_header_are_those_of_the_library(probe: Path) -> None:
    version, *dtypes, statuses = call(probe, "names").strip().splitlines()
    assert version == _native.__version__
    for line in dtypes:
        number, name, size = line.split()
        assert re.search(rf"NRX_{name.upper()} = {number}\b", HEADER)
        assert int(size) == (1 if re.search(r"float[48]_|u?int[248]$|bool", name) else np.dtype(_wide(name)).itemsize)
    assert len(dtypes) == len(re.findall(r"NRX_\w+ = \d+", HEADER.partition("nrx_dtype;")[2].partition("};")[0]))
    for number, name in enumerate(statuses.split()):
        assert re.search(rf"{name} = {number}\b", HEADER)


def _wide(name: str) -> str:
    return "float16" if name == "bfloat16" else name


@pytest.mark.parametrize("what", ["misuse", "damaged", "threads", "leaks", "outside"])
def test_what_the_program_checks_itself(what: str, probe: Path, toy: Path) -> None:
    call(probe, what, toy)


def test_a_call_is_cancelled_from_another_thread(probe: Path, tmp_path: Path) -> None:
    engine = tmp_path / "long.engine"
    get_backend("cpu").optimize_model(models.long_one(), optimization_level=0, verify=False).save(engine)
    assert "cancelled after" in call(probe, "cancel", engine)


def test_the_library_has_the_functions_of_the_header_and_nothing_of_python(package: Path) -> None:
    def symbols(kind: str) -> set[str]:
        command = ["nm", "-D", f"--{kind}-only", str(package / "_lib" / native.NAME)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return {line.split()[-1].partition("@")[0] for line in lines}

    declared = set(re.findall(r"\b(nrx_\w+)\(", HEADER))
    assert declared == {name for name in symbols("defined") if name.startswith("nrx_")}
    assert not [name for name in symbols("undefined") if name.startswith(("Py", "_Py"))]


def test_the_package_says_where_things_are() -> None:
    assert (Path(cpp.include_dir()) / "neurenix" / "neurenix.h").is_file()
    try:
        found = cpp.library()
    except UnsupportedError as error:
        assert "just capi" in str(error)
    else:
        assert Path(found).is_file() and (Path(cpp.cmake_dir()) / "neurenixConfig.cmake").is_file()


PROGRAM = """
#include <neurenix/neurenix.h>
#include <stdio.h>
#include <stdlib.h>
static void fail(const char* text) { fprintf(stderr, "%s", text); exit(1); }
int main(void) {
    static float x[3 * 16], y[3 * 4];
    BLOCK
    return y[0] == y[4] ? 0 : 2;
}
"""


def test_the_call_of_the_page_compiles_and_runs(package: Path, toy: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/c-api.md").read_text()
    block = re.search(r"```cpp\n(.*?)```", page, re.DOTALL)
    assert block is not None
    (tmp_path / "page.c").write_text(PROGRAM.replace("BLOCK", block[1]))
    (tmp_path / "model.engine").write_bytes(toy.read_bytes())
    libraries = [f"-L{package / '_lib'}", f"-l:{native.NAME}", f"-Wl,-rpath,{package / '_lib'}"]
    command = [os.environ.get("CC", "cc"), "-std=c99", f"-I{package / '_include'}", "page.c", "-o", "page", *libraries]
    for step in (command, ["./page"]):
        done = subprocess.run(step, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_example_is_built_by_cmake_and_runs(package: Path, toy: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    for command in (
        ["cmake", "-S", ROOT / "examples/cpp", "-B", build, "-G", "Ninja", f"-Dneurenix_DIR={package / 'cmake'}"],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0 and "warning" not in done.stdout, done.stdout + done.stderr
    printed = call(build / "run_engine", toy)
    assert re.search(r"x: float32 \(batch, 16\)", printed) and re.search(r"y: .*\(8, 4\)", printed)
    done = subprocess.run([build / "run_engine", "/nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "can't be opened" in done.stderr
