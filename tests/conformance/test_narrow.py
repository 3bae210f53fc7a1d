"""Element types of 8 bits and fewer: every code and every conversion, against ml_dtypes and ONNX's evaluator."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import neurenix as nx
from neurenix import _native
from neurenix.importers import from_onnx
from tests.conformance.case import Array
from tests.conformance.providers import PROVIDERS

FLOAT8 = [np.dtype(getattr(ml_dtypes, f"float8_{n}")) for n in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")]
FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)
POWERS = np.dtype(ml_dtypes.float8_e8m0fnu)
INTS = [np.dtype(getattr(ml_dtypes, name)) for name in ("int4", "uint4", "int2", "uint2")]
NARROW = [*FLOAT8, POWERS, FLOAT4, *INTS]
WIDE = [
    np.dtype(d) for d in ("f4", "f8", "f2", ml_dtypes.bfloat16, "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")
]
RUNS = pytest.mark.parametrize("run", PROVIDERS.values(), ids=PROVIDERS.keys())
EACH = pytest.mark.parametrize("dtype", NARROW, ids=str)


def cast(run: Any, x: Array, to: np.dtype[Any], **attrs: Any) -> Array:
    """`x` through a Cast."""
    network = nx.Network()
    given = network.add_input("x", x.dtype, x.shape)
    network.mark_output(network.add_layer("Cast", [given], {"to": to, **attrs})[0], "y")
    return np.asarray(run(network)({"x": x})["y"])


def codes(dtype: np.dtype[Any]) -> Array:
    """Every code of a dtype."""
    count = 256 if dtype.name.startswith("float8") else 16 if "4" in dtype.name else 4
    return np.arange(count, dtype=np.uint8).view(dtype)


def same(got: Array, want: Array) -> None:
    """Equal dtypes and elements; of zeros the sign counts, of NaN it does not."""
    assert got.dtype == want.dtype
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@RUNS
@EACH
def test_every_code_as_every_wide_dtype(run: Any, dtype: np.dtype[Any]) -> None:
    x = codes(dtype)
    for to in WIDE:
        finite = np.isfinite(x.astype(np.float64))
        if to.kind in "iu":
            # What lies outside of an integer dtype becomes nothing that is specified.
            field, values = np.iinfo(to), np.where(finite, x.astype(np.float64), 0)
            given = x[finite & (values >= field.min) & (values < float(field.max) + 1)]
            same(cast(run, given, to), given.astype(np.float64).astype(to))
        else:
            with np.errstate(over="ignore"):
                same(cast(run, x, to), x.astype(np.float32).astype(to))


def between(dtype: np.dtype[Any]) -> Array:
    """Numbers on, halfway between and beside those of a dtype, beyond its ends, and what is no number."""
    numbers = codes(dtype).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    numbers = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2, 1.5 * numbers, 4 * numbers])
    single = numbers.astype(np.float32)
    beside = [np.nextafter(single, np.float32(side)) for side in (-np.inf, np.inf)]
    others = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-30, -1e-30, 3e38, -3e38, 1e-45]
    return np.concatenate([single, *beside, np.asarray(others, np.float32)])


def nearest(dtype: np.dtype[Any], x: Array, saturate: bool) -> Array:
    """The nearest number of a narrow float, the one of even code of two: ml_dtypes rounds doubles twice."""
    table = codes(dtype)[: len(codes(dtype)) // 2].astype(np.float64)
    table = table[np.isfinite(table)]
    last = len(table) - 1
    # Where the next number would lie if there were one; NaN stands for all that is beyond.
    grown = np.append(table, 2 * table[-1] - table[-2])
    size = np.minimum(np.nan_to_num(np.abs(x), nan=0, posinf=1e300), 1e300)
    low = np.clip(np.searchsorted(grown, size, "right") - 1, 0, last)
    below, above = size - grown[low], grown[low + 1] - size
    code = low + ((above < below) | ((above == below) & (low % 2 == 1)))
    sign = np.where(np.signbit(x), -1.0, 1.0)
    beyond = np.inf if dtype.name == "float8_e5m2" else np.nan
    value = np.where(code > last, table[-1] if saturate or dtype == FLOAT4 else beyond, table[np.minimum(code, last)])
    value = np.where(np.isnan(x), 0 if dtype == FLOAT4 else np.nan, value) * sign
    return (value + 0.0 if dtype.name.endswith("uz") else value).astype(np.float32).astype(dtype)


@RUNS
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("dtype", [*FLOAT8, FLOAT4], ids=str)
def test_floats_are_rounded_once(run: Any, dtype: np.dtype[Any], saturate: int) -> None:
    random = np.random.default_rng(0).standard_normal(3001) * 40
    wide = np.concatenate([between(dtype).astype(np.float64), random])
    # Beside the middle by less than float32 can tell.
    wide = np.concatenate([wide, *(np.nextafter(wide, side) for side in (-np.inf, np.inf))])
    every_half = np.arange(1 << 16, dtype=np.uint16)
    sources = [wide, between(dtype), every_half.view(np.float16), every_half.view(ml_dtypes.bfloat16)]
    for x in sources:
        want = nearest(dtype, x.astype(np.float64), bool(saturate))
        same(cast(run, x, dtype, saturate=saturate), want)
        if x.dtype != np.float64 and not saturate:
            with np.errstate(all="ignore"):
                theirs = x.astype(np.float32).astype(dtype)
            number = ~np.isnan(x.astype(np.float64))
            same(theirs[number], want[number])


@RUNS
def test_what_is_no_number_becomes_zero_where_there_is_no_nan(run: Any) -> None:
    assert cast(run, np.float32([np.nan, -np.nan]), FLOAT4).astype(np.float32).tolist() == [0, 0]


@RUNS
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two(run: Any, mode: str, saturate: int) -> None:
    x = np.abs(between(POWERS))
    x = np.unique(np.concatenate([x[x > 0], np.float32(2.0) ** np.arange(-126, 127) * np.float32(1.25)]))
    mantissa, exponent = np.frexp(x.astype(np.float64))
    above = {"up": mantissa > 0.5, "down": np.zeros_like(x, bool), "nearest": mantissa >= 0.75}[mode]
    code = exponent - 1 + above + 127
    inside = (code >= 0) & (code <= 254) & np.isfinite(x)
    outside = np.where(x > 1, 254, 0) if saturate else 255
    want = np.where(np.isnan(x), 255, np.where(inside, code, outside)).astype(np.uint8).view(POWERS)
    same(cast(run, x, POWERS, saturate=saturate, round_mode=mode), want)
    zero = cast(run, np.float32([0.0]), POWERS, saturate=saturate, round_mode=mode)
    assert zero.view(np.uint8).tolist() == [0 if saturate else 255]
    assert np.isnan(cast(run, np.float32([-2.0]), POWERS).astype(np.float32)).all()


@RUNS
def test_large_integers_are_not_rounded_on_their_way_to_a_power(run: Any) -> None:
    x = np.asarray([1 << 30, (1 << 30) + 1, (1 << 30) - 1, 1], np.int64)
    assert cast(run, x, POWERS).view(np.uint8).tolist() == [157, 158, 157, 127]


@RUNS
@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize(
    "source", [np.dtype(d) for d in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")], ids=str
)
def test_integers_are_cut_to_their_low_bits(run: Any, dtype: np.dtype[Any], source: np.dtype[Any]) -> None:
    x = np.arange(-300, 300).astype(source) if source.kind != "u" else np.arange(600).astype(source)
    if source.itemsize == 8:
        x = np.concatenate([x, x + np.asarray(1 << 40, source)])
    bits = ml_dtypes.iinfo(dtype).bits
    want = (x.astype(np.int64) & ((1 << bits) - 1)).astype(np.uint8).view(dtype)
    same(cast(run, x, dtype), want)


@RUNS
@EACH
@pytest.mark.parametrize("to", NARROW, ids=str)
def test_narrow_to_narrow(run: Any, dtype: np.dtype[Any], to: np.dtype[Any]) -> None:
    x = codes(dtype)
    numbers = x.astype(np.float64)
    if to in INTS:
        field = ml_dtypes.iinfo(to)
        x = x[(numbers >= field.min) & (numbers <= field.max)] if dtype not in INTS else x
        want = (x.astype(np.float64).astype(np.int64) & (2**field.bits - 1)).astype(np.uint8).view(to)
    elif to == POWERS:
        x = x[numbers > 0]
        mantissa, exponent = np.frexp(x.astype(np.float64))
        code = np.clip(exponent - 1 + (mantissa > 0.5) + 127, 0, 254)
        want = np.where(np.isinf(x.astype(np.float64)), 254, code).astype(np.uint8).view(to)
    else:
        x = x[~np.isnan(numbers)] if to == FLOAT4 else x
        limits = ml_dtypes.finfo(to)
        with np.errstate(all="ignore"):
            want = np.clip(x.astype(np.float64), float(limits.min), float(limits.max)).astype(to)
    same(cast(run, x, to), want if dtype != to else x)


@RUNS
def test_a_cast_there_and_back_rounds(run: Any) -> None:
    x = np.linspace(-500, 500, 1001, dtype=np.float32)
    for dtype in (*FLOAT8, FLOAT4):
        network = nx.Network()
        y = network.add_input("x", np.float32, ["n"])
        for to in (dtype, np.dtype(np.float32)):
            y = network.add_layer("Cast", [y], {"to": to})[0]
        network.mark_output(network.add_layer("Relu", [y], {})[0], "y")
        limits = ml_dtypes.finfo(dtype)
        want = np.clip(x, float(limits.min), float(limits.max)).astype(dtype).astype(np.float32)
        np.testing.assert_array_equal(run(network)({"x": x})["y"], np.maximum(want, 0))


def moved(network: nx.Network, x: nx.Tensor) -> dict[str, nx.Tensor]:
    """What each op that moves elements makes of a tensor of shape (2, 3, 4)."""

    def add(op: str, *more: Array, **attrs: Any) -> nx.Tensor:
        given = [network.add_constant(f"{op}_{i}", array) for i, array in enumerate(more)]
        return network.add_layer(op, [x, *given], attrs)[0]

    value = np.asarray([1]).astype(np.float32).astype(x.dtype).reshape(())
    return {
        "identity": add("Identity"),
        "reshape": add("Reshape", np.int64([4, 6])),
        "flatten": add("Flatten", axis=2),
        "unsqueeze": add("Unsqueeze", axes=[1]),
        "squeeze": network.add_layer("Squeeze", [add("Unsqueeze", axes=[0])], {"axes": [0]})[0],
        "transpose": add("Transpose", perm=[2, 0, 1]),
        "gather": add("Gather", np.int64([2, 0]), axis=1),
        "pad": add("Pad", np.int64([0, 0, 1, 0, 0, 2]), value),
        "edge": add("Pad", np.int64([1, 0, 0, 0, 0, 2]), mode="edge"),
        "shape": add("Shape"),
        "size": add("Size"),
    }


@RUNS
@EACH
def test_elements_are_moved_as_they_are(run: Any, dtype: np.dtype[Any]) -> None:
    x = (np.arange(24, dtype=np.uint8) * 11 & (255 if dtype.name.startswith("float8") else 3)).view(dtype)
    x = x.reshape(2, 3, 4)
    network = nx.Network()
    for name, tensor in moved(network, network.add_input("x", dtype, x.shape)).items():
        network.mark_output(tensor, name)
    got, one = run(network)({"x": x}), np.asarray(1, np.float32).astype(dtype).view(np.uint8)
    raw = x.view(np.uint8)
    want = {
        "identity": raw,
        "reshape": raw.reshape(4, 6),
        "flatten": raw.reshape(6, 4),
        "unsqueeze": raw[:, None],
        "squeeze": raw,
        "transpose": raw.transpose(2, 0, 1),
        "gather": raw[:, [2, 0]],
        "pad": np.pad(raw, [(0, 0), (0, 0), (1, 2)], constant_values=one),
        "edge": np.pad(raw, [(1, 0), (0, 0), (0, 2)], mode="edge"),
    }
    for name, elements in want.items():
        assert got[name].dtype == dtype
        np.testing.assert_array_equal(got[name].view(np.uint8), elements, err_msg=name)
    assert (got["shape"].tolist(), got["size"].tolist()) == ([2, 3, 4], 24)


@RUNS
@EACH
def test_bits_under_another_name(run: Any, dtype: np.dtype[Any]) -> None:
    name = dtype.name
    bits = 8 if name.startswith("float8") else 4 if "4" in name else 2
    other = {8: np.dtype(np.uint8), 4: np.dtype(ml_dtypes.uint4), 2: np.dtype(ml_dtypes.uint2)}[bits]
    raw = np.arange(1 << bits, dtype=np.uint8)
    network = nx.Network()
    x = network.add_input("x", dtype, raw.shape)
    there = network.add_layer("BitCast", [x], {"to": other})[0]
    network.mark_output(there, "y")
    network.mark_output(network.add_layer("BitCast", [there], {"to": dtype})[0], "z")
    got = run(network)({"x": raw.view(dtype)})
    assert (got["y"].dtype, got["z"].dtype) == (other, dtype)
    np.testing.assert_array_equal(got["y"].view(np.uint8), raw)
    np.testing.assert_array_equal(got["z"].view(np.uint8), raw)


@RUNS
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_what_is_no_number_and_what_is_infinite(run: Any, dtype: np.dtype[Any]) -> None:
    network = nx.Network()
    x = network.add_input("x", dtype, (256,))
    for op in ("IsNaN", "IsInf"):
        network.mark_output(network.add_layer(op, [x], {})[0], op)
    got, numbers = run(network)({"x": codes(dtype)}), codes(dtype).astype(np.float32)
    np.testing.assert_array_equal(got["IsNaN"], np.isnan(numbers))
    np.testing.assert_array_equal(got["IsInf"], np.isinf(numbers))


def quantizing(op: str, arrays: list[Array | None], output: np.dtype[Any], **attrs: Any) -> onnx.ModelProto:
    """A model of one QuantizeLinear or DequantizeLinear whose inputs all come with the call."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
        if array is not None
    ]
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(output), None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], "node", **attrs)], "g", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


def compare(run: Any, model: onnx.ModelProto, arrays: list[Array | None], rtol: float = 0) -> None:
    """Our answer against that of ONNX's evaluator."""
    feeds = {f"x{i}": array for i, array in enumerate(arrays) if array is not None}
    with np.errstate(all="ignore"):
        want = np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])
    got = run(from_onnx(model))(feeds)["y"]
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol)


SHAPES = {"tensor": ((), {}), "axis": ((6,), {"axis": 1}), "blocks": ((4, 2, 5), {"axis": 1, "block_size": 3})}
GRANULAR = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
QUANTIZED = pytest.mark.parametrize("dtype", [*FLOAT8, FLOAT4, *INTS], ids=str)


@RUNS
@QUANTIZED
@GRANULAR
@pytest.mark.parametrize("source", ["float32", "float16"])
def test_quantize(run: Any, dtype: np.dtype[Any], shape: tuple[Any, Any], source: str) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((4, 6, 5)) * rng.choice([1, 30, 3000], (4, 6, 5))).astype(source)
    # Quotients by powers of two are exact in every precision.
    scale = np.exp2(rng.integers(-3, 4, shape[0])).astype(source)
    zero = rng.integers(0, 2, shape[0]).astype(dtype) if dtype in INTS else np.zeros(shape[0]).astype(dtype)
    for saturate, given in itertools.product((0, 1), (None, zero)):
        how = {} if given is not None else {"output_dtype": helper.np_dtype_to_tensor_dtype(dtype)}
        arrays = [x, np.asarray(scale), given]
        compare(run, quantizing("QuantizeLinear", arrays, dtype, saturate=saturate, **how, **shape[1]), arrays)


@RUNS
@QUANTIZED
@GRANULAR
@pytest.mark.parametrize("to", ["float32", "float16", "bfloat16"])
def test_dequantize(run: Any, dtype: np.dtype[Any], shape: tuple[Any, Any], to: str) -> None:
    rng = np.random.default_rng(2)
    x = codes(dtype)[rng.integers(0, len(codes(dtype)), (4, 6, 5))]
    x = np.where(np.isfinite(x.astype(np.float32)), x, np.asarray(1).astype(dtype))
    wide = np.dtype(ml_dtypes.bfloat16 if to == "bfloat16" else to)
    scale = np.asarray(rng.uniform(0.1, 2, shape[0]).astype(wide))
    zero = rng.integers(0, 2, shape[0]).astype(dtype) if dtype in INTS else np.zeros(shape[0]).astype(dtype)
    for given in (None, zero):
        arrays = [x, scale, given]
        model = quantizing("DequantizeLinear", arrays, wide, **shape[1])
        compare(run, model, arrays, rtol={"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[to])


@RUNS
def test_scales_that_are_powers_of_two(run: Any) -> None:
    x = np.linspace(-20, 20, 30, dtype=np.float32).reshape(2, 3, 5)
    scale = np.asarray([2.0, 0.25, 1.0], np.float32)
    narrow = x.astype(FLOAT8[0])
    wide = {"output_dtype": TensorProto.FLOAT}
    for op, given, how in (
        ("QuantizeLinear", x, {"output_dtype": TensorProto.FLOAT8E4M3FN}),
        ("DequantizeLinear", narrow, wide),
    ):
        result = FLOAT8[0] if op == "QuantizeLinear" else np.dtype(np.float32)
        want = from_onnx(quantizing(op, [given, scale], result, **how)).evaluate({"x0": given, "x1": scale})["y"]
        powers = scale.astype(POWERS)
        got = run(from_onnx(quantizing(op, [given, powers], result, **how)))({"x0": given, "x1": powers})["y"]
        same(got, want)
    with pytest.raises(nx.InvalidArgumentError, match="dtype of the scale"):
        from_onnx(quantizing("DequantizeLinear", [narrow, scale.astype(POWERS)], POWERS))


@pytest.mark.parametrize("op", ["Add", "Relu", "Concat", "Where", "MatMul", "Softmax", "ReduceSum", "Equal", "Expand"])
@EACH
def test_other_ops_refuse_by_name(op: str, dtype: np.dtype[Any]) -> None:
    network = nx.Network()
    x = network.add_input("x", dtype, (2, 2))
    count = {"Relu": 1, "Softmax": 1, "ReduceSum": 1, "Where": 3}.get(op, 2)
    attrs = {"axis": 0} if op == "Concat" else {}
    with pytest.raises(nx.Error, match=f"{op} does not take tensors of {dtype}"):
        network.add_layer(op, [x] * count, attrs, "here")


def test_a_model_that_computes_with_a_narrow_dtype_is_refused_word_for_word() -> None:
    network = nx.Network()
    x = network.add_input("x", FLOAT8[0], ("n", 3))
    with pytest.raises(nx.DTypeError) as error:
        network.add_layer("Add", [x, x], {}, "sum")
    assert (
        str(error.value)
        == """Add does not take tensors of float8_e4m3fn
  layer: sum (Add) of float8_e4m3fn[n, 3], float8_e4m3fn[n, 3]
  expected: a dtype that is computed with, such as float32 or int8
  got: float8_e4m3fn[n, 3]
  hint: insert a Cast or a DequantizeLinear: few ops work on dtypes that are only stored"""
    )


@EACH
def test_a_constant_narrow_tensor_survives_the_engine_file(dtype: np.dtype[Any], tmp_path: Path) -> None:
    weights = (np.arange(60, dtype=np.uint8) * 5 & (255 if dtype.name.startswith("float8") else 3)).view(dtype)
    network = nx.Network()
    held = network.add_constant("w", weights.reshape(3, 20))
    index = network.add_input("i", np.int64, (2,))
    network.mark_output(network.add_layer("Gather", [held, index], {"axis": 0})[0], "y")
    engine = _native.Engine.build(network, [], {"providers": ["cpu"], "threads": 1, "timing_cache": None})
    engine.save(tmp_path / "narrow.engine")
    opened = _native.Engine.load(tmp_path / "narrow.engine", {"providers": ["cpu"], "timing_cache": None})
    got = opened.run({"i": np.int64([2, 0])})["y"]
    assert got.dtype == dtype
    assert got.tobytes() == weights.reshape(3, 20)[[2, 0]].tobytes()


@EACH
def test_constants_of_a_model_and_of_shape(dtype: np.dtype[Any]) -> None:
    values = np.arange(4, dtype=np.uint8).view(dtype)
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], "node"),
        helper.make_node("ConstantOfShape", ["shape"], ["c"], "fill", value=numpy_helper.from_array(values[1:2], "v")),
    ]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in ("t", "c")]
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, (1,))
    graph = helper.make_graph(nodes, "g", [shape], outputs, [numpy_helper.from_array(values.reshape(2, 2), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    got = from_onnx(model, input_values={"shape": [3]}).evaluate({})
    assert got["t"].tobytes() == values.reshape(2, 2).T.tobytes()
    assert got["c"].tobytes() == values[[1, 1, 1]].tobytes()
