"""What is no model, and models that can't be imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.errors.wrong.common import backend, case
from tests.optional import torch

onnx = pytest.importorskip("onnx")


def _model(body: str, opset: int = 21) -> Any:
    head = f'<ir_version: 8, opset_import: ["" : {opset}]> m (float[2,3] x) => (float[] y)'
    return onnx.parser.parse_model(f"{head} {{ {body} }}")


def _with_weights(folder: Path, location: str) -> None:
    model = _model("y = Add(x, w)")
    weight = onnx.TensorProto(name="w", data_type=1, dims=[3], data_location=1)
    weight.external_data.add(key="location", value=location)
    model.graph.initializer.append(weight)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    backend().optimize_model(folder / "model.onnx")


@case
def weights_in_place_of_a_model(folder: Path) -> None:
    backend().optimize_model({"weight": np.ones(3)})


@case
def class_in_place_of_a_model(folder: Path) -> None:
    backend().optimize_model(nx.nn.Linear)


@case
def module_that_fails_on_its_inputs(folder: Path) -> None:
    backend().optimize_model(torch.nn.Linear(4, 2), {"input": (1, 5)})


@case
def onnx_of_unknown_ops(folder: Path) -> None:
    backend().optimize_model(_model("a = Foo(x) b = Relux(a) y = Foo(b)"))


@case
def onnx_of_a_newer_opset(folder: Path) -> None:
    backend().optimize_model(_model("y = Relu(x)", opset=99))


@case
def onnx_of_shapes_that_do_not_fit(folder: Path) -> None:
    backend().optimize_model(_model("c = Constant<value_floats = [1.0, 2.0]>() y = Add(x, c)"))


@case
def onnx_of_an_axis_that_is_not_there(folder: Path) -> None:
    backend().optimize_model(_model("y = Softmax<axis = 5>(x)"))


@case
def onnx_with_weights_that_are_missing(folder: Path) -> None:
    _with_weights(folder, "weights.bin")


@case
def onnx_with_weights_elsewhere(folder: Path) -> None:
    _with_weights(folder, "../weights.bin")


@case
def onnx_cut_off(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(_model("y = Relu(x)").SerializeToString()[:-9])
    backend().optimize_model(folder / "model.onnx")
