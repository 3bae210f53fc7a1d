"""Random networks of the layers that quantizers know: convolutions, products, pools, activations, attention."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
#: Channels, height and width of what a network of images passes on.
Shape = tuple[int, int, int]
F32 = np.float32
#: Samples of a batch where its size is open.
ROWS = 3
#: The most elements of a sample.
MOST = 40_000


class Net:
    """A network that grows."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(self.random.randrange(2**31))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.batch: int | str = self.random.choice(["n", "n", 1, 2])
        self.rows = ROWS if self.batch == "n" else int(self.batch)
        #: Of one sample.
        self.shape: tuple[int, ...] = ()
        self.spread = self.random.choice([(0.0, 1.0), (0.0, 3.0), (0.5, 0.5)])

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], f"{name}_{op}", **attrs))
        return name

    def constant(self, array: Any, dtype: Any = F32) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def weight(self, *shape: int, terms: int) -> str:
        """Weights, of some layers with channels of other sizes."""
        array = self.rng.standard_normal(shape) / max(1, terms) ** 0.5
        if self.maybe(0.2):
            array *= np.exp(self.rng.standard_normal((shape[0],) + (1,) * (len(shape) - 1)))
        return self.constant(array)

    def vector(self, n: int, scale: float = 0.3) -> str:
        return self.constant(self.rng.standard_normal(n) * scale)

    def data(self, rows: int | None = None) -> dict[str, Array]:
        """A batch."""
        middle, scale = self.spread
        return {"x": (self.rng.standard_normal((rows or self.rows, *self.shape)) * scale + middle).astype(F32)}

    def model(self, results: list[str]) -> onnx.ModelProto:
        ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [self.batch, *self.shape])]
        outputs = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(results)]
        graph = helper.make_graph(self.nodes, "net", ports, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def gelu(net: Net, x: str) -> str:
    erf = net.add("Erf", net.add("Div", x, net.constant(2**0.5)))
    return net.add("Mul", net.add("Mul", x, net.add("Add", erf, net.constant(1.0))), net.constant(0.5))


def activation(net: Net, x: str) -> str:
    choices = ["Relu", "Relu", "HardSwish", "LeakyRelu", "Sigmoid", "HardSigmoid", "Tanh", "Elu"]
    kind = net.random.choice([*choices, "ReLU6", "clamp", "SiLU", "GELU", "none", "none"])
    if kind in ("ReLU6", "clamp"):
        low, high = (0.0, 6.0) if kind == "ReLU6" else (-0.7, 1.3)
        return net.add("Clip", x, net.constant(low), net.constant(high))
    if kind == "SiLU":
        return net.add("Mul", x, net.add("Sigmoid", x))
    if kind in ("GELU", "none"):
        return gelu(net, x) if kind == "GELU" else x
    return net.add(kind, x)


def convolution(net: Net, x: str, s: Shape, to: int = 0, kernel: int = 0, stride: int = 0) -> tuple[str, Shape]:
    """A convolution that keeps the extents where `stride` is 1; grouped where nothing is said of the channels."""
    c, h, w = s
    k, stride = kernel or net.random.choice([1, 1, 3, 3, 5]), stride or net.random.choice([1, 1, 2, 3])
    dilation = net.random.choice([1, 1, 2]) if k == 3 else 1
    groups = 1 if to else net.random.choice([1, 1, c] + [g for g in (2, 3, 4) if c % g == 0])
    out = to or groups * max(1, net.random.choice([1, 5, 8, 16, 17, 32]) // groups)
    pad = (k - 1) * dilation // 2
    inputs = [x, net.weight(out, c // groups, k, k, terms=c // groups * k * k)]
    inputs += [net.vector(out)] * net.maybe(0.8)
    y = net.add("Conv", *inputs, group=groups, strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4)
    return y, (out, (h - 1) // stride + 1, (w - 1) // stride + 1)


def conv_block(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    y, s = convolution(net, x, s)
    return activation(net, y), s


def transposed(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    c, h, w = s
    k, stride, out = net.random.choice([1, 2, 3, 4]), net.random.choice([1, 2, 3]), net.random.choice([1, 7, 8, 16])
    pad, more = net.random.randrange((k + 1) // 2), net.random.randrange(stride)
    groups = net.random.choice([1, 1, c])
    extents = [(n - 1) * stride + k + more - 2 * pad for n in (h, w)]
    if min(extents) < 1 or max(extents) > 40:
        return x, s
    out = 1 if groups > 1 else out
    inputs = [x, net.weight(c, out, k, k, terms=c // groups * k * k)]
    inputs += [net.vector(out * groups)] * net.maybe(0.7)
    attrs = {"strides": [stride] * 2, "pads": [pad] * 4, "output_padding": [more] * 2, "group": groups}
    return activation(net, net.add("ConvTranspose", *inputs, **attrs)), (out * groups, extents[0], extents[1])


def residual(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    y, t = convolution(net, x, s, net.random.choice([8, 16]), net.random.choice([1, 3]), 1)
    y, _ = convolution(net, activation(net, y), t, s[0], 1, 1)
    y = net.add(net.random.choice(["Add", "Add", "Add", "Mul"]), *net.random.sample([x, y], 2))
    return activation(net, y), s


def joined(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    parts, channels = [], 0
    for _ in range(net.random.choice([2, 3])):
        y, c = x, s[0]
        if net.maybe(0.7):
            y, t = convolution(net, x, s, net.random.choice([3, 8, 16]), net.random.choice([1, 3]), 1)
            y, c = activation(net, y), t[0]
        elif net.maybe(0.5):
            y = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
        parts, channels = [*parts, y], channels + c
    return net.add("Concat", *parts, axis=1), (channels, *s[1:])


def pooled(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    k, stride = net.random.choice([2, 3]), net.random.choice([1, 2])
    if min(s[1:]) < k:
        return x, s
    y = net.add(net.random.choice(["MaxPool", "AveragePool"]), x, kernel_shape=[k, k], strides=[stride] * 2)
    return y, (s[0], (s[1] - k) // stride + 1, (s[2] - k) // stride + 1)


def resized(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    if max(s[1:]) > 14:
        return x, s
    near = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    attrs = net.random.choice([near, {"mode": "linear"}])
    return net.add("Resize", x, "", net.constant([1, 1, 2, 2]), **attrs), (s[0], 2 * s[1], 2 * s[2])


def excited(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    """Squeeze-and-excitation."""
    c, few = s[0], net.random.choice([2, 8])
    y, t = convolution(net, net.add("GlobalAveragePool", x), (c, 1, 1), few, 1, 1)
    y, _ = convolution(net, net.add("Relu", y), t, c, 1, 1)
    return net.add("Mul", x, net.add(net.random.choice(["Sigmoid", "HardSigmoid"]), y)), s


def scaled(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    shape = net.random.choice([(), (s[0], 1, 1), (1, s[0], 1, 1)])
    factor = net.constant(np.abs(net.rng.standard_normal(shape)) + 0.3)
    return net.add(net.random.choice(["Mul", "Add", "Sub", "Div"]), x, factor), s


def normalized(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    positive = [net.constant(net.rng.uniform(0.3, 2, s[0])) for _ in range(2)]
    return net.add("BatchNormalization", x, positive[0], net.vector(s[0]), net.vector(s[0]), positive[1]), s


def channels_last(net: Net, x: str, s: Shape) -> tuple[str, Shape]:
    """A product over the channels."""
    y = linear(net, net.add("Transpose", x, perm=[0, 2, 3, 1]), s[0], 8)
    return net.add("Transpose", net.add("Relu", y), perm=[0, 3, 1, 2]), (8, *s[1:])


Block = Callable[[Net, str, Shape], tuple[str, Shape]]
BLOCKS: list[Block] = [
    *[conv_block] * 5, *[residual] * 3, *[transposed] * 2, joined, pooled, resized, excited, scaled, normalized,
    channels_last,
]  # fmt: skip


def images(net: Net) -> list[str]:
    """A network of images; its results."""
    s: Shape = (net.random.choice([1, 3, 4, 8, 16, 19]), net.random.randrange(4, 13), net.random.randrange(4, 13))
    net.shape, x = s, "x"
    results: list[str] = []
    for _ in range(net.random.randint(1, 7)):
        x, s = net.random.choice(BLOCKS)(net, x, s)
        results += [x] * net.maybe(0.1)
        if np.prod(s) > MOST:
            break
    if net.maybe(0.5):
        y = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
        x = net.add("Gemm", y, net.weight(10, s[0], terms=s[0]), net.vector(10), transB=1)
    return [name for name in [*results, x] if name != "x"]


def linear(net: Net, x: str, size: int, to: int) -> str:
    y = net.add("MatMul", x, net.weight(size, to, terms=size))
    return net.add("Add", *net.random.sample([y, net.vector(to)], 2)) if net.maybe(0.8) else y


def attention(net: Net, x: str, heads: int, size: int) -> str:
    whole = heads * size
    split = net.ints(0, 0, heads, size)
    orders = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]]
    q, k, v = (
        net.add("Transpose", net.add("Reshape", linear(net, x, whole, whole), split), perm=perm) for perm in orders
    )
    scores = net.add("Mul", net.add("MatMul", q, k), net.constant(size**-0.5))
    y = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return linear(net, net.add("Reshape", y, net.ints(0, 0, whole)), whole, whole)


def tokens(net: Net) -> list[str]:
    """A small transformer; its result."""
    heads, size = net.random.choice([1, 2, 3]), net.random.choice([4, 8, 16])
    whole, x = heads * size, "x"
    net.shape = (net.random.choice([1, 3, 7, 16]), whole)
    for _ in range(net.random.randint(1, 3)):
        y = x
        if net.maybe(0.6):
            y = net.add("LayerNormalization", x, net.vector(whole, 1.0), net.vector(whole), axis=-1)
        if net.maybe(0.5):
            y = attention(net, y, heads, size)
        else:
            wide = net.random.choice([5, 16, 33, 64])
            y = linear(net, activation(net, linear(net, y, whole, wide)), wide, whole)
        x = net.add("Add", *net.random.sample([x, y], 2))
    return [x]


def grow(seed: str) -> tuple[Net, onnx.ModelProto] | None:
    """A network, and its model; none where no block had a place."""
    net = Net(seed)
    results = net.random.choice([images, images, images, tokens])(net)
    return (net, net.model(results)) if results else None
