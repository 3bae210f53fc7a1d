"""The layers of TensorRT 10 that came after its first ones, against numpy, torch and ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.tensorrt_api.made import constant, engine_of

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 6, 8)).astype(np.float32)
T = torch.from_numpy(X)


def tune(layer: Any, **properties: Any) -> Any:
    for name, value in properties.items():
        setattr(layer, name, value)
    return layer


def run(build: Callable[[Any, Any], Any], x: np.ndarray = X) -> list[np.ndarray]:
    def make(network: trt.INetworkDefinition) -> Any:
        made = build(network, network.add_input("x", x.dtype, x.shape))
        return made if isinstance(made, list) else [made]

    got = engine_of(make).create_execution_context().execute(x)
    return list(got) if isinstance(got, tuple) else [got]


Q = RNG.standard_normal((2, 3, 5, 4)).astype(np.float32)
K, V = (RNG.standard_normal((2, 3, 7, 4)).astype(np.float32) for _ in range(2))
MASK = RNG.random((2, 3, 5, 7)) > 0.3
MASK[..., 0] = True
SCALES = np.linspace(0.02, 0.05, 4, dtype=np.float32)


def ramp(network: trt.INetworkDefinition, shape: tuple[int, ...], start: float | None, steps: list[float]) -> Any:
    """A LINSPACE whose start, if there is one, and steps are tensors."""
    fill = network.add_fill(shape, trt.FillOperation.LINSPACE)
    if start is not None:
        fill.set_input(1, constant(network, start))
    fill.set_input(2, constant(network, steps))
    return fill


GRID = RNG.uniform(-1.2, 1.2, (2, 3, 3, 2)).astype(np.float32)


def attention(mask: Any = None, causal: bool = False) -> Any:
    scores = torch.from_numpy(Q) @ torch.from_numpy(K).transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~torch.from_numpy(mask), float("-inf"))
    if causal:
        scores = scores.masked_fill(torch.ones(5, 7).triu(1).bool(), float("-inf"))
    return (scores.softmax(-1) @ torch.from_numpy(V)).numpy()


def softmax(n: Any, x: Any, causal: bool = False, mask: Any = None) -> Any:
    op = trt.AttentionNormalizationOp.SOFTMAX
    layer = n.add_attention(x, constant(n, K), constant(n, V), op, causal)
    if mask is not None:
        layer.mask = constant(n, mask, np.bool_).get_output(0)
    return layer


def quantized(axis: int, scales: Any) -> np.ndarray:
    shape = [1] * 4
    shape[axis] = -1
    steps = scales.reshape(shape) if scales.ndim else scales
    return np.clip(np.rint(X / steps), -128, 127) * steps


CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[], Any], np.ndarray]] = {
    "attention": (lambda n, x: softmax(n, x), lambda: attention(), Q),
    "attention with a mask": (lambda n, x: softmax(n, x, mask=MASK), lambda: attention(MASK), Q),
    "causal attention": (lambda n, x: softmax(n, x, causal=True), lambda: attention(causal=True), Q),
    "attention without softmax": (
        lambda n, x: n.add_attention(x, constant(n, K), constant(n, V), trt.AttentionNormalizationOp.NONE, False),
        lambda: (Q @ K.swapaxes(-1, -2)) @ V,
        Q,
    ),
    "quantize and dequantize": (
        lambda n, x: n.add_dequantize(n.add_quantize(x, constant(n, 0.05), trt.int8), constant(n, 0.05)),
        lambda: quantized(0, np.float32(0.05)),
        X,
    ),
    "quantize by channels": (
        lambda n, x: tune(
            n.add_dequantize(tune(n.add_quantize(x, constant(n, SCALES)), axis=1), constant(n, SCALES)), axis=1
        ),
        lambda: quantized(1, SCALES),
        X,
    ),
    "scatter elements": (
        lambda n, x: tune(
            n.add_scatter(x, constant(n, np.zeros((2, 4, 6, 1)), np.int64), constant(n, np.ones((2, 4, 6, 1))),
                          trt.ScatterMode.ELEMENT), axis=3),
        lambda: T.scatter(3, torch.zeros(2, 4, 6, 1, dtype=torch.int64), torch.ones(2, 4, 6, 1)).numpy(),
        X,
    ),
    "scatter nd": (
        lambda n, x: n.add_scatter(
            x, constant(n, [[1, 2]], np.int64), constant(n, np.ones((1, 6, 8))), trt.ScatterMode.ND
        ),
        lambda: np.stack([X[0], np.stack([X[1, 0], X[1, 1], np.ones((6, 8), np.float32), X[1, 3]])]),
        X,
    ),
    "cumulative sum": (
        lambda n, x: n.add_cumulative(x, constant(n, 2, np.int32), trt.CumulativeOperation.SUM, False, True),
        lambda: np.flip(np.cumsum(np.flip(X, 2), 2), 2),
        X,
    ),
    "grid sample": (
        lambda n, x: tune(n.add_grid_sample(x, constant(n, GRID)), sample_mode=trt.SampleMode.CLAMP),
        lambda: F.grid_sample(T, torch.from_numpy(GRID), padding_mode="border", align_corners=False).numpy(),
        X,
    ),
    "reverse sequence": (
        lambda n, x: tune(
            n.add_reverse_sequence(x, constant(n, [3, 1], np.int32)), batch_axis=0, sequence_axis=1
        ),
        lambda: np.stack([X[0][[2, 1, 0, 3]], X[1]]),
        X,
    ),
    "blended pooling": (
        lambda n, x: tune(n.add_pooling_nd(x, trt.PoolingType.MAX_AVERAGE_BLEND, (2, 2)), blend_factor=0.25),
        lambda: (0.75 * F.max_pool2d(T, 2, 1) + 0.25 * F.avg_pool2d(T, 2, 1)).numpy(),
        X,
    ),
    "slice beyond the ends, filled": (
        lambda n, x: tune(n.add_slice(x, (0, 0, -1, 2), (2, 4, 8, 7), (1, 1, 1, 1)), mode=trt.SampleMode.FILL),
        lambda: F.pad(T[..., 2:], (0, 1, 1, 1)).numpy(),
        X,
    ),
    "slice beyond the ends, reflected": (
        lambda n, x: tune(n.add_slice(x, (0, 0, 0, -2), (2, 4, 6, 12), (1, 1, 1, 1)), mode=trt.SampleMode.REFLECT),
        lambda: F.pad(T, (2, 2, 0, 0), mode="reflect").numpy(),
        X,
    ),
    "linspace": (
        lambda n, x: n.add_elementwise(
            tune(n.add_fill((1, 1, 1, 8), trt.FillOperation.LINSPACE), alpha=2.0, beta=(0, 0, 0, 0.5)), x,
            trt.ElementWiseOperation.SUM,
        ),
        lambda: X + (2 + 0.5 * np.arange(8, dtype=np.float32)),
        X,
    ),
    "linspace of tensors": (
        lambda n, x: n.add_elementwise(ramp(n, (1, 1, 6, 8), 2.0, [0, 0, -1.5, 0.5]), x, trt.ElementWiseOperation.SUM),
        lambda: X + (2 - 1.5 * np.arange(6, dtype=np.float32)[:, None] + 0.5 * np.arange(8, dtype=np.float32)),
        X,
    ),
    "linspace of one tensor": (
        lambda n, x: n.add_elementwise(
            tune(ramp(n, (1, 1, 1, 8), None, [0, 0, 0, 3]), alpha=-1.0), x, trt.ElementWiseOperation.SUM
        ),
        lambda: X + (3 * np.arange(8, dtype=np.float32) - 1),
        X,
    ),
    "top k with 64-bit indices": (
        lambda n, x: n.add_topk(x, trt.TopKOperation.MIN, 2, 1 << 3, trt.int64).get_output(1),
        lambda: T.topk(2, largest=False).indices.numpy(),
        X,
    ),
    "an output of another type": (
        lambda n, x: (lambda layer: (layer.set_output_type(0, trt.int32), layer)[1])(
            n.add_unary(x, trt.UnaryOperation.ABS)
        ),
        lambda: np.abs(X).astype(np.int32),
        X,
    ),
    "pytorch's weights by pointer": (
        lambda n, x: n.add_convolution_nd(x, 4, (1, 1), trt.Weights(trt.float32, EYE.ctypes.data, EYE.size)),
        lambda: X[:, ::-1],
        X,
    ),
}  # fmt: skip
EYE = np.ascontiguousarray(np.eye(4, dtype=np.float32)[::-1])


@pytest.mark.parametrize("name", CASES)
def test_layer(name: str) -> None:
    build, want, x = CASES[name]
    (got,) = run(build, x)
    assert got.dtype == want().dtype
    np.testing.assert_allclose(got, want(), rtol=1e-4, atol=2e-5)


def test_non_zero_gives_places_and_their_number() -> None:
    x = np.array([[0, 3, 0], [1, 0, 2]], np.float32)
    found, count = run(lambda n, t: [n.add_non_zero(t).get_output(i) for i in range(2)], x)
    assert found.dtype == count.dtype == np.int32
    np.testing.assert_array_equal(found, np.stack(np.nonzero(x)))
    assert count == 3


def test_non_maximum_suppression_keeps_the_best_of_overlapping_boxes() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 3, 1, 4]]], np.float32)[:, :, None]

    def make(n: trt.INetworkDefinition, x: Any) -> Any:
        scores = constant(n, [[[0.9], [0.8], [0.7]]])
        layer = n.add_nms(x, scores, constant(n, 5, np.int32))
        layer.set_input(3, constant(n, 0.5))
        layer.set_input(4, constant(n, 0.0))
        return [layer.get_output(0), layer.get_output(1)]

    found, count = run(make, boxes)
    np.testing.assert_array_equal(found, [[0, 0, 0], [0, 0, 2]])
    assert count == 2


def refused(build: Callable[[Any, Any], Any]) -> str:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, X.shape)
    with pytest.raises(nx.Error) as caught:
        build(network, x)
    return str(caught.value)


def test_what_is_not_there_is_refused_with_a_way_out() -> None:
    assert "add_select" in refused(lambda n, x: n.add_ragged_softmax(x, x))
    assert "random numbers" in refused(lambda n, x: n.add_fill((2,), trt.FillOperation.RANDOM_UNIFORM))
    assert "add_quantize" in refused(lambda n, x: n.add_dynamic_quantize(x, 1, 16, trt.fp4, trt.fp8))
    assert "mark_output" in refused(lambda n, x: n.mark_debug(x))
    assert "row-major" in refused(lambda n, x: setattr(x, "allowed_formats", 1 << int(trt.TensorFormat.HWC)))
    assert "has several scales, and no axis" in refused(
        lambda n, x: n.add_quantize(x, constant(n, SCALES)).get_output(0).shape
    )


def test_an_assertion_holds_or_raises() -> None:
    network = trt.Builder().create_network()
    layer = network.add_assertion(constant(network, [True, True], np.bool_), "fine")
    assert layer.num_outputs == 0
    with pytest.raises(nx.InvalidArgumentError, match="does not hold: broken"):
        network.add_assertion(constant(network, [True, False], np.bool_), "broken")
    x = network.add_input("x", trt.bool, (2,))
    with pytest.raises(nx.UnsupportedError, match="only a call tells"):
        network.add_assertion(x, "later")
