"""The blocks of code in a page of Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_MARK = re.compile(r"<!-- not run: (.+?) -->\s*", re.DOTALL)


class Block(NamedTuple):
    """One block: its first line in the page, its language ("" where none is said), its text.

    `reason` is what a comment before it, `<!-- not run: ... -->`, says.
    """

    line: int
    language: str
    text: str
    reason: str | None

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, where its first line is a comment that names one."""
        found = re.match(r"(?:#|//) (\w+\.\w+)$", self.text.partition("\n")[0])
        return found[1] if found else None

    def commands(self) -> list[tuple[str, str]]:
        """The commands of a console block, each with the output that follows it there."""
        _, *parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    found = []
    reason = None
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            found.append(Block(token.map[0] + 1, token.info, token.content, reason))
        mark = _MARK.fullmatch(token.content) if token.type == "html_block" else None
        reason = mark[1] if mark else None
    return found


def name_of(page: Path) -> str:
    """What a page is called in tests."""
    return str(page.relative_to(ROOT))
