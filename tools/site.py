"""What mkdocs.yml can't say: pages and files outside docs/ that pages link to are part of the site too."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Relative to the root of the repository, where GitHub and PyPI look for them.
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
#: Linked to as files.
FILES = ("examples/*.py", "benchmarks/results/*.json")

#: What a browser loads by itself, from a host.
_FOREIGN = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what lies outside docs/."""
    outside = [*PAGES, *(str(path.relative_to(ROOT)) for pattern in FILES for path in ROOT.glob(pattern))]
    for name in outside:
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links that hold in the repository into those of the site, where docs/ and the root are one folder."""
    source = Path(page.file.abs_src_path or "").parent

    def turned(link: re.Match[str]) -> str:
        text, (path, hash_, anchor) = link[1], link[2].partition("#")
        target = (source / path).resolve()
        if target.is_dir():
            return text
        for folder in (ROOT / "docs", ROOT):
            if target.is_relative_to(folder):
                up = "../" * page.file.src_uri.count("/")
                return f"[{text}]({up}{target.relative_to(folder)}{hash_}{anchor})"
        return link[0]

    return _LINK.sub(turned, markdown)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Ends the build where a page would load something from another host."""
    if found := _FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another host: {found[0]}")
    return output
