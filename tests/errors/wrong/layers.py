"""Networks built layer by layer, in the shape of TensorRT's API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import neurenix.hardware.tensorrt as trt
from tests.errors.wrong.common import IMAGE, case, model

KERNEL = np.ones((4, 3, 3, 3), np.float32)


def _network() -> tuple[Any, Any]:
    made = trt.Builder().create_network()
    return made, made.add_input("image", trt.float32, (1, 3, 8, 8))


def _build(made: Any) -> None:
    builder = trt.Builder()
    builder.build_engine(made, builder.create_builder_config())


@case
def layer_on_no_tensor(folder: Path) -> None:
    _network()[0].add_convolution_nd(None, 4, (3, 3), KERNEL)


@case
def layer_on_a_tensor_of_another_network(folder: Path) -> None:
    _network()[0].add_activation(_network()[1], trt.ActivationType.RELU)


@case
def convolution_with_another_kernel(folder: Path) -> None:
    made, x = _network()
    made.add_convolution_nd(x, 4, (5, 5), KERNEL)


@case
def convolution_with_another_bias(folder: Path) -> None:
    made, x = _network()
    made.add_convolution_nd(x, 4, (3, 3), KERNEL, np.ones(5, np.float32))


@case
def convolution_without_maps(folder: Path) -> None:
    made, x = _network()
    made.add_convolution_nd(x, 0, (3, 3), KERNEL)


@case
def convolution_of_another_rank(folder: Path) -> None:
    made, x = _network()
    made.add_convolution_nd(x, 4, (3, 3, 3), KERNEL)


@case
def convolution_with_a_stride_of_nothing(folder: Path) -> None:
    made, x = _network()
    layer = made.add_convolution_nd(x, 4, (3, 3), KERNEL)
    layer.stride_nd = (0, 1)
    made.mark_output(layer)
    _build(made)


@case
def activation_by_a_text(folder: Path) -> None:
    made, x = _network()
    made.add_activation(x, "relu")


@case
def sum_of_other_shapes(folder: Path) -> None:
    made, x = _network()
    made.add_elementwise(x, made.add_input("z", trt.float32, (1, 3, 7, 8)), trt.ElementWiseOperation.SUM)


@case
def sum_of_other_dtypes(folder: Path) -> None:
    made, x = _network()
    made.add_elementwise(x, made.add_input("z", trt.int32, (1, 3, 8, 8)), trt.ElementWiseOperation.SUM)


@case
def product_of_other_sizes(folder: Path) -> None:
    made, x = _network()
    none, z = trt.MatrixOperation.NONE, made.add_input("z", trt.float32, (7, 8))
    made.add_matrix_multiply(x, none, z, none)


@case
def concatenation_of_nothing(folder: Path) -> None:
    _network()[0].add_concatenation([])


@case
def reshape_to_another_size(folder: Path) -> None:
    made, x = _network()
    layer = made.add_shuffle(x)
    layer.reshape_dims = (5, 5)
    made.mark_output(layer)
    _build(made)


@case
def reduction_over_an_axis_that_is_not_there(folder: Path) -> None:
    made, x = _network()
    made.add_reduce(x, trt.ReduceOperation.SUM, 1 << 7, True)


@case
def slice_of_another_rank(folder: Path) -> None:
    made, x = _network()
    made.mark_output(made.add_slice(x, (0, 0), (1, 1), (1, 1)))
    _build(made)


@case
def constant_of_another_size(folder: Path) -> None:
    _network()[0].add_constant((2, 2), np.ones(3, np.float32))


@case
def network_input_twice(folder: Path) -> None:
    _network()[0].add_input("image", trt.float32, (1,))


@case
def network_input_of_an_unknown_dtype(folder: Path) -> None:
    _network()[0].add_input("z", "float99", (1,))


@case
def network_input_of_a_negative_size(folder: Path) -> None:
    _network()[0].add_input("z", trt.float32, (-2, 3))


@case
def network_without_outputs(folder: Path) -> None:
    _build(_network()[0])


@case
def flag_by_a_text(folder: Path) -> None:
    config: Any = trt.Builder().create_builder_config()
    config.set_flag("FP16")


@case
def memory_pool_by_a_text(folder: Path) -> None:
    config: Any = trt.Builder().create_builder_config()
    config.set_memory_pool_limit("WORKSPACE", 1 << 30)


@case
def setting_of_an_unknown_name(folder: Path) -> None:
    config: Any = trt.Builder().create_builder_config()
    config.max_workspace_siz = 1 << 30


@case
def tensor_of_an_engine_by_a_wrong_name(folder: Path) -> None:
    model().engine.get_tensor_shape("imag")


@case
def context_on_a_wrong_shape(folder: Path) -> None:
    model().engine.create_execution_context().execute(IMAGE[:, :2])
