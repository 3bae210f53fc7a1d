"""The name that pip knows us by, what hints install, and another project's files in our folder."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import neurenix
from neurenix import installed, packages

ROOT = Path(__file__).parents[1]
PACKAGE = Path(neurenix.__file__).parent

#: What would install or look for the distribution that has our package's name in the registry.
ASKS = re.compile(
    r"neurenix\["
    r"|(?<!un)install\b[^\n]*?[\s\"'`]neurenix(?=[\"'`=<>~!;&]|\s*$)"
    r"|(?:version|distribution|files|requires|metadata)\([\"']neurenix[\"']",
    re.MULTILINE,
)
#: A command that installs what it names in quotes; in Rust they are escaped.
COMMAND = re.compile(r'pip install ((?:\\?"[^"{]+"\s?)+)')


def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib")
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def texts() -> Iterator[tuple[Path, str]]:
    """What may tell somebody to install something."""
    for folder in ("python/neurenix", "src", "docs", "examples", "benchmarks", "tests", "tools", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path != Path(__file__) and path.suffix in (".py", ".rs", ".md", ".sh", ".stderr", ""):
                yield path, path.read_text()
    for name in ("README.md", "CONTRIBUTING.md", "build.rs", "justfile", "pyproject.toml"):
        yield ROOT / name, (ROOT / name).read_text()


def test_one_name_stands_everywhere() -> None:
    found = project()
    assert found["name"] == installed.DISTRIBUTION == neurenix.__distribution__
    module, name = found["scripts"]["neurenix"].split(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize(
    "text", ['"neurenix[torch]"', "pip install neurenix", "`pip install 'neurenix'`", 'metadata.version("neurenix")']
)
def test_what_asks_for_the_registrys_neurenix_is_known(text: str) -> None:
    assert ASKS.search(text)


def test_nothing_asks_for_the_registrys_neurenix() -> None:
    assert not [f"{path}: {hit[0]}" for path, text in texts() for hit in ASKS.finditer(text)]


def test_what_is_installed_stands_in_the_extras() -> None:
    extras = {requirement for extra in project()["optional-dependencies"].values() for requirement in extra}
    # A marker says for which Pythons; what is shown to people has none.
    extras = {requirement.partition(";")[0].strip() for requirement in extras}
    assert set(packages.REQUIREMENTS.values()) <= extras
    shown = {
        (str(path), requirement)
        for path, text in texts()
        for command in COMMAND.findall(text)
        for requirement in re.findall(r'"([^"\\\s]+)', command)
        if not requirement.startswith(".")
    }
    assert len(shown) > 3
    assert not {(path, requirement) for path, requirement in shown if requirement not in extras}


FOREIGN = "examples/a.py,sha256=x,1\nneurenix/__init__.py,sha256=x,1\nneurenix/hardware/tensorrt.py,sha256=x,1\n"
OURS = "neurenix/__init__.py,sha256=x,1\n"
EDITABLE = "neurenix.pth,sha256=x,1\nneurenix-0.1.0.dist-info/RECORD,,\n"
HINT = "hint: pip uninstall neurenix neurenix-engine, and install neurenix-engine again"


def install(folder: Path, records: dict[str, str], init: str | None = None) -> None:
    """Puts our package into a folder, records of distributions beside it, and another `__init__.py` into it."""
    for name, record in records.items():
        (folder / name).mkdir()
        (folder / name / "RECORD").write_text(record)
    (folder / "neurenix").mkdir()
    # Where auditwheel puts what the native module needs.
    for libraries in PACKAGE.parent.glob("neurenix_engine.libs"):
        (folder / libraries.name).symlink_to(libraries)
    for path in PACKAGE.iterdir():
        if path.name != "__pycache__" and (init is None or path.name != "__init__.py"):
            (folder / "neurenix" / path.name).symlink_to(path)
    if init is not None:
        (folder / "neurenix" / "__init__.py").write_text(init)


def imported(folder: Path, module: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", f"import {module}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_files_of_the_other_project_under_ours_are_named(tmp_path: Path) -> None:
    install(tmp_path, {"neurenix-2.0.1.dist-info": FOREIGN, "neurenix_engine-0.1.0.dist-info": OURS})
    done = imported(tmp_path, "neurenix")
    assert done.returncode == 0, done.stderr
    assert f"neurenix 2.0.1 has files in {tmp_path / 'neurenix'}" in done.stderr and HINT in done.stderr


@pytest.mark.parametrize("module", ["neurenix.hardware.tensorrt", "neurenix.importers", "neurenix.installed"])
def test_files_of_the_other_project_over_ours_are_an_error(tmp_path: Path, module: str) -> None:
    records = {"neurenix-2.0.1.dist-info": FOREIGN, "neurenix_engine-0.1.0.dist-info": OURS}
    install(tmp_path, records, "__version__ = '2.0.1'\n")
    done = imported(tmp_path, module)
    assert done.returncode == 1
    assert "ImportError: another project's package is mixed with neurenix-engine: neurenix 2.0.1 has" in done.stderr
    assert HINT in done.stderr


def test_what_claims_no_files_of_ours_is_left_alone(tmp_path: Path) -> None:
    others = {"neurenix-0.1.0.dist-info": EDITABLE, "neurenix_other-1.dist-info": FOREIGN}
    install(tmp_path, {**others, "neurenix_engine-0.1.0.dist-info": OURS})
    (tmp_path / "neurenix-9.dist-info").mkdir()
    done = imported(tmp_path, "neurenix")
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(installed.others(str(tmp_path / "nowhere")))
