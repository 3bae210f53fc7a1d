"""Float expressions keep their value through passes and fused kernels; `fuzz.floats` looks for others."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from neurenix import Network, _native
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper, parser  # noqa: E402

from fuzz import floats  # noqa: E402

F32 = np.float32
EDGES = np.array([0.1, -0.0, 0.0, 1e-40, 2.5, 65519.0, 65520.0, 7e4, 1e30, -1e30, np.inf, -np.inf, np.nan], F32)


def network(body: str, shape: str = "n", **constants: Any) -> Network:
    """A network from `float[shape] x` to `float[shape] y`."""
    text = f'<ir_version: 10, opset_import: ["" : 21]> m (float[{shape}] x) => (float[?] y) {{ {body} }}'
    model = parser.parse_model(text)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for name, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return from_onnx(model)


def run(made: Network, x: Any, **options: Any) -> Any:
    backend = TensorRTBackend(threads=1, timing_cache=False, verify=False, **options)
    return backend.optimize_model(made, {"x": x.shape}).run({"x": x})["y"]


def same(got: Any, want: Any) -> None:
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("level", [0, 3])
def test_a_magic_number_rounds(level: int) -> None:
    magic = F32(12582912.0)
    x = np.linspace(-3, 3, 101, dtype=F32)
    got = run(network("t = Add(x, c)\ny = Sub(t, c)", c=magic), x, optimization_level=level)
    same(got, (x + magic) - magic)
    assert set(np.unique(got)) == set(range(-3, 4))


@pytest.mark.parametrize("product", ["MatMul", "Conv"])
def test_a_magic_number_behind_a_product_is_no_bias(product: str) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 8, 6, 8)).astype(F32), rng.standard_normal((8, 8)).astype(F32)
    body = f"p = {product}(x, w)\nt = Add(p, c)\ny = Sub(t, c)"
    weights = w if product == "MatMul" else w.reshape(8, 8, 1, 1)
    got = run(network(body, "1, 8, 6, 8", w=weights, c=np.full((1, 8, 1, 1), 12582912.0, F32)), x)
    assert np.array_equal(got, np.rint(got))


@pytest.mark.parametrize(("op", "number"), [("Mul", 0.0), ("Add", 0.0), ("Add", -0.0), ("Sub", 0.0), ("Div", 3.0)])
def test_numbers_that_look_neutral(op: str, number: float) -> None:
    c = F32(number)
    with np.errstate(all="ignore"):
        want = {"Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Div": np.divide}[op](EDGES, c)
    same(run(network(f"y = {op}(x, c)", c=c), EDGES), want)


@pytest.mark.parametrize("op", ["Div", "Sub"])
def test_a_number_and_itself(op: str) -> None:
    with np.errstate(all="ignore"):
        want = {"Div": np.divide, "Sub": np.subtract}[op](EDGES, EDGES)
    same(run(network(f"y = {op}(x, x)"), EDGES), want)


@pytest.mark.parametrize("power", [0.5, -0.5])
def test_a_power_of_half_is_no_root(power: float) -> None:
    with np.errstate(all="ignore"):
        # Of one exponent for all, numpy makes a square root.
        want = np.power(EDGES.astype(np.float64), np.full(EDGES.shape, power))
    got = run(network("y = Pow(x, c)", c=F32(power)), EDGES)
    np.testing.assert_allclose(got, want.astype(F32), rtol=4e-7)


SHORT = {10: np.dtype(np.float16), 16: np.dtype(ml_dtypes.bfloat16)}


@pytest.mark.parametrize("to", SHORT)
@pytest.mark.parametrize("between", ["", "Add", "Mul"])
def test_casts_of_the_model_round(to: int, between: str) -> None:
    """There and back in one kernel; what is between them may be wider, and comes out as 16 bits hold it."""
    c = np.array(1.5, SHORT[to])
    with np.errstate(all="ignore"):
        want = EDGES.astype(SHORT[to])
        want = {"": lambda a, b: a, "Add": np.add, "Mul": np.multiply}[between](want, c).astype(F32)
    middle = f"t = {between}(s, c)\n" if between else "t = Identity(s)\n"
    made = network(f"s = Cast<to = {to}>(x)\n{middle}y = Cast<to = 1>(t)", c=c)
    same(run(made, EDGES), want)
    assert np.isinf(want[7]) == (to == 10)


@pytest.mark.parametrize("to", SHORT)
def test_casts_of_the_model_round_in_a_longer_chain(to: int) -> None:
    made = network(f"s = Cast<to = {to}>(x)\nt = Cast<to = 1>(s)\nu = Mul(t, c)\ny = Abs(u)", c=F32(3))
    with np.errstate(all="ignore"):
        same(run(made, EDGES), np.abs(EDGES.astype(SHORT[to]).astype(F32) * F32(3)))


@pytest.mark.parametrize("to", SHORT)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_are_rounded_once(dtype: Any, to: int) -> None:
    """Those next to the middle between two floats of 16 bits are that in float32."""
    tie = 2**24 + 2**16 if to == 16 else 2049
    x = np.array([tie, tie + 1, tie - 1, -tie - 1, 3 * tie, 2**30 + 2**22 + 1, 2**30 + 2**22, 65519, 65520], dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["s"], to=to), helper.make_node("Cast", ["s"], ["y"], to=1)],
        "rounded",
        [helper.make_tensor_value_info("x", kind, [len(x)])],
        [helper.make_tensor_value_info("y", 1, [len(x)])],
    )
    made = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    # Double precision holds them all, and numpy rounds it once; ml_dtypes goes by float32.
    exact = x.astype(np.float64)
    if to == 10:
        with np.errstate(over="ignore"):
            want = exact.astype(np.float16).astype(F32)
    else:
        unit = 2.0 ** (np.floor(np.log2(np.abs(exact))) - 7)
        want = (np.rint(exact / unit) * unit).astype(F32)
    same(run(made, x), want)


#: Behind a convolution by 1: the layers of a chain, and what they make of plus and minus infinity.
CHAINS = {
    "Clip(c, low)": (np.inf, -5.0),
    "Clip(c, , high)": (7.0, -np.inf),
    "Max(c, low)": (np.inf, -5.0),
    "Min(c, high)": (7.0, -np.inf),
    "Relu(c)": (np.inf, 0.0),
    "LeakyRelu(c)": (np.inf, -np.inf),
    "Add(c, high)": (np.inf, -np.inf),
}


@pytest.mark.parametrize("layer", CHAINS)
def test_infinity_stays_behind_a_convolution(layer: str) -> None:
    """A window of 3x3 on many channels, which kernels for real networks compute."""
    x = np.random.default_rng(0).standard_normal((1, 32, 12, 12)).astype(F32)
    x[0, 3, 4, 4], x[0, 3, 8, 8] = np.inf, -np.inf
    w = np.full((32, 32, 3, 3), 0.1, F32)
    made = network(f"c = Conv(x, w)\ny = {layer}", "1, 32, 12, 12", w=w, low=F32(-5), high=F32(7))
    got = run(made, x)
    want = CHAINS[layer]
    assert (got[0, :, 3, 3] == want[0]).all() and (got[0, :, 7, 7] == want[1]).all(), got[0, :2, [3, 7], [3, 7]]


def test_every_form_of_a_convolution_keeps_what_is_not_finite() -> None:
    """Infinities, NaN and a number near the greatest one: kernels that transform what they read subtract them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 32, 9, 10)).astype(F32)
    x[0, 3, 2, 2], x[0, 5, 7, 7], x[0, 1, 6, 0], x[0, 9, 4, 9] = np.inf, np.nan, 3e38, -np.inf
    w = (rng.standard_normal((48, 32, 3, 3)) / 8).astype(F32)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    with np.errstate(invalid="ignore"):
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        want = np.einsum("nchwij,kcij->nkhw", windows, w.astype(np.float64))
    made = Network("")
    given = made.add_input("x", F32, x.shape)
    made.mark_output(made.add_layer("Conv", [given, made.add_constant("w", w)], {"pads": [1] * 4})[0], "y")
    outcomes = _native.run_every_form(made, "cpu", {"x": x})
    assert len(outcomes) > 2
    for outcome in outcomes:
        [(_, got, _)] = outcome["outputs"]
        assert np.array_equal(np.isnan(got), np.isnan(want)), outcome["form"]
        assert np.array_equal(got[np.isinf(want)], want[np.isinf(want)]), outcome["form"]
        small = np.abs(want) < 1e3
        np.testing.assert_allclose(got[small], want[small], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [3, 19, 32])
def test_every_form_of_a_convolution_and_relu_makes_nothing_of_minus_infinity(channels: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, channels, 12, 12)).astype(F32)
    x[0, 1, 8, 8] = -np.inf
    made = Network("")
    w = made.add_constant("w", np.full((32, channels, 3, 3), 0.1, F32))
    y = made.add_layer("Conv", [made.add_input("x", F32, x.shape), w], {"pads": [1] * 4})[0]
    made.mark_output(made.add_layer("Relu", [y])[0], "y")
    outcomes = [one for one in _native.run_every_form(made, "cpu", {"x": x}) if one["kernel"] == "Conv+Relu"]
    assert len(outcomes) > 2
    for outcome in outcomes:
        [(_, got, _)] = outcome["outputs"]
        assert (got[0, :, 7:10, 7:10] == 0).all() and np.isfinite(got).all(), outcome["implementation"]


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_the_greater_of_a_convolution_and_nan_is_nan(op: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 16, 12, 12)).astype(F32)
    x[0, 3, 4, 4] = np.nan
    other = np.zeros((1, 16, 10, 10), F32)
    other[0, :, 0, 0] = np.nan
    w = np.full((16, 16, 3, 3), 0.1, F32)
    got = run(network(f"c = Conv(x, w)\ny = {op}(c, other)", "1, 16, 12, 12", w=w, other=other), x)
    assert np.isnan(got[0, :, 3, 3]).all() and np.isnan(got[0, :, 0, 0]).all()


def lowered(made: Network, dtype: str) -> Network:
    made.simplify(dtype)
    return made


def error(got: Any, want: Any) -> float:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.sqrt(((got - want) ** 2).sum() / (want**2).sum()))


def waves(dtype: Any) -> Network:
    """Positions -> Cast -> Mul -> Cos -> MatMul."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=1),
        helper.make_node("Mul", ["f", "frequencies"], ["angles"]),
        helper.make_node("Cos", ["angles"], ["waves"]),
        helper.make_node("MatMul", ["waves", "w"], ["y"]),
    ]
    if dtype == "float32":
        nodes = [helper.make_node("Identity", ["x"], ["f"]), *nodes[1:]]
    kind = {"int64": 7, "int32": 6, "float32": 1}[dtype]
    constants = {
        "frequencies": (10000.0 ** -(np.arange(32) / 32)).astype(F32),
        "w": rng.standard_normal((32, 16)).astype(F32),
    }
    graph = helper.make_graph(
        nodes,
        "waves",
        [helper.make_tensor_value_info("x", kind, [1024, 1])],
        [helper.make_tensor_value_info("y", 1, [1024, 16])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


@pytest.mark.parametrize(("precision", "short"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_positions_stay_exact(dtype: str, precision: str, short: Any) -> None:
    """Whether they come as integers or as floats; the product behind them is lowered."""
    x = {"x": np.arange(1024, dtype=dtype)[:, None]}
    want = waves(dtype).evaluate(x)["y"]
    made = lowered(waves(dtype), precision)
    assert error(made.evaluate(x)["y"], want) < 2 * float(ml_dtypes.finfo(short).eps)
    dtypes = {layer.op: layer.outputs[0].dtype for layer in made.layers}
    assert str(dtypes["MatMul"]) == precision and str(dtypes["Mul"]) == "float32"


def masked(how: str) -> Network:
    """Scores of [2, 4, 7, 7] with what exporters add for padding, to a softmax and a product."""
    nodes = {
        "float": "f = Cast<to = 1>(mask)\nn = Sub(one, f)\nm = Mul(n, low)",
        "bool": "b = Cast<to = 9>(mask)\nm = Where(b, zero, low)",
    }[how]
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> '
        "m (float[2, 4, 7, 8] q, int64[2, 1, 1, 7] mask) => (float[2, 4, 7, 8] y)"
        f"{{ {nodes}\nt = Transpose<perm = [0, 1, 3, 2]>(q)\n"
        "s = MatMul(q, t)\nu = Add(s, m)\nw = Softmax(u)\ny = MatMul(w, q) }"
    )
    model = parser.parse_model(text)
    low = np.finfo(F32).min
    for name, value in {"one": F32(1), "zero": F32(0), "low": F32(low)}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return from_onnx(model)


@pytest.mark.parametrize("how", ["float", "bool"])
@pytest.mark.parametrize(("precision", "short"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)])
def test_a_finite_mask_stays_finite(how: str, precision: str, short: Any) -> None:
    """Also for a query that sees no key, whose weights are all alike; the products are lowered."""
    rng = np.random.default_rng(0)
    mask = np.array([[1, 1, 1, 1, 1, 0, 0], [0] * 7]).reshape(2, 1, 1, 7)
    given = {"q": rng.standard_normal((2, 4, 7, 8)).astype(F32), "mask": mask}
    want = masked(how).evaluate(given)["y"]
    made = lowered(masked(how), precision)
    products = [layer for layer in made.layers if layer.op in ("MatMul", "Attention")]
    assert products and all(str(layer.outputs[0].dtype) == precision for layer in products)
    got = made.evaluate(given)["y"]
    assert np.isfinite(got).all()
    assert error(got[0], want[0]) < 4 * float(ml_dtypes.finfo(short).eps)


@pytest.mark.parametrize("number", range(3))
def test_random_expressions(tmp_path: Path, number: int) -> None:
    case = floats.target(seed=0)
    for at in range(80 * number, 80 * (number + 1)):
        word = case(at, tmp_path)
        assert not word.startswith("bad"), f"{word}\npython -m fuzz.floats --first {at} --cases 1"


@pytest.mark.parametrize("short", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("statistics", ["float32", "of the model"])
def test_a_norm_behind_a_convolution_of_16_bits_is_rounded_once(op: str, short: Any, statistics: str) -> None:
    """Each weight and each bias is as near as its dtype has it, for factors that it does not have."""
    rng, channels, dtype = np.random.default_rng(3), 256, np.dtype(short)
    wide = np.float32 if statistics == "float32" else dtype
    weights = rng.uniform(-2, 2, channels).astype(dtype)
    # Half of the channels give their weights for 1, the other half their biases for 0.
    half = np.arange(channels) < channels // 2
    scale, var = (rng.uniform(0.5, 2, channels).astype(wide) for _ in range(2))
    offset, mean, bias = (np.where(half, 0, rng.uniform(-2, 2, channels)).astype(wide) for _ in range(3))
    net = Network("norm")
    x = net.add_input("x", dtype.name, [1, 1, 1, 2])
    shape = (channels, 1, 1, 1) if op == "Conv" else (1, channels, 1, 1)
    given = [net.add_constant("w", weights.reshape(shape)), net.add_constant("b", bias.astype(dtype))]
    (y,) = net.add_layer(op, [x, *given], {}, "conv")
    parameters = [net.add_constant(f"p{i}", each) for i, each in enumerate((scale, offset, mean, var))]
    (y,) = net.add_layer("BatchNormalization", [y, *parameters], {"epsilon": 1e-3}, "norm")
    net.mark_output(y, "y")
    net.simplify()
    assert [layer.op for layer in net.layers] == [op]
    found = net.evaluate({"x": np.array([[[[0, 1]]]], dtype)})["y"].astype(float)[0, :, 0]
    w, b, s, o, m, v = (each.astype(float) for each in (weights, bias.astype(dtype), scale, offset, mean, var))
    factor = s / np.sqrt(v + 1e-3)
    for got, exact in ((found[half, 1], (w * factor)[half]), (found[~half, 0], (o + (b - m) * factor)[~half])):
        step = float(ml_dtypes.finfo(short).eps) * 2.0 ** np.floor(np.log2(np.abs(exact)))
        assert (np.abs(got - exact) <= step / 2 * (1 + 1e-3)).all()
