"""Plugins of the tests are registered for each test, and gone behind it."""

from collections.abc import Iterator

import pytest

import neurenix.hardware.tensorrt as trt
from tests.plugins import classes


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The classes of `classes.py`, under their own names."""
    registry = trt.get_plugin_registry()
    before = set(registry.all_creators)
    for cls in (classes.MyLayer, classes.Halves, classes.Broken, classes.Unwritten, classes.Scratch):
        trt.register_plugin(cls.__name__, cls)
    yield
    for creator in set(registry.all_creators) - before:
        assert registry.deregister_creator(creator)
