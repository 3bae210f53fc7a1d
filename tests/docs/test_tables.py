"""docs/cuda-results.md says what benchmarks/results say."""

from __future__ import annotations

from benchmarks import tables


def test_the_tables_are_those_of_the_results() -> None:
    assert tables.PAGE.read_text() == tables.page()
