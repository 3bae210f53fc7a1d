"""What users are told when a call is wrong, word for word: `messages/<case>.txt`.

A message says what, where, what was expected and the way out. When one changes on purpose, run this file with
`GOLDEN=write`, and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import Shape
from neurenix.hardware.tensorrt import TensorRTBackend

MESSAGES = Path(__file__).parent / "messages"
CASES: list[Callable[[Path], Any]] = []


def case(call: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Registers a wrong call; it gets an empty folder, which messages write as FOLDER."""
    CASES.append(call)
    return call


def network() -> nx.Network:
    made = nx.Network("m")
    x = made.add_input("image", "float32", ["batch", 3, 8, 8])
    weights = made.add_constant("w", np.ones((4, 3, 3, 3), np.float32))
    made.mark_output(made.add_layer("Conv", [x, weights], name="stem")[0], "features")
    return made


def model() -> Any:
    shape = Shape((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
    return TensorRTBackend().optimize_model(network(), {"image": shape})


@case
def input_of_wrong_dtype(folder: Path) -> None:
    model()({"image": np.zeros((1, 3, 8, 8))})


@case
def input_of_wrong_rank(folder: Path) -> None:
    model()({"image": np.zeros((3, 8, 8), np.float32)})


@case
def input_of_wrong_size(folder: Path) -> None:
    model()({"image": np.zeros((1, 4, 8, 8), np.float32)})


@case
def input_of_wrong_name(folder: Path) -> None:
    model()({"imag": np.zeros((1, 3, 8, 8), np.float32)})


@case
def input_missing(folder: Path) -> None:
    model()({})


@case
def shape_for_an_unknown_input(folder: Path) -> None:
    TensorRTBackend().optimize_model(network(), {"img": (1, 3, 8, 8)})


@case
def shape_of_wrong_rank(folder: Path) -> None:
    TensorRTBackend().optimize_model(network(), {"image": (3, 8, 8)})


@case
def shape_against_the_model(folder: Path) -> None:
    TensorRTBackend().optimize_model(network(), {"image": (1, 4, 8, 8)})


@case
def shape_without_order(folder: Path) -> None:
    Shape((4, 3, 8, 8), (2, 3, 8, 8), (1, 3, 8, 8))


@case
def unknown_option(folder: Path) -> None:
    TensorRTBackend().optimize_model(network(), {"image": (1, 3, 8, 8)}, thread=2)


@case
def unknown_precision(folder: Path) -> None:
    TensorRTBackend().optimize_model(network(), {"image": (1, 3, 8, 8)}, precision="fp12")


@case
def unknown_provider(folder: Path) -> None:
    TensorRTBackend().optimize_model(network(), {"image": (1, 3, 8, 8)}, providers=["gpu"])


@case
def no_model(folder: Path) -> None:
    TensorRTBackend().optimize_model(42, {"image": (1, 3, 8, 8)})


@case
def weights_in_place_of_a_model(folder: Path) -> None:
    TensorRTBackend().optimize_model({"weight": np.ones(3)})


@case
def class_in_place_of_a_model(folder: Path) -> None:
    TensorRTBackend().optimize_model(nx.nn.Linear)


@case
def module_that_fails_on_its_inputs(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    TensorRTBackend().optimize_model(torch.nn.Linear(4, 2), {"input": (1, 5)})


@case
def model_file_missing(folder: Path) -> None:
    TensorRTBackend().optimize_model(folder / "missing.onnx", {"image": (1, 3, 8, 8)})


@case
def model_file_of_another_kind(folder: Path) -> None:
    (folder / "model.onnx").write_text("not a model")
    TensorRTBackend().optimize_model(folder / "model.onnx", {"image": (1, 3, 8, 8)})


@case
def engine_file_missing(folder: Path) -> None:
    TensorRTBackend().load(folder / "missing.engine")


@case
def engine_file_of_another_kind(folder: Path) -> None:
    (folder / "model.engine").write_bytes(b"PK\3\4" + bytes(100))
    TensorRTBackend().load(folder / "model.engine")


@case
def engine_file_into_a_missing_folder(folder: Path) -> None:
    model().save(folder / "missing" / "model.engine")


@pytest.mark.parametrize("call", CASES, ids=lambda call: call.__name__)
def test_message(call: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(nx.Error) as caught:
        call(tmp_path)
    text = f"{type(caught.value).__name__}: {caught.value}\n".replace(str(tmp_path), "FOLDER")
    golden = MESSAGES / f"{call.__name__}.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


def test_no_message_is_left_over() -> None:
    assert {path.stem for path in MESSAGES.glob("*.txt")} == {call.__name__ for call in CASES}
