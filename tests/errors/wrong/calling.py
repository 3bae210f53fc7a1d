"""Calls of a model, and what else it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from neurenix.hardware import AsyncQueue
from tests.errors.wrong.common import IMAGE, backend, case, model, network, optimised


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
    model()({"imag": IMAGE})


@case
def input_missing(folder: Path) -> None:
    model()({})


@case
def input_too_many(folder: Path) -> None:
    model()(image=IMAGE, mask=IMAGE)


@case
def input_that_is_no_array(folder: Path) -> None:
    model()(None)


@case
def input_twice(folder: Path) -> None:
    model()({"image": IMAGE}, image=IMAGE)


@case
def inputs_too_many_by_place(folder: Path) -> None:
    model()(IMAGE, IMAGE)


@case
def inputs_as_a_list(folder: Path) -> None:
    given: Any = [IMAGE]
    model().run(given)


@case
def inference_on_a_wrong_name(folder: Path) -> None:
    backend().inference(model(), {"images": IMAGE})


@case
def profile_of_a_wrong_name(folder: Path) -> None:
    model().profile({"img": IMAGE})


@case
def memory_of_an_unknown_input(folder: Path) -> None:
    model().memory_required({"img": (1, 3, 8, 8)})


@case
def memory_below_zero(folder: Path) -> None:
    model().memory_required({"image": (-1, 3, 8, 8)})


@case
def memory_of_an_enormous_batch(folder: Path) -> None:
    model().memory_required({"image": (1 << 40, 3, 8, 8)})


@case
def weights_of_a_model_that_is_not_refittable(folder: Path) -> None:
    model().update_weights({"w": IMAGE})


@case
def weights_of_wrong_name(folder: Path) -> None:
    optimised(refittable=True).update_weights({"ww": IMAGE})


@case
def weights_of_wrong_shape(folder: Path) -> None:
    optimised(refittable=True).update_weights({"w": IMAGE})


@case
def weights_as_a_list(folder: Path) -> None:
    given: Any = [IMAGE]
    optimised(refittable=True).update_weights(given)


@case
def queue_of_a_network(folder: Path) -> None:
    given: Any = network()
    AsyncQueue(given)


@case
def queue_without_jobs(folder: Path) -> None:
    AsyncQueue(model(), -1)


@case
def queue_with_no_function(folder: Path) -> None:
    callback: Any = "done"
    AsyncQueue(model(), callback=callback)


@case
def queue_that_is_closed(folder: Path) -> None:
    with AsyncQueue(model()) as queue:
        queue.start_async(IMAGE)
    queue.start_async(IMAGE)


@case
def request_of_a_wrong_name(folder: Path) -> None:
    with AsyncQueue(model(), 1) as queue:
        queue.start_async({"img": IMAGE})
        queue.wait_all()
