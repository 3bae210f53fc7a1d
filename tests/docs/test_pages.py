"""Every block of code in README.md and docs/ runs, page by page; what does not run is listed here with its reason."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from neurenix.hardware import get_backend
from tests import two_at_once
from tests.docs.blocks import PAGES, ROOT, blocks, name_of
from tests.docs.run_page import NOT_RUN, fits
from tests.machine import HAS_INT8

#: What a block may be.
LANGUAGES = {"cmake", "console", "cpp", "python", "rust", "text", "toml"}
#: For each page the reasons of its blocks that do not run.
MARKED = {
    "docs/c-api.md": ["tests/capi/ does, on the example"],
    "docs/cli.md": ["it needs a GPU that TensorRT supports"],
    "docs/first-hour.md": [
        "the tests have these packages; tests/importers/test_missing_packages.py sees the message",
        "tests/errors/ sees the message",
    ],
    "docs/guides/backends.md": ["what it prints is that of a machine without a GPU"] * 2,
    "docs/guides/serving-clusters.md": ["it needs a cluster"] * 4,
    "docs/guides/serving-envoy.md": ["tests/serve/test_envoy.py does", "it needs a server", "it needs Envoy"],
    "docs/guides/serving.md": ["it serves until it is ended", "it is a list of files", "it needs a server"],
    "docs/plugins.md": ["the body of a method, which tests/plugins/ runs"],
    "docs/tensorrt.md": ["it needs a GPU that TensorRT supports"],
    "docs/triton.md": ["tests/triton/ does"],
}
#: For each page the commands that change a machine, and the README's blocks without a language, which CI runs whole.
UNTRIED = {
    "README.md": [
        'pip install ".[demo]" && python examples/01_find_faces.py',
        'pip install ".[test]" && pytest -n 2 --dist loadfile',
        "0.929  a face from (182, 58) to (270, 178)",
    ],
    "docs/guides/serving.md": [
        'pip install "grpcio>=1.60" "httptools>=0.6" "protobuf>=5.26" "uvicorn>=0.30" "uvloop>=0.19"',
    ],
    "docs/first-hour.md": [
        "git clone URL neurenix && cd neurenix",
        "python3 -m venv .venv && . .venv/bin/activate",
        "pip install .",
        'pip install "onnx>=1.17" "onnxscript>=0.3"',
    ],
}
#: Pages whose output is that of a processor with bfloat16, which run there alone.
BFLOAT16 = {"docs/cli.md", "docs/guides/debugging-accuracy.md", "docs/guides/precision.md"}
#: Those of a processor with products of 8 bits.
INT8 = {"docs/first-hour.md"}

#: Packages that pages want and a test environment may lack.
WANTED = {
    "docs/first-hour.md": ("torch", "onnxscript"),
    "docs/guides/from-jax.md": ("jax", "jax2onnx"),
    "docs/guides/from-pytorch.md": ("torch", "onnxscript"),
    "docs/guides/from-tensorflow.md": ("tensorflow", "keras", "tf2onnx"),
    "docs/guides/inference.md": ("zarr",),
    "docs/guides/serving.md": ("uvicorn", "httptools", "uvloop", "grpc", "google.protobuf"),
    "docs/guides/torch-compile.md": ("torch", "onnxscript"),
    "docs/guides/torch-tensorrt.md": ("torch", "onnxscript", "transformers"),
}

pytest.importorskip("onnx")
RUN = [page for page in PAGES if any(block.language in ("python", "console") for block in blocks(page))]
Finished = Callable[[Path], "subprocess.CompletedProcess[str] | str"]


def why_not(page: Path) -> str | None:
    """Why a page can't run here, if so."""
    if name_of(page) in BFLOAT16 and "bf16" not in get_backend("cpu").get_device_info().precisions:
        return "this processor has no bfloat16"
    if name_of(page) in INT8 and not HAS_INT8:
        return "this processor has no VNNI"
    missing = [package for package in WANTED.get(name_of(page), ()) if find_spec(package) is None]
    return f"needs the package {missing[0]}" if missing else None


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NEURENIX_CACHE_DIR": str(folder / "cache"), "NEURENIX_PROVIDERS": "cpu,toy"}
    (folder / "work").mkdir()
    return subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", page, folder / "work"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def finished(request: pytest.FixtureRequest) -> Iterator[Finished]:
    """What a page did, or why it can't run here."""
    with two_at_once.started(request, "page", lambda page, folder: why_not(page) or run(page, folder)) as finished:
        yield finished


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, finished: Finished) -> None:
    done = finished(page)
    if isinstance(done, str):
        pytest.skip(done)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_does_not_run_is_known(page: Path) -> None:
    found = blocks(page)
    assert [block.reason for block in found if block.reason] == MARKED.get(name_of(page), [])
    untagged = [block.text.partition("\n")[0] for block in found if not block.language]
    commands = [command for block in found if block.language == "console" for command, _ in block.commands()]
    left = [command for command in commands if shlex.split(command)[0] in NOT_RUN]
    assert untagged + left == UNTRIED.get(name_of(page), [])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_say_what_they_are(page: Path) -> None:
    kinds = LANGUAGES | {""} if page.name == "README.md" else LANGUAGES
    assert {block.language for block in blocks(page)} <= kinds


def test_outputs_fit_but_for_numbers() -> None:
    assert fits("took 1.25 ms, 3e-07\n", "took 0.5  ms, 1.5e-06")
    assert fits("a\n...\nz", "a\nb\nc\nz")
    assert not fits("3 layers", "4 layers")
    assert not fits("float32[1, 10]", "float32[1, 11]")
