"""Images and arguments that sliding windows take or refuse: dtypes, byte orders, layouts, maps of weights, channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neurenix import DTypeError, InvalidArgumentError, ShapeError
from neurenix.inference import InferenceEngine
from neurenix.inference.sliding import Model, Settings, slide
from neurenix.inference.windows import importance
from tests.inference.conftest import convolutions, optimized

torch = pytest.importorskip("torch")
ROI = (16, 12)
X = np.random.default_rng(4).standard_normal((1, 1, 40, 30)).astype(np.float32)


@pytest.fixture(scope="module")
def engine() -> InferenceEngine:
    return InferenceEngine(optimized(convolutions(2), (4, 1, *ROI)), warmup=0)


@pytest.fixture(scope="module")
def expected(engine: InferenceEngine) -> Any:
    return engine.sliding_window_inference(X, ROI)


@pytest.mark.parametrize("kind", [">f4", ">f8", "f8", "f2"])
def test_floats_of_any_width_and_byte_order(kind: str, engine: InferenceEngine, expected: Any) -> None:
    found = engine.sliding_window_inference(X.astype(kind), ROI)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 if kind == "f2" else 1e-6)


@pytest.mark.parametrize(
    ("image", "kind", "text"),
    [
        (X.transpose(0, 2, 3, 1), ShapeError, r"channels seem to come last: numpy.moveaxis\(image, -1, 1\)"),
        (X[0].transpose(1, 2, 0), ShapeError, r"moveaxis\(image, -1, 0\)"),
        (X.repeat(3, 1), ShapeError, "another number of channels"),
        (np.ma.array(X, mask=X > 0), DTypeError, "filled"),
        (np.full(X.shape, "a"), DTypeError, "no numbers"),
        (np.zeros(X.shape, [("a", "f4")]), DTypeError, "no numbers"),
        (torch.from_numpy(X).to_sparse(), DTypeError, "to_dense"),
        (torch.quantize_per_tensor(torch.from_numpy(X), 0.1, 0, torch.qint8), DTypeError, "dequantize"),
        (torch.from_numpy(X).to("meta"), InvalidArgumentError, "meta device"),
    ],
)
def test_images_that_are_refused(image: Any, kind: Any, text: str, engine: InferenceEngine) -> None:
    with pytest.raises(kind, match=text):
        engine.sliding_window_inference(image, ROI)


def test_strings_are_refused_by_calls_too(engine: InferenceEngine) -> None:
    for wrong in (np.full((1, 1, *ROI), "a"), np.zeros((1, 1, *ROI), [("a", "f4")])):
        with pytest.raises(DTypeError, match="wrong dtype"):
            engine(wrong)


def test_a_masked_array_without_a_mask_is_an_array(engine: InferenceEngine, expected: Any) -> None:
    np.testing.assert_array_equal(engine.sliding_window_inference(np.ma.array(X), ROI), expected)


class Doubling(np.ndarray[Any, Any]):
    """Takes values in a way of its own."""

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, 2 * np.asarray(value))


class Tensor(torch.Tensor):  # type: ignore[misc]
    """As MONAI's MetaTensor: a class of its own."""


@pytest.mark.parametrize("windows", [{}, {"overlap": 0.5, "batch_size": 3}])
@pytest.mark.parametrize("kind", ["masked", "doubling", "tensor", "float64"])
def test_out_may_be_of_a_class_of_its_own(kind: str, windows: Any, engine: InferenceEngine) -> None:
    expected = engine.sliding_window_inference(X, ROI, **windows)
    made: dict[str, Any] = {
        "masked": np.ma.array(np.zeros((1, 2, 40, 30), np.float32), mask=True),
        "doubling": np.zeros((1, 2, 40, 30), np.float32).view(Doubling),
        "tensor": torch.zeros(1, 2, 40, 30).as_subclass(Tensor),
        "float64": np.zeros((1, 2, 40, 30)),
    }
    out = made[kind]
    for image in (X, torch.from_numpy(X)):
        assert engine.sliding_window_inference(image, ROI, out=out, **windows) is out
        given = out.as_subclass(torch.Tensor).numpy() if kind == "tensor" else np.asarray(out)
        np.testing.assert_allclose(given, expected * (2 if kind == "doubling" else 1), rtol=0, atol=1e-6)
        # What is written is no longer masked.
        assert kind != "masked" or not np.ma.getmaskarray(out).any()


def test_dask_that_knows_no_size(engine: InferenceEngine) -> None:
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    image = da.from_array(X[0], chunks=20)
    with pytest.raises(ShapeError, match="compute_chunk_sizes"):
        engine.sliding_window_inference(image[image[:, 0, 0] > -99][None], ROI)


READ_ONLY = np.zeros((1, 2, 40, 30), np.float32)
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cval": None}, "cval"),
        ({"cval": "a"}, "cval"),
        ({"max_memory": -1}, "max_memory"),
        ({"max_memory": "1GB"}, "max_memory"),
        ({"max_memory": float("nan")}, "max_memory"),
        ({"roi_weight_map": "x"}, "no array of numbers"),
        ({"out": READ_ONLY}, "read-only"),
        ({"out": torch.zeros(1, 2, 40, 30, requires_grad=True)}, "gradients"),
        ({"out": torch.zeros(1, 2, 40, 30, device="meta")}, "meta device"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], text: str, engine: InferenceEngine) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        engine.sliding_window_inference(X, ROI, **options)


def test_numbers_of_numpy_are_numbers(engine: InferenceEngine, expected: Any) -> None:
    found = engine.sliding_window_inference(
        X, ROI, np.float32(0.25), np.int64(4), cval=np.float32(0), sigma_scale=np.full(2, 0.125)
    )
    np.testing.assert_array_equal(found, expected)
    assert len(engine.batch_inference([X[:, :, :16, :12]], np.int64(2))) == 1


def test_weights_count_relative_to_each_other(engine: InferenceEngine) -> None:
    weights = np.random.default_rng(0).random(ROI) + 0.1
    expected = engine.sliding_window_inference(X, ROI, 0.5, roi_weight_map=weights)
    for scale in (1e-44, 1e200):
        found = engine.sliding_window_inference(X, ROI, 0.5, roi_weight_map=weights * scale)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    graded = torch.from_numpy(weights).requires_grad_()
    found = engine.sliding_window_inference(X, ROI, 0.5, roi_weight_map=graded)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_the_narrowest_gaussian_is_its_middle() -> None:
    for scale in (1e-30, 1e-160):
        weights = importance((5, 4), "gaussian", scale)
        assert np.isfinite(weights).all() and weights.min() > 0


def test_random_arguments_mean_what_monai_means(rng: np.random.Generator) -> None:
    """Any size, window, overlap, padding, scale and dtype, through a function in place of a model."""
    monai = pytest.importorskip("monai.inferers", reason="MONAI is not installed: pip install monai")
    compared = 0
    for _ in range(60):
        axes = int(rng.integers(2, 4))
        size = [int(n) for n in rng.integers(1, 40 if axes == 2 else 14, axes)]
        roi = [int(n) for n in rng.integers(1, 40 if axes == 2 else 14, axes)]
        scale, overlap = int(rng.choice([1, 1, 2, 3])), [float(s) for s in rng.choice([0, 0.1, 0.5, 0.99], axes)]
        if scale == 1 and rng.random() < 0.3:
            roi[0] = int(rng.choice([0, -1]))
        padding, mode = str(rng.choice(["constant", "reflect", "replicate", "circular"])), str(
            rng.choice(["constant", "gaussian"])
        )  # fmt: skip
        cval, rows = float(rng.choice([0, -2.5])), int(rng.integers(1, 5))
        x = rng.standard_normal((2, 2, *size)).astype(rng.choice([np.float32, np.float64]))

        def network(windows: Any, axes: int = axes, scale: int = scale) -> Any:
            y = torch.tanh(windows * torch.linspace(0.5, 1.5, windows.shape[-1]).to(windows)).sum(1, keepdim=True)
            for axis in range(2, 2 + axes):
                y = y.repeat_interleave(scale, axis)
            return y

        arguments = (overlap, mode, 0.125, padding, cval if padding == "constant" else 0.0)
        try:
            expected = monai.sliding_window_inference(torch.from_numpy(x), roi, rows, network, *arguments).numpy()
        except (RuntimeError, NotImplementedError):
            continue
        model = Model(
            lambda w, network=network: {"y": network(torch.from_numpy(w)).numpy()}, axes, 2, ["y"], (None,) * axes, ""
        )  # fmt: skip
        settings = Settings(
            roi, overlap, rows, mode, 0.125, padding, arguments[-1], None, None, None, False, False, "raise",
            int(rng.choice([0, 1 << 30])), False,
        )  # fmt: skip
        found = slide(model, x, settings)["y"]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
        compared += 1
    assert compared > 20
