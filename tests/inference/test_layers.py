"""Preprocessing and postprocessing in the network, beside torch's and Pillow's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import InvalidArgumentError, ShapeError, UnsupportedError, nn
from neurenix.inference import InferenceEngine
from tests.inference.conftest import by_torch, optimized

torch = pytest.importorskip("torch")
CHEAP: dict[str, Any] = {"optimization_level": 0, "threads": 2, "timing_cache": False, "warmup": 1}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def module() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU()).eval()


def scaled(x: Any, size: tuple[int, int], antialias: bool = False) -> Any:
    tensor = torch.from_numpy(np.asarray(x, np.float32))
    return torch.nn.functional.interpolate(tensor, size, mode="bilinear", antialias=antialias).numpy()


def boxed(x: Any, size: tuple[int, int], value: float = 114) -> Any:
    share = min(size[0] / x.shape[2], size[1] / x.shape[3])
    inner = round(x.shape[2] * share), round(x.shape[3] * share)
    found = np.full((*x.shape[:2], *size), value, np.float32)
    top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    found[:, :, top : top + inner[0], left : left + inner[1]] = scaled(x, inner)
    return found


@pytest.mark.parametrize("source", ["torch", "onnx"])
def test_a_camera_s_bytes_go_in(source: str, tmp_path: Path, rng: np.random.Generator) -> None:
    model: Any = module()
    if source == "onnx":
        model = tmp_path / "model.onnx"
        batch = {"input": {0: torch.export.Dim("batch", min=1, max=64)}}
        example = torch.zeros(2, 3, 24, 32)
        torch.onnx.export(
            module(),
            (example,),
            model,
            dynamo=True,
            input_names=["input"],
            dynamic_shapes=(batch["input"],),
            verbose=False,
        )
    layers = dict(dtype="u8", layout="NHWC", mean=MEAN, std=STD)
    engine = InferenceEngine(model, (2, 24, 32, 3), preprocess=layers, **CHEAP)
    assert engine.inputs[0].dtype == np.uint8 and engine.inputs[0].shape[1:] == (24, 32, 3)
    for rows in (1, 2, 5):
        x = rng.integers(0, 256, (rows, 24, 32, 3), np.uint8)
        normal = (x / 255 - MEAN) / STD
        np.testing.assert_allclose(engine(x), by_torch(module(), normal.transpose(0, 3, 1, 2)), rtol=0, atol=2e-5)
    np.testing.assert_array_equal(engine(torch.from_numpy(x)[0]).numpy(), engine(x)[0])


CASES: list[tuple[dict[str, Any], Any]] = [
    (dict(resize=(24, 32)), lambda x: scaled(x, (24, 32))),
    (dict(resize=(24, 32), antialias=True), lambda x: scaled(x, (24, 32), True)),
    (dict(letterbox=(24, 32)), lambda x: boxed(x, (24, 32))),
    (dict(letterbox=(64, 32), pad_value=0), lambda x: boxed(x, (64, 32), 0)),
    (dict(color="BGR"), lambda x: x[:, ::-1]),
    (dict(scale=1.0, mean=128), lambda x: (x - 128) * 255),
    (dict(std=2), lambda x: x / 2),
]


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_pictures_of_other_sizes(words: dict[str, Any], expected: Any, rng: np.random.Generator) -> None:
    engine = InferenceEngine(module(), (1, 50, 41, 3), preprocess={"dtype": "u8", "layout": "NHWC"} | words, **CHEAP)
    x = rng.integers(0, 256, (1, 50, 41, 3), np.uint8)
    wanted = by_torch(module(), expected(x.transpose(0, 3, 1, 2).astype(np.float32)) / 255)
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=1e-4 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize(("dtype", "array"), [("u16", np.uint16), ("fp16", np.float16), ("fp32", np.float32)])
def test_other_dtypes_and_layouts(dtype: str, array: Any, rng: np.random.Generator) -> None:
    engine = InferenceEngine(module(), (1, 3, 20, 20), preprocess={"dtype": dtype}, **CHEAP)
    x = (rng.random((1, 3, 20, 20)) * (65535 if dtype == "u16" else 1)).astype(array)
    wanted = by_torch(module(), x / (65535 if dtype == "u16" else 1.0))
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("softmax", lambda y: torch.from_numpy(y).softmax(1).numpy()),
        ("argmax", lambda y: y.argmax(1)),
        ({"argmax": -1}, lambda y: y.argmax(-1)),
        ({"softmax": 2}, lambda y: torch.from_numpy(y).softmax(2).numpy()),
    ],
)
def test_layers_behind(words: Any, expected: Any, rng: np.random.Generator) -> None:
    engine = InferenceEngine(module(), (2, 3, 16, 16), postprocess=words, **CHEAP)
    x = rng.standard_normal((3, 3, 16, 16)).astype(np.float32)
    found, wanted = engine(x), expected(by_torch(module(), x))
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind == "i":
        assert (found == wanted).mean() > 0.99
    else:
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


class Boxes(torch.nn.Module):  # type: ignore[misc]
    """Gives what it gets, as a detector of YOLOv5's kind, or of YOLOv8's."""

    def __init__(self, channels_first: bool) -> None:
        super().__init__()
        self.channels_first = channels_first

    def forward(self, x: Any) -> Any:
        x = x * 1.0
        return x[:, :, [0, 1, 2, 3, *range(5, x.shape[2])]].transpose(1, 2) if self.channels_first else x


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("channels_first", [False, True])
def test_suppression_behind(channels_first: bool, precision: str, tmp_path: Path, rng: np.random.Generator) -> None:
    ops = pytest.importorskip("torchvision.ops")
    count, classes, most = 400, 5, 60
    x = np.zeros((2, count, 5 + classes), np.float32)
    # Places of quarters and scores of 2048ths are the same in fp16; no two scores are equal: one answer is right.
    x[..., :2] = rng.integers(80, 1200, (2, count, 2)) / 4
    x[..., 2:4] = rng.integers(80, 400, (2, count, 2)) / 4
    x[:, 1, :4] = x[:, 0, :4] * (1, 1, 0.5, 1)  # Half of its neighbour: at the threshold, not above it.
    x[..., 4] = 1
    order = rng.permuted(np.broadcast_to(np.arange(count * classes), (2, count * classes)), axis=1)
    x[..., 5:] = (order.reshape(2, count, classes) + 2047 - count * classes) / 2048
    x[:, :2, 5:] = np.reshape([[1, 0, 0, 0, 0], [2047 / 2048, 0, 0, 0, 0]], (2, 5))
    x[1, :, 5:] /= 2
    words = dict(nms=dict(confidence=0.4, iou=0.5, max_boxes=most))
    engine = InferenceEngine(Boxes(channels_first).eval(), x.shape, postprocess=words, precision=precision, **CHEAP)
    found = engine(x)
    assert found.shape == (2, most, 6) and found.dtype == np.float32
    for image, rows in zip(x, found, strict=True):
        scores, labels = image[:, 5:].max(1), image[:, 5:].argmax(1)
        corners = np.concatenate([image[:, :2] - image[:, 2:4] / 2, image[:, :2] + image[:, 2:4] / 2], 1)
        likely = np.flatnonzero(scores >= 0.4)
        given = (torch.from_numpy(corners[likely]), torch.from_numpy(scores[likely]), torch.from_numpy(labels[likely]))
        kept = likely[ops.batched_nms(*given, 0.5).numpy()][:most]
        assert len(kept) > 10
        np.testing.assert_array_equal(
            rows[: len(kept)], np.concatenate([corners[kept], scores[kept, None], labels[kept, None]], 1)
        )
        assert not rows[len(kept) :].any()
    engine.model.save(tmp_path / "boxes.engine")
    np.testing.assert_array_equal(InferenceEngine(tmp_path / "boxes.engine", threads=2)(x), found)


@pytest.mark.parametrize(
    ("kind", "keywords", "text"),
    [
        (InvalidArgumentError, {"preprocess": {"layouts": "NHWC"}}, "no 'layouts'"),
        (InvalidArgumentError, {"preprocess": {"layout": "HWC"}}, "layout is unknown"),
        (InvalidArgumentError, {"preprocess": {"dtype": "int8"}}, "dtype is unknown"),
        (InvalidArgumentError, {"preprocess": {"resize": 224}}, "resize is a size"),
        (InvalidArgumentError, {"preprocess": {"resize": (8, 8), "letterbox": (8, 8)}}, "stretched"),
        (InvalidArgumentError, {"preprocess": {"std": (1, 0, 1)}}, "std is above 0"),
        (InvalidArgumentError, {"preprocess": {"scale": float("nan")}}, "scale is finite"),
        (InvalidArgumentError, {"preprocess": {"resize": (8, 8), "pad_value": 0}}, "nothing reads pad_value"),
        (InvalidArgumentError, {"preprocess": {"antialias": True}}, "nothing reads antialias"),
        (InvalidArgumentError, {"preprocess": {"mean": (1, 2)}}, "mean is one number"),
        (ShapeError, {"preprocess": {"layout": "NHWC"}, "input_shape": None}, "shape of what comes in"),
        (ShapeError, {"preprocess": {"layout": "NHWC"}, "input_shape": (1, 16)}, "for pictures"),
        (InvalidArgumentError, {"postprocess": "sigmoid"}, "postprocess is unknown"),
        (InvalidArgumentError, {"postprocess": {"nms": 0.5}}, "nms is a dict"),
        (InvalidArgumentError, {"postprocess": {"nms": {"iuo": 0.5}}}, "nms has no 'iuo'"),
        (InvalidArgumentError, {"postprocess": {"nms": {"confidence": 0}}}, "confidence is a share"),
        (InvalidArgumentError, {"postprocess": {"nms": {"max_boxes": 0}}}, "max_boxes is a number"),
        (ShapeError, {"postprocess": "nms"}, "outputs of detectors that are known"),
        (InvalidArgumentError, {"model_path": "built", "preprocess": {}}, "built already"),
        (UnsupportedError, {"model_path": nn.Conv2d(3, 4, 3), "preprocess": {}}, "ONNX and PyTorch alone"),
    ],
)
def test_wrong_words(kind: Any, keywords: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"model_path": module(), "input_shape": (1, 3, 16, 16)} | keywords
    if given["model_path"] == "built":
        given["model_path"] = optimized(module(), (1, 3, 16, 16))
    with pytest.raises(kind, match=text):
        InferenceEngine(**given)
