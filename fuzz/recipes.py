"""How a random network gets a node of each op. An op without a recipe here takes the cases of the conformance suite."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.contrib import CONTRIB
from fuzz.generate import FLOATS, INTS, Network, Rejected, Value, dtype_of
from fuzz.moving import MOVED, MOVING, NUMBERS, Recipe
from tests.conformance.test_conformance import MODULES

#: Ops of one float tensor that are smooth where their values are small.
SMOOTH = (
    "Asinh Atan Celu Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Mish Selu Sigmoid Sinh Softplus Softsign "
    "Tanh Cosh"
).split()
#: Those of which a small error of the input may be a great one of the output.
SENSITIVE = "Acos Acosh Asin Atanh Cos Log Reciprocal Sin Sqrt Tan ThresholdedRelu Shrink".split()
#: Those whose formula gives NaN for minus infinity, where a kernel may give the limit.
LIMITED = ("Gelu", "HardSwish", "Mish")
#: Those that jump.
JUMPING = "Ceil Floor Round Sign".split()


def unary(op: str, exact: bool = False, **attrs: Callable[[Network], Any]) -> Recipe:
    """An op of one float tensor; `exact`: only of one that is exact."""

    def recipe(g: Network) -> None:
        chosen = {name: make(g) for name, make in attrs.items() if g.flag()}
        x = g.pick(exact=exact)
        if op in LIMITED and np.isneginf(x.array.astype(np.float64)).any():
            raise Rejected
        g.add(op, x, exact=op in ("Relu", "Abs", "Neg", *JUMPING), **chosen)

    return recipe


def small(g: Network) -> float:
    return g.rng.choice((0.25, 0.5, 1.0, 1.5))


def binary(op: str, dtypes: Any = NUMBERS, exact: bool = False) -> Recipe:
    """An op of two tensors that broadcast."""

    def recipe(g: Network) -> None:
        left = g.pick(dtypes, exact=exact)
        right = g.partner(left, exact)
        if g.rng.random() < 0.3:
            left, right = right, left
        g.add(op, left, right, exact=True)

    return recipe


def any_number(op: str) -> Recipe:
    def recipe(g: Network) -> None:
        first = g.pick(NUMBERS)
        g.add(op, first, *(g.partner(first) for _ in range(g.rng.randrange(3))), exact=True)

    return recipe


def reduction(op: str, exact: bool = False) -> Recipe:
    def recipe(g: Network) -> None:
        x = g.pick(exact=exact)
        axes = g.rng.sample(range(x.rank), g.rng.randint(0, x.rank))
        axes = [a - x.rank if g.rng.random() < 0.3 else a for a in axes]
        given = g.ints(*axes) if axes or g.flag() else None
        attrs = {"keepdims": g.flag(), "noop_with_empty_axes": 1 if g.rng.random() < 0.2 else None}
        g.add(op, x, given, exact=op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1"), **attrs)

    return recipe


def arg(op: str) -> Recipe:
    def recipe(g: Network) -> None:
        x = g.pick(NUMBERS, exact=True, rank=(1, 2, 3, 4))
        g.add(op, x, axis=g.axis(x), keepdims=g.flag(), select_last_index=g.flag(), exact=True)

    return recipe


def clip(g: Network) -> None:
    x = g.pick(NUMBERS)
    bounds = [g.give(np.asarray(v, x.array.dtype)) if g.rng.random() < 0.7 else None for v in (0, 3)]
    g.add("Clip", x, *bounds, exact=True)


def prelu(g: Network) -> None:
    x = g.pick()
    dims = [d if g.flag() else 1 for d in x.shape]
    g.add("PRelu", x, g.like(x, dims[g.rng.randrange(len(dims) + 1) :]), exact=True)


def where(g: Network) -> None:
    x = g.pick(MOVED)
    y = g.partner(x)
    g.add("Where", g.pick_exactly(g.rng.choice([x.shape, y.shape, x.shape[-1:], ()]), "bool"), x, y, exact=True)


def cast(g: Network) -> None:
    from onnx import helper

    x = g.pick(MOVED, exact=True)
    dtype = g.rng.choice((*FLOATS, *INTS, "bool"))
    if x.is_float and "float" not in dtype and not (np.isfinite(x.array).all() and (x.array >= 0).all()):
        # What a number beyond the range of integers becomes is open.
        raise Rejected
    g.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(dtype_of(dtype)), exact=True)


def only_finite(*values: Value | None) -> None:
    """Weights that meet padding, or are multiplied with each other beforehand."""
    if not finite(*(v for v in values if v is not None)):
        raise Rejected


def matmul(g: Network) -> None:
    a = g.pick((*FLOATS, "int32", "int64"), rank=(1, 2, 3, 4), fits=finite)
    inner, n = a.shape[-1], g.rng.choice((1, 2, 3, 8, 17))
    batch = [d if g.flag() else 1 for d in a.shape[:-2]]
    shape = (inner,) if g.rng.random() < 0.15 else (*batch[g.rng.randrange(len(batch) + 1) :], inner, n)
    b = g.like(a, shape)
    only_finite(b)
    g.add("MatMul", a, b)


def gemm(g: Network) -> None:
    a, across, over = g.pick(rank=2, fits=finite), g.flag(), g.flag()
    inner, m = (a.shape[0], a.shape[1]) if across else (a.shape[1], a.shape[0])
    n = g.rng.choice((1, 3, 8, 17))
    b = g.like(a, (n, inner) if over else (inner, n))
    c = g.like(a, g.rng.choice([(), (1,), (n,), (1, n), (m, 1), (m, n)])) if g.flag() else None
    attrs: dict[str, Any] = {"alpha": small(g), "beta": small(g)} if g.flag() else {}
    g.add("Gemm", a, b, c, transA=across, transB=over, **attrs)


def finite(*values: Value) -> bool:
    """Whether no element is NaN or infinite: what such a one gives depends on the order of sums and products."""
    return all(bool(np.isfinite(v.array.astype(np.float64)).all()) for v in values)


def einsum(g: Network) -> None:
    x = g.pick(rank=(1, 2, 3), fits=finite)
    letters = string.ascii_lowercase[: x.rank]
    extra = g.rng.choice(("", "z"))
    kept = [axis for axis in range(x.rank) if g.flag()]
    y = g.like(x, [x.shape[a] for a in kept] + [3] * len(extra))
    right = "".join(letters[a] for a in kept) + extra
    if not finite(y):
        raise Rejected
    result = [c for c in letters + extra if g.flag()]
    g.rng.shuffle(result)
    g.add("Einsum", x, y, equation=f"{letters},{right}->{''.join(result)}")


def windows(g: Network, x: Value, kernels: tuple[int, ...]) -> dict[str, Any]:
    """strides, dilations and pads for these kernels."""
    attrs: dict[str, Any] = {}
    if g.flag():
        attrs["strides"] = [g.rng.choice((1, 1, 2, 3)) for _ in kernels]
    if g.rng.random() < 0.3:
        attrs["dilations"] = [g.rng.choice((1, 2)) for _ in kernels]
    if g.rng.random() < 0.5:
        attrs["pads"] = [g.rng.randrange(k) for k in (*kernels, *kernels)]
    elif g.rng.random() < 0.3:
        attrs["auto_pad"] = g.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return attrs


def conv(g: Network) -> None:
    x = g.pick(("float32", "float32", "float16", "bfloat16", "float64"), rank=(3, 4, 5), fits=finite)
    channels = x.shape[1]
    group = g.rng.choice([d for d in range(1, channels + 1) if channels % d == 0] or [1])
    out = group * g.rng.choice((1, 2, 3, 8))
    kernels = tuple(g.rng.choice((1, 1, 2, 3)) for _ in x.shape[2:])
    w = g.new((out, channels // group, *kernels), x.dtype, held=g.rng.random() < 0.8)
    b = g.new((out,), x.dtype) if g.flag() else None
    only_finite(w, b)
    g.add("Conv", x, w, b, group=group, **windows(g, x, kernels))


def conv_transpose(g: Network) -> None:
    x = g.pick(("float32", "float32", "float16", "float64"), rank=(3, 4), fits=finite)
    channels = x.shape[1]
    group = g.rng.choice([d for d in range(1, channels + 1) if channels % d == 0] or [1])
    kernels = tuple(g.rng.choice((1, 2, 3)) for _ in x.shape[2:])
    w = g.new((channels, g.rng.choice((1, 2, 3)), *kernels), x.dtype, held=g.rng.random() < 0.8)
    b = g.new((w.shape[1] * group,), x.dtype) if g.flag() else None
    only_finite(w, b)
    g.add("ConvTranspose", x, w, b, group=group, **windows(g, x, kernels))


def pool(op: str) -> Recipe:
    def recipe(g: Network) -> None:
        # Which of a NaN and a number is greater is open.
        x = g.pick(rank=(3, 4, 5), fits=finite)
        kernels = tuple(g.rng.choice((1, 2, 3)) for _ in x.shape[2:])
        attrs = windows(g, x, kernels)
        if "auto_pad" not in attrs and g.rng.random() < 0.3:
            attrs["ceil_mode"] = 1
        if op == "AveragePool" and g.flag():
            attrs["count_include_pad"] = 1
        outputs = 2 if op == "MaxPool" and x.exact and not g.special and g.rng.random() < 0.3 else 1
        g.add(op, x, outputs=outputs, kernel_shape=kernels, exact=op == "MaxPool", **attrs)

    return recipe


def over_axis(op: str, exact: bool = False) -> Recipe:
    def recipe(g: Network) -> None:
        x = g.pick(exact=exact, rank=(1, 2, 3, 4))
        g.add(op, x, axis=g.axis(x) if g.rng.random() < 0.8 else None)

    return recipe


def normalization(op: str) -> Recipe:
    def recipe(g: Network) -> None:
        # The variance of numbers that are nearly equal is noise.
        x = g.pick(("float32", "float64", "float16"), rank=(2, 3, 4), exact=True)
        axis = g.rng.randrange(x.rank)
        scale = g.like(x, x.shape[axis:])
        bias = g.like(x, x.shape[axis:]) if op == "LayerNormalization" and g.flag() else None
        g.add(op, x, scale, bias, axis=axis - x.rank if g.flag() else axis, epsilon=0.25)

    return recipe


def per_channel(op: str) -> Recipe:
    def recipe(g: Network) -> None:
        x = g.pick(("float32", "float64", "float16"), rank=(3, 4), exact=True)
        channels = x.shape[1]
        vectors = [g.new((channels,), x.dtype) for _ in range(4 if op == "BatchNormalization" else 2)]
        attrs: dict[str, Any] = {}
        only_finite(*vectors)
        if op == "BatchNormalization":
            vectors[3] = g.give(np.abs(vectors[3].array.astype(np.float64)) + 0.5, dtype=x.array.dtype)
        if op == "GroupNormalization":
            attrs["num_groups"] = g.rng.choice([d for d in range(1, channels + 1) if channels % d == 0] or [1])
        g.add(op, x, *vectors, epsilon=0.25, **attrs)

    return recipe


def cumulative(op: str) -> Recipe:
    def recipe(g: Network) -> None:
        # Each product is as far off as all before it together.
        x = g.pick(("float32", "float64", "int32", "int64"), rank=(1, 2, 3), exact=op == "CumProd")
        axis = g.give(np.int64(g.axis(x)))
        g.add(op, x, axis, exclusive=g.flag(), reverse=g.flag(), exact=op == "CumSum")

    return recipe


def top_k(g: Network) -> None:
    x = g.pick(("float32", "float64", "int64"), rank=(1, 2, 3), exact=True)
    axis = g.axis(x)
    k = g.ints(g.rng.randint(0, x.shape[axis]))
    values, indices = g.add("TopK", x, k, outputs=2, axis=axis, largest=g.flag(), sorted=1, exact=True)
    del values, indices


def quantized(g: Network) -> None:
    x = g.pick(("float32", "float16"), exact=True)
    scale = g.give(np.asarray(g.rng.choice((0.25, 0.5, 2.0)), x.array.dtype))
    zero = g.give(np.asarray(3, g.rng.choice((np.uint8, np.int8, np.int16, np.uint16))))
    (narrow,) = g.add("QuantizeLinear", x, scale, zero, exact=True)
    g.add("DequantizeLinear", narrow, scale, zero, exact=True)


def mod(g: Network) -> None:
    x = g.pick(("int64", "int32", "float32"), exact=True)
    by = g.give(np.asarray(g.rng.choice((2, 3, -3)), x.array.dtype))
    g.add("Mod", x, by, fmod=1 if x.is_float else g.flag(), exact=True)


def power(g: Network) -> None:
    x = g.pick(("float32", "float64", "float16"), exact=True)
    # The power 0.5 is a square root, which differs at minus infinity.
    by = g.rng.choice((2, 3, 1, 0, -1) if not finite(x) else (2, 3, 1, 0, -1, 0.5))
    g.add("Pow", x, g.give(np.asarray(by, x.array.dtype)))


def divide(g: Network) -> None:
    x = g.pick(NUMBERS)
    by = g.partner(x, exact=True)
    if "float" not in x.dtype and (by.array == 0).any():
        raise Rejected
    g.add("Div", x, by)


def shift(g: Network) -> None:
    x = g.pick(("uint8", "uint16", "uint32", "uint64"))
    by = g.give(np.asarray(g.rng.randrange(8), x.array.dtype))
    g.add("BitShift", x, by, direction=g.rng.choice(("LEFT", "RIGHT")), exact=True)


def resize(g: Network) -> None:
    x = g.pick(
        ("float32", "float32", "float16", "float64"), rank=(3, 4, 5), fits=lambda v: v.array.size > 0 and finite(v)
    )
    mode = g.rng.choice(("nearest", "linear", "cubic") if x.rank == 4 else ("nearest", "linear"))
    # Halves and doubles: places between elements are then exact.
    scales = [1.0, 1.0, *(g.rng.choice((0.5, 1.0, 2.0, 4.0)) for _ in x.shape[2:])]
    attrs = {"mode": mode, "coordinate_transformation_mode": g.rng.choice(("half_pixel", "asymmetric"))}
    if mode == "nearest":
        attrs["nearest_mode"] = g.rng.choice(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    g.add("Resize", x, None, g.give(np.float32(scales)), **attrs, exact=mode == "nearest")


def silu(g: Network) -> None:
    """What a pass recognises."""
    x = g.pick(fits=lambda v: not np.isneginf(v.array.astype(np.float64)).any())
    (s,) = g.add("Sigmoid", x)
    g.add("Mul", x, s)


def hidden_layer_norm(g: Network) -> None:
    """LayerNormalization in pieces."""
    x = g.pick(("float32", "float16"), rank=(2, 3), exact=True)
    axes, eps = g.ints(-1), g.give(np.asarray(0.25, x.array.dtype))
    (mean,) = g.add("ReduceMean", x, axes)
    (away,) = g.add("Sub", x, mean)
    (square,) = g.add("Mul", away, away)
    (variance,) = g.add("ReduceMean", square, axes)
    (shifted,) = g.add("Add", variance, eps)
    (deviation,) = g.add("Sqrt", shifted)
    (normal,) = g.add("Div", away, deviation)
    g.add("Mul", normal, g.like(x, x.shape[-1:]))


def hidden_attention(g: Network) -> None:
    """Attention in pieces, with a mask now and then."""
    batch, heads, queries, keys = (g.rng.choice((1, 2, 3)) for _ in range(4))
    depth, dtype = g.rng.choice((4, 8)), g.rng.choice(("float32", "float32", "float16"))
    q = g.pick_exactly((batch, heads, queries, depth), dtype, exact=True)
    k = g.pick_exactly((batch, heads, keys, depth), dtype, exact=True)
    v = g.pick_exactly((batch, heads, keys, g.rng.choice((4, 8))), dtype, exact=True)
    only_finite(q, k, v)
    (across,) = g.add("Transpose", k, perm=[0, 1, 3, 2])
    (scores,) = g.add("MatMul", q, across)
    (scores,) = g.add("Mul", scores, g.give(np.asarray(0.25, dtype_of(dtype))))
    if g.flag():
        (scores,) = g.add("Add", scores, g.pick_exactly((1, 1, queries, keys), dtype, exact=True))
    (weights,) = g.add("Softmax", scores, axis=-1)
    g.add("MatMul", weights, v)


def case_of(op: str) -> Recipe:
    """A case of the conformance suite, with tensors of the network where they fit."""
    module = MODULES[op]
    cases = [case for case in module.CASES if case.opset]

    def recipe(g: Network) -> None:
        case = g.rng.choice(cases)
        dtype = dtype_of(g.rng.choice(case.dtypes))
        inputs: list[Value | None] = []
        for at, given in enumerate(case.inputs):
            array = None if given is None else given.make(g.numbers, dtype)
            if given is None or array is None:
                inputs.append(None)
            elif at == 0 and not given.constant and array.dtype == dtype and op not in DELICATE and g.flag():
                inputs.append(g.pick_exactly(array.shape, array.dtype.name, exact=True))
                if op == "GridSample":
                    only_finite(inputs[0])
            else:
                value = g.give(array, held=given.constant)
                value.exact = True
                inputs.append(value)
        g.add(op, *inputs, outputs=case.outputs, exact=op in EXACT_CASES, wild=True, **case.attrs)

    return recipe


#: Ops whose cases come with the only inputs that make sense.
DELICATE = {"NonMaxSuppression", "MaxUnpool", "RoiAlign", "MaxRoiPool", "AffineGrid", "Det", "Attention"}
#: Ops whose cases only move elements or count them.
EXACT_CASES = {"NonZero", "Compress", "Unique", "CenterCropPad", "BitCast", "ReverseSequence", "IsNaN", "IsInf"}

RECIPES: dict[str, Recipe] = {
    **MOVING,
    **CONTRIB,
    **{op: unary(op) for op in SMOOTH},
    **{op: unary(op, exact=True) for op in (*SENSITIVE, *JUMPING)},
    **{op: unary(op) for op in ("Relu", "Abs", "Neg", "Identity")},
    "LeakyRelu": unary("LeakyRelu", alpha=small),
    "Elu": unary("Elu", alpha=small),
    "HardSigmoid": unary("HardSigmoid", alpha=small, beta=small),
    **{op: binary(op) for op in ("Add", "Sub", "Mul")},
    **{op: any_number(op) for op in ("Max", "Min", "Sum", "Mean")},
    **{op: binary(op, exact=True) for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")},
    **{op: binary(op, ("bool",)) for op in ("And", "Or", "Xor")},
    **{op: binary(op, INTS) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Not": lambda g: g.add("Not", g.pick(("bool",)), exact=True),
    "BitwiseNot": lambda g: g.add("BitwiseNot", g.pick(INTS), exact=True),
    **{f"Reduce{op}": reduction(f"Reduce{op}") for op in ("Max", "Min", "Sum", "Mean", "L1", "SumSquare", "Prod")},
    **{f"Reduce{op}": reduction(f"Reduce{op}", exact=True) for op in ("L2", "LogSum", "LogSumExp")},
    **{op: arg(op) for op in ("ArgMax", "ArgMin")},
    **{op: over_axis(op) for op in ("Softmax", "LogSoftmax")},
    "Hardmax": over_axis("Hardmax", exact=True),
    **{op: normalization(op) for op in ("LayerNormalization", "RMSNormalization")},
    **{op: per_channel(op) for op in ("BatchNormalization", "InstanceNormalization", "GroupNormalization")},
    **{op: pool(op) for op in ("MaxPool", "AveragePool", "LpPool")},
    **{op: cumulative(op) for op in ("CumSum", "CumProd")},
    "GlobalAveragePool": lambda g: g.add("GlobalAveragePool", g.pick(rank=(3, 4, 5))),
    "GlobalMaxPool": lambda g: g.add("GlobalMaxPool", g.pick(rank=(3, 4, 5)), exact=True),
    "BitShift": shift, "Cast": cast, "Clip": clip, "Conv": conv, "ConvTranspose": conv_transpose, "Div": divide,
    "Einsum": einsum, "Gemm": gemm, "MatMul": matmul, "Mod": mod, "PRelu": prelu, "Pow": power,
    "QuantizeLinear": quantized, "Resize": resize, "Silu": silu, "TopK": top_k, "Where": where,
    "hidden Attention": hidden_attention, "hidden LayerNormalization": hidden_layer_norm,
}  # fmt: skip
RECIPES.update((op, case_of(op)) for op in MODULES if op not in RECIPES and any(c.opset for c in MODULES[op].CASES))
