"""The CUDA provider: what it runs, what it leaves to the CPU, and that calls repeat."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

parser = pytest.importorskip("onnx").parser

MISSING = dict(_native.provider_states())["cuda"]
needs_gpu = pytest.mark.skipif(MISSING is not None, reason=f"no GPU for the CUDA provider: {MISSING}")


def model(body: str, signature: str, held: str = "") -> Any:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> m {signature} {held} {{ {body} }}')


def kernels(optimized: nx.OptimizedModel) -> list[tuple[str, str]]:
    return [(row["provider"], row["kernel"]) for row in optimized.report()["kernels"]]


@pytest.mark.skipif(MISSING is None, reason="there is a GPU")
def test_without_a_gpu_the_provider_says_what_is_missing() -> None:
    assert MISSING is not None
    assert "libcuda.so.1" in MISSING or "GPU" in MISSING


@pytest.mark.gpu
@needs_gpu
def test_calls_repeat_when_they_are_recorded_and_replayed() -> None:
    given = model(
        "a = MatMul(x, w) b = Add(a, c) y = Relu(b)", "(float[n,16] x, float[16,8] w, float[8] c) => (float[] y)"
    )
    optimized = TensorRTBackend(timing_cache=False).optimize_model(given, {"x": (4, 16), "w": (16, 8), "c": (8,)})
    rng = np.random.default_rng(0)
    for rows in (4, 4, 4, 4, 7, 7, 7, 4):
        inputs = {
            name: rng.standard_normal(s).astype(np.float32)
            for name, s in (("x", (rows, 16)), ("w", (16, 8)), ("c", (8,)))
        }
        want = np.maximum(inputs["x"] @ inputs["w"] + inputs["c"], 0)
        np.testing.assert_allclose(optimized(inputs)["y"], want, rtol=1e-5, atol=1e-5)
    assert ("cuda", "MatMul+Add+Relu") in kernels(optimized)


@pytest.mark.gpu
@needs_gpu
def test_what_has_no_kernel_runs_on_the_cpu_and_is_reported() -> None:
    given = model("a = Abs(x) b = Det(a) y = Sigmoid(b)", "(float[7,3,3] x) => (float[] y)")
    optimized = TensorRTBackend(timing_cache=False).optimize_model(given, {"x": (7, 3, 3)})
    x = np.random.default_rng(1).standard_normal((7, 3, 3)).astype(np.float32)
    want = 1 / (1 + np.exp(-np.linalg.det(np.abs(x.astype(np.float64)))))
    for _ in range(4):
        np.testing.assert_allclose(optimized({"x": x})["y"], want, rtol=1e-5)
    assert {provider for provider, _ in kernels(optimized)} == {"cpu", "cuda"}
    assert any(
        refusal["provider"] == "cuda" and "Det" in refusal["reason"] for refusal in optimized.report()["refusals"]
    )


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("level", [0, 3])
def test_a_convolution_with_all_that_follows_is_one_kernel(level: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x, w, b, r = (
        rng.standard_normal(s).astype(np.float32) for s in ((2, 16, 9, 9), (32, 16, 3, 3), (32,), (2, 32, 9, 9))
    )
    given = model(
        "a = Conv<pads = [1, 1, 1, 1]>(x, w, b) c = Add(a, r) y = Relu(c)",
        "(float[2,16,9,9] x, float[32,16,3,3] w, float[32] b, float[2,32,9,9] r) => (float[] y)",
    )
    backend = TensorRTBackend(timing_cache=False, optimization_level=level)
    optimized = backend.optimize_model(given, {"x": x.shape, "w": w.shape, "b": b.shape, "r": r.shape})
    wide = [torch.from_numpy(a).double() for a in (x, w, b, r)]
    want = torch.relu(torch.nn.functional.conv2d(*wide[:3], padding=1) + wide[3]).numpy()
    got = optimized({"x": x, "w": w, "b": b, "r": r})["y"]
    # float32 stays float32: no tf32 was asked for.
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    assert ("cuda", "Conv+Add+Relu") in kernels(optimized)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_float32_is_rounded_to_tf32_where_that_was_asked_for(precision: str, level: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    x, w, m = (rng.standard_normal(s).astype(np.float32) for s in ((4, 64, 14, 14), (64, 64, 3, 3), (64, 128)))
    integers = rng.integers(-128, 128, (32, 64), np.int8)
    given = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> m '
        "(float[4,64,14,14] x, float[64,64,3,3] w, float[64,128] m, int8[32,64] a, int8[64,32] b) "
        "=> (float[] c, float[] p, int32[] i) { c = Conv<pads = [1, 1, 1, 1]>(x, w) "
        "t = Transpose<perm = [0, 2, 3, 1]>(x) p = MatMul(t, m) i = MatMulInteger(a, b) }"
    )
    inputs = {"x": x, "w": w, "m": m, "a": integers, "b": np.ascontiguousarray(integers.T)}
    backend = TensorRTBackend(timing_cache=False, optimization_level=level)
    optimized = backend.optimize_model(given, {n: i.shape for n, i in inputs.items()}, precision=precision)
    got = optimized(inputs)
    wide = [torch.from_numpy(a).double() for a in (x, w, m)]
    want = {
        "c": torch.nn.functional.conv2d(*wide[:2], padding=1).numpy(),
        "p": (wide[0].permute(0, 2, 3, 1) @ wide[2]).numpy(),
    }
    # Operands of 11 bits are off by 2**-13 of themselves or so, those of 24 bits by far less.
    low, high = (3e-5, 1e-3) if precision == "tf32" else (0.0, 1e-6)
    for name, exact in want.items():
        error = np.sqrt(((got[name] - exact) ** 2).mean() / (exact**2).mean())
        assert error <= high, (name, error)
        # Level 3 may find that an engine without tensor cores is the fastest.
        assert error >= low or level == 3, (name, error)
    assert np.array_equal(got["i"], integers.astype(np.int32) @ integers.T.astype(np.int32))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kernel", [3, 1, 0])
@pytest.mark.parametrize(
    "function", ["Relu", "LeakyRelu", "Sigmoid", "Silu", "Tanh", "Gelu", "Clip", "HardSigmoid", "HardSwish"]
)
def test_a_nan_goes_through_what_follows_a_product(function: str, kernel: int, dtype: str, level: int) -> None:
    made = nx.Network("nan")
    rng = np.random.default_rng(5)

    def held(name: str, *shape: int) -> str:
        return made.add_constant(name, (rng.standard_normal(shape) / 8).astype(dtype))

    if kernel:
        x = rng.standard_normal((2, 64, 28, 28)).astype(dtype)
        x[1, 5, 9, 9] = np.nan
        given = [made.add_input("x", dtype, list(x.shape)), held("w", 64, 64, kernel, kernel), held("b", 64)]
        y = made.add_layer("Conv", given, {"pads": [kernel // 2] * 4})[0]
        around = slice(9 - kernel // 2, 10 + kernel // 2)
        reached = (1, slice(None), around, around)
    else:
        x = rng.standard_normal((512, 256)).astype(dtype)
        x[7, 11] = np.nan
        y = made.add_layer("MatMul", [made.add_input("x", dtype, list(x.shape)), held("w", 256, 512)])[0]
        y = made.add_layer("Add", [y, held("b", 512)])[0]
        reached = (7,)
    bounds = [made.add_constant(str(bound), np.asarray(bound, dtype)) for bound in (0, 6)] if function == "Clip" else []
    made.mark_output(made.add_layer(function, [y, *bounds])[0], "y")
    optimized = TensorRTBackend(timing_cache=False, optimization_level=level).optimize_model(made)
    got = np.isnan(optimized({"x": x})["y"])
    want = np.zeros_like(got)
    want[reached] = True
    ran = [row["implementation"] for row in optimized.report()["kernels"]]
    assert np.array_equal(got, want), (int(got.sum()), int(want.sum()), ran)


@pytest.mark.gpu
@needs_gpu
def test_symbolic_shapes_run_at_sizes_that_were_not_optimised_for() -> None:
    network = from_onnx(model("a = Softmax<axis = 1>(x) y = Mul(a, x)", "(float[n,s] x) => (float[] y)"))
    optimized = TensorRTBackend(timing_cache=False).optimize_model(network, {"x": nx.Shape((1, 1), (4, 32), (64, 512))})
    rng = np.random.default_rng(3)
    for shape in ((1, 1), (3, 511), (64, 17)):
        x = rng.standard_normal(shape).astype(np.float32)
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(optimized({"x": x})["y"], e / e.sum(1, keepdims=True) * x, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("behind", ["Add", "Gelu", "Residual"])
def test_a_product_of_16_bits_with_what_follows_is_one_kernel(behind: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    x, w, b, r = (
        (rng.standard_normal(s) / 4).astype(np.float16) for s in ((2, 1024, 768), (768, 1536), (1536,), (2, 1024, 1536))
    )
    bodies = {"Add": "y = Add(a, b)", "Gelu": "c = Add(a, b) y = Gelu(c)", "Residual": "c = Add(a, b) y = Add(c, r)"}
    read = ", float16[2,1024,1536] r" if behind == "Residual" else ""
    signature = f"(float16[2,1024,768] x, float16[768,1536] w, float16[1536] b{read}) => (float16[2,1024,1536] y)"
    given = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 20]> m {signature} {{ a = MatMul(x, w) {bodies[behind]} }}'
    )
    inputs = {"x": x, "w": w, "b": b} | ({"r": r} if read else {})
    optimized = TensorRTBackend(timing_cache=False).optimize_model(given, {n: i.shape for n, i in inputs.items()})
    want = torch.tensor(x).double() @ torch.tensor(w).double() + torch.tensor(b).double()
    if behind == "Gelu":
        want = torch.nn.functional.gelu(want)
    if behind == "Residual":
        want = want + torch.tensor(r).double()
    for _ in range(4):
        np.testing.assert_allclose(optimized(inputs)["y"], want.numpy(), rtol=2e-3, atol=2e-3)
    assert len([row for row in optimized.report()["kernels"] if row["layers"]]) == 1, kernels(optimized)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize(("rows", "depth"), [(128, 768), (77, 776), (5, 3072)])
def test_small_products_of_one_input_are_one_kernel(level: int, rows: int, depth: int) -> None:
    rng = np.random.default_rng(4)
    held = {
        name: (rng.standard_normal(shape) / 8).astype(np.float16)
        for i in range(3)
        for name, shape in ((f"w{i}", (depth, 256)), (f"b{i}", (256,)))
    }
    made = nx.Network("projections")
    x = made.add_input("x", "float16", [1, rows, depth])
    for i in range(3):
        y = made.add_layer("MatMul", [x, made.add_constant(f"w{i}", held[f"w{i}"])])[0]
        made.mark_output(made.add_layer("Add", [y, made.add_constant(f"b{i}", held[f"b{i}"])])[0], f"y{i}")
    optimized = TensorRTBackend(timing_cache=False, optimization_level=level).optimize_model(
        made, {"x": (1, rows, depth)}
    )
    given = (rng.standard_normal((1, rows, depth)) / 4).astype(np.float16)
    for _ in range(4):
        found = optimized({"x": given})
        for i in range(3):
            want = given.astype(np.float64) @ held[f"w{i}"].astype(np.float64) + held[f"b{i}"]
            np.testing.assert_allclose(found[f"y{i}"], want, rtol=2e-3, atol=4e-3)
    assert ("cuda", "+".join(["MatMul+Add"] * 3)) in kernels(optimized)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("channels", "side"), [(64, 56), (128, 28), (256, 14)])
def test_a_residual_that_the_kernel_in_front_still_writes_is_waited_for(channels: int, side: int) -> None:
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        """The first of a stage of ResNet-18: its shortcut is added to what a convolution gave just before."""

        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
            self.b = torch.nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
            self.shortcut = torch.nn.Conv2d(channels, 2 * channels, 1, stride=2)

        def forward(self, x: Any) -> Any:
            return (self.b(self.a(x).relu()) + self.shortcut(x)).relu()

    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Conv2d(channels, channels, 1), Block(), torch.nn.Conv2d(2 * channels, 8, 1))
    x = torch.randn(1, channels, side, side)
    optimized = nx.hardware.get_backend("cuda").optimize_model(block.eval(), {"input": x.shape}, precision="fp16")
    want = block.double()(x.double()).detach().numpy()
    for call in range(6):
        got = optimized(x.numpy() if call % 2 else x.cuda())
        error = np.asarray(got if call % 2 else got.cpu(), np.float64) - want
        assert np.sqrt((error**2).mean() / (want**2).mean()) < 3e-3, call


@pytest.mark.gpu
@needs_gpu
def test_many_groups_do_not_hold_a_build_up() -> None:
    """cuDNN has engines that launch a kernel for each group: a graph of those took a driver (580) a minute."""
    channels = 672
    given = model(
        "y = Conv <group=672, strides=[2, 2], pads=[2, 2, 2, 2]> (x, w)",
        "(float[1,672,14,14] x, float[672,1,5,5] w) => (float[] y)",
    )
    start = time.monotonic()
    shapes = {"x": (1, channels, 14, 14), "w": (channels, 1, 5, 5)}
    TensorRTBackend(timing_cache=False).optimize_model(given, shapes, optimization_level=3)
    assert time.monotonic() - start < 30


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("group", [1, 64])
def test_a_relu_makes_nothing_of_minus_infinity(group: int) -> None:
    made, rng = nx.Network("infinite"), np.random.default_rng(6)
    x = rng.standard_normal((1, 64, 9, 9)).astype(np.float16)
    x[0, 5, 4, 4] = -np.inf
    w = np.abs(rng.standard_normal((64, 64 // group, 3, 3))).astype(np.float16) / 8
    given = [made.add_input("x", "float16", list(x.shape)), made.add_constant("w", w)]
    y = made.add_layer("Conv", given, {"pads": [1] * 4, "group": group})[0]
    made.mark_output(made.add_layer("Relu", [y])[0], "y")
    got = TensorRTBackend(timing_cache=False).optimize_model(made)({"x": x})["y"]
    reached = got[0, 5 if group > 1 else slice(None), 3:6, 3:6]
    assert not np.isnan(got).any() and not reached.any()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride"),
    [
        # What a thread does goes by how much there is to do: 2 by 2 channels and places, 4 by 1, 2, 4 and 8, two rows.
        ((1, 72, 9, 11), 3, 1),
        ((1, 72, 9, 11), 3, 2),
        ((2, 144, 31, 33), 5, 1),
        ((4, 144, 41, 39), 5, 1),
        ((4, 144, 81, 79), 3, 1),
        ((4, 144, 81, 79), 3, 2),
        ((8, 96, 41, 39), 7, 1),
        ((1, 27, 9, 11), 3, 1),
    ],
)
def test_depthwise_convolutions_large_and_small(shape: tuple[int, ...], kernel: int, stride: int, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    made, rng = nx.Network("depthwise"), np.random.default_rng(7)
    x = rng.standard_normal(shape).astype(dtype)
    w = (rng.standard_normal((shape[1], 1, kernel, kernel)) / kernel).astype(dtype)
    given = [made.add_input("x", dtype, list(shape)), made.add_constant("w", w)]
    attrs = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": shape[1]}
    y = made.add_layer("Conv", given, attrs)[0]
    made.mark_output(made.add_layer("HardSwish", [y])[0], "y")
    optimized = TensorRTBackend(timing_cache=False, optimization_level=0).optimize_model(made)
    got = optimized({"x": x})["y"].astype(np.float64)
    wide = [torch.from_numpy(array.astype(np.float64)) for array in (x, w)]
    sums = torch.nn.functional.conv2d(*wide, stride=stride, padding=kernel // 2, groups=shape[1])
    error = np.abs(got - torch.nn.functional.hardswish(sums).numpy()).max()
    assert error <= (1e-5 if dtype == "float32" else 8e-3), error
    assert any("depthwise" in row["implementation"] for row in optimized.report()["kernels"])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("shape", "kernel"), [((1, 72, 9, 11), 3), ((8, 96, 41, 39), 7)])
def test_an_infinite_weight_is_not_multiplied_with_padding(shape: tuple[int, ...], kernel: int) -> None:
    """Of one row a thread, and of two, which multiply zeros where all weights are finite."""
    made, rng, pad = nx.Network("infinite_weight"), np.random.default_rng(8), kernel // 2
    w = rng.standard_normal((shape[1], 1, kernel, kernel)).astype(np.float16)
    w[3, 0, 0, 0] = np.inf
    given = [made.add_input("x", "float16", list(shape)), made.add_constant("w", w)]
    made.mark_output(made.add_layer("Conv", given, {"pads": [pad] * 4, "group": shape[1]})[0], "y")
    x = 1 + rng.random(shape).astype(np.float16)
    optimized = TensorRTBackend(timing_cache=False, optimization_level=0).optimize_model(made)
    finite = np.isfinite(optimized({"x": x})["y"])
    assert not finite[:, 3, pad:, pad:].any()
    finite[:, 3, pad:, pad:] = True
    assert finite.all()
    assert any("depthwise" in row["implementation"] for row in optimized.report()["kernels"])
