"""Torch-TensorRT's inputs, dtypes and devices."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch

import neurenix as nx
from neurenix.torch_tensorrt import Device, Input, dtype


def test_a_shape_and_a_range() -> None:
    fixed = Input([1, 3], dtype=dtype.half)
    assert fixed.shape == (1, 3) and fixed.dtype == torch.float16 and fixed.dynamic_axes == []
    open_ = Input(min_shape=(1, 3), opt_shape=(4, 3), max_shape=(8, 3))
    assert open_.shape == {"min_shape": (1, 3), "opt_shape": (4, 3), "max_shape": (8, 3)}
    assert open_.dynamic_axes == [0] and open_.dtype == torch.float32
    assert open_.example_tensor().shape == (4, 3) and open_.example_tensor("max_shape").shape == (8, 3)


def test_a_tensor_is_an_input() -> None:
    x = torch.zeros(2, 5, dtype=torch.int64)
    found = Input.from_tensor(x)
    assert found.shape == (2, 5) and found.dtype == torch.int64 and found.example_tensor() is x
    assert [one.shape for one in Input.from_tensors([x, x[0]])] == [(2, 5), (5,)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "neither"),
        ({"shape": [1], "opt_shape": [1]}, "both"),
        ({"min_shape": [1], "opt_shape": [1]}, "three shapes"),
        ({"min_shape": [1], "opt_shape": [1, 2], "max_shape": [2]}, "differ in rank"),
        ({"min_shape": [3], "opt_shape": [2], "max_shape": [4]}, "not in order"),
        ({"shape": ["n", 3]}, "no shape"),
        ({"shape": [1], "dtype": "float99"}, "no dtype"),
    ],
)
def test_shapes_that_do_not_go_together(given: dict[str, Any], words: str) -> None:
    with pytest.raises((nx.InvalidArgumentError, nx.ShapeError), match=words):
        Input(**given)


def test_dtypes_have_their_other_names() -> None:
    assert dtype.f16 is dtype.half is dtype.float16
    assert dtype.half.to(torch.dtype) is torch.float16
    assert {one.to_torch() for one in (dtype.long, dtype.i64)} == {torch.int64}


def test_devices() -> None:
    assert Device("cuda:1").gpu_id == 1 and Device(gpu_id=0).gpu_id == 0
    with pytest.raises(nx.UnsupportedError, match="no DLA"):
        Device("dla:0")
