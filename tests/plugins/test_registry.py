"""The registry in the shape of TensorRT's: creators of Python and of C++ alike."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix.hardware.tensorrt as trt
from tests.plugins.classes import built
from tests.plugins.test_libraries import compile_library

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with one plugin, Copy."""
    return compile_library(ROOT / "tests/plugins/copy_plugin.cc", tmp_path_factory.mktemp("copy") / "libcopy.so")


@pytest.fixture
def handle(path: Path) -> Iterator[trt.PluginLibraryHandle]:
    """The same, loaded by the registry."""
    registry = trt.get_plugin_registry()
    handle = registry.load_library(str(path))
    assert handle is not None
    yield handle
    registry.deregister_library(handle)


def test_a_library_is_loaded_and_taken_out(path: Path) -> None:
    registry = trt.get_plugin_registry()
    assert registry.get_creator("Copy", "1", "") is None
    handle = registry.load_library(path)
    assert handle is not None and handle.path == str(path) and handle.plugins == [("Copy", "1", "")]
    assert registry.get_creator("Copy", "1", "") is not None
    registry.deregister_library(handle)
    assert registry.get_creator("Copy", "1", "") is None
    # What is open stays open: it is only registered again.
    assert registry.load_library(path) == handle
    registry.deregister_library(handle)


def test_creators_of_libraries_stand_beside_those_of_python(handle: trt.PluginLibraryHandle) -> None:
    registry = trt.get_plugin_registry()
    creator = registry.get_creator("Copy", "1")
    assert (creator.name, creator.plugin_version, creator.plugin_namespace) == ("Copy", "1", "")
    assert [(field.name, field.type) for field in creator.field_names] == [("capturable", trt.PluginFieldType.INT32)]
    for found in (registry.all_creators, registry.all_creators_recursive, registry.plugin_creator_list):
        assert creator in found and {"MyLayer", "EfficientNMS_TRT"} <= {one.name for one in found}
    assert registry.deregister_creator(creator) and not registry.deregister_creator(creator)
    assert registry.get_plugin_creator("Copy", "1", "") is None


def test_a_creator_of_a_library_makes_plugins(handle: trt.PluginLibraryHandle) -> None:
    creator = trt.get_plugin_registry().get_creator("Copy", "1", "")
    field = trt.PluginField("capturable", np.array([1], np.int32), trt.PluginFieldType.INT32)
    for plugin in (
        creator.create_plugin("mine", trt.PluginFieldCollection([field])),
        creator.create_plugin("mine", trt.PluginFieldCollection([field]), trt.TensorRTPhase.BUILD),
        creator.deserialize_plugin("mine", b"\x01"),
    ):
        network = trt.Builder().create_network()
        layer = network.add_plugin_v2([network.add_input("x", trt.float32, ("n", 4))], plugin)
        network.mark_output(layer)
        np.testing.assert_array_equal(built(network).create_execution_context().execute(X), X)


class Recorder:
    """What TensorRT calls an error recorder."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, str]] = []

    def report_error(self, code: Any, text: str) -> bool:
        self.told.append((code, text))
        return True


def test_failures_are_told_and_give_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry, recorder = trt.get_plugin_registry(), Recorder()
    (tmp_path / "no.so").write_text("no library")
    assert registry.parent_search_enabled is True and registry.error_recorder is None
    registry.error_recorder = recorder
    try:
        with caplog.at_level(logging.ERROR, "neurenix"):
            assert registry.load_library(tmp_path / "no.so") is None
            assert registry.load_library(tmp_path / "none.so") is None
            assert registry.register_creator(object()) is False
    finally:
        registry.error_recorder = None
    assert [code for code, _ in recorder.told] == [trt.ErrorCodeTRT.INVALID_ARGUMENT] * 3
    assert "no.so" in recorder.told[0][1] and "this is no creator of plugins" in recorder.told[2][1]
    assert len(caplog.records) == 3


class Resource:
    """Counts what is done to it."""

    clones = released = 0

    def clone(self) -> Resource:
        Resource.clones += 1
        return Resource()

    def release(self) -> None:
        Resource.released += 1


def test_resources_are_shared_until_the_last_gives_them_back() -> None:
    registry, mine = trt.get_plugin_registry(), Resource()
    first, second = (registry.acquire_plugin_resource("tests", mine) for _ in range(2))
    assert first is second and first is not mine and Resource.clones == 1
    assert registry.release_plugin_resource("tests") == 0 and Resource.released == 0
    assert registry.release_plugin_resource("tests") == 0 and Resource.released == 1
    assert registry.release_plugin_resource("tests") == -1


def test_nvidias_own_start_is_answered() -> None:
    assert trt.init_libnvinfer_plugins(trt.Logger(), "") is True
