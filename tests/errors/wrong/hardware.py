"""Backends and devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from tests.errors.wrong.common import case


@case
def unknown_backend(folder: Path) -> None:
    nx.hardware.get_backend("tensort")


@case
def unknown_backend_of_another_project(folder: Path) -> None:
    nx.hardware.get_backend("openvino")


@case
def unknown_backend_in_a_with(folder: Path) -> None:
    with nx.hardware.use("gpu"):
        raise AssertionError("there is none of this name")


@case
def unknown_default_backend(folder: Path) -> None:
    name: Any = None
    nx.hardware.set_default(name)


@case
def device_by_a_name(folder: Path) -> None:
    device: Any = "cuda:0"
    TensorRTBackend(device=device)


@case
def device_that_is_not_there(folder: Path) -> None:
    nx.hardware.get_backend("cpu").get_device_info(99)


@case
def device_number_as_text(folder: Path) -> None:
    index: Any = "0"
    nx.hardware.get_backend("cpu").get_device_info(index)


@case
def device_beside_the_processor(folder: Path) -> None:
    nx.hardware.get_backend("cpu", device=1).initialize()
