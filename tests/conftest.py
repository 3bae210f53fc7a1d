"""What all tests share."""

import gc
import logging
import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.exclusive import pytest_configure_node, pytest_runtest_protocol, pytest_unconfigure
from tests.exporter import pytest_runtest_setup
from tests.scheduling import pytest_runtest_makereport, pytest_xdist_make_scheduler

__all__ = [
    "own_cache", "pytest_configure_node", "pytest_runtest_logfinish", "pytest_runtest_makereport",
    "pytest_runtest_protocol", "pytest_runtest_setup", "pytest_unconfigure", "pytest_xdist_make_scheduler",
]  # fmt: skip

LOG = logging.getLogger("neurenix")
LEVEL, BELOW = LOG.level, logging.root.manager.disable


def pytest_configure(config: pytest.Config) -> None:
    """A process of tests that ends ends the run: behind it pytest-xdist may wait for what will never come."""
    if hasattr(config.option, "maxworkerrestart"):
        config.option.maxworkerrestart = config.option.maxworkerrestart or "0"


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage, which took 4 % of the time, need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def own_cache() -> Iterator[None]:
    """Nothing is read from the user's cache directory, and nothing is left there."""
    with tempfile.TemporaryDirectory(prefix="neurenix-tests-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURENIX_CACHE_DIR", os.path.join(folder, "cache"))
        yield


def pytest_runtest_logfinish() -> None:
    """What is logged is set by programs that tests run in this process, and by no test for those behind it."""
    if LOG.level != LEVEL:
        LOG.setLevel(LEVEL)
    if logging.root.manager.disable != BELOW:
        logging.disable(BELOW)
