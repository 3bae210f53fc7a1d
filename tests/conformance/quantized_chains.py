"""Convolutions and matrix products between Dequantize and Quantize layers.

Scales are powers of two and sums fit into float32: every order of the same arithmetic gives the same bits, ties to even
and saturation among them, so that a kernel which sums integers has to give exactly what the reference gives.
"""

from __future__ import annotations

import zlib
from itertools import product
from typing import Any

import numpy as np

import neurenix as nx
from tests.conformance.chains import FLOATS, Builder, Chain

#: dtype and zero point of an activation.
SCHEMES = (("int8", 0), ("uint8", 0), ("uint8", 121), ("int8", -9))
FP8 = (("float8_e4m3fn", 0),)
#: Scales of activations and of results: what saturates, and what falls between two integers, are both there.
X_SCALE, Y_SCALE = 2.0**-5, 2.0**-3


class Quantizing(Builder):
    """A builder of layers around 8 bits."""

    def __init__(self, builder: Builder) -> None:
        self.network, self.inputs = builder.network, builder.inputs
        self.rng = np.random.default_rng(zlib.crc32(builder.network.name.encode()))
        self.kept: list[nx.Tensor] = []

    def given(self, array: Any, dtype: str) -> nx.Tensor:
        """A constant."""
        return self.network.add_constant("c", np.asarray(array, dtype))

    def quantize(self, x: nx.Tensor, scale: float, scheme: tuple[str, int]) -> nx.Tensor:
        """The tensor as 8 bits."""
        dtype, zero = scheme
        return self.op("QuantizeLinear", x, self.given(scale, "float32"), self.given(zero, dtype), to=dtype)

    def dequantize(self, x: nx.Tensor, scale: float, scheme: tuple[str, int]) -> nx.Tensor:
        """What they stand for."""
        dtype, zero = scheme
        return self.op("DequantizeLinear", x, self.given(scale, "float32"), self.given(zero, dtype))

    def activation(self, x: nx.Tensor, scheme: tuple[str, int], scale: float = X_SCALE) -> nx.Tensor:
        """A tensor that has 8 bits on its way."""
        return self.dequantize(self.quantize(x, scale, scheme), scale, scheme)

    def weights(self, *shape: int, axis: int, scheme: tuple[str, int] = SCHEMES[0]) -> nx.Tensor:
        """Dequantized weights of any 8 bits, with a scale for each place along an axis."""
        dtype = "int8" if scheme not in FP8 else scheme[0]
        stored = self.given(self.rng.integers(-128, 128, shape), dtype)
        along = [1] * len(shape)
        along[axis] = shape[axis]
        scales = 2.0 ** -self.rng.integers(6, 10, along)
        return self.op("DequantizeLinear", stored, self.given(scales, "float32"))

    def bias(self, count: int, scheme: tuple[str, int] = SCHEMES[0]) -> nx.Tensor:
        """Numbers of 32 bits, dequantized; beside floats of 8 bits as they are."""
        if scheme in FP8:
            return self.given(self.rng.standard_normal(count), "float32")
        stored = self.given(self.rng.integers(-3000, 3000, count), "int32")
        return self.op("DequantizeLinear", stored, self.given(2.0**-11, "float32"))

    def behind(self, y: nx.Tensor, tail: str, scheme: tuple[str, int]) -> nx.Tensor:
        """What follows a product: a word for each layer."""
        for word in tail.split():
            match word:
                case "residual" | "single":
                    y = self.op("Add", y, self.activation(self.inputs[1], scheme, 2.0**-4))
                case "floats":
                    y = self.op("Add", self.inputs[1], y)
                case "kept":
                    self.kept.append(y)
                case "finer":
                    self.kept.append(self.quantize(y, Y_SCALE / 4, scheme))
                case "rounded":
                    y = self.activation(y, scheme, Y_SCALE / 2)
                case "16" | "32":
                    y = self.op("Cast", y, to=f"float{word}")
                case "brain":
                    y = self.op("Cast", y, to="bfloat16")
                case "halves":
                    y = self.op("Add", y, self.op("Cast", self.inputs[1], to="float16"))
                case "half":
                    y = self.op("Mul", y, self.given(0.5, "float32"))
                case "quantize":
                    y = self.quantize(y, Y_SCALE, scheme)
                case op:
                    y = self.op(op, y)
        return y


TAILS = (
    "",
    "quantize",
    "rounded residual Relu quantize",
    "rounded residual quantize",
    "residual Relu quantize",
    "floats Relu",
    "half Relu quantize",
)


def convolution(
    name: str,
    shape: tuple[int, ...],
    out: int,
    kernel: int,
    tails: tuple[str, ...] = TAILS,
    schemes: Any = SCHEMES,
    *,
    stored: str = "float32",
    **attrs: Any,
) -> list[Chain]:
    """A convolution of 8 bits in each scheme, with each tail, of an input that is stored so before."""
    stride, dilation = attrs.get("strides", [1])[0], attrs.get("dilations", [1])[0]
    rank, group = len(shape) - 2, int(attrs.get("group", 1))
    pads = attrs.pop("pads", [kernel // 2 * dilation] * 2 * rank)
    seen = dilation * (kernel - 1) + 1
    extents = [(n + pads[i] + pads[i + rank] - seen) // stride + 1 for i, n in enumerate(shape[2:])]
    made = []
    for number, (scheme, tail) in enumerate(product(schemes, tails)):

        def make(b: Builder, number: int = number, scheme: Any = scheme, tail: str = tail) -> list[nx.Tensor]:
            q = Quantizing(b)
            weights = q.weights(out, shape[1] // group, *[kernel] * rank, axis=0, scheme=scheme)
            x = b.inputs[0]
            x = x if stored == "float32" else q.op("Cast", q.op("Cast", x, to=stored), to="float32")
            given = [q.activation(x, scheme), weights, *([q.bias(out, scheme)] if number % 3 else [])]
            y = q.op("Conv", *given, pads=pads, **attrs)
            return [q.behind(y, tail, scheme), *q.kept]

        shapes = (shape, (shape[0], out, *extents)) if "residual" in tail or "floats" in tail else (shape,)
        shapes = (shape, (1,) * len(shape)) if "single" in tail else shapes
        made.append(chain(name, scheme, tail, shapes, make))
    return made


def transposed(
    name: str, shape: tuple[int, ...], out: int, kernel: int, tails: tuple[str, ...], schemes: Any = SCHEMES
) -> list[Chain]:
    """A transposed convolution of 8 bits whose windows lie side by side."""
    rank = len(shape) - 2
    made = []
    for number, (scheme, tail) in enumerate(product(schemes, tails)):

        def make(b: Builder, number: int = number, scheme: Any = scheme, tail: str = tail) -> list[nx.Tensor]:
            q = Quantizing(b)
            weights = q.weights(shape[1], out, *[kernel] * rank, axis=1, scheme=scheme)
            given = [q.activation(b.inputs[0], scheme), weights, *([q.bias(out, scheme)] if number % 3 else [])]
            y = q.op("ConvTranspose", *given, strides=[kernel] * rank)
            return [q.behind(y, tail, scheme), *q.kept]

        extents = [kernel * n for n in shape[2:]]
        added = "residual" in tail or "floats" in tail
        made.append(chain(name, scheme, tail, (shape, (shape[0], out, *extents)) if added else (shape,), make))
    return made


def chain(name: str, scheme: tuple[str, int], tail: str, shapes: Any, make: Any) -> Chain:
    """A chain with a name that says what is in it."""
    parts = ["fp8" if scheme in FP8 else "int8", name, f"{scheme[0]}z{scheme[1]}", *tail.split()]
    return Chain("_".join(parts), shapes, make, ("float32",))


def matrices(
    name: str,
    left: tuple[int, ...],
    columns: int,
    turned: bool = False,
    tails: tuple[str, ...] = TAILS,
    schemes: Any = SCHEMES,
) -> list[Chain]:
    """A matrix product of 8 bits in each scheme, with each tail."""
    made = []
    for number, (scheme, tail) in enumerate(product(schemes, tails)):

        def make(b: Builder, number: int = number, scheme: Any = scheme, tail: str = tail) -> list[nx.Tensor]:
            q = Quantizing(b)
            shape = (columns, left[-1]) if turned else (left[-1], columns)
            weights = q.weights(*shape, axis=0 if turned else 1, scheme=scheme)
            y = q.op("MatMul", q.activation(b.inputs[0], scheme), weights, transB=int(turned))
            y = q.op("Add", y, q.bias(columns, scheme)) if number % 3 else y
            return [q.behind(y, tail, scheme), *q.kept]

        added = any(word in tail for word in ("residual", "floats", "halves"))
        shapes = (left, (*left[:-1], columns)) if added else (left,)
        made.append(chain(name, scheme, tail, shapes, make))
    return made


def projections(
    name: str, left: tuple[int, ...], columns: int, count: int, tails: tuple[str, ...], schemes: Any = SCHEMES
) -> list[Chain]:
    """Products of one tensor with matrices of their own, as queries, keys and values are; they may be one launch."""
    made = []
    for number, (scheme, tail) in enumerate(product(schemes, tails)):

        def make(b: Builder, number: int = number, scheme: Any = scheme, tail: str = tail) -> list[nx.Tensor]:
            q = Quantizing(b)
            x = q.activation(b.inputs[0], scheme)
            given = []
            for _ in range(count):
                y = q.op("MatMul", x, q.weights(left[-1], columns, axis=1, scheme=scheme))
                y = q.op("Add", y, q.bias(columns, scheme)) if number % 3 else y
                given.append(q.behind(y, tail, scheme))
            return given

        made.append(chain(name, scheme, tail, (left,), make))
    return made


def means(name: str, shape: tuple[int, ...], keepdims: int, tail: str = "") -> list[Chain]:
    """Means over the places of channels, of 8 bits in each scheme, as 16 or 8 bits where the tail says so."""
    made = []
    for scheme in SCHEMES:

        def make(b: Builder, scheme: Any = scheme) -> list[nx.Tensor]:
            q = Quantizing(b)
            x = q.activation(b.inputs[0], scheme)
            x = q.op("Cast", x, to="float16", elidable=1) if tail == "16" else x
            mean = q.op("ReduceMean", x, axes=list(range(2, len(shape))), keepdims=keepdims)
            return [q.quantize(mean, X_SCALE / 8, scheme) if tail == "quantize" else mean]

        made.append(chain(name, scheme, tail, (shape,), make))
    return made


FEW = ("quantize", "residual Relu quantize")
#: What is done at once, and layer by layer.
LAYERS = (*FEW, "half Relu quantize")
#: What is stored besides: floats, and 8 bits by another scale.
KEPT = ("kept quantize", "Relu kept quantize", "residual Relu finer quantize", "half kept finer quantize")
#: What is stored in 16 bits.
SHORT = ("16", "brain", "residual Relu brain", "floats Relu 16", "half brain")
#: Behind floats of 8 bits.
FLOATING = ("", "16", "quantize", "floats Relu", "residual Relu quantize", "Gelu quantize")

QUANTIZED: list[Chain] = [
    *convolution("conv3x3", (2, 32, 5, 7), 64, 3),
    *convolution("conv1x1", (2, 64, 5, 7), 80, 1),
    *convolution("conv3x3_short", (2, 32, 5, 7), 64, 3, SHORT, SCHEMES[::2]),
    *convolution("conv1x1_wide", (2, 208, 5, 7), 40, 1, FEW),
    *convolution("conv1x1_padded_behind", (2, 64, 5, 7), 48, 1, FEW, pads=[0, 0, 1, 2]),
    *convolution("conv3x3_stride", (2, 32, 10, 8), 33, 3, FEW, strides=[2, 2]),
    *convolution("conv3x3_dilated", (2, 16, 13, 11), 24, 3, FEW, dilations=[2, 2]),
    *convolution("conv3x3_odd", (2, 19, 5, 7), 21, 3, FEW),
    *convolution("conv5x5_uneven", (1, 16, 5, 7), 8, 5, FEW, pads=[0, 3, 2, 1]),
    *convolution("stem", (2, 3, 11, 17), 16, 7, FEW, strides=[2, 2]),
    *convolution("stem_of_halves", (1, 3, 14, 37), 40, 6, FEW, stored="float16", strides=[2, 2], pads=[2] * 4),
    *convolution("stem_of_16_bits", (1, 1, 9, 19), 8, 7, ("",), stored="bfloat16"),
    *convolution("depthwise", (2, 32, 5, 7), 32, 3, FEW, group=32),
    *convolution("depthwise_odd", (2, 9, 5, 7), 9, 3, FEW, group=9),
    *convolution("grouped", (2, 32, 5, 7), 64, 3, FEW, group=4),
    *convolution("conv1d", (2, 32, 19), 48, 3, FEW),
    *convolution("conv1d_beside", (1, 64, 3), 32, 1, FEW, SCHEMES[:3], strides=[2], pads=[1, 1]),
    *convolution("conv1x1_single", (2, 64, 5, 7), 48, 1, ("single Relu quantize",)),
    *convolution("conv3d", (1, 16, 3, 4, 7), 32, 3, FEW),
    *convolution("conv3d_1x1", (1, 32, 3, 4, 5), 16, 1, FEW),
    *transposed("transposed2x2", (2, 32, 5, 7), 48, 2, TAILS),
    *transposed("transposed2x2_kept", (2, 32, 5, 7), 16, 2, KEPT[:3:2], SCHEMES[::2]),
    *transposed("transposed2x2_odd", (2, 19, 5, 7), 24, 2, FEW),
    *transposed("transposed3x3_odd", (1, 32, 4, 3), 9, 3, FEW),
    *transposed("transposed1d", (2, 64, 19), 32, 2, FEW),
    *matrices("matmul", (2, 33, 64), 48),
    *matrices("matmul_turned", (5, 160), 72, turned=True),
    *matrices("matmul_odd", (2, 9, 37), 19),
    *matrices("matmul_short", (2, 33, 64), 48, False, SHORT, SCHEMES[::2]),
    *matrices("matmul_row", (1, 64), 96),
    *matrices("matmul_tall", (300, 192), 272, tails=("residual Relu quantize", "rounded residual Relu quantize")),
    *convolution("conv3x3_kept", (2, 32, 5, 7), 64, 3, KEPT, SCHEMES[::2]),
    *convolution("conv3x3_odd_kept", (2, 19, 5, 7), 21, 3, KEPT, SCHEMES[1:3]),
    *convolution("stem_kept", (2, 3, 11, 17), 16, 7, KEPT, SCHEMES[1:3], strides=[2, 2]),
    *convolution("depthwise_kept", (2, 32, 5, 7), 32, 3, KEPT[:3:2], SCHEMES[::2], group=32),
    *matrices("matmul_kept", (2, 33, 64), 48, False, KEPT, SCHEMES[::2]),
    *projections("projections", (2, 40, 64), 48, 3, ("quantize", "16")),
    *projections("projections_tall", (270, 192), 272, 2, ("quantize",), SCHEMES[::2]),
    *means("mean", (3, 80, 7, 7), 1),
    *means("mean_halves", (2, 33, 9, 5), 0, "16"),
    *means("mean_long", (1, 16, 190, 40), 1),
    *means("mean_codes", (3, 80, 8, 8), 1, "quantize"),
    *means("mean_codes_flat", (2, 33, 4, 8), 0, "quantize"),
]

#: Of sizes at which a GPU's tiles differ. On a processor oneDNN's reference, one of the forms, takes seconds for them.
TILED: list[Chain] = [
    *convolution("conv3x3_many", (1, 144, 12, 12), 136, 3, FEW),
    *convolution("conv1x1_deep", (1, 640, 14, 14), 256, 1, FEW),
    *convolution("conv1x1_large", (1, 64, 40, 40), 256, 1, FEW),
    *convolution("conv3x3_large", (1, 128, 16, 16), 128, 3, FEW),
    *convolution("conv3x3_images", (5, 64, 7, 7), 64, 3, FEW),
    *convolution("conv3x3_images_stride", (3, 128, 19, 14), 192, 3, FEW, strides=[2, 2]),
    *convolution("conv3x3_images_dilated", (2, 64, 20, 17), 48, 3, FEW, dilations=[3, 3]),
    *convolution("conv5x5_images_uneven", (2, 192, 9, 17), 336, 5, FEW, pads=[0, 3, 2, 1]),
    *convolution("conv1x1_images_stride", (3, 64, 18, 14), 80, 1, FEW, strides=[2, 2]),
    *convolution("conv3x3_lines", (2, 32, 21, 18), 32, 3, LAYERS),
    *convolution("conv3x3_lines_stride", (3, 32, 18, 22), 64, 3, LAYERS, strides=[2, 2]),
    *convolution("conv3x3_lines_dilated", (2, 96, 20, 17), 144, 3, FEW, dilations=[3, 3]),
    *convolution("conv5x5_lines_uneven", (2, 32, 9, 17), 80, 5, FEW, pads=[0, 3, 2, 1]),
    *convolution("conv2x2_lines", (3, 160, 9, 12), 336, 2, FEW, pads=[1, 0, 0, 1]),
    *convolution("conv1x1_lines_stride", (3, 32, 18, 14), 48, 1, FEW, strides=[2, 2]),
    *convolution("conv5x5_beyond", (2, 64, 3, 2), 64, 5, LAYERS, SCHEMES[2:], pads=[3, 4, 4, 2]),
    *convolution("conv1x1_narrow", (1, 64, 40, 40), 32, 1, LAYERS),
    *convolution("conv1x1_narrow_deep", (2, 256, 12, 12), 32, 1, FEW),
    *convolution("conv3x3_narrow", (2, 128, 12, 9), 16, 3, FEW),
    *transposed("transposed2x2_large", (2, 128, 16, 12), 64, 2, ("quantize", "Relu quantize", "residual quantize")),
    *transposed("transposed2x2_deep", (1, 640, 9, 14), 320, 2, ("quantize",)),
    *transposed("transposed4x4_narrow", (3, 64, 11, 13), 16, 4, ("quantize",), SCHEMES[1:3]),
    *convolution("conv3x3_images_inside", (2, 64, 11, 9), 64, 3, FEW, SCHEMES[1:3], pads=[0, 0, 0, 0]),
]

#: The same of floats of 8 bits, whose sums tensor cores round.
FLOATS_OF_8_BITS: list[Chain] = [
    *convolution("conv3x3", (2, 32, 9, 7), 64, 3, FLOATING, FP8),
    *convolution("conv1x1", (2, 64, 9, 7), 80, 1, FLOATING, FP8),
    *convolution("conv1x1_large", (1, 64, 40, 40), 256, 1, ("quantize",), FP8),
    *convolution("conv3x3_images", (5, 64, 7, 7), 80, 3, ("quantize", "residual Relu quantize"), FP8),
    *convolution("stem", (2, 3, 19, 17), 16, 7, ("quantize",), FP8, strides=[2, 2]),
    *convolution("depthwise", (2, 32, 9, 7), 32, 3, ("quantize",), FP8, group=32),
    *convolution("grouped", (2, 32, 9, 7), 64, 3, ("quantize",), FP8, group=4),
    *convolution("conv3d", (1, 16, 5, 6, 7), 32, 3, ("quantize",), FP8),
    *transposed("transposed2x2", (2, 32, 5, 7), 48, 2, ("", "16", "quantize", "residual Relu quantize"), FP8),
    *matrices("matmul", (2, 33, 64), 48, False, FLOATING, FP8),
    *matrices("matmul_turned", (5, 160), 72, True, ("quantize",), FP8),
    *matrices("matmul_tall", (300, 192), 272, False, (*FLOATING, "16 halves 32 quantize", "16 halves"), FP8),
    *matrices("matmul_odd", (2, 9, 37), 19, False, ("quantize",), FP8),
    *projections("projections", (2, 40, 64), 48, 3, ("16", "quantize"), FP8),
]


def normalization(name: str, length: int, dtypes: tuple[str, ...], scheme: tuple[str, int]) -> list[Chain]:
    """A normalization whose result is quantized: alone, or behind a sum, each read by others too or not."""
    made = []
    for added, kept in product((False, True), (False, True)):

        def make(b: Builder, added: bool = added, kept: bool = kept) -> list[nx.Tensor]:
            q = Quantizing(b)
            x = q.op("Add", *b.inputs[:2]) if added else b.inputs[0]
            sides = [b.constant(length) for _ in range(2 if name == "LayerNormalization" else 1)]
            y = q.op(name, x, *sides, axis=-1)
            wide = y if y.dtype == "float32" else q.op("Cast", y, to="float32", elidable=1)
            code = q.quantize(wide, 2.0**-4, scheme)
            return [code, y, x] if kept and added else [code, y] if kept else [code]

        parts = [name, str(length), f"{scheme[0]}z{scheme[1]}", *["added"] * added, *["kept"] * kept]
        # Few of the rows that are read again show the same, and slices of them, beside one another, are not larger.
        rows = (5, 7) if length < 10_000 else (5,)
        made.append(Chain("_".join(parts), ((*rows, length),) * (1 + added), make, dtypes))
    return made


#: Rows that are normalized and quantized, in registers and read again.
NORMALIZED: list[Chain] = [
    *normalization("LayerNormalization", 768, ("float32", "float16", "bfloat16"), SCHEMES[0]),
    *normalization("LayerNormalization", 37, ("float16",), SCHEMES[2]),
    *normalization("RMSNormalization", 256, ("float32", "float16"), SCHEMES[3]),
    *normalization("LayerNormalization", 768, ("float32", "float16"), FP8[0]),
    *normalization("LayerNormalization", 40_000, ("float16",), SCHEMES[0]),
]


def tokens(left: tuple[int, ...], columns: int) -> Chain:
    """A product with a bias whose rows get a scale each; of a row of zeros too."""

    def make(b: Builder) -> list[nx.Tensor]:
        y = b.op("MatMul", b.inputs[0], b.constant(left[-1], columns, scale=left[-1] ** -0.5))
        y = b.op("Relu", b.op("Sub", y, b.constant(columns)))
        wide = b.op("Cast", y, to="float32", elidable=1)
        return list(b.network.add_layer("DynamicQuantizePerToken", [wide]))

    return Chain(f"DynamicQuantizePerToken_{columns}", (left,), make, ("float16", "bfloat16"))


#: Tokens behind products, over blocks of a cluster and in one.
TOKENS: list[Chain] = [tokens((2, 33, 64), 48), tokens((7, 37), 19), tokens((150, 96), 392)]


def attention(name: str, size: int, queries: int, dtypes: tuple[str, ...], scheme: tuple[str, int]) -> list[Chain]:
    """Attention whose result is quantized, behind what moves it or not."""
    made = []
    for moved in (False, True):

        def make(b: Builder, moved: bool = moved) -> list[nx.Tensor]:
            q = Quantizing(b)
            y = q.op("Attention", *b.inputs)
            if moved:
                turned = q.op("Transpose", y, perm=[0, 2, 1, 3])
                y = q.op("Reshape", turned, q.given([2, queries, -1], "int64"))
            wide = y if y.dtype == "float32" else q.op("Cast", y, to="float32", elidable=1)
            return [q.quantize(wide, 2.0**-6, scheme)]

        heads = ((2, 4, queries, size), (2, 4, 96, size), (2, 4, 96, size))
        parts = ["Attention", name, f"{scheme[0]}z{scheme[1]}", *["moved"] * moved]
        made.append(Chain("_".join(parts), heads, make, dtypes))
    return made


#: Attention on warpgroups, in tiles, in parts of the keys that are joined, and plainly.
ATTENDED: list[Chain] = [
    *attention("64", 64, 70, FLOATS, SCHEMES[0]),
    *attention("64", 64, 70, FLOATS[1:2], FP8[0]),
    *attention("32", 32, 33, FLOATS[1:], SCHEMES[2]),
    *attention("odd", 37, 9, FLOATS[:2], SCHEMES[3]),
    *attention("row", 64, 1, FLOATS[1:2], SCHEMES[0]),
]


def activation(op: str, scheme: tuple[str, int]) -> Chain:
    """An activation of floats of 32 bits whose result is quantized."""

    def make(b: Builder) -> list[nx.Tensor]:
        q = Quantizing(b)
        return [q.quantize(q.op(op, b.inputs[0]), X_SCALE, scheme)]

    return Chain(f"{op}_{scheme[0]}z{scheme[1]}", ((300, 272),), make, ("float32",))


#: What a GPU computes in fewer steps where it is quantized next.
ACTIVATED: list[Chain] = [
    activation(op, scheme)
    for op in ("Exp", "Gelu", "Mish", "Sigmoid", "Silu", "Softplus", "Tanh")
    for scheme in (SCHEMES[0], FP8[0])
]
