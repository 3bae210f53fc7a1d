"""What fuzzing found once, as small as it failed."""

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import parser  # noqa: E402

RNG = np.random.default_rng(0)


def optimised(signature: str, body: str, shapes: Any = None, level: int = 0) -> Any:
    text = f'<ir_version: 10, opset_import: ["" : 21]> m {signature} {{ {body} }}'
    backend = TensorRTBackend(threads=1, optimization_level=level, timing_cache=False)
    return backend.optimize_model(from_onnx(parser.parse_model(text)), shapes)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_a_resize_to_nothing_writes_nothing(mode: str) -> None:
    """It wrote past the end of its output."""
    model = optimised(
        "(float[2,9,1,7] x) => (float[] y) <float[4] s = {1.0, 1.0, 0.5, 0.5}>",
        f'y = Resize<mode = "{mode}", coordinate_transformation_mode = "asymmetric">(x, , s)',
    )
    for _ in range(20):
        assert model.run({"x": floats(2, 9, 1, 7)})["y"].shape == (2, 9, 0, 3)


@pytest.mark.parametrize("level", [0, 3])
def test_a_constant_under_a_shape_that_a_call_tells(level: int) -> None:
    """The view of the constant had no address."""
    values = ", ".join(str(v / 2) for v in range(12))
    model = optimised(
        f"(float[n,2] x) => (float[] y) <float[12] w = {{{values}}}, int64[1] rest = {{-1}}, int64[1] a = {{0}}, "
        "int64[1] b = {1}>",
        "s = Shape(x) n = Slice(s, a, b) d = Concat<axis = 0>(n, rest)"
        " v = Reshape(w, d) y = Transpose<perm = [1, 0]>(v)",
        {"x": nx.Shape((1, 2), (3, 2), (12, 2))},
        level,
    )
    w = np.arange(12, dtype=np.float32) / 2
    for n in (3, 4, 12):
        assert np.array_equal(model.run({"x": floats(n, 2)})["y"], w.reshape(n, -1).T)
    with pytest.raises(nx.ShapeError, match="the elements divide into the target shape"):
        model.run({"x": floats(5, 2)})


def test_a_slice_of_nothing_backwards() -> None:
    model = optimised(
        "(float[0,3] x) => (float[] y) <int64[1] s = {-1}, int64[1] e = {-1000}, int64[1] a = {0}, int64[1] t = {-1}>",
        "y = Slice(x, s, e, a, t)",
    )
    assert model.run({"x": floats(0, 3)})["y"].shape == (0, 3)


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ("y = BatchNormalization(x, w, w, w, w)", lambda x: (x - 2) / np.sqrt(2 + 1e-5) * 2 + 2),
        (
            "y = InstanceNormalization(x, w, w)",
            lambda x: (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5) * 2 + 2,
        ),
        ('y = Einsum<equation = "nchw,c->nhwc">(x, w)', lambda x: 2 * x.transpose(0, 2, 3, 1)),
    ],
)
def test_channels_that_only_the_weights_know(body: str, reference: Any) -> None:
    """A rewrite knew the number of channels where the layer had a symbol, and that was taken for a defect."""
    model = optimised(
        "(float[n,c,h,w_] x) => (float[] y) <float[4] w = {2.0, 2.0, 2.0, 2.0}>", body, {"x": (2, 4, 3, 5)}
    )
    x = floats(2, 4, 3, 5)
    np.testing.assert_allclose(model.run({"x": x})["y"], reference(x), rtol=1e-4, atol=1e-5)


def test_zero_points_that_know_the_columns() -> None:
    model = optimised(
        "(uint8[m,3] a, uint8[3,n] b) => (int32[] y) <uint8 za = {1}, uint8[5] zb = {0, 1, 2, 3, 4}>",
        "y = MatMulInteger(a, b, za, zb)",
        {"a": (2, 3), "b": (3, 5)},
    )
    a, b = (RNG.integers(0, 9, shape).astype(np.uint8) for shape in ((2, 3), (3, 5)))
    want = (a.astype(np.int32) - 1) @ (b.astype(np.int32) - np.arange(5, dtype=np.int32))
    assert np.array_equal(model.run({"a": a, "b": b})["y"], want)


@pytest.mark.parametrize("level", [0, 3])
def test_default_dims_that_do_not_go_together(level: int) -> None:
    """Nothing can be timed at them; the model runs where they do, and can be reported on."""
    model = optimised(
        "(float[2,15] x, float[w,5] y) => (float[] z)", "f = Flatten<axis = 0>(y) z = Mul(x, f)", level=level
    )
    x, y = floats(2, 15), floats(3, 5)
    np.testing.assert_allclose(model.run({"x": x, "y": y})["z"], x * y.reshape(1, 15), rtol=1e-6)
    assert any("nothing was timed" in note for note in model.report()["notes"])
    with pytest.raises(nx.ShapeError, match="do not go together"):
        model.run({"x": x, "y": floats(2, 5)})


def test_fusions_that_would_form_a_cycle_are_not_chosen() -> None:
    """Two groups of layers each read a result of the other: the way back led through a layer that runs early."""
    model = optimised(
        "(float16[3,2] x, float16[2] a, float16[3,1] b, float16[1,1] c) => (float16[] y, bool[] l)"
        " <bool[2] w = {1, 0}, int64[1] axis = {1}>",
        "p = Where(w, x, a) l = Less(p, b) r = ReduceLogSumExp(x, axis) y = Min(r, c, b)",
    )
    x, a, b, c = (floats(*shape).astype(np.float16) for shape in ((3, 2), (2,), (3, 1), (1, 1)))
    got = model.run({"x": x, "a": a, "b": b, "c": c})
    assert np.array_equal(got["l"], np.where([True, False], x, a) < b)
    want = np.minimum(np.minimum(np.log(np.exp(x.astype("f8")).sum(1, keepdims=True)), c), b)
    np.testing.assert_allclose(got["y"].astype("f8"), want, rtol=2e-3)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
def test_the_spacing_of_one_element_does_not_matter(op: str) -> None:
    model = optimised("(float[4,3,1] x) => (float[] y)", f"y = {op}<kernel_shape = [1], dilations = [2]>(x)")
    x = np.abs(floats(4, 3, 1))
    np.testing.assert_allclose(model.run({"x": x})["y"], x, rtol=1e-6)


LAST = "int64[1] a = {-1}, float e = {0.00001}"
RMS_NORM = "q = Mul(x, x) v = ReduceMean(q, a) w = Add(v, e) r = Sqrt(w) y = Div(x, r)"


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("(float[1,2147483648,5,5] x) => (float[] y)", "y = AveragePool<kernel_shape = [5,5]>(x)"),
        ("(float[2,2] x) => (float[] y) <int64[2] r = {2147483648, 8}>", "y = Tile(x, r)"),
        ("(float[2,2] x, int64[2147483647] s, int64[3] e) => (float[] y)", "y = Slice(x, s, e)"),
        ("(float[1,1,4,4] x) => (float[] y)", "y = MaxPool<kernel_shape = [2,9223372036854775807]>(x)"),
        ("(float[2,3] x, int64[127] s) => (float[] y)", "y = Reshape(x, s)"),
        ("(float[1,3,4,5] x) => (float[] y) <int64[8] p = {0,9223372036854775807,0,0,0,0,-4,0}>", "y = Pad(x, p)"),
        (f"(float[3,4,2147483648] x) => (float[] y) <{LAST}>", RMS_NORM),
        (f"(float[3,4,2147483648] x) => (float[] y) <{LAST}>", f"m = ReduceMean(x, a) d = Sub(x, m) {RMS_NORM}"),
        ("(float[1,1,1,2147483648] x) => (float[] y) <float[4] s = {1.0,1.0,1.0,2.0}>", "y = Resize(x, , s)"),
        (
            "(float[1,1,1,2147483648] x) => (float[] y) <float[4] s = {1.0,1.0,1.0,0.000000001}>",
            'y = Resize<mode = "linear", antialias = 1>(x, , s)',
        ),
        ("(float[1,4398046511104,0] x, float[1,0,0] w) => (float[] y)", "y = RNN<hidden_size = 0>(x, w, w)"),
        ("() => (float[] y) <int64[2] s = {2147483648, 64}>", "y = ConstantOfShape(s)"),
    ],
)
def test_enormous_numbers_are_refused_or_imported_and_never_crash(signature: str, body: str) -> None:
    try:
        optimised(signature, body)
    except nx.InternalError:
        raise
    except nx.Error:
        pass


def test_a_stage_that_knows_many_great_sizes() -> None:
    """They cross in the shape of an array without elements, however many there would be without the last extent."""
    names = [f"{letter}{i}" for letter in "nm" for i in range(8)]
    ports = ", ".join(f"float[{n}, {m}] x{i}" for i, (n, m) in enumerate(zip(names[:8], names[8:], strict=True)))
    sums = " ".join(f"r{i} = ReduceSum<keepdims = 0>(x{i})" for i in range(8))
    model = optimised(
        f"({ports}) => (float[] y)",
        f"{sums} s = Sum({', '.join(f'r{i}' for i in range(8))}) z = NonZero(x0) f = Cast<to = 1>(z) y = Add(f, s)",
    )
    arrays = {f"x{i}": np.ones((50 + i, 60 + i), np.float32) for i in range(8)}
    total = sum(array.size for array in arrays.values())
    got = model.run(arrays)["y"]
    assert got.shape == (2, 3000) and got[0, 0] == total


def test_a_convolution_that_cuts_off_what_it_reads() -> None:
    """oneDNN has no primitive for a padding below 0, and the engine failed when it was first called."""

    def convolved(pads: str) -> Any:
        signature = "(float[2,3,8,m] x, float[4,3,3,3] k) => (float[] y)"
        widths = nx.Shape((2, 3, 8, 5), (2, 3, 8, 7), (2, 3, 8, 9))
        return optimised(signature, f"y = Conv<pads = {pads}>(x, k)", {"x": widths})

    x, k = floats(2, 3, 8, 8), floats(4, 3, 3, 3)
    cut = convolved("[1, -1, 1, 1]").run({"x": x, "k": k})["y"]
    want = convolved("[1, 0, 1, 1]").run({"x": np.ascontiguousarray(x[..., 1:]), "k": k})["y"]
    np.testing.assert_allclose(cut, want, rtol=1e-5, atol=1e-5)
