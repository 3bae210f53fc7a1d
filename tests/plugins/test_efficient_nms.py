"""EfficientNMS, on the processor and by its kernel, against loops over plain numbers and against torchvision."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.plugins import EfficientNMS, efficient_nms
from tests.plugins import emulated


def area(box: list[float]) -> float:
    return max(box[2] - box[0], 0.0) * max(box[3] - box[1], 0.0)


def overlap(a: list[float], b: list[float]) -> float:
    a, b = (sorted(x[::2]) + sorted(x[1::2]) for x in (a, b))
    shared = max(min(a[1], b[1]) - max(a[0], b[0]), 0.0) * max(min(a[3], b[3]) - max(a[2], b[2]), 0.0)
    total = (a[1] - a[0]) * (a[3] - a[2]) + (b[1] - b[0]) * (b[3] - b[2]) - shared
    return shared / total if shared > 0 and total > 0 else 0.0


def decoded(box: list[float], anchor: list[float] | None, coding: int) -> list[float]:
    if anchor is not None and coding:
        y, x, h, w = box
        box = [y * anchor[2] + anchor[0], x * anchor[3] + anchor[1], anchor[2] * math.exp(h), anchor[3] * math.exp(w)]
    elif anchor is not None:
        first, second = ([min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3])] for b in (box, anchor))
        box = [a + b for a, b in zip(first, second, strict=True)]
    y, x, h, w = box
    return [y - h / 2, x - w / 2, y + h / 2, x + w / 2] if coding else box


def reference(
    boxes: np.ndarray, scores: np.ndarray, anchors: np.ndarray | None = None, **fields: Any
) -> list[np.ndarray]:
    """The contract of TensorRT's plugin, a number at a time."""
    n, places, classes = scores.shape[:3]
    most, coding = fields.get("max_output_boxes", 100), fields.get("box_coding", 0)
    raw, agnostic = fields.get("score_activation", 0), fields.get("class_agnostic", 0)
    outputs = [np.zeros((n, 1), np.int32), np.zeros((n, most, 4), boxes.dtype)]
    outputs += [np.zeros((n, most), scores.dtype), np.zeros((n, most), np.int32)]
    for image in range(n):
        found = []
        for place, kind in itertools.product(range(places), range(classes)):
            score = float(scores[image, place, kind])
            score = 1 / (1 + math.exp(-score)) if raw else score
            if score >= fields.get("score_threshold", 0.5) and kind != fields.get("background_class", -1):
                found.append((-score, place, kind))
        kept: list[tuple[list[float], int]] = []
        for score, place, kind in sorted(found)[: efficient_nms.CANDIDATES]:
            own = boxes[image, place] if boxes.ndim == 3 else boxes[image, place, kind % boxes.shape[2]]
            anchor = None if anchors is None else anchors[image % len(anchors), place].tolist()
            box = decoded(own.tolist(), anchor, coding)
            near = (b for b, other in kept if agnostic or other == kind)
            if len(kept) == most or any(overlap(box, b) >= fields.get("iou_threshold", 0.5) for b in near):
                continue
            at = len(kept)
            kept.append((box, kind))
            outputs[1][image, at], outputs[2][image, at], outputs[3][image, at] = box, -score, kind
        outputs[0][image] = len(kept)
    return outputs


def scene(seed: int, n: int, places: int, classes: int, dtype: Any = np.float32, each: int = 0) -> list[np.ndarray]:
    """Boxes in heaps, and scores no two of which are the same."""
    random = np.random.default_rng(seed)
    middle = random.integers(1, 5, (n, places, max(each, 1), 2)) / 5 + random.normal(
        0, 0.02, (n, places, max(each, 1), 2)
    )
    half = random.uniform(0.03, 0.1, middle.shape)
    boxes = np.concatenate([middle - half, middle + half], -1)
    boxes = boxes if each else boxes[:, :, 0]
    scores = random.permutation(n * places * classes).reshape(n, places, classes) / (n * places * classes)
    return [boxes.astype(dtype), scores.astype(dtype)]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {"score_threshold": 0.6, "max_output_boxes": 20}),
    "all": ({}, {"score_threshold": 0.0, "iou_threshold": 0.3, "max_output_boxes": 300}),
    "few": ({}, {"score_threshold": 0.99}),
    "none": ({}, {"score_threshold": 1.5}),
    "background": ({}, {"background_class": 1, "score_threshold": 0.3}),
    "agnostic": ({}, {"class_agnostic": 1, "score_threshold": 0.2}),
    "raw": ({}, {"score_activation": 1, "score_threshold": 0.6}),
    "raw without a threshold": ({}, {"score_activation": 1, "score_threshold": 0.0}),
    "boxes of each class": ({"each": 3}, {"score_threshold": 0.4}),
    "one box of all": ({"each": 1}, {"score_threshold": 0.4}),
    "anchors": ({"anchors": 1}, {"score_threshold": 0.4}),
    "anchors of each image": ({"anchors": 2}, {"score_threshold": 0.4, "box_coding": 1}),
    "centres": ({"centred": True}, {"score_threshold": 0.4, "box_coding": 1}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kernels are compiled to, once for all tests."""
    return tmp_path_factory.mktemp("kernels")


def prepared(case: str, seed: int = 0) -> tuple[list[np.ndarray], dict[str, Any]]:
    shape, fields = CASES[case]
    inputs = scene(seed, 2, 90, 3, each=shape.get("each", 0))
    corners = inputs[0]
    if shape.get("centred"):
        middle, size = (corners[..., :2] + corners[..., 2:]) / 2, corners[..., 2:] - corners[..., :2]
        inputs[0] = np.concatenate([middle, size], -1)
    if shape.get("anchors"):
        random = np.random.default_rng(seed)
        inputs[0] = random.normal(0, 0.1, corners.shape).astype(np.float32)
        inputs.append(np.abs(corners[: shape["anchors"]]))
    if fields.get("score_activation"):
        inputs[1] = (inputs[1] * 8 - 4).astype(np.float32)
    return inputs, fields


def check(got: list[np.ndarray], want: list[np.ndarray], rtol: float = 2e-5) -> None:
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=rtol, err_msg=str(index))


def on_cpu(inputs: list[np.ndarray], fields: dict[str, Any]) -> list[np.ndarray]:
    network = trt.Builder().create_network()
    tensors = [
        network.add_input(f"x{i}", x.dtype, ("n" if len(x) > 1 else 1, *x.shape[1:])) for i, x in enumerate(inputs)
    ]
    layer = network.add_plugin_v2(tensors, "EfficientNMS_TRT", **fields)
    for index in range(4):
        network.mark_output(layer.get_output(index))
    builder = trt.Builder()
    with nx.hardware.use("cpu"):
        engine = builder.build_engine(network, builder.create_builder_config())
    return list(engine.create_execution_context().execute(*inputs))


@pytest.mark.parametrize("case", CASES)
def test_the_contract_on_the_processor(case: str) -> None:
    inputs, fields = prepared(case)
    check(on_cpu(inputs, fields), reference(*inputs, **fields))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("candidates", [128, 512])
def test_the_kernel_computes_the_same(
    case: str, candidates: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A small block and few candidates: more scores than fit go through the search for the least of the greatest.
    monkeypatch.setattr(efficient_nms, "CANDIDATES", candidates)
    monkeypatch.setattr(efficient_nms, "THREADS", 8)
    inputs, fields = prepared(case, seed=1)
    check(emulated.run(EfficientNMS(**fields), inputs, folder), reference(*inputs, **fields))


@pytest.mark.parametrize("case", ["plain", "raw", "anchors", "centres"])
def test_halves_are_the_same_in_both(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficient_nms, "THREADS", 8)
    monkeypatch.setattr(efficient_nms, "CANDIDATES", 512)
    inputs, fields = prepared(case)
    halves = [x.astype(np.float16) for x in inputs]
    got = on_cpu(halves, fields)
    check(got, emulated.run(EfficientNMS(**fields), halves, folder), rtol=2e-3)
    # Against exact numbers a box at a threshold may fall to the other side: most do not.
    want = reference(*[x.astype(np.float32) for x in halves], **fields)
    same = [
        sum(np.abs(a - b).max() < 2e-3 for a, b in zip(x, y, strict=True)) for x, y in zip(got[1], want[1], strict=True)
    ]
    assert min(same) > 0.5 * got[1].shape[1]


def test_of_equal_scores_the_first_come_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficient_nms, "THREADS", 8)
    monkeypatch.setattr(efficient_nms, "CANDIDATES", 64)
    boxes, scores = scene(3, 1, 60, 2)
    scores = np.round(scores * 4) / 4
    fields = {"score_threshold": 0.25, "iou_threshold": 0.4}
    want = reference(boxes, scores, **fields)
    check(on_cpu([boxes, scores], fields), want)
    check(emulated.run(EfficientNMS(**fields), [boxes, scores], folder), want)


def test_as_torchvision_has_it() -> None:
    torch, ops = pytest.importorskip("torch"), pytest.importorskip("torchvision.ops")
    boxes, scores = scene(5, 1, 2000, 4)
    count, found, values, classes = on_cpu([boxes, scores], {"score_threshold": 0.7, "max_output_boxes": 500})
    place, kind = np.nonzero(scores[0] >= np.float32(0.7))
    given = torch.from_numpy(boxes[0][place]), torch.from_numpy(scores[0][place, kind]), torch.from_numpy(kind)
    kept = ops.batched_nms(*given, 0.5).numpy()[:500]
    assert count[0, 0] == len(kept)
    np.testing.assert_array_equal(found[0, : len(kept)], boxes[0][place[kept]])
    np.testing.assert_array_equal(classes[0, : len(kept)], kind[kept])
    np.testing.assert_array_equal(values[0, : len(kept)], scores[0][place[kept], kind[kept]])
    assert not found[0, len(kept) :].any()


def test_shapes_that_do_not_go_together_are_refused() -> None:
    for shapes in [
        [(1, 5, 4)],
        [(1, 5, 3), (1, 5, 2)],
        [(1, 5, 4), (1, 6, 2)],
        [(1, 5, 3, 4), (1, 5, 2)],
        [(1, 5, 4), (1, 5, 2), (3, 4, 4)],
        [(1, 5, 4), (1, 5, 2, 2)],
    ]:
        with pytest.raises(nx.ShapeError, match="do not go together"):
            EfficientNMS().get_output_shape(shapes)
    with pytest.raises(nx.InvalidArgumentError, match="box_coding 2"):
        EfficientNMS(box_coding=2)
