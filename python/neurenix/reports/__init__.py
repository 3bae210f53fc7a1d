"""Reports as files: a page to look at in any browser, or JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from neurenix import files as whole
from neurenix.errors import InvalidArgumentError

__all__ = ["page", "save"]


def save(report: Mapping[str, Any], path: str | os.PathLike[str], title: str = "") -> None:
    """Writes a report to a file: .html is a page, .json the report itself.

    Raises `InvalidArgumentError` for another ending, and `FileError` when the file can't be written.
    """
    target = Path(path)
    if target.suffix in (".html", ".htm"):
        text = page(report, title)
    elif target.suffix == ".json":
        text = json.dumps(report, indent=2) + "\n"
    else:
        raise InvalidArgumentError("a report is a page or JSON", expected="a path that ends with .html or .json",
                                   got=target.name)  # fmt: skip
    whole.write(target, text, "the report")


def page(report: Mapping[str, Any], title: str = "") -> str:
    """A report as one page, with everything in it: it loads nothing, and sends nothing."""
    before = report["graph"]["before"]
    name = title or (before or (report["graph"]["after"] or [{"name": ""}])[0])["name"] or "engine"
    # "<" could end the script that holds the data.
    data = json.dumps(report, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "title": escape(name),
        "style": _part("page.css"),
        "script": "".join(_part(script) for script in SCRIPTS),
        "data": data,
    }
    # Once through, so that what a part says is never taken for the place of another one.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("page.html"))


#: The parts of the page's program, in order.
SCRIPTS = ("layout.js", "graph.js", "charts.js", "page.js")


def _part(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
