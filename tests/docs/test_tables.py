"""Pages with tables say what benchmarks/results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import tables


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.stem)
def test_the_tables_are_those_of_the_results(path: Path) -> None:
    assert path.read_text() == tables.page(path)
