"""ONNX ops that the importer writes as other ops, against torch and numpy in double precision."""

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tests.optional import torch  # noqa: E402

RNG = np.random.default_rng(0)
BACKEND = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)


def run(
    op: str, inputs: dict[str, np.ndarray], held: dict[str, Any] | None = None, opset: int = 24, **attrs: Any
) -> np.ndarray:
    """The first output of one node; `held` are inputs that the model holds, None for one that is left out."""
    held = held or {}
    names = [*inputs, *("" if array is None else name for name, array in held.items())]
    node = helper.make_node(op, names, ["y"], "node", **attrs)
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items() if array is not None]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", 0, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    given: np.ndarray = BACKEND.optimize_model(model, {n: a.shape for n, a in inputs.items()}).run(inputs)["y"]
    return given


def complex_of(parts: np.ndarray) -> np.ndarray:
    return parts[..., 0] + (1j * parts[..., 1] if parts.shape[-1] == 2 else 0)


def parts_of(numbers: np.ndarray) -> np.ndarray:
    return np.stack([numbers.real, numbers.imag], -1)


def close(got: np.ndarray, want: Any) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("length", [None, 5, 12, 9])
@pytest.mark.parametrize("axis", [1, -2, 0])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_dft(parts: int, inverse: int, axis: int, length: int | None) -> None:
    x = RNG.standard_normal((4, 9, 3, parts)).astype(np.float32)
    held = {"n": None if length is None else np.int64(length), "axis": np.int64(axis)}
    along = axis % 4
    want = (np.fft.ifft if inverse else np.fft.fft)(complex_of(x.astype(np.float64)), length, axis=along)
    close(run("DFT", {"x": x}, held, inverse=inverse), parts_of(want))


@pytest.mark.parametrize("length", [None, 6, 7, 11, 16])
def test_dft_of_one_side_and_back(length: int | None) -> None:
    x = RNG.standard_normal((2, 11, 1)).astype(np.float32)
    n = None if length is None else np.int64(length)
    spectrum = np.fft.rfft(x[..., 0].astype(np.float64), length, axis=1)
    close(run("DFT", {"x": x}, {"n": n}, onesided=1), parts_of(spectrum))
    bins = RNG.standard_normal((2, 6, 2)).astype(np.float32)
    want = np.fft.irfft(complex_of(bins.astype(np.float64)), length, axis=1)
    close(run("DFT", {"x": bins}, {"n": n}, onesided=1, inverse=1), want[..., None])


def test_dft_before_opset_20_names_its_axis() -> None:
    x = RNG.standard_normal((2, 6, 5, 1)).astype(np.float32)
    close(run("DFT", {"x": x}, opset=17, axis=2), parts_of(np.fft.fft(x[..., 0], axis=2)))


@pytest.mark.parametrize(("parts", "onesided"), [(1, 1), (1, 0), (2, 0)])
@pytest.mark.parametrize("windowed", [False, True])
def test_stft(parts: int, onesided: int, windowed: bool) -> None:
    signal = RNG.standard_normal((2, 64, parts)).astype(np.float32)
    window = np.hanning(16).astype(np.float32) if windowed else None
    held = {"step": np.int64(5), "window": window, "length": np.int64(16)}
    got = run("STFT", {"x": signal}, held, onesided=onesided)
    whole = complex_of(signal.astype(np.float64))
    frames = np.stack([whole[:, i : i + 16] for i in range(0, 64 - 16 + 1, 5)], 1)
    frames = frames * (1 if window is None else window)
    spectrum = np.fft.fft(frames)
    close(got, parts_of(spectrum[..., :9] if onesided else spectrum))


@pytest.mark.parametrize(
    ("op", "name"), [("HannWindow", "hann"), ("HammingWindow", "hamming"), ("BlackmanWindow", "blackman")]
)
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op: str, name: str, periodic: int) -> None:
    got = run(op, {}, {"size": np.int32(10)}, periodic=periodic)
    more = {"alpha": 25 / 46, "beta": 21 / 46} if name == "hamming" else {}
    want = getattr(torch, f"{name}_window")(10, periodic=bool(periodic), dtype=torch.float64, **more)
    close(got, want.numpy())


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 1, -7])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5, 2)])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_losses(op: str, shape: tuple[int, ...], ignored: int | None, weighted: bool, reduction: str) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    target = RNG.integers(0, 3, (shape[0], *shape[2:]))
    target.flat[0] = 0 if ignored is None else ignored
    weight = np.array([0.25, 2.0, 1.5], np.float32) if weighted else None
    inputs = {"x": x, "target": target} | ({} if weight is None else {"weight": weight})
    got = run(op, inputs, reduction=reduction, **({} if ignored is None else {"ignore_index": ignored}))
    function = torch.nn.functional.nll_loss if op.startswith("Neg") else torch.nn.functional.cross_entropy
    want = function(
        torch.tensor(x).double(),
        torch.tensor(target),
        None if weight is None else torch.tensor(weight).double(),
        ignore_index=-100 if ignored is None else ignored,
        reduction=reduction,
    )
    close(got, want.numpy())


@pytest.mark.parametrize("k", [-2, 0, 1, 9])
@pytest.mark.parametrize("dtype", [None, TensorProto.DOUBLE, TensorProto.BOOL])
def test_eye_like(k: int, dtype: int | None) -> None:
    got = run("EyeLike", {"x": np.zeros((3, 5), np.float32)}, k=k, **({} if dtype is None else {"dtype": dtype}))
    np.testing.assert_array_equal(got, np.eye(3, 5, k, dtype=got.dtype))
    assert got.dtype == {None: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.BOOL: np.bool_}[dtype]


@pytest.mark.parametrize("axes", [None, [1], [0, 2]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    x = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    over = tuple(axes or (0, 2, 3))
    want = (x - x.mean(over, keepdims=True)) / x.std(over, keepdims=True)
    close(run("MeanVarianceNormalization", {"x": x}, **({} if axes is None else {"axes": axes})), want)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str) -> None:
    cache, update = (RNG.standard_normal((2, n, 3)).astype(np.float32) for n in (6, 2))
    first = np.array([4, 1] if mode == "linear" else [5, 2])
    want = cache.copy()
    for sample in range(2):
        for i in range(2):
            want[sample, (first[sample] + i) % 6] = update[sample, i]
    close(run("TensorScatter", {"cache": cache, "update": update, "first": first}, mode=mode), want)
    want = cache.copy()
    want[:, :2] = update
    close(run("TensorScatter", {"cache": cache, "update": update}, mode=mode), want)


def test_the_mask_of_a_dropout_keeps_everything() -> None:
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    ports = [helper.make_tensor_value_info(n, 1 if n != "mask" else 9, ["n", 3]) for n in ("x", "y", "mask")]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    model = BACKEND.optimize_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    outputs = model.run({"x": x})
    np.testing.assert_array_equal(outputs["y"], x)
    np.testing.assert_array_equal(outputs["mask"], np.ones((2, 3), np.bool_))


@pytest.mark.parametrize(
    ("op", "inputs", "held", "attrs", "message"),
    [
        ("DFT", {"x": (2, 8, 3)}, {}, {}, "the last dimension holds the real and the imaginary part"),
        ("DFT", {"x": (2, 8, 2)}, {}, {"onesided": 1}, "a one-sided DFT is of a real signal"),
        ("DFT", {"x": (2, 8, 1)}, {"n": None, "axis": np.int64(-1)}, {}, "the axis of a DFT is out of range"),
        ("DFT", {"x": (1, 100_000, 1)}, {}, {}, "a Fourier transform of this length is not supported"),
        ("STFT", {"x": (2, 8, 2)}, {"step": np.int64(2)}, {}, "a one-sided STFT is of a real signal"),
        ("TensorScatter", {"x": (2, 8), "u": (2, 1)}, {}, {"axis": 0}, "the axis of a TensorScatter is out of range"),
        ("NegativeLogLikelihoodLoss", {"x": (2, 8), "t": (2,)}, {}, {"reduction": "max"}, "'reduction' is unknown"),
        ("RandomUniformLike", {"x": (2, 8)}, {}, {}, "makes random numbers, and ONNX does not say which"),
        ("EyeLike", {"x": (2, 8, 1)}, {}, {}, "EyeLike makes matrices"),
    ],
)
def test_refusals(
    op: str, inputs: dict[str, tuple[int, ...]], held: dict[str, Any], attrs: dict[str, Any], message: str
) -> None:
    names = [*inputs, *("" if array is None else name for name, array in held.items())]
    node = helper.make_node(op, names, ["y"], "node", **attrs)
    ports = [helper.make_tensor_value_info(n, 7 if n == "t" else 1, shape) for n, shape in inputs.items()]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items() if array is not None]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", 0, None)], weights)
    with pytest.raises(nx.Error, match=message) as caught:
        from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10))
    assert caught.value.layer == f"node ({op})"
