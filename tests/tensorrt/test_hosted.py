"""Plugins inside of TensorRT: what wraps them, called as TensorRT calls it; and where they are cut out."""

from __future__ import annotations

import glob
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.hardware.tensorrt.plan import build_plan

ROOT = Path(__file__).parents[2]
STUB = """#pragma once
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
"""


def headers() -> list[str]:
    """The folders of TensorRT's headers that Cargo fetched."""
    home = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    return sorted(glob.glob(f"{home}/registry/src/*/trtx-sys-*/TensorRT-Headers/TRT-Enterprise-*"))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What `hosted.cc` prints."""
    found = headers()
    if not found:
        pytest.skip("Cargo fetched no headers of TensorRT")
    folder = tmp_path_factory.mktemp("hosted")
    (folder / "cuda_runtime_api.h").write_text(STUB)
    flags = [
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-DNEURENIX_FLAVOUR=tested",
        "-Dnvinfer1=nvinfer1_tested",
    ]
    flags += ["-I", str(ROOT / "cpp"), "-I", str(ROOT / "cpp/include"), "-isystem", found[-1], "-isystem", str(folder)]
    flags += ["-Wno-deprecated-declarations"]
    sources = [
        ROOT / "cpp/tensorrt/flavour/plugin.cc",
        *(ROOT / "tests/tensorrt" / n for n in ("hosted.cc", "halves_plugin.cc")),
    ]
    command = [os.environ.get("CXX", "c++"), *flags, *map(str, sources), "-o", str(folder / "hosted")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([folder / "hosted"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_build_is_told_what_the_plugin_says(said: list[str]) -> None:
    assert "name: NeurenixPlugin 1 neurenix" in said
    # float and int32.
    assert "outputs: 2 0 0 3" in said
    # TensorRT's own expressions: kCEIL_DIV is 8.
    assert "shapes: 0 [rows, op8(columns, 2)] [rows]" in said
    assert "with shape inputs: -1" in said
    # Every dtype is the one that the plugin takes at its place, and row-major.
    assert "supports: 111 001 110 000" in said
    # The most that any shape of the profile needs: here the least one.
    assert "workspace: 0 999" in said


def test_a_plan_keeps_the_plugin_and_damage_is_refused(said: list[str]) -> None:
    assert "kept: 1 plugin 0.5" in said
    assert said.count("damaged: 1") == 2


def test_it_runs_at_shapes_that_change_and_a_failure_is_a_status(said: list[str]) -> None:
    before = said.index("before: -1")
    assert said[before - 1] == "error: enqueue: the plugin was told no shapes"
    assert "run: 0 0 0 0.5 1.5 2 0 1" in said
    assert "error: enqueue: enqueue threw an exception: thirteen rows are too many" in said
    failed = next(line for line in said if line.startswith("run: 0 -1"))
    # The next call goes on.
    assert said.index("run: 0 0 0 0.5 0") > said.index(failed)


class Doubles(trt.IPluginV2):
    """A plugin in Python."""

    def get_output_shape(self, input_shapes: list[Any]) -> Any:
        return input_shapes[0]

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        np.multiply(inputs[0], 2, out=outputs[0])


@pytest.fixture
def model() -> Iterator[nx.Network]:
    """Layers before and behind two plugins: one of a user's, and EfficientNMS of ours, whose result is the model's."""
    trt.register_plugin("Doubles", Doubles)
    made = trt.Builder().create_network()
    boxes = made.add_input("boxes", trt.float32, ("n", 20, 4))
    scores = made.add_activation(made.add_input("scores", trt.float32, ("n", 20, 3)), trt.ActivationType.SIGMOID)
    doubled = made.add_plugin_v2([made.add_activation(boxes, trt.ActivationType.RELU)], "Doubles")
    doubled.name = "my plugin"
    behind = made.add_activation(doubled, trt.ActivationType.TANH)
    detected = made.add_plugin_v2([behind, scores], "EfficientNMS_TRT", max_output_boxes=5)
    detected.name = "detected"
    for index in range(4):
        made.mark_output(detected.get_output(index))
    yield made.to_network()
    assert trt.deregister_plugin("Doubles")


@pytest.mark.usefixtures("library")
def test_the_plan_of_rtx_is_built_around_plugins(model: nx.Network) -> None:
    shapes = {name: ((1, 20, width), (2, 20, width), (4, 20, width)) for name, width in (("boxes", 4), ("scores", 3))}
    plan = build_plan(model, shapes, targets=["8.6"], partial=True)
    refused = {layer: (reason, hint) for layer, reason, hint in plan.refusals}
    assert set(refused) == {"my plugin", "detected"}
    for layer, name in (("my plugin", "Doubles"), ("detected", "EfficientNMS_TRT")):
        reason, hint = refused[layer]
        assert reason.startswith(f"Plugin: plugin {name} version 1: TensorRT-RTX 1.7") and "no addPluginV3" in reason
        assert "beside TensorRT" in hint
    # What the plugin gives comes in, what it and the other one read goes out.
    assert len(plan.inputs) == 3 and len(plan.outputs) == 3
    with pytest.raises(nx.UnsupportedError, match="TensorRT does not take 2 of the layers"):
        build_plan(model, shapes, targets=["8.6"])
