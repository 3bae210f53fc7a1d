"""The network API in the shape of TensorRT's Python package: every layer against numpy or torch."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 6, 8)).astype(np.float32)
W = RNG.standard_normal((6, 2, 3, 3)).astype(np.float32)
T = torch.from_numpy(X)


def run(build: Callable[[trt.INetworkDefinition, trt.ITensor], Any], x: np.ndarray = X) -> Any:
    network = trt.Builder().create_network()
    made = build(network, network.add_input("x", x.dtype, x.shape))
    for layer in made if isinstance(made, list) else [made]:
        network.mark_output(layer)
    config = trt.Builder().create_builder_config()
    config.optimization_level = 0
    engine = trt.Builder().build_engine(network, config)
    got = engine.create_execution_context().execute(x)
    outputs = got if isinstance(got, tuple) else (got,)
    for i, output in enumerate(outputs):
        assert tuple(network.get_output(i).shape) == output.shape
    return got


def tune(layer: Any, **properties: Any) -> Any:
    for name, value in properties.items():
        setattr(layer, name, value)
    return layer


def constant(network: Any, value: Any, dtype: Any = np.float32) -> Any:
    array = np.asarray(value, dtype)
    return network.add_constant(array.shape, array)


A, P, E, U, R, M = (
    trt.ActivationType, trt.PoolingType, trt.ElementWiseOperation, trt.UnaryOperation, trt.ReduceOperation,
    trt.MatrixOperation,
)  # fmt: skip
BIAS = np.arange(6, dtype=np.float32)
CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[], Any]]] = {
    "convolution": (
        lambda n, x: tune(
            n.add_convolution_nd(x, 6, (3, 3), W, BIAS), num_groups=2, stride_nd=(2, 1), padding_nd=(1, 1)
        ),
        lambda: F.conv2d(T, torch.from_numpy(W), torch.from_numpy(BIAS), (2, 1), 1, 1, 2),
    ),
    "convolution padded on one side": (
        lambda n, x: tune(
            n.add_convolution(x, 6, 3, W), num_groups=2, pre_padding=(1, 0), post_padding=(0, 2), dilation_nd=2
        ),
        lambda: F.conv2d(F.pad(T, (0, 2, 1, 0)), torch.from_numpy(W), None, 1, 0, 2, 2),
    ),
    "deconvolution": (
        lambda n, x: tune(
            n.add_deconvolution_nd(x, 6, (3, 3), W.transpose(1, 0, 2, 3).copy().reshape(2, 6, 3, 3).repeat(2, 0)),
            stride_nd=(2, 2),
            padding_nd=(1, 1),
        ),
        lambda: F.conv_transpose2d(T, torch.from_numpy(W.transpose(1, 0, 2, 3).copy().repeat(2, 0)), None, 2, 1),
    ),
    "max pooling": (
        lambda n, x: tune(n.add_pooling_nd(x, P.MAX, (3, 3)), stride_nd=(2, 2), padding_nd=(1, 1)),
        lambda: F.max_pool2d(T, 3, 2, 1),
    ),
    "max pooling, rounded up": (
        lambda n, x: tune(
            n.add_pooling(x, P.MAX, (2, 3)), stride_nd=(1, 2), padding_mode=trt.PaddingMode.EXPLICIT_ROUND_UP
        ),
        lambda: F.max_pool2d(T, (2, 3), (1, 2), ceil_mode=True),
    ),
    "average pooling": (
        lambda n, x: tune(
            n.add_pooling_nd(x, P.AVERAGE, (3, 3)), padding_nd=(1, 1), average_count_excludes_padding=False
        ),
        lambda: F.avg_pool2d(T, 3, 1, 1),
    ),
    "relu": (lambda n, x: n.add_activation(x, A.RELU), lambda: T.relu()),
    "leaky relu": (lambda n, x: tune(n.add_activation(x, A.LEAKY_RELU), alpha=0.3), lambda: F.leaky_relu(T, 0.3)),
    "clip": (lambda n, x: tune(n.add_activation(x, A.CLIP), alpha=-0.5, beta=0.7), lambda: T.clip(-0.5, 0.7)),
    "scaled tanh": (
        lambda n, x: tune(n.add_activation(x, A.SCALED_TANH), alpha=2.0, beta=0.5),
        lambda: 2 * (T / 2).tanh(),
    ),
    "gelu": (lambda n, x: n.add_activation(x, A.GELU_ERF), lambda: F.gelu(T)),
    "gelu tanh": (lambda n, x: n.add_activation(x, A.GELU_TANH), lambda: F.gelu(T, approximate="tanh")),
    "hard sigmoid": (
        lambda n, x: tune(n.add_activation(x, A.HARD_SIGMOID), alpha=0.1, beta=0.4),
        lambda: (0.1 * T + 0.4).clip(0, 1),
    ),
    "matrix product": (
        lambda n, x: n.add_matrix_multiply(x, M.NONE, x, M.TRANSPOSE),
        lambda: T @ T.transpose(-1, -2),
    ),
    "matrix by vector": (
        lambda n, x: n.add_matrix_multiply(x, M.NONE, constant(n, np.ones((2, 4, 8))), M.VECTOR),
        lambda: T.sum(-1),
    ),
    "sum": (lambda n, x: n.add_elementwise(x, constant(n, np.full((1, 4, 1, 1), 2.0)), E.SUM), lambda: T + 2),
    "floor division": (
        lambda n, x: n.add_elementwise(x, constant(n, np.full((1, 1, 1, 1), 0.3)), E.FLOOR_DIV),
        lambda: (T / 0.3).floor(),
    ),
    "unary": (lambda n, x: n.add_unary(n.add_unary(x, U.ABS), U.SQRT), lambda: T.abs().sqrt()),
    "shuffle": (
        lambda n, x: tune(
            n.add_shuffle(x), first_transpose=(0, 2, 3, 1), reshape_dims=(0, -1, 4), second_transpose=(0, 2, 1)
        ),
        lambda: T.permute(0, 2, 3, 1).reshape(2, -1, 4).permute(0, 2, 1),
    ),
    "softmax": (lambda n, x: tune(n.add_softmax(x), axes=1 << 3), lambda: T.softmax(3)),
    "softmax over channels": (lambda n, x: n.add_softmax(x), lambda: T.softmax(1)),
    "concatenation": (lambda n, x: tune(n.add_concatenation([x, x]), axis=2), lambda: torch.cat([T, T], 2)),
    "reduce": (lambda n, x: n.add_reduce(x, R.AVG, 0b1100, True), lambda: T.mean((2, 3), keepdim=True)),
    "scale": (
        lambda n, x: n.add_scale(x, trt.ScaleMode.CHANNEL, np.arange(4.0), np.arange(1, 5.0)),
        lambda: T * torch.arange(1, 5).view(4, 1, 1) + torch.arange(4).view(4, 1, 1),
    ),
    "resize": (
        lambda n, x: tune(
            n.add_resize(x),
            scales=(1, 1, 2, 2),
            resize_mode=trt.InterpolationMode.LINEAR,
            coordinate_transformation=trt.ResizeCoordinateTransformation.HALF_PIXEL,
        ),
        lambda: F.interpolate(T, scale_factor=2, mode="bilinear"),
    ),
    "resize to a shape": (lambda n, x: tune(n.add_resize(x), shape=(2, 4, 12, 4)), lambda: F.interpolate(T, (12, 4))),
    "slice": (
        lambda n, x: n.add_slice(x, (0, 1, 5, 0), (2, 2, 3, 4), (1, 2, -2, 2)),
        lambda: torch.from_numpy(X[:, 1::2, 5::-2, ::2].copy()),
    ),
    "gather": (lambda n, x: n.add_gather(x, constant(n, [2, 0], np.int32), 1), lambda: T[:, [2, 0]]),
    "cast": (lambda n, x: n.add_cast(x, trt.int32), lambda: T.int()),
    "select": (
        lambda n, x: n.add_select(
            n.add_elementwise(x, constant(n, np.zeros((1, 1, 1, 1))), E.GREATER), x, n.add_unary(x, U.NEG)
        ),
        lambda: T.abs(),
    ),
    "topk": (
        lambda n, x: (lambda layer: [layer.get_output(0), layer.get_output(1)])(
            n.add_topk(x, trt.TopKOperation.MAX, 3, 1 << 3)
        ),
        lambda: tuple(T.topk(3)),
    ),
    "padding": (lambda n, x: n.add_padding_nd(x, (1, 2), (0, 1)), lambda: F.pad(T, (2, 1, 1, 0))),
    "layer normalisation": (
        lambda n, x: n.add_normalization(
            x, constant(n, np.full((1, 1, 1, 8), 2.0)), constant(n, np.ones((1, 1, 1, 8))), 0b1000
        ),
        lambda: F.layer_norm(T, (8,)) * 2 + 1,
    ),
    "group normalisation": (
        lambda n, x: tune(
            n.add_normalization(x, constant(n, np.ones((1, 4, 1, 1))), constant(n, np.zeros((1, 4, 1, 1))), 0b1100),
            num_groups=2,
        ),
        lambda: F.group_norm(T, 2),
    ),
    "parametric relu": (
        lambda n, x: n.add_parametric_relu(x, constant(n, np.full((1, 4, 1, 1), 0.2))),
        lambda: F.leaky_relu(T, 0.2),
    ),
    "squeeze and unsqueeze": (
        lambda n, x: n.add_squeeze(n.add_unsqueeze(x, constant(n, [1], np.int64)), constant(n, [1], np.int64)),
        lambda: T,
    ),
    "einsum": (lambda n, x: n.add_einsum([x, x], "nchw,ndhw->ncd"), lambda: torch.einsum("nchw,ndhw->ncd", T, T)),
    "shape": (lambda n, x: n.add_shape(x), lambda: torch.tensor([2, 4, 6, 8])),
    "lrn": (lambda n, x: n.add_lrn(x, 3, 0.1, 0.5, 1.0), lambda: F.local_response_norm(T, 3, 0.1, 0.5, 1.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_layer(name: str) -> None:
    build, wanted = CASES[name]
    got, want = run(build), wanted()
    for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=2e-5)


def test_the_code_block_of_the_documentation(caplog: pytest.LogCaptureFixture) -> None:
    builder = trt.Builder(logger=None)
    network = builder.create_network(flags=0)
    x = network.add_input("input", trt.float32, (1, 3, 224, 224))
    with caplog.at_level(logging.WARNING, "neurenix"):
        conv = network.add_convolution(x, 64, (3, 3), kernel=None, bias=None)
        relu = network.add_activation(conv, trt.ActivationType.RELU)
        pool = network.add_pooling(relu, trt.PoolingType.MAX, (2, 2))
        network.mark_output(pool)
        config = builder.create_builder_config()
        config.max_workspace_size = 1 << 30
        engine = builder.build_engine(network, config)
    assert (
        caplog.messages.count("the kernel of layer Convolution_0 was left out: it is Kaiming-uniform from a fixed seed")
        == 1
    )
    context = engine.create_execution_context()
    y = context.execute(nx.random.randn(1, 3, 224, 224))
    assert y.shape == (1, 64, 221, 221)
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 30
    assert [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)] == ["input", "Pooling_0_output"]
    again = trt.Runtime(trt.Logger(trt.Logger.WARNING)).deserialize_cuda_engine(engine.serialize())
    x_array = nx.random.randn(1, 3, 224, 224)
    assert np.array_equal(again.create_execution_context().execute(x_array), context.execute(x_array))


def test_dynamic_dimensions_and_profiles() -> None:
    builder = trt.Builder()
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    x = network.add_input("x", trt.float32, (-1, 3, "height", 8))
    y = network.add_activation(x, trt.ActivationType.RELU)
    y.get_output(0).name = "y"
    network.mark_output(y)
    assert y.get_output(0).shape == (-1, 3, -1, 8)
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3, 4, 8), (2, 3, 4, 8), (4, 3, 16, 8))
    config.add_optimization_profile(profile)
    config.set_flag(trt.BuilderFlag.TF32)
    engine = builder.build_engine(network, config)
    assert engine.get_tensor_shape("x") == (-1, 3, -1, 8)
    assert engine.get_tensor_mode("y") == trt.TensorIOMode.OUTPUT
    assert engine.get_tensor_dtype("y") == trt.float32
    context = engine.create_execution_context()
    for batch, height in ((1, 4), (3, 7), (4, 16)):
        assert context.execute({"x": np.ones((batch, 3, height, 8), np.float32)})["y"].shape == (batch, 3, height, 8)


def test_a_layer_may_change_until_the_build() -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 3, 8, 8))
    conv = network.add_convolution(x, 4, 3, np.ones((4, 3, 3, 3), np.float32))
    pool = network.add_pooling(conv, trt.PoolingType.MAX, 2)
    assert pool.stride_nd == (1, 1) and pool.get_output(0).shape == (1, 4, 5, 5)
    pool.stride_nd = (2, 2)
    assert pool.get_output(0).shape == (1, 4, 3, 3)
    conv.padding_nd = (1, 1)
    conv.name = "stem"
    assert pool.get_output(0).shape == (1, 4, 4, 4)
    network.mark_output(pool)
    assert [layer.name for layer in network.to_network().layers] == ["stem", "Pooling_0"]
    assert pool.get_output(0).is_network_output
    with pytest.raises(nx.InvalidArgumentError, match="the nearest name is 'stride_nd'"):
        conv.strides = 2
    with pytest.raises(AttributeError, match="Convolution has no property"):
        _ = conv.strides


def bad(build: Callable[[Any, Any], Any]) -> str:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 3, 8, 8))
    with pytest.raises(nx.Error) as caught:
        build(network, x)
    return str(caught.value)


def test_bad_arguments_raise_when_the_layer_is_added() -> None:
    assert bad(lambda n, x: n.add_convolution(x, 4, 3, np.ones(7))) == (
        "kernel has another number of elements than the layer needs\n"
        "  layer: Convolution_0\n  expected: [4, 3, 3, 3]\n  got: [7]"
    )
    assert "can't be broadcast" in bad(lambda n, x: n.add_elementwise(x, constant(n, np.ones((1, 4, 1, 1))), E.SUM))
    assert "is no ActivationType" in bad(lambda n, x: n.add_activation(x, "relu"))
    assert "bit i for axis i" in bad(lambda n, x: n.add_reduce(x, R.SUM, 1 << 4))
    assert "belongs to another network" in bad(lambda n, x: trt.Builder().create_network().add_identity(x))
    assert "a tensor is expected" in bad(lambda n, x: n.add_identity(X))


def test_the_configuration_takes_the_options_and_no_others() -> None:
    config = trt.BuilderConfig()
    config.threads, config.precision, config.builder_optimization_level = 2, "bf16", 1
    assert (config.threads, config.optimization_level, config.strict) == (2, 1, False)
    with pytest.raises(nx.InvalidArgumentError, match="the nearest name is 'threads'"):
        config.thread = 2
    with pytest.raises(NotImplementedError, match="target"):
        config.target = "8.6"
    with pytest.raises(AttributeError):
        _ = config.nothing
