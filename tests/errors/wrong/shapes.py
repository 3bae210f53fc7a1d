"""Shapes of inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neurenix import Shape
from tests.errors.wrong.common import backend, case, network


def _with(shapes: Any) -> None:
    backend().optimize_model(network(), shapes)


@case
def shape_for_an_unknown_input(folder: Path) -> None:
    _with({"img": (1, 3, 8, 8)})


@case
def shape_of_wrong_rank(folder: Path) -> None:
    _with({"image": (3, 8, 8)})


@case
def shape_against_the_model(folder: Path) -> None:
    _with({"image": (1, 4, 8, 8)})


@case
def shape_without_order(folder: Path) -> None:
    Shape((4, 3, 8, 8), (2, 3, 8, 8), (1, 3, 8, 8))


@case
def shape_as_text(folder: Path) -> None:
    _with({"image": "1x3x8x8"})


@case
def shape_below_zero(folder: Path) -> None:
    _with({"image": (-1, 3, 8, 8)})


@case
def shape_of_fractions(folder: Path) -> None:
    _with({"image": (1.5, 3, 8, 8)})


@case
def shape_of_words(folder: Path) -> None:
    Shape("a", "b", "c")  # type: ignore[arg-type]
