"""Small networks for `neurenix selftest`, each with what numpy makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurenix import Network

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
#: The least, expected and greatest batch of every network here.
BATCHES = (1, 2, 6)


@dataclass(frozen=True)
class Case:
    """A network with a dynamic batch, and the same in numpy."""

    name: str
    network: Network
    #: Of one item: dtype and shape.
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]
    compute: Callable[[Arrays], Array]

    def shapes(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The profile: for each input the least, expected and greatest shape."""
        return {name: tuple((batch, *shape) for batch in BATCHES) for name, (_, shape) in self.inputs.items()}

    def arrays(self, batch: int) -> Arrays:
        """Numbers for the inputs, the same at every run."""
        generator = np.random.default_rng(batch)
        found: Arrays = {}
        for name, (dtype, shape) in self.inputs.items():
            if np.dtype(dtype).kind == "f":
                found[name] = generator.standard_normal((batch, *shape)).astype(dtype)
            else:
                found[name] = generator.integers(0, 8, (batch, *shape)).astype(dtype)
        return found


class _Maker:
    """Adds layers to a network and remembers its weights."""

    def __init__(self, name: str) -> None:
        self.network = Network(name)
        self._generator = np.random.default_rng(len(name))

    def input(self, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        return self.network.add_input(name, dtype, ["batch", *shape])

    def weights(self, *shape: int) -> Array:
        fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return np.asarray(self._generator.standard_normal(shape) / np.sqrt(fan), np.float32)

    def add(self, op: str, *inputs: Any, **attrs: Any) -> Any:
        tensors = [self.network.add_constant(f"{op} weights", x) if isinstance(x, np.ndarray) else x for x in inputs]
        return self.network.add_layer(op, tensors, attrs)[0]


def cases() -> list[Case]:
    """Every network, the simplest first."""
    return [pointwise(), product(), residual(), attention(), embedding(), movement()]


def pointwise() -> Case:
    """A chain of activations and arithmetic."""
    make = _Maker("pointwise")
    x = make.input("x", "float32", (16,))
    half = np.float32(0.5).reshape(1)
    y = make.add("Add", make.add("Mul", x, make.add("Sigmoid", x)), half)
    make.network.mark_output(make.add("Tanh", y), "y")
    return Case(
        "pointwise",
        make.network,
        {"x": ("float32", (16,))},
        lambda a: np.tanh(a["x"] * _sigmoid(a["x"]) + 0.5),
    )


def product() -> Case:
    """Two products with a bias, a Relu between them, a softmax behind."""
    make = _Maker("product")
    x = make.input("x", "float32", (32,))
    w, b, v = make.weights(32, 64), make.weights(64), make.weights(64, 10)
    y = make.add("Relu", make.add("Add", make.add("MatMul", x, w), b))
    make.network.mark_output(make.add("Softmax", make.add("MatMul", y, v), axis=-1), "y")
    return Case(
        "product",
        make.network,
        {"x": ("float32", (32,))},
        lambda a: _softmax(np.maximum(a["x"] @ w + b, 0) @ v),
    )


def residual() -> Case:
    """A block of ResNet: three convolutions beside a shortcut, then a mean and a classifier."""
    make = _Maker("residual")
    x = make.input("x", "float32", (16, 14, 14))
    kernels = [make.weights(8, 16, 1, 1), make.weights(8, 8, 3, 3), make.weights(16, 8, 1, 1)]
    biases = [make.weights(8), make.weights(8), make.weights(16)]
    head = make.weights(16, 10)
    y = x
    for kernel, bias in zip(kernels, biases, strict=True):
        pad = kernel.shape[2] // 2
        y = make.add("Conv", y, kernel, bias, pads=[pad] * 4)
        y = make.add("Relu", y) if kernel is not kernels[-1] else y
    y = make.add("Relu", make.add("Add", y, x))
    y = make.add("ReduceMean", y, axes=[2, 3], keepdims=0)
    make.network.mark_output(make.add("MatMul", y, head), "y")

    def compute(a: Arrays) -> Array:
        y = a["x"]
        for kernel, bias in zip(kernels, biases, strict=True):
            y = _convolve(y, kernel) + bias[:, None, None]
            y = np.maximum(y, 0) if kernel is not kernels[-1] else y
        y = np.maximum(y + a["x"], 0).mean((2, 3))
        return np.asarray(y @ head)

    return Case("residual", make.network, {"x": ("float32", (16, 14, 14))}, compute)


def attention() -> Case:
    """A block of a transformer: attention of four heads, a norm, two products with a Gelu, residuals."""
    make = _Maker("attention")
    length, width, heads = 12, 32, 4
    x = make.input("x", "float32", (length, width))
    matrices = [make.weights(width, width) for _ in range(4)]
    up, down = make.weights(width, 2 * width), make.weights(2 * width, width)
    scale, bias = make.weights(width) + 1, make.weights(width)
    split = np.array([0, length, heads, width // heads])

    def head(matrix: Array, perm: list[int]) -> Any:
        return make.add("Transpose", make.add("Reshape", make.add("MatMul", x, matrix), split), perm=perm)

    q, k, v = (head(m, p) for m, p in zip(matrices, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=False))
    factor = np.float32(1 / np.sqrt(width // heads)).reshape(1)
    scores = make.add("Softmax", make.add("Mul", make.add("MatMul", q, k), factor), axis=-1)
    mixed = make.add("Transpose", make.add("MatMul", scores, v), perm=[0, 2, 1, 3])
    mixed = make.add("Reshape", mixed, np.array([0, length, width]))
    y = make.add("Add", make.add("MatMul", mixed, matrices[3]), x)
    normed = make.add("LayerNormalization", y, scale, bias, axis=-1)
    inner = make.add("Gelu", make.add("MatMul", normed, up), approximate="tanh")
    make.network.mark_output(make.add("Add", make.add("MatMul", inner, down), y), "y")

    def compute(a: Arrays) -> Array:
        x = a["x"].astype(np.float64)
        shape = (len(x), length, heads, width // heads)
        q, k, v = ((x @ m).reshape(shape).transpose(0, 2, 1, 3) for m in matrices[:3])
        scores = _softmax(q @ k.swapaxes(2, 3) * factor)
        y = (scores @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ matrices[3] + x
        away = y - y.mean(-1, keepdims=True)
        normed = away / np.sqrt((away**2).mean(-1, keepdims=True) + 1e-5) * scale + bias
        up_ = normed @ up
        inner = 0.5 * up_ * (1 + np.tanh(np.sqrt(2 / np.pi) * (up_ + 0.044715 * up_**3)))
        return np.asarray(inner @ down + y)

    return Case("attention", make.network, {"x": ("float32", (length, width))}, compute)


def embedding() -> Case:
    """Rows of a table by integers, their sum, and a product."""
    make = _Maker("embedding")
    ids = make.input("ids", "int64", (5,))
    table, matrix = make.weights(8, 24), make.weights(24, 6)
    rows = make.add("ReduceSum", make.add("Gather", table, ids, axis=0), axes=[1], keepdims=0)
    make.network.mark_output(make.add("Tanh", make.add("MatMul", rows, matrix)), "y")
    return Case(
        "embedding",
        make.network,
        {"ids": ("int64", (5,))},
        lambda a: np.tanh(table[a["ids"]].sum(1) @ matrix),
    )


def movement() -> Case:
    """Elements that are moved: slices, a concatenation, a turn, a pooling; sizes come with the call."""
    make = _Maker("movement")
    x = make.input("x", "float32", (4, 6, 8))
    left = make.add("Slice", x, np.array([0]), np.array([4]), np.array([3]))
    right = make.add("Slice", x, np.array([4]), np.array([8]), np.array([3]))
    y = make.add("Concat", make.add("Relu", right), make.add("Exp", left), axis=1)
    y = make.add("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = make.add("Transpose", y, perm=[0, 2, 3, 1])
    make.network.mark_output(make.add("Reshape", make.add("Neg", y), np.array([-1, 16])), "y")

    def compute(a: Arrays) -> Array:
        x = a["x"]
        y = np.concatenate([np.maximum(x[..., 4:], 0), np.exp(x[..., :4])], 1)
        y = y.reshape(len(x), 8, 3, 2, 2, 2).max((3, 5))
        return np.asarray(-y.transpose(0, 2, 3, 1).reshape(-1, 16))

    return Case("movement", make.network, {"x": ("float32", (4, 6, 8))}, compute)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def _convolve(x: Array, kernel: Array) -> Array:
    """A convolution that keeps the extents, tap by tap."""
    extent = kernel.shape[2]
    pad = extent // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    height, width = x.shape[2:]
    total = np.zeros((len(x), len(kernel), height, width))
    for row in range(extent):
        for column in range(extent):
            part = padded[:, :, row : row + height, column : column + width]
            total += np.einsum("nchw,oc->nohw", part, kernel[:, :, row, column])
    return total
