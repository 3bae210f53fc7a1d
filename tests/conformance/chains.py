"""Networks of a few layers that a provider may run as one kernel: what one-layer cases do not reach."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import neurenix as nx
from tests.conformance.case import Array, dtype_of

FLOATS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Chain:
    """A network with what its inputs are made of; `make` adds its layers and gives the results."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    make: Callable[[Builder], list[nx.Tensor]]
    dtypes: tuple[str, ...] = FLOATS

    def network(self, dtype: str) -> nx.Network:
        """The network in a dtype; its inputs are x0, x1, ..."""
        builder = Builder(self.name, dtype)
        builder.inputs = [builder.network.add_input(f"x{i}", dtype, list(s)) for i, s in enumerate(self.shapes)]
        for number, result in enumerate(self.make(builder)):
            builder.network.mark_output(result, f"y{number}")
        return builder.network

    def feeds(self, dtype: str, seed: int = 0) -> dict[str, Array]:
        """Normally distributed inputs."""
        rng = np.random.default_rng(seed)
        return {f"x{i}": rng.standard_normal(s).astype(dtype_of(dtype)) for i, s in enumerate(self.shapes)}


class Builder:
    """A network in the making, whose constants are of one dtype."""

    def __init__(self, name: str, dtype: str) -> None:
        self.network = nx.Network(name)
        self.inputs: list[nx.Tensor] = []
        self._dtype = dtype_of(dtype)
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))

    def constant(self, *shape: int, scale: float = 1.0) -> nx.Tensor:
        """Normally distributed numbers."""
        array = np.asarray(scale * self._rng.standard_normal(shape)).astype(self._dtype)
        return self.network.add_constant("c", array)

    def op(self, name: str, *inputs: nx.Tensor, **attrs: Any) -> nx.Tensor:
        """The first output of a layer."""
        return self.network.add_layer(name, list(inputs), attrs)[0]

    def activation(self, name: str, x: nx.Tensor) -> nx.Tensor:
        """A function of each element; a Clip cuts on both sides."""
        bounds = [self.number(-0.5), self.number(1.5)] if name == "Clip" else []
        return self.op(name, x, *bounds)

    def number(self, value: float) -> nx.Tensor:
        """A single number."""
        return self.network.add_constant("c", np.asarray(value).astype(self._dtype))

    def conv(self, x: nx.Tensor, out: int, kernel: int = 1, *, bias: bool = True, **attrs: Any) -> nx.Tensor:
        """A convolution of random weights, padded to the same extents where its stride is 1."""
        rank, group = len(x.shape) - 2, int(attrs.get("group", 1))
        channels = int(x.shape[1]) // group
        scale = (channels * kernel**rank) ** -0.5
        weights = self.constant(out, channels, *[kernel] * rank, scale=scale)
        given = [x, weights, self.constant(out)] if bias else [x, weights]
        return self.op("Conv", *given, **{"pads": [kernel // 2] * 2 * rank} | attrs)


def convolution(name: str, shape: tuple[int, ...], out: int, kernel: int, **attrs: Any) -> list[Chain]:
    """A convolution alone, and with what may follow it: an activation, a residual, both."""
    stride = attrs.get("strides", [1])[0]
    extents = tuple(-(-extent // stride) for extent in shape[2:])
    residual = (shape[0], out, *extents)
    made = []
    each = product((False, True), (False, True), (None, "Relu", "Silu", "Sigmoid"))
    cut = ((True, False, "Clip"), (True, True, "Clip"), (True, False, "HardSigmoid"), (True, True, "HardSwish"))
    for bias, added, last in (*each, *cut):

        def make(b: Builder, bias: bool = bias, added: bool = added, last: str | None = last) -> list[nx.Tensor]:
            y = b.conv(b.inputs[0], out, kernel, bias=bias, **attrs)
            y = b.op("Add", y, b.inputs[1]) if added else y
            return [b.activation(last, y) if last else y]

        parts = [name, *(["bias"] if bias else []), *(["add"] if added else []), *([last] if last else [])]
        made.append(Chain("_".join(parts), (shape, residual) if added else (shape,), make))
    return made


def endings(name: str, shape: tuple[int, ...], out: int, kernel: int, **attrs: Any) -> list[Chain]:
    """A convolution with what may follow its activation: a scale and a shift for each channel, and a residual."""
    residual, channels = (shape[0], out, *shape[2:]), (out, *[1] * (len(shape) - 2))
    made = []
    for last, ending in (
        ("Gelu", "scale_shift_add"),
        ("Silu", "add"),
        ("Relu", "add"),
        ("Silu", "scale_shift"),
        ("Clip", "shift_add"),
        (None, "scale_add"),
    ):

        def make(b: Builder, last: str | None = last, ending: str = ending) -> list[nx.Tensor]:
            y = b.conv(b.inputs[0], out, kernel, **attrs)
            y = b.activation(last, y) if last else y
            y = b.op("Mul", y, b.constant(*channels)) if "scale" in ending else y
            y = b.op("Add", y, b.constant(*channels)) if "shift" in ending else y
            return [b.op("Add", b.inputs[1], y) if "add" in ending else y]

        shapes = (shape, residual) if "add" in ending else (shape,)
        made.append(Chain("_".join([name, *([last] if last else []), "then", ending]), shapes, make))
    return made


def depthwise(size: str, shapes: tuple[tuple[int, tuple[int, ...]], ...], each: int = 1) -> list[Chain]:
    """Depthwise convolutions of odd extents, by the sizes of their kernels, to so many results of each channel."""

    def make(b: Builder, channels: int, kernel: int) -> list[nx.Tensor]:
        y = b.conv(b.inputs[0], channels * each, kernel, group=channels)
        return [b.op("Add", b.op("Silu", y), b.inputs[1])]

    made = []
    for kernel, shape in shapes:
        name = f"depthwise{kernel}x{kernel}_of_{shape[0]}_{size}"
        residual = (shape[0], shape[1] * each, *shape[2:])
        made.append(Chain(name, (shape, residual), functools.partial(make, channels=shape[1], kernel=kernel)))
    return made


#: Large enough for a thread of a GPU to compute two rows.
LARGE_DEPTHWISE = (
    (3, (3, 96, 63, 117)),
    (3, (1, 96, 87, 83)),
    (5, (3, 96, 63, 75)),
    (5, (1, 96, 77, 79)),
    (7, (1, 96, 77, 79)),
)


def large_convolutions() -> list[Chain]:
    """Convolutions that fill a GPU with tiles of matrices, whose pixels are rows or windows of them."""

    def make(b: Builder, out: int, kernel: int, bias: bool, ending: str, **attrs: Any) -> list[nx.Tensor]:
        y = b.conv(b.inputs[0], out, kernel, bias=bias, **attrs)
        for step in ending.split():
            match step:
                case "scale":
                    y = b.op("Mul", b.constant(*y.shape[1:2], *[1] * (len(y.shape) - 2)), y)
                case "shift":
                    y = b.op("Add", y, b.constant(*y.shape[1:2], *[1] * (len(y.shape) - 2)))
                case "add":
                    y = b.op("Add", y, b.inputs[1])
                case _:
                    y = b.activation(step, y)
        return [y]

    made = []
    for shape, out, kernel, bias, ending, attrs in (
        ((2, 64, 47, 45), 136, 1, True, "add Silu", {}),
        ((2, 40, 47, 45), 136, 1, True, "Gelu scale shift add", {}),
        ((3, 64, 47, 45), 100, 1, False, "", {}),
        ((2, 64, 93, 90), 136, 1, True, "Silu add", {"strides": [2, 2]}),
        ((2, 32, 47, 45), 136, 3, True, "Relu scale shift", {}),
        ((2, 64, 93, 90), 136, 3, True, "Silu add", {"strides": [2, 2]}),
        ((2, 48, 47, 45), 136, 3, True, "Clip shift", {"dilations": [1, 2], "pads": [1, 0, 0, 3]}),
        ((2, 16, 4093), 72, 5, False, "add", {}),
    ):
        attrs = {"pads": [kernel // 2] * 2 * (len(shape) - 2)} | attrs
        each = attrs.get("strides", [1, 1])
        residual = (shape[0], out, *(-(-extent // stride) for extent, stride in zip(shape[2:], each, strict=False)))
        parts = [f"conv{kernel}_of_{shape[1]}_large", *(["bias"] if bias else []), *ending.split()]
        used = functools.partial(make, out=out, kernel=kernel, bias=bias, ending=ending, **attrs)
        made.append(Chain("_".join(parts), (shape, residual) if "add" in ending else (shape,), used))
    return made


def matrices(name: str, left: tuple[int, ...], columns: int) -> list[Chain]:
    """A product with a constant matrix, with bias, residual and activation."""
    made = []
    for added, last in product((False, True), (None, "Relu", "Gelu", "Silu")):

        def make(b: Builder, added: bool = added, last: str | None = last) -> list[nx.Tensor]:
            weights = b.constant(left[-1], columns, scale=left[-1] ** -0.5)
            y = b.op("Add", b.op("MatMul", b.inputs[0], weights), b.constant(columns))
            y = b.op(last, y) if last else y
            return [b.op("Add", y, b.inputs[1]) if added else y]

        shapes = (left, (*left[:-1], columns)) if added else (left,)
        made.append(Chain("_".join([name, *(["add"] if added else []), *([last] if last else [])]), shapes, make))
    return made


def several(name: str, left: tuple[int, ...], columns: int) -> list[Chain]:
    """A product with what follows, of which others read what is in between: the product, the biased one, both."""
    made = []
    for kept in ("product", "biased", "product_biased"):

        def make(b: Builder, kept: str = kept) -> list[nx.Tensor]:
            y = b.op("MatMul", b.inputs[0], b.constant(left[-1], columns, scale=left[-1] ** -0.5))
            biased = b.op("Add", y, b.constant(columns))
            last = b.op("Add", b.op("Silu", biased), b.inputs[1])
            return [*([y] if "product" in kept else []), *([biased] if "biased" in kept else []), last]

        made.append(Chain(f"{name}_{kept}_kept", (left, (*left[:-1], columns)), make))
    return made


def by_row(name: str, left: tuple[int, ...], columns: int) -> Chain:
    """A product with a number for each row, added and multiplied with."""

    def make(b: Builder) -> list[nx.Tensor]:
        y = b.op("MatMul", b.inputs[0], b.constant(left[-1], columns, scale=left[-1] ** -0.5))
        y = b.op("Add", b.op("Mul", y, b.inputs[1]), b.constant(columns))
        return [b.op("Silu", b.op("Sub", y, b.inputs[2]))]

    each = (*left[:-1], 1)
    return Chain(f"{name}_by_row", (left, each, each), make)


def tokens(name: str, left: tuple[int, ...], columns: int) -> Chain:
    """A product of integers with a scale for each token and each channel."""

    def make(b: Builder) -> list[nx.Tensor]:
        rng = np.random.default_rng(columns)
        x = b.op("DequantizeLinear", *b.network.add_layer("DynamicQuantizePerToken", [b.inputs[0]]))
        stored = b.network.add_constant("w", rng.integers(-127, 128, (left[-1], columns)).astype(np.int8))
        scales = b.network.add_constant("s", (rng.uniform(0.5, 1, (1, columns)) / left[-1]).astype(np.float32))
        y = b.op("MatMul", x, b.op("DequantizeLinear", stored, scales))
        return [b.op("Silu", b.op("Add", y, b.constant(columns)))]

    return Chain(f"{name}_of_tokens", (left,), make, ("float32",))


def few_bits(name: str, left: tuple[int, ...], columns: int, bits: int) -> list[Chain]:
    """A product with weights of few bits in blocks of 32, with bias, activation and residual."""
    made = []
    for added, last in ((False, "Silu"), (True, None), (True, "Gelu")):

        def make(b: Builder, added: bool = added, last: str | None = last) -> list[nx.Tensor]:
            rng, blocks = np.random.default_rng(columns), -(-left[-1] // 32)
            codes = rng.integers(0, 256, (columns, blocks, 32 * bits // 8)).astype(np.uint8)
            scales = rng.uniform(0.5, 1, (columns, blocks)).astype(np.float32) / 2 ** (bits - 1) / left[-1] ** 0.5
            stored = [b.network.add_constant("b", codes), b.network.add_constant("scales", scales)]
            attrs = {"K": left[-1], "N": columns, "bits": bits, "block_size": 32}
            y = b.op("Add", b.op("MatMulNBits", b.inputs[0], *stored, **attrs), b.constant(columns))
            y = b.op(last, y) if last else y
            return [b.op("Add", y, b.inputs[1]) if added else y]

        shapes = (left, (*left[:-1], columns)) if added else (left,)
        made.append(Chain("_".join([name, *(["add"] if added else []), *([last] if last else [])]), shapes, make))
    return made


def rows(name: str, left: tuple[int, ...], columns: int) -> list[Chain]:
    """A product whose rows are normalized or reduced: with what is in front and behind, and what others read."""
    result = (*left[:-1], columns)

    def product(b: Builder) -> nx.Tensor:
        return b.op("MatMul", b.inputs[0], b.constant(left[-1], columns, scale=left[-1] ** -0.5))

    def residual(b: Builder) -> nx.Tensor:
        return b.op("Add", b.op("Add", product(b), b.constant(columns)), b.inputs[1])

    def layer_norm(b: Builder) -> list[nx.Tensor]:
        return [b.op("LayerNormalization", residual(b), b.constant(columns), b.constant(columns), epsilon=1e-5)]

    def kept(b: Builder) -> list[nx.Tensor]:
        total = residual(b)
        y = b.op("LayerNormalization", total, b.constant(columns), epsilon=1e-5)
        return [total, y, b.op("Silu", y)]

    def rms_norm(b: Builder) -> list[nx.Tensor]:
        y = b.op("RMSNormalization", product(b), b.constant(columns), epsilon=1e-6)
        return [b.op("Add", b.op("Silu", y), b.inputs[1])]

    def reduced(b: Builder, op: str) -> list[nx.Tensor]:
        y = b.op("Add", product(b), b.inputs[1])
        # The least magnitude would be next to nothing, and have no digits.
        y = y if op == "ReduceMin" else b.op("Abs", y)
        return [b.op(op, y, axes=[len(left) - 1], keepdims=int(op == "ReduceMax")), *([y] if op == "ReduceMin" else [])]

    made = [Chain(f"{name}_{of.__name__}", (left, result), of) for of in (layer_norm, kept, rms_norm)]
    for op in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum"):
        made.append(Chain(f"{name}_{op}", (left, result), functools.partial(reduced, op=op)))
    return made


def squeeze_excitation() -> list[Chain]:
    """Means over pixels, the small layers behind them that make a factor of each channel, and the product with it."""

    def dense(b: Builder, y: nx.Tensor, hidden: int, results: int, inner: str | None, outer: str | None) -> nx.Tensor:
        y = b.conv(y, hidden, bias=results != 21)
        y = b.conv(b.activation(inner, y) if inner else y, results)
        return b.activation(outer, y) if outer else y

    def across(b: Builder, y: nx.Tensor, kernel: int) -> nx.Tensor:
        def reshaped(x: nx.Tensor, *to: int) -> nx.Tensor:
            return b.op("Reshape", x, b.network.add_constant("shape", np.asarray(to, np.int64)))

        images, channels = y.shape[:2]
        y = b.conv(reshaped(y, images, 1, channels), 1, kernel, bias=kernel != 5)
        return reshaped(b.op("Sigmoid", y), images, channels, 1, 1)

    made = []
    for name, shape, excite in (
        ("even", (2, 64, 9, 7), functools.partial(dense, hidden=16, results=64, inner="Relu", outer="Sigmoid")),
        ("odd", (3, 19, 5, 6), functools.partial(dense, hidden=3, results=21, inner="Silu", outer="HardSigmoid")),
        ("volume", (2, 24, 3, 4, 5), functools.partial(dense, hidden=8, results=24, inner="HardSwish", outer=None)),
        ("many", (1, 1033, 3, 5), functools.partial(dense, hidden=70, results=1033, inner=None, outer="Clip")),
        (
            "many_even",
            (2, 1280, 4, 4),
            functools.partial(dense, hidden=320, results=1280, inner="Relu", outer="Sigmoid"),
        ),
        ("across_even", (2, 64, 9, 7), functools.partial(across, kernel=3)),
        ("across_odd", (3, 19, 5, 6), functools.partial(across, kernel=5)),
        ("across_many", (1, 1033, 3, 5), functools.partial(across, kernel=9)),
    ):

        def make(b: Builder, scaled: bool, excite: Any = excite) -> list[nx.Tensor]:
            x = b.inputs[0]
            factors = excite(b, b.op("ReduceMean", x, axes=list(range(2, len(x.shape)))))
            return [b.op("Mul", x, factors) if scaled else factors]

        for scaled in (False, *([True] if name != "odd" else [])):
            full = f"squeeze_excitation_{name}{'_scaled' if scaled else ''}"
            made.append(Chain(full, (shape,), functools.partial(make, scaled=scaled)))
    return made


def over_norms(rows: int, length: int, bound: str | None) -> Chain:
    """Rows divided by their Euclidean norms, which may be bounded from below."""

    def make(b: Builder) -> list[nx.Tensor]:
        x = b.inputs[0]
        norm = b.op("ReduceL2", x, axes=[2])
        if bound:
            norm = b.op(bound, norm, *([] if bound == "Relu" else [b.number(length**0.5)]))
        return [b.op("Div", x, norm)]

    return Chain(f"over_norms_of_{length}_{bound}", ((2, rows, length),), make, (*FLOATS, "float64"))


def widened() -> list[Chain]:
    """Products of 16 bits whose results the precision brings back to float32."""
    convolved, image = (2, 32, 5, 7), (2, 48, 5, 7)

    def conv(b: Builder) -> list[nx.Tensor]:
        y = b.op("Relu", b.op("Add", b.conv(b.inputs[0], 48, 3), b.inputs[1]))
        return [b.op("Cast", y, to="float32", elidable=1)]

    def matmul(b: Builder) -> list[nx.Tensor]:
        y = b.op("MatMul", b.inputs[0], b.constant(64, 48, scale=0.125))
        return [b.op("Cast", b.op("Add", y, b.constant(48)), to="float32", elidable=1)]

    short = FLOATS[1:]
    return [Chain("conv_widened", (convolved, image), conv, short), Chain("matmul_widened", ((33, 64),), matmul, short)]


def pixels_attend(name: str, heads: int, size: int, pixels: tuple[int, int], keys: int) -> Chain:
    """Attention whose queries are the pixels of an image, with keys and values from one tensor, as behind a pooling."""
    channels, queries = heads * size, pixels[0] * pixels[1]

    def make(b: Builder) -> list[nx.Tensor]:
        def apart(x: nx.Tensor, count: int) -> nx.Tensor:
            shape = b.network.add_constant("shape", np.asarray([3, count, heads, size], np.int64))
            return b.op("Transpose", b.op("Reshape", x, shape), perm=[0, 2, 1, 3])

        q = apart(b.op("Transpose", b.inputs[0], perm=[0, 2, 3, 1]), queries)
        k, v = b.network.add_layer("Split", [b.inputs[1]], {"axis": 2, "split": [channels, channels]})
        y = b.op("Transpose", b.op("Attention", q, apart(k, keys), apart(v, keys)), perm=[0, 2, 1, 3])
        return [b.op("Reshape", y, b.network.add_constant("shape", np.asarray([3, queries, -1], np.int64)))]

    return Chain(f"pixels_attend_{name}", ((3, channels, *pixels), (3, keys, 2 * channels)), make)


def pointwise() -> list[Chain]:
    """Two and three pointwise layers, with operands that are broadcast along each sort of axis."""
    one = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs")
    two = ("Add", "Mul", "Sub", "Max")
    sides = {"same": (2, 17, 4, 5), "channel": (1, 17, 1, 1), "row": (5,), "scalar": ()}
    made = []
    for number, (first, second, (side, shape)) in enumerate(product(two, one, sides.items())):
        third = two[number % len(two)]

        def make(b: Builder, first: str = first, second: str = second, third: str = third) -> list[nx.Tensor]:
            y = b.op(first, b.inputs[0], b.inputs[1])
            return [b.op(third, b.op(second, y), b.inputs[0])]

        made.append(Chain(f"{first}_{second}_{third}_{side}", ((2, 17, 4, 5), shape), make))
    return made


CHAINS: list[Chain] = [
    *convolution("conv1x1", (2, 32, 5, 7), 64, 1),
    *convolution("conv3x3", (2, 32, 5, 7), 64, 3),
    *convolution("conv3x3_odd", (2, 19, 5, 7), 21, 3),
    *convolution("conv3x3_stride", (2, 32, 10, 8), 64, 3, strides=[2, 2]),
    *convolution("conv1x1_stride", (2, 64, 10, 8), 64, 1, strides=[2, 2]),
    *convolution("depthwise", (2, 32, 5, 7), 32, 3, group=32),
    *convolution("depthwise_doubled", (2, 32, 10, 8), 64, 7, group=32, strides=[2, 2]),
    *convolution("depthwise1x1_stride", (2, 32, 10, 8), 32, 1, group=32, strides=[2, 2]),
    *convolution("grouped", (2, 32, 5, 7), 64, 3, group=4),
    *convolution("stem", (2, 3, 7, 17), 16, 3),
    *convolution("conv3d", (1, 16, 3, 4, 7), 32, 3),
    *endings("conv1x1", (2, 32, 5, 7), 64, 1),
    *endings("conv3x3", (2, 32, 5, 7), 64, 3),
    *endings("planes", (2, 4, 9, 8), 6, 1),
    *endings("planes_odd", (3, 7, 5, 9), 16, 1),
    *endings("planes_of_some_blocks", (2, 16, 40, 36), 3, 1),
    *endings("conv3x3_odd", (2, 19, 5, 7), 21, 3),
    *endings("depthwise", (2, 32, 5, 7), 32, 7, group=32),
    *endings("depthwise_of_four", (2, 9, 5, 7), 36, 3, group=9),
    *depthwise("small", ((3, (3, 96, 13, 17)), (5, (1, 96, 17, 19)), (7, (1, 48, 17, 19)))),
    *endings("grouped", (2, 32, 5, 7), 64, 3, group=4),
    *endings("conv3d", (1, 16, 3, 4, 7), 32, 3),
    *matrices("matmul", (2, 33, 64), 48),
    *matrices("matmul_row", (1, 64), 96),
    *several("matmul", (2, 33, 64), 48),
    *several("matmul_odd", (2, 9, 37), 19),
    *several("matmul_large", (150, 192), 136),
    by_row("matmul", (2, 33, 64), 48),
    by_row("matmul_odd", (2, 9, 37), 19),
    by_row("matmul_large", (150, 192), 136),
    tokens("matmul", (2, 33, 64), 48),
    tokens("matmul_odd", (9, 37), 19),
    tokens("matmul_large", (150, 192), 136),
    *few_bits("matmul_4_bits", (2, 9, 96), 40, 4),
    *few_bits("matmul_4_bits_rows", (27, 64), 24, 4),
    *few_bits("matmul_8_bits_row", (1, 200), 33, 8),
    *few_bits("matmul_4_bits_many_rows", (515, 64), 24, 4),
    *rows("matmul_rows", (2, 33, 64), 48),
    *rows("matmul_rows_odd", (2, 9, 37), 19),
    *rows("matmul_rows_of_several_blocks", (150, 192), 392),
    *rows("matmul_rows_of_a_whole_cluster", (3, 40), 1003),
    pixels_attend("64", 2, 64, (4, 4), 37),
    pixels_attend("96", 4, 96, (7, 10), 130),
    pixels_attend("odd", 3, 19, (3, 1), 9),
    *squeeze_excitation(),
    over_norms(300, 32, "Clip"),
    over_norms(5, 37, "Max"),
    over_norms(40, 784, "Relu"),
    over_norms(2, 40_000, None),
    *widened(),
    *pointwise(),
]

#: For GPUs alone: the reference takes long for them.
LARGE: list[Chain] = [
    *depthwise("large", LARGE_DEPTHWISE),
    *depthwise("doubled", LARGE_DEPTHWISE[1::3], 2),
    *large_convolutions(),
]
