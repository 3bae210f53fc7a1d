"""`neurenix.nn`: modules, their weights, and forward functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from neurenix import nn
from tests.errors.wrong.common import IMAGE, backend, case

SQUARE = np.ones((2, 2), np.float32)


def _optimised(module: nn.Module, *shape: int) -> None:
    backend().optimize_model(module, {"input": shape})


class Branching(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x > 0 else -x


class Silent(nn.Module):
    def forward(self, x: Any) -> Any:
        self.seen = x


class Empty(nn.Module):
    """It has no forward."""


@case
def module_on_other_channels(folder: Path) -> None:
    _optimised(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(4, 8, 3)), 1, 3, 8, 8)


@case
def module_on_other_features(folder: Path) -> None:
    _optimised(nn.Linear(10, 2), 1, 9)


@case
def module_without_forward(folder: Path) -> None:
    _optimised(Empty(), 1, 3)


@case
def module_that_branches_on_values(folder: Path) -> None:
    _optimised(Branching(), 1, 3)


@case
def module_that_returns_nothing(folder: Path) -> None:
    _optimised(Silent(), 1, 3)


@case
def module_without_shapes(folder: Path) -> None:
    backend().optimize_model(nn.Linear(2, 2))


@case
def module_called_on_an_array(folder: Path) -> None:
    nn.Linear(8, 2)(IMAGE)


@case
def convolution_module_with_odd_groups(folder: Path) -> None:
    nn.Conv2d(3, 8, 3, groups=2)


@case
def convolution_module_of_text(folder: Path) -> None:
    channels: Any = "3"
    nn.Conv2d(channels, 8, 3)


@case
def convolution_module_with_unknown_padding(folder: Path) -> None:
    nn.Conv2d(3, 8, 3, padding="sam")


@case
def convolution_module_with_three_extents(folder: Path) -> None:
    nn.Conv2d(3, 8, (3, 3, 3))


@case
def attention_module_with_odd_heads(folder: Path) -> None:
    nn.MultiheadAttention(10, 3)


@case
def group_norm_module_with_odd_groups(folder: Path) -> None:
    nn.GroupNorm(3, 10)


@case
def sequence_with_what_is_no_module(folder: Path) -> None:
    nn.Sequential(nn.ReLU(), 3)


@case
def weights_missing_in_a_state_dict(folder: Path) -> None:
    nn.Linear(2, 2).load_state_dict({"weight": SQUARE})


@case
def weights_of_another_shape_in_a_state_dict(folder: Path) -> None:
    nn.Linear(2, 2).load_state_dict({"weight": SQUARE[:1], "bias": SQUARE[0]})


@case
def weights_left_over_in_a_state_dict(folder: Path) -> None:
    nn.Linear(2, 2).load_state_dict({"weight": SQUARE, "bias": SQUARE[0], "bia": SQUARE[0]})
