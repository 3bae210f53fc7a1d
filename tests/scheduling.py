"""How pytest-xdist hands out files and hears of tests, in a time that does not grow with the square of their number."""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files go to workers as pytest-xdist has it, which counts all tests again whenever one is done."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        """Keeps what is still to be done, and where each test stands in the collection."""

        @cached_property
        def _places(self) -> dict[str, int]:
            return {nodeid: place for place, nodeid in enumerate(self.collection)}

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            nodeid = self.registered_collections[node][item_index]
            files = self.assigned_work[node]
            file = self._split_scope(nodeid)
            del files[file][nodeid]
            if not files[file]:
                del files[file]
            self._reschedule(node)

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            return sum(map(len, workload.values()))

        def _assign_work_unit(self, node: Any) -> None:
            file, tests = self.workqueue.popitem(last=False)
            self.assigned_work[node][file] = tests
            node.send_runtest_some([self._places[nodeid] for nodeid in tests])

    return Files(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Nobody asks for the keywords of what passed: they are half of what a worker would send of each test."""
    report = yield
    if report.passed and hasattr(item.config, "workerinput"):
        report.keywords = {}
    return report
