"""Every block of code in README.md and docs/ runs, page by page; what does not run is listed here with its reason."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from neurenix.hardware import get_backend
from tests.docs.blocks import PAGES, ROOT, blocks, name_of
from tests.docs.run_page import NOT_RUN, fits

#: What a block may be.
LANGUAGES = {"console", "cpp", "python", "text", "toml"}
#: For each page the reasons of its blocks that do not run.
MARKED = {
    "docs/cli.md": ["it needs a GPU that TensorRT supports"],
    "docs/first-hour.md": [
        "a line that programs print on a machine without a GPU",
        "the tests have these packages; tests/importers/test_missing_packages.py sees the message",
        "tests/errors/ sees the message",
    ],
    "docs/guides/backends.md": ["what it prints is that of a machine without a GPU"] * 2,
    "docs/plugins.md": ["the body of a method, which tests/plugins/ runs"],
    "docs/tensorrt.md": ["it needs a GPU that TensorRT supports"],
}
#: For each page the commands that change a machine, and the README's blocks without a language, which CI runs whole.
UNTRIED = {
    "README.md": [
        'pip install ".[demo]" && python examples/01_read_page.py',
        'pip install ".[test]" && pytest',
        "0.996  Region-basedsegmentation",
    ],
    "docs/first-hour.md": [
        "git clone URL neurenix && cd neurenix",
        "python3 -m venv .venv && . .venv/bin/activate",
        "pip install .",
        'pip install "neurenix[torch]"',
    ],
}
#: Pages whose output is that of a processor with bfloat16.
BFLOAT16 = {"docs/cli.md", "docs/guides/debugging-accuracy.md", "docs/guides/precision.md"}

pytest.importorskip("onnx")
RUN = [page for page in PAGES if any(block.language in ("python", "console") for block in blocks(page))]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    if name_of(page) in BFLOAT16 and "bf16" not in get_backend("cpu").get_device_info().precisions:
        pytest.skip("this processor has no bfloat16")
    environment = {**os.environ, "NEURENIX_CACHE_DIR": str(tmp_path / "cache"), "NEURENIX_PROVIDERS": "cpu,toy"}
    folder = tmp_path / "work"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", page, folder],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
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
