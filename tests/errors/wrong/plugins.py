"""Plugins that are not there, or do not work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import neurenix.hardware.tensorrt as trt
from tests.errors.wrong.common import case, optimised


class WrongShape(trt.IPluginV2):
    def get_output_shape(self, input_shapes: Any) -> Any:
        return "abc"

    def execute(self, inputs: Any, outputs: Any, stream: Any) -> None:
        outputs[0][...] = inputs[0]


class NeverRuns(trt.IPluginV2):
    def get_output_shape(self, input_shapes: Any) -> Any:
        return input_shapes[0]


class Divides(NeverRuns):
    def execute(self, inputs: Any, outputs: Any, stream: Any) -> None:
        outputs[0][...] = 1 // 0


class WritesNothing(NeverRuns):
    def execute(self, inputs: Any, outputs: Any, stream: Any) -> None:
        outputs = [inputs[0] * 2]  # noqa: F841


def _built(name: str, cls: type | None) -> Any:
    builder = trt.Builder()
    made = builder.create_network()
    if cls is not None:
        trt.register_plugin(name, cls, version="of messages")
    made.mark_output(made.add_plugin_v2([made.add_input("x", trt.float32, (2,))], name, plugin_version="of messages"))
    return builder.build_engine(made, builder.create_builder_config())


@case
def plugin_that_fails(folder: Path) -> None:
    _built("Divides", Divides).create_execution_context().execute(np.ones(2, np.float32))


@case
def plugin_that_writes_nothing(folder: Path) -> None:
    _built("WritesNothing", WritesNothing).create_execution_context().execute(np.ones(2, np.float32))


@case
def plugin_of_a_wrong_shape(folder: Path) -> None:
    _built("WrongShape", WrongShape)


@case
def plugin_that_never_runs(folder: Path) -> None:
    _built("NeverRuns", NeverRuns)


@case
def plugin_that_is_no_class(folder: Path) -> None:
    given: Any = 3
    trt.register_plugin("Three", given)


@case
def plugin_registered_twice(folder: Path) -> None:
    for cls in (Divides, NeverRuns):
        trt.register_plugin("Twice", cls, version="of messages")


@case
def plugin_module_that_is_missing(folder: Path) -> None:
    optimised(plugins="no_such_module")


@case
def plugin_library_that_is_missing(folder: Path) -> None:
    trt.load_plugin_library(str(folder / "lib.so"))


@case
def plugin_library_that_is_none(folder: Path) -> None:
    (folder / "lib.so").write_text("text")
    trt.load_plugin_library(str(folder / "lib.so"))
