"""RapidOCR's detector, classifier and recogniser with their real weights, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import Shape
from neurenix.hardware.tensorrt import TensorRTBackend

onnxruntime = pytest.importorskip("onnxruntime")
# It imports OpenCV, which wants libraries of the system.
rapidocr = pytest.importorskip("rapidocr_onnxruntime", exc_type=ImportError)
skimage = pytest.importorskip("skimage")

MODELS = Path(rapidocr.__file__).parent / "models"
#: Each model with its profile and other shapes, odd batches among them.
SHAPES = {
    "ch_PP-OCRv4_det_infer": (
        Shape((1, 3, 32, 32), (1, 3, 320, 640), (2, 3, 1504, 1504)),
        [(1, 3, 320, 640), (1, 3, 96, 32), (2, 3, 160, 224)],
    ),
    "ch_ppocr_mobile_v2.0_cls_infer": (
        Shape((1, 3, 48, 192), (6, 3, 48, 192), (6, 3, 48, 192)),
        [(6, 3, 48, 192), (1, 3, 48, 192), (5, 3, 48, 192)],
    ),
    "ch_PP-OCRv4_rec_infer": (
        Shape((1, 3, 48, 32), (6, 3, 48, 320), (6, 3, 48, 2400)),
        [(6, 3, 48, 320), (1, 3, 48, 32), (3, 3, 48, 487)],
    ),
}
WITHIN = 1e-4


@pytest.fixture(scope="module")
def optimized() -> dict[str, Any]:
    backend = TensorRTBackend()
    return {n: backend.optimize_model(MODELS / f"{n}.onnx", {"x": shape}) for n, (shape, _) in SHAPES.items()}


def text_of(shape: tuple[int, ...]) -> np.ndarray:
    """Pieces of the page as the models take them. On noise the detector's answer is all but 0 and says nothing."""
    batch, channels, height, width = shape
    page = skimage.data.page()[40:].astype(np.float32) / 127.5 - 1
    wide = np.tile(page, (-(-height // page.shape[0]), -(-(width + 10 * batch) // page.shape[1])))
    pieces = [np.broadcast_to(wide[:height, 10 * i : 10 * i + width], (channels, height, width)) for i in range(batch)]
    return np.stack(pieces)


@pytest.mark.parametrize("name", SHAPES)
def test_outputs(name: str, optimized: dict[str, Any]) -> None:
    session = onnxruntime.InferenceSession(MODELS / f"{name}.onnx", providers=["CPUExecutionProvider"])
    for shape in SHAPES[name][1]:
        x = text_of(shape)
        want = session.run(None, {"x": x})[0]
        got = optimized[name](x)
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= WITHIN * np.abs(want).max()


@pytest.mark.parametrize("name", SHAPES)
def test_no_layer_runs_on_its_naive_reference(name: str, optimized: dict[str, Any]) -> None:
    assert "reference" not in str(optimized[name].report())


def pictures() -> dict[str, np.ndarray]:
    page = skimage.data.page()
    return {
        "page": page,
        "upside_down": page[::-1, ::-1].copy(),
        "colours": np.dstack([page, page // 2, page // 3 + 99]),
    }


@pytest.mark.parametrize("picture", pictures())
def test_boxes_and_texts(picture: str, optimized: dict[str, Any]) -> None:
    page = pictures()[picture]
    detect, classify, recognise = optimized.values()
    reader = rapidocr.RapidOCR()
    want, _ = reader(page)
    reader.text_det.infer = lambda x: [detect(x)]
    reader.text_cls.infer = lambda x: [classify(x)]
    reader.text_rec.session = lambda x: [recognise(x)]
    got, _ = reader(page)
    assert len(got) == len(want) > 1
    for (box, text, score), (their_box, their_text, their_score) in zip(got, want, strict=True):
        assert text == their_text
        assert np.array_equal(box, their_box)
        assert abs(float(score) - float(their_score)) < 1e-3
