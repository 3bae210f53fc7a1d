"""What layers take from inputs and from properties that are set behind `add_*`, against numpy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix.hardware.tensorrt as trt
from neurenix.errors import Error, InvalidArgumentError, ShapeError
from tests.tensorrt_api.made import constant, engine_of
from tests.tensorrt_api.test_layers import RNG, run

torch = pytest.importorskip("torch")
F = torch.nn.functional
X = RNG.standard_normal((2, 4, 6, 8)).astype(np.float32)
T = torch.from_numpy(X)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("left_out", [None, trt.Weights(), trt.Weights(trt.float32), np.empty(0, np.float32)])
def test_kernels_and_biases_from_inputs(groups: int, transposed: bool, left_out: Any) -> None:
    shape = (4, 6 // groups, 3, 3) if transposed else (6, 4 // groups, 3, 3)
    kernel, bias = RNG.standard_normal(shape).astype(np.float32), RNG.standard_normal(6).astype(np.float32)

    def make(n: Any, x: Any) -> Any:
        add = n.add_deconvolution_nd if transposed else n.add_convolution_nd
        layer = add(x, 6, (3, 3), left_out)
        layer.num_groups = groups
        layer.set_input(1, constant(n, kernel).get_output(0))
        layer.set_input(2, constant(n, bias).get_output(0))
        assert layer.num_inputs == 3
        return layer

    function = F.conv_transpose2d if transposed else F.conv2d
    close(run(make, X)[0], function(T, torch.from_numpy(kernel), torch.from_numpy(bias), groups=groups))


def test_a_kernel_that_the_caller_gives() -> None:
    kernel = RNG.standard_normal((6, 4, 3, 3)).astype(np.float32)

    def make(n: Any) -> list[Any]:
        layer = n.add_convolution_nd(n.add_input("x", trt.float32, X.shape), 6, (3, 3))
        layer.set_input(1, n.add_input("w", trt.float32, kernel.shape))
        return [layer]

    close(engine_of(make).create_execution_context().execute(X, kernel), F.conv2d(T, torch.from_numpy(kernel)))


def test_a_kernel_is_there_once_and_has_the_layers_shape() -> None:
    def twice(n: Any, x: Any) -> Any:
        layer = n.add_convolution_nd(x, 1, (1, 1), np.ones((1, 4, 1, 1), np.float32))
        layer.set_input(1, constant(n, np.ones((1, 4, 1, 1))).get_output(0))
        return layer

    with pytest.raises(InvalidArgumentError, match="the kernel is there twice"):
        run(twice)

    def other(n: Any, x: Any) -> Any:
        layer = n.add_convolution_nd(x, 1, (1, 1))
        layer.set_input(1, constant(n, np.ones((4, 1, 1, 1))).get_output(0))
        return layer

    with pytest.raises(ShapeError, match=r"(?s)the kernel has another shape.*\[1, 4, 1, 1\].*\[4, 1, 1, 1\]"):
        run(other)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_convolutions_round_up(stride: int) -> None:
    kernel = RNG.standard_normal((2, 4, 3, 3)).astype(np.float32)

    def make(n: Any, x: Any) -> Any:
        layer = n.add_convolution_nd(x, 2, (3, 3), kernel)
        layer.stride_nd, layer.padding_mode = (stride, stride), trt.PaddingMode.EXPLICIT_ROUND_UP
        return layer

    found = run(make, X)[0]
    # The rule of NvInfer.h: ceil((M - DK) / S) + 1.
    assert found.shape[2:] == tuple(-(-(extent - 3) // stride) + 1 for extent in X.shape[2:])
    padded = F.pad(T, (0, stride, 0, stride))
    close(found, F.conv2d(padded, torch.from_numpy(kernel), stride=stride)[:, :, : found.shape[2], : found.shape[3]])


def test_tensors_join_along_an_axis_that_is_set_later() -> None:
    other = RNG.standard_normal((2, 4, 6, 3)).astype(np.float32)

    def make(n: Any, x: Any) -> Any:
        layer = n.add_concatenation([x, constant(n, other).get_output(0)])
        layer.axis = 3
        return layer

    close(run(make, X)[0], np.concatenate([X, other], 3))


def test_zero_points_count() -> None:
    scale, zeros = np.asarray([0.02, 0.05, 0.1, 0.2], np.float32), np.asarray([3, -7, 0, 20], np.int8)

    def make(n: Any, x: Any) -> list[Any]:
        steps = constant(n, scale).get_output(0)
        points = n.add_constant((4,), zeros).get_output(0)
        codes = n.add_quantize(x, steps)
        back = n.add_dequantize(codes.get_output(0), steps)
        for layer in (codes, back):
            layer.axis = 1
            layer.set_input(2, points)
        return [n.add_cast(codes.get_output(0), trt.float32), back]

    codes, back = run(make, X)
    shape = (1, 4, 1, 1)
    wanted = np.clip(np.rint(X / scale.reshape(shape)) + zeros.reshape(shape), -128, 127)
    np.testing.assert_array_equal(codes, wanted)
    close(back, (wanted - zeros.reshape(shape)) * scale.reshape(shape))


def test_scales_of_blocks() -> None:
    codes = RNG.integers(-8, 8, (32, 8)).astype(np.int8)
    pairs = (codes.ravel()[0::2] & 15 | (codes.ravel()[1::2] & 15) << 4).astype(np.uint8)
    scales = RNG.uniform(0.05, 0.2, (2, 8)).astype(np.float32)
    x = RNG.standard_normal((3, 32)).astype(np.float32)

    def make(n: Any, given: Any) -> Any:
        weights = n.add_constant((32, 8), trt.Weights(trt.int4, pairs.ctypes.data, 256)).get_output(0)
        wide = n.add_dequantize(weights, constant(n, scales).get_output(0), trt.float32)
        none = trt.MatrixOperation.NONE
        return n.add_matrix_multiply(given, none, wide.get_output(0), none)

    close(run(make, x)[0], x @ (codes * np.repeat(scales, 16, 0)))

    def uneven(n: Any, given: Any) -> Any:
        return n.add_quantize(given, constant(n, np.ones((3, 5))).get_output(0))

    with pytest.raises(ShapeError, match="blocks of a scale do not divide"):
        run(uneven, x)


def test_an_axis_of_scales_that_is_not_there() -> None:
    def make(n: Any, x: Any) -> Any:
        layer = n.add_quantize(x, constant(n, [0.1, 0.2]).get_output(0))
        layer.axis = 7
        return layer

    with pytest.raises(InvalidArgumentError, match="axis of the scales is out of range"):
        run(make)


@pytest.mark.parametrize(
    ("kind", "index"), [("add_identity", 1), ("add_identity", -1), ("add_shape", 1), ("add_shuffle", 2)]
)
def test_layers_refuse_inputs_that_they_do_not_read(kind: str, index: int) -> None:
    def make(n: Any, x: Any) -> Any:
        layer = getattr(n, kind)(x)
        with pytest.raises(InvalidArgumentError, match="has no input of this number"):
            layer.set_input(index, x)
        assert layer.num_inputs == 1
        return layer

    run(make)


def test_softplus_has_factors() -> None:
    def make(n: Any, x: Any) -> Any:
        layer = n.add_activation(x, trt.ActivationType.SOFTPLUS)
        layer.alpha, layer.beta = 2.0, 0.5
        return layer

    close(run(make, X)[0], 2 * np.log1p(np.exp(0.5 * X.astype(np.float64))))


@pytest.mark.parametrize("mode", [trt.InterpolationMode.NEAREST, trt.InterpolationMode.LINEAR])
def test_a_single_pixel_is_the_first_one(mode: Any) -> None:
    def make(n: Any, x: Any) -> Any:
        layer = n.add_resize(x)
        layer.shape, layer.resize_mode = (2, 4, 1, 1), mode
        layer.coordinate_transformation = trt.ResizeCoordinateTransformation.HALF_PIXEL
        layer.selector_for_single_pixel = trt.ResizeSelector.UPPER
        return layer

    close(run(make, X)[0], X[:, :, :1, :1])


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_indices_of_each_row(axis: int) -> None:
    indices = RNG.integers(0, 4, (2, 3, 2)).astype(np.int32)

    def make(n: Any, x: Any) -> Any:
        layer = n.add_gather(x, n.add_constant(indices.shape, indices).get_output(0), axis)
        layer.num_elementwise_dims = 1
        return layer

    close(run(make, X)[0], np.stack([np.take(row, i, axis - 1) for row, i in zip(X, indices, strict=True)]))


@pytest.mark.parametrize("limit", [1, 3, 7, 5000])
def test_boxes_beyond_the_limit_are_not_considered(limit: int) -> None:
    """Of boxes that do not overlap those with the best scores of a picture, over all classes."""
    corner = np.arange(4, dtype=np.float32)[:, None] * 2
    boxes = np.broadcast_to(np.concatenate([corner, corner, corner + 1, corner + 1], 1), (2, 4, 4)).copy()
    scores = RNG.permutation(24).reshape(2, 4, 3).astype(np.float32) / 24

    def make(n: Any, x: Any) -> Any:
        most = n.add_constant((), np.asarray(4, np.int32)).get_output(0)
        layer = n.add_nms(x, constant(n, scores).get_output(0), most)
        layer.topk_box_limit, layer.indices_type = limit, trt.int64
        return layer

    found = run(make, boxes)[0]
    assert found.dtype == np.int64
    best = [np.argsort(-picture.ravel())[:limit] for picture in scores]
    wanted = {(b, place % 3, place // 3) for b, places in enumerate(best) for place in places.tolist()}
    assert {tuple(row) for row in found.tolist()} == wanted


def test_slices_stay_inside() -> None:
    def beyond(n: Any, x: Any) -> Any:
        return n.add_slice(x, (0, 0, 0, 4), (2, 4, 6, 8), (1, 1, 1, 1))

    with pytest.raises(ShapeError, match=r"(?s)beyond its input along axis 3.*places 4 to 11"):
        run(beyond)

    def some(n: Any, x: Any) -> Any:
        layer = n.add_slice(x, (4, 1), (3, 2), (-2, 2))
        layer.axes = (2, 1)
        return layer

    close(run(some, X)[0], X[:, 1:4:2, 4::-2])


def test_starts_sizes_and_steps_from_inputs() -> None:
    def make(n: Any, x: Any) -> Any:
        layer = n.add_slice(x, trt.Dims(), trt.Dims(), trt.Dims())
        for index, numbers in enumerate([(0, 1, 2, 3), (2, 2, 2, 2), (1, 2, 1, 2)], 1):
            layer.set_input(index, n.add_constant((4,), np.asarray(numbers, np.int32)).get_output(0))
        return layer

    close(run(make, X)[0], X[0:2:1, 1:5:2, 2:4:1, 3:7:2])


def test_a_ramp_whose_extents_are_a_tensor() -> None:
    def make(n: Any, x: Any) -> Any:
        layer = n.add_fill(trt.Dims(), trt.FillOperation.LINSPACE)
        layer.set_input(0, n.add_shape(x).get_output(0))
        layer.alpha, layer.beta = 0.5, (100.0, 10.0, 1.0, 0.125)
        return layer

    places = np.moveaxis(np.indices(X.shape), 0, -1)
    close(run(make, X)[0], 0.5 + places @ np.asarray([100, 10, 1, 0.125]))


@pytest.mark.parametrize("each", [2, 4])
def test_groups_of_channels_are_normalized(each: int) -> None:
    """By numbers for each group, as TensorRT has them, or for each channel."""
    scale, bias = (RNG.standard_normal((1, each, 1, 1)).astype(np.float32) for _ in range(2))

    def make(n: Any, x: Any) -> Any:
        layer = n.add_normalization(x, constant(n, scale).get_output(0), constant(n, bias).get_output(0), 0b1100)
        layer.num_groups, layer.compute_precision = 2, trt.float32
        return layer

    of_channels = [torch.from_numpy(np.repeat(one.ravel(), 4 // each)) for one in (scale, bias)]
    close(run(make, X)[0], F.group_norm(T, 2, *of_channels))


def test_the_axis_of_a_scale_is_set_later() -> None:
    def make(n: Any, x: Any) -> Any:
        layer = n.add_scale(x, trt.ScaleMode.CHANNEL, scale=np.arange(8, dtype=np.float32))
        layer.channel_axis = 3
        return layer

    close(run(make, X)[0], X * np.arange(8))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [0, 4])
@pytest.mark.parametrize("by_place", [False, True])
def test_rotary_embeddings(interleaved: bool, dim: int, by_place: bool) -> None:
    """Against pairs as complex numbers."""
    size = dim or 8
    angles = RNG.uniform(-3, 3, (9, size // 2) if by_place else (2, 6, size // 2)).astype(np.float32)
    places = RNG.integers(0, 9, (2, 6)).astype(np.int64)

    def make(n: Any, x: Any) -> Any:
        caches = [constant(n, function(angles)).get_output(0) for function in (np.cos, np.sin)]
        layer = n.add_rotary_embedding(x, *caches, interleaved, dim)
        if by_place:
            layer.set_input(3, n.add_constant(places.shape, places).get_output(0))
        return layer

    head = X[..., :size].astype(np.float64)
    pairs = head.reshape(2, 4, 6, -1, 2) if interleaved else np.stack(np.split(head, 2, -1), -1)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * (angles[places] if by_place else angles)[:, None])
    both = np.stack([turned.real, turned.imag], -1)
    wanted = both.reshape(head.shape) if interleaved else np.concatenate([both[..., 0], both[..., 1]], -1)
    close(run(make, X)[0], np.concatenate([wanted, X[..., size:]], -1))


def test_weights_at_an_address_that_cannot_be_read() -> None:
    with pytest.raises(InvalidArgumentError, match="address that the processor can't read"):
        trt.Weights(trt.float32, 0x1000, 4)


def test_layers_of_before_name_their_successor() -> None:
    with pytest.raises(AttributeError, match=r"add_fully_connected.*add_matrix_multiply"):
        _ = trt.Builder(trt.Logger()).create_network().add_fully_connected


def test_inputs_of_one_name_are_an_error_of_ours() -> None:
    network = trt.Builder(trt.Logger()).create_network()
    first, second = (network.add_input(name, trt.float32, (1, 4)) for name in ("a", "b"))
    network.add_identity(first)
    second.name = "a"
    with pytest.raises(Error, match="two inputs have the same name"):
        network.add_identity(second)
