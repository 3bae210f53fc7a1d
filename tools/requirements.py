"""Prints what pyproject.toml requires, a line each, as `pip install -r` reads it.

python tools/requirements.py extra NAME      the package's dependencies and those of an extra, without the package
python tools/requirements.py build NAME...   the build system's, and of the extra `test-all` those of these names
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]


def name_of(requirement: str) -> str:
    """A requirement without its extras, versions and markers."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def expanded(project: dict[str, Any], extra: str) -> list[str]:
    """What an extra requires; the package's own extras in it are written out."""
    requirements = []
    for one in project["optional-dependencies"][extra]:
        if name_of(one) == project["name"]:
            for inner in one.partition("[")[2].rstrip("]").split(","):
                requirements += expanded(project, inner)
        else:
            requirements.append(one)
    return requirements


def main() -> int:
    parser = argparse.ArgumentParser(description="Prints what pyproject.toml requires.")
    parser.add_argument("what", choices=("extra", "build"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = table["project"]
    if options.what == "extra":
        found = [*project["dependencies"], *(one for name in options.names for one in expanded(project, name))]
    else:
        every = {name_of(one): one for one in expanded(project, "test-all")}
        found = [*table["build-system"]["requires"], *(every[name] for name in options.names)]
    print("\n".join(sorted(set(found))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
