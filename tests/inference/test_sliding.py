"""Sliding windows: MONAI's meanings in 2-D and 3-D, scales, several outputs, weights, padding, augmentation, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neurenix import DTypeError, InvalidArgumentError, Shape, ShapeError
from neurenix.inference import InferenceEngine
from tests.inference.conftest import by_torch, convolutions, optimized
from tests.inference.reference import gaussian, slide

torch = pytest.importorskip("torch")
ENGINES: dict[Any, InferenceEngine] = {}


def engine_of(roi: tuple[int, ...], scale: float = 1, batch: int | None = 8) -> tuple[InferenceEngine, Any]:
    """An engine for windows of a size, built once, and its module."""
    module = convolutions(len(roi), scale=scale)
    key = (roi, scale, batch)
    if key not in ENGINES:
        ENGINES[key] = InferenceEngine(optimized(module, (4, 1, *roi), most=batch), warmup=0)
    return ENGINES[key], module


CASES: list[tuple[tuple[int, ...], tuple[int, ...], Any, str, str]] = [
    ((1, 1, 70, 91), (32, 24), 0.25, "gaussian", "constant"),
    ((2, 1, 32, 100), (32, 24), 0.5, "constant", "constant"),
    ((1, 1, 20, 17), (32, 24), 0.25, "gaussian", "reflect"),
    ((1, 1, 20, 60), (32, 24), (0.1, 0.6), "gaussian", "replicate"),
    ((2, 1, 29, 20), (32, 24), 0.0, "constant", "circular"),
    ((1, 1, 44, 39), (32, 24), 0.99, "gaussian", "constant"),
    ((1, 1, 1, 200), (32, 24), 0.3, "constant", "replicate"),
    ((1, 1, 20, 33, 27), (16, 12, 8), 0.25, "gaussian", "constant"),
    ((2, 1, 11, 33, 8), (16, 12, 8), (0.5, 0.25, 0.0), "constant", "reflect"),
    ((1, 1, 40, 13, 9), (16, 12, 8), 0.6, "gaussian", "constant"),
]


@pytest.mark.parametrize(("shape", "roi", "overlap", "mode", "padding"), CASES)
@pytest.mark.parametrize("judge", ["reference", "monai"])
def test_windows_as_monai_means_them(
    judge: str, shape: Any, roi: Any, overlap: Any, mode: str, padding: str, rng: np.random.Generator
) -> None:
    engine, module = engine_of(roi)
    x = rng.standard_normal(shape).astype(np.float32)
    if judge == "monai":
        monai = pytest.importorskip("monai.inferers", reason="MONAI is not installed: pip install monai")
        with torch.inference_mode():
            expected = monai.sliding_window_inference(
                torch.from_numpy(x), roi, 3, module, overlap, mode, padding_mode=padding
            ).numpy()
    else:
        shares = overlap if isinstance(overlap, tuple) else (overlap,) * len(roi)
        weights = gaussian(roi) if mode == "gaussian" else np.ones(roi)
        expected = slide(x, roi, lambda w: by_torch(module, w), shares, weights, padding)
    found = engine.sliding_window_inference(x, roi, overlap, 3, mode, padding_mode=padding)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    tensor = engine.sliding_window_inference(torch.from_numpy(x), roi, overlap, 3, mode, padding_mode=padding)
    # Torch adds a product without rounding it before.
    np.testing.assert_allclose(tensor.numpy(), found, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("shape", "scale"), [((70, 80), 2), ((70, 80), 0.5), ((20, 40), 2), ((30, 20, 24), 0.5)])
def test_outputs_of_another_scale(shape: Any, scale: float, rng: np.random.Generator) -> None:
    roi = (32, 16) if len(shape) == 2 else (16, 12, 8)
    engine, module = engine_of(roi, scale)
    x = rng.standard_normal((1, 1, *shape)).astype(np.float32)
    expected = slide(x, roi, lambda w: by_torch(module, w), [0.25] * len(roi), gaussian(roi))
    found = engine.sliding_window_inference(x, roi, 0.25)
    assert found.shape == expected.shape == (1, 2, *(int(n * scale) for n in shape))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
    """The image, and half of it in three channels."""

    def forward(self, x: Any) -> Any:
        return x * 2, torch.nn.functional.avg_pool2d(x, 2).repeat(1, 3, 1, 1)


def test_several_outputs(rng: np.random.Generator) -> None:
    engine = InferenceEngine(optimized(Two(), (2, 1, 16, 16)))
    x = rng.standard_normal((2, 1, 50, 36)).astype(np.float32)
    double, half = engine.sliding_window_inference(torch.from_numpy(x), (16, 16))
    np.testing.assert_allclose(double.numpy(), 2 * x, rtol=0, atol=1e-5)
    pooled = x.reshape(2, 1, 25, 2, 18, 2).mean((3, 5)).repeat(3, 1)
    np.testing.assert_allclose(half.numpy(), pooled, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3, None])
def test_the_batch_of_the_engine_changes_nothing(batch: int | None, rng: np.random.Generator) -> None:
    engine, _ = engine_of((32, 24))
    fixed, _ = engine_of((32, 24), batch=None)
    x = rng.standard_normal((1, 1, 90, 90)).astype(np.float32)
    expected = engine.sliding_window_inference(x, (32, 24), batch_size=8)
    found = (engine if batch else fixed).sliding_window_inference(x, (32, 24), batch_size=batch or 4)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_monai_may_call_the_engine(rng: np.random.Generator) -> None:
    monai = pytest.importorskip("monai.inferers", reason="MONAI is not installed: pip install monai")
    for batch in (8, None):
        engine, module = engine_of((32, 24), batch=batch)
        x = torch.from_numpy(rng.standard_normal((1, 1, 70, 50)).astype(np.float32))
        inferer = monai.SlidingWindowInferer((32, 24), 3, 0.25, "gaussian")
        with torch.inference_mode():
            np.testing.assert_allclose(inferer(x, engine).numpy(), inferer(x, module).numpy(), rtol=0, atol=1e-5)


def test_metatensors_keep_what_they_know(rng: np.random.Generator) -> None:
    data = pytest.importorskip("monai.data", reason="MONAI is not installed: pip install monai")
    engine, _ = engine_of((32, 24))
    x = torch.from_numpy(rng.standard_normal((1, 1, 40, 50)).astype(np.float32))
    image = data.MetaTensor(x, affine=torch.diag(torch.tensor([2.0, 3, 4, 1])), meta={"spacing": "odd"})
    found = engine.sliding_window_inference(image, (32, 24))
    assert type(found) is data.MetaTensor
    assert torch.equal(found.affine, image.affine) and found.meta["spacing"] == "odd"
    np.testing.assert_array_equal(found.numpy(), engine.sliding_window_inference(x, (32, 24)).numpy())


def test_leading_axes_may_be_missing(rng: np.random.Generator) -> None:
    engine, _ = engine_of((32, 24))
    one = InferenceEngine(optimized(convolutions(2, outputs=1), (1, 1, 32, 24)))
    x = rng.standard_normal((60, 50)).astype(np.float32)
    whole = engine.sliding_window_inference(x[None, None], (32, 24))
    np.testing.assert_array_equal(engine.sliding_window_inference(x[None], (32, 24)), whole[0])
    np.testing.assert_array_equal(engine.sliding_window_inference(x, (32, 24)), whole[0])
    assert one.sliding_window_inference(x, (32, 24)).shape == (60, 50)


def test_a_map_of_weights(rng: np.random.Generator) -> None:
    engine, module = engine_of((32, 24))
    weights = rng.random((32, 24)).astype(np.float32) + 0.1
    x = rng.standard_normal((1, 1, 70, 50)).astype(np.float32)
    expected = slide(x, (32, 24), lambda w: by_torch(module, w), [0.5, 0.5], weights)
    for given in (weights, torch.from_numpy(weights)[None, None]):
        found = engine.sliding_window_inference(x, (32, 24), 0.5, roi_weight_map=given)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    weights[:, 0] = 0
    with pytest.raises(InvalidArgumentError, match="weight 0"):
        engine.sliding_window_inference(x, (32, 24), 0, roi_weight_map=weights)
    weights[0, 0] = -1
    with pytest.raises(InvalidArgumentError, match="negative"):
        engine.sliding_window_inference(x, (32, 24), roi_weight_map=weights)
    with pytest.raises(ShapeError, match="another size than a window"):
        engine.sliding_window_inference(x, (32, 24), roi_weight_map=weights[1:])


@pytest.mark.parametrize("tta", ["mirror", "d4"])
def test_augmentation_is_the_mean_over_turned_images(tta: str, rng: np.random.Generator) -> None:
    engine = InferenceEngine(optimized(module := convolutions(2), (4, 1, 24, 24)))
    x = rng.standard_normal((1, 1, 24, 24)).astype(np.float32)
    turns = [(k, f) for k in (range(0, 4, 2) if tta == "mirror" else range(4)) for f in (False, True)]
    total = np.zeros((1, 2, 24, 24))
    for k, flip in turns:
        there = np.rot90(x[..., ::-1] if flip else x, k, (2, 3))
        back = np.rot90(by_torch(module, there.copy()), -k, (2, 3))
        total += back[..., ::-1] if flip else back
    for image in (x, torch.from_numpy(x)):
        found = engine.sliding_window_inference(image, 24, tta=tta)
        np.testing.assert_allclose(np.asarray(found), total / len(turns), rtol=0, atol=1e-5)
    own = [(lambda a: -a, lambda a: -a)]
    expected = (by_torch(module, x) - by_torch(module, -x)) / 2
    np.testing.assert_allclose(engine.sliding_window_inference(x, 24, tta=own), expected, rtol=0, atol=1e-5)


def test_sizes_of_windows_that_are_left_open(rng: np.random.Generator) -> None:
    module = convolutions(2)
    engine = InferenceEngine(optimized(module, (1, 1, 32, 24)), warmup=0)
    open_ones = InferenceEngine(
        module, Shape((1, 1, 8, 8), (1, 1, 32, 32), (4, 1, 64, 64)), warmup=0, optimization_level=0
    )
    x = rng.standard_normal((1, 1, 40, 50)).astype(np.float32)
    whole = open_ones.sliding_window_inference(x, (-1, None))
    np.testing.assert_allclose(whole, by_torch(module, x), rtol=0, atol=1e-5)
    with pytest.raises(ShapeError, match="roi_size is not what the engine was built for"):
        engine.sliding_window_inference(x, -1)


def test_functions_before_and_behind(rng: np.random.Generator) -> None:
    model = optimized(module := convolutions(2), (4, 1, 32, 24))
    engine = InferenceEngine(
        model, preprocess=lambda w: w.astype(np.float32) / 65535, postprocess=lambda y: y.argmax(1)
    )
    x = rng.integers(0, 65535, (1, 1, 70, 50), np.uint16)
    scores = slide(x / 65535, (32, 24), lambda w: by_torch(module, w), [0.25, 0.25], gaussian((32, 24)))
    assert (engine.sliding_window_inference(x, (32, 24)) == scores.argmax(1)).mean() > 0.999
    with pytest.raises(DTypeError, match="preprocess="):
        InferenceEngine(model).sliding_window_inference(x, (32, 24))


class Labels(torch.nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return (x > 0).to(torch.int64)


def test_labels_have_no_mean(rng: np.random.Generator) -> None:
    engine = InferenceEngine(optimized(Labels(), (2, 1, 16, 16)))
    x = rng.standard_normal((2, 1, 64, 48)).astype(np.float32)
    with pytest.raises(DTypeError, match="no mean"):
        engine.sliding_window_inference(x, 16)
    found = engine.sliding_window_inference(x, 16, overlap=0)
    np.testing.assert_array_equal(found, (x > 0).astype(np.int64))
    assert found.dtype == np.int64


def test_a_window_that_fails_is_told_or_left_out(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = engine_of((32, 24))
    x = rng.standard_normal((1, 1, 96, 72)).astype(np.float32)
    expected = engine.sliding_window_inference(x, (32, 24), 0)
    run = engine.model.run
    bad = x[0, 0, 64, 48]

    def picky(inputs: Any, stream: Any = None) -> Any:
        if (inputs["input"] == bad).any():
            raise InvalidArgumentError("a bad tile")
        return run(inputs, stream)

    monkeypatch.setattr(engine.model, "run", picky)
    with pytest.raises(InvalidArgumentError, match=r"\(64, 48\)"):
        engine.sliding_window_inference(x, (32, 24), 0)
    found = engine.sliding_window_inference(x, (32, 24), 0, on_error="skip")
    assert np.isnan(found[0, :, 64:96, 48:72]).all() and np.isnan(found).sum() == 2 * 32 * 24
    assert "the window at (64, 48) is left out: a bad tile" in caplog.text
    np.testing.assert_allclose(found[0, :, :64], expected[0, :, :64], rtol=0, atol=1e-6)
    bad = x[0, 0, 0, 0]
    assert np.isnan(engine.sliding_window_inference(x, (32, 24), 0, 1, on_error="skip")[0, :, :32, :24]).all()
    monkeypatch.setattr(engine.model, "run", lambda inputs, stream=None: 1 / 0)
    with pytest.raises(InvalidArgumentError, match="every window failed"):
        engine.sliding_window_inference(x, (32, 24), 0, on_error="skip")


def test_progress_and_sums_in_a_file(rng: np.random.Generator, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = engine_of((32, 24))
    x = rng.standard_normal((1, 1, 90, 300)).astype(np.float32)
    told: list[tuple[int, int]] = []
    found = engine.sliding_window_inference(x, (32, 24), progress=lambda *done: told.append(done), max_memory=1000)
    assert "lie in a file" in caplog.text
    assert told[-1][0] == told[-1][1] == 4 * 17 and told == sorted(told)
    np.testing.assert_array_equal(found, engine.sliding_window_inference(x, (32, 24)))


X = np.zeros((1, 1, 64, 64), np.float32)


@pytest.mark.parametrize(
    ("kind", "keywords", "text"),
    [
        (ShapeError, {"image": np.zeros(5, np.float32)}, "another number of axes"),
        (ShapeError, {"image": np.zeros((1, 1, 1, 64, 64), np.float32)}, "another number of axes"),
        (ShapeError, {"image": np.zeros((1, 1, 0, 64), np.float32)}, "no elements"),
        (InvalidArgumentError, {"image": "image.tif"}, "no image"),
        (InvalidArgumentError, {"image": [[1.0]]}, "no image"),
        (InvalidArgumentError, {"roi_size": (32, 24, 8)}, "roi_size"),
        (InvalidArgumentError, {"roi_size": (32.5, 24)}, "roi_size"),
        (InvalidArgumentError, {"overlap": 1}, "overlap"),
        (InvalidArgumentError, {"overlap": -0.1}, "overlap"),
        (InvalidArgumentError, {"overlap": "half"}, "overlap"),
        (InvalidArgumentError, {"mode": "gausian"}, "no mode"),
        (InvalidArgumentError, {"sigma_scale": 0}, "sigma_scale"),
        (InvalidArgumentError, {"padding_mode": "mirror"}, "padding_mode"),
        (ShapeError, {"image": np.zeros((1, 1, 5, 64), np.float32), "padding_mode": "reflect"}, "too small"),
        (InvalidArgumentError, {"batch_size": 0}, "batch_size"),
        (InvalidArgumentError, {"tta": "flip"}, "tta"),
        (InvalidArgumentError, {"on_error": "ignore"}, "on_error"),
        (InvalidArgumentError, {"out": "result.png"}, "form"),
        (InvalidArgumentError, {"out": ("a.npy", "b.npy")}, "outputs"),
        (ShapeError, {"out": np.zeros((1, 1, 64, 64), np.float32)}, "another shape"),
        (InvalidArgumentError, {"out": np.zeros((1, 2, 64, 64), np.uint8)}, "can't hold"),
        (InvalidArgumentError, {"resume": True}, "resume"),
    ],
)
def test_wrong_arguments(kind: Any, keywords: dict[str, Any], text: str) -> None:
    engine, _ = engine_of((32, 24))
    with pytest.raises(kind, match=text):
        engine.sliding_window_inference(**({"image": X, "roi_size": (32, 24)} | keywords))
