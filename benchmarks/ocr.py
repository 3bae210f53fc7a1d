"""RapidOCR with other engines, the pictures it reads, and what it makes of them beside what it should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx

Array = np.ndarray[Any, Any]

#: The inputs of RapidOCR's models: (least, expected, greatest).
SHAPES = {
    "detector": nx.Shape((1, 3, 32, 32), (1, 3, 736, 1088), (1, 3, 2048, 2048)),
    "classifier": nx.Shape((1, 3, 48, 192), (6, 3, 48, 192), (6, 3, 48, 192)),
    "reader": nx.Shape((1, 3, 48, 32), (6, 3, 48, 320), (6, 3, 48, 4096)),
}
FILES = {"detector": "ch_PP-OCRv4_det", "classifier": "ch_ppocr_mobile_v2.0_cls", "reader": "ch_PP-OCRv4_rec"}
#: Pictures without letters that lines are written into: those of the calibration, and those of the comparison.
SEEN = ("chelsea", "camera", "brick", "coins", "grass", "moon", "ihc", "flower")
FRESH = ("coffee", "astronaut", "rocket", "china", "cell", "gravel", "hubble_deep_field", "color")
#: Pictures that neither are calibrated on nor compared: a search for layers that stay in floats is judged on these.
HELD_OUT = ("retina", "clock_motion", "horse", "microaneurysms", "logo", "phantom", "chessboard_RGB")
WORDS = (
    "invoice total amount due street number 2026 payment received order shipping address customer reference "
    "station platform departure arrival open closed monday friday morning price 12.50 EUR 99.95 USD discount "
    "notice danger entrance exit library museum north south river bridge garden coffee bread water engine "
    "temperature pressure volume maximum minimum warning serial model version release network picture language"
).split()

#: A box with four corners, and its text.
Line = tuple[Array, str]


def model(part: str) -> Path:
    """The file of a model."""
    import rapidocr_onnxruntime

    return Path(rapidocr_onnxruntime.__file__).parent / "models" / f"{FILES[part]}_infer.onnx"


def picture(name: str) -> Array:
    """One that scikit-image or scikit-learn ships, as uint8 [height, width, 3]."""
    if name in ("flower", "china"):
        from sklearn.datasets import load_sample_image

        return np.asarray(load_sample_image(f"{name}.jpg"))
    import skimage

    path = Path(skimage.__file__).parent / "data"
    found = next(path.glob(f"{name}.*"))
    from PIL import Image

    return np.asarray(Image.open(found).convert("RGB"))


def written(name: str, seed: int) -> Array:
    """A picture with lines of words in several sizes and colours, some upside down."""
    from PIL import Image, ImageDraw, ImageFont

    random = np.random.default_rng(seed)
    found = Image.fromarray(picture(name)).resize((960, 720))
    top = 20
    while top < 640:
        size = int(random.integers(18, 54))
        text = " ".join(random.choice(WORDS, int(random.integers(1, 4))))
        font = ImageFont.load_default(size)
        left, upper, right, lower = font.getbbox(text)
        strip = Image.new("RGBA", (int(right - left) + 12, int(lower - upper) + 12))
        light = bool(random.integers(2))
        ImageDraw.Draw(strip).text((6 - left, 6 - upper), text, (250, 250, 240) if light else (15, 15, 30), font,
                                   stroke_width=2, stroke_fill=(20, 20, 20) if light else (245, 245, 245))  # fmt: skip
        strip = strip.rotate(180) if random.integers(6) == 0 else strip
        found.paste(strip, (int(random.integers(10, 200)), top), strip)
        top += int(size * random.uniform(1.6, 3.0)) + 20
    return np.asarray(found)


def calibration() -> dict[str, Array]:
    """Eight pictures with words in them."""
    return {name: written(name, seed) for seed, name in enumerate(SEEN)}


def held_out() -> dict[str, Array]:
    """Seven others, with words of their own."""
    return {name: written(name, 200 + seed) for seed, name in enumerate(HELD_OUT)}


def evaluation() -> dict[str, Array]:
    """Others: two photographs of print as they are, two with letters in them, and eight with other words."""
    real = {name: picture(name) for name in ("page", "text", "motorcycle_left", "astronaut")}
    return real | {f"{name} with words": written(name, 100 + seed) for seed, name in enumerate(FRESH)}


def reader(parts: Sequence[Any] | None = None) -> Any:
    """RapidOCR, with detector, classifier and reader in the place of its own ONNX Runtime's."""
    import rapidocr_onnxruntime

    made = rapidocr_onnxruntime.RapidOCR()
    if parts is not None:
        detect, classify, recognise = parts
        made.text_det.infer = lambda x: [detect(x)]
        made.text_cls.infer = lambda x: [classify(x)]
        made.text_rec.session = lambda x: [recognise(x)]
    return made


def read(reading: Any, given: Array) -> list[Line]:
    """The lines of a picture."""
    lines, _ = reading(given)
    return [(np.asarray(box, float), text) for box, text, _ in lines or []]


def recorded(reading: Any, pictures: Mapping[str, Array]) -> dict[str, list[Array]]:
    """What comes to each of the three models while pictures are read."""
    found: dict[str, list[Array]] = {part: [] for part in SHAPES}

    def keeping(part: str, run: Any) -> Any:
        def kept(x: Array) -> Any:
            found[part].append(np.array(x))
            return run(x)

        return kept

    reading.text_det.infer = keeping("detector", reading.text_det.infer)
    reading.text_cls.infer = keeping("classifier", reading.text_cls.infer)
    reading.text_rec.session = keeping("reader", reading.text_rec.session)
    for each in pictures.values():
        reading(each)
    return found


def decoded(scores: Array) -> list[Any]:
    """The characters of each row of [rows, places, characters] by CTC, as numbers."""
    best = scores.argmax(-1)
    return [[int(c) for c, before in zip(row, [-1, *row[:-1]], strict=True) if c not in (0, before)] for row in best]


def overlap(one: Array, other: Array) -> float:
    """Intersection over union of two boxes."""
    from shapely.geometry import Polygon

    a, b = Polygon(one), Polygon(other)
    return float(a.intersection(b).area / max(a.union(b).area, 1e-9))


def compared(want: Sequence[Sequence[Line]], got: Sequence[Sequence[Line]]) -> dict[str, Any]:
    """Boxes, those that are there with IoU > 0.9, those too many, lines with the same text, and the least IoU."""
    boxes = same = lines = extra = 0
    overlaps = []
    for wanted, found in zip(want, got, strict=True):
        left = list(found)
        for box, text in wanted:
            boxes += 1
            best = max(left, key=lambda line, box=box: overlap(box, line[0]), default=None)
            value = overlap(box, best[0]) if best else 0.0
            overlaps.append(value)
            if best is not None and value > 0.5:
                left = [line for line in left if line is not best]
                lines += text == best[1]
            same += value > 0.9
        extra += len(left)
    return {
        "boxes": boxes,
        "same": same,
        "extra": extra,
        "lines": lines,
        "least_iou": round(min(overlaps, default=1.0), 3),
    }
