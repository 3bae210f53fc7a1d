"""TensorFlow's half pixels of opsets 11 and 12, and what of Resize is unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.importers.single import agree, model_of

X = np.arange(60, dtype=np.float32).reshape(1, 2, 5, 6)
NONE = np.zeros(0, np.float32)


def inputs(**last: Any) -> dict[str, Any]:
    return {"x": X, "roi": NONE, "scales": NONE, **last}


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("size", [(7, 3), (5, 6), (1, 13), (10, 12)])
def test_half_pixels_of_tensorflow(version: int, size: tuple[int, int]) -> None:
    given = inputs(sizes=np.array([1, 2, *size]))
    how = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    agree("Resize", given, version=version, constants=("roi", "scales", "sizes"), mode="nearest", **how)


def refused(**attrs: Any) -> nx.UnsupportedError:
    constants = ("roi", "scales", "sizes")
    model = model_of("Resize", inputs(sizes=np.array([1, 2, 7, 3])), ["y"], constants, version=12, **attrs)
    with pytest.raises(nx.UnsupportedError) as caught:
        nx.importers.from_onnx(model)
    assert caught.value.layer and caught.value.expected and caught.value.got and caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "others", [{"nearest_mode": "ceil"}, {}, {"mode": "linear"}, {"mode": "linear", "nearest_mode": "floor"}]
)
def test_half_pixels_of_tensorflow_for_anything_else(others: dict[str, str]) -> None:
    error = refused(coordinate_transformation_mode="tf_half_pixel_for_nn", **others)
    assert "tf_half_pixel_for_nn" in error.message and others.get("mode", "nearest") in str(error.got)


@pytest.mark.parametrize("name", ["mode", "nearest_mode", "coordinate_transformation_mode"])
def test_what_is_unknown(name: str) -> None:
    error = refused(**{name: "sharp"})
    assert repr(name) in error.message and error.got == "'sharp'"
