"""Reads a page: finds the lines of text on a picture, prints what they say, and draws their boxes.

    pip install ".[ocr]" && python examples/12_read_page.py

The picture is scikit-image's `page`; detector, classifier and recogniser are the PP-OCR models that
rapidocr-onnxruntime carries. Neurenix runs all three; the same pipeline with ONNX Runtime stands beside it. RapidOCR
imports OpenCV, whose wheel wants libraries of the system: on Debian 12, `apt install libgl1 libglib2.0-0 libxcb1`.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import rapidocr_onnxruntime
import skimage
from PIL import Image, ImageDraw

from neurenix import Shape
from neurenix.hardware.tensorrt import TensorRTBackend

MODELS = Path(rapidocr_onnxruntime.__file__).parent / "models"
#: Each model with the shapes that it will see: (least, expected, greatest) of [batch, channels, height, width].
SHAPES = {
    "ch_PP-OCRv4_det_infer": Shape((1, 3, 32, 32), (1, 3, 736, 1472), (1, 3, 2048, 2048)),
    "ch_ppocr_mobile_v2.0_cls_infer": Shape((1, 3, 48, 192), (6, 3, 48, 192), (6, 3, 48, 192)),
    "ch_PP-OCRv4_rec_infer": Shape((1, 3, 48, 32), (6, 3, 48, 320), (6, 3, 48, 4096)),
}


def reader_on_neurenix() -> rapidocr_onnxruntime.RapidOCR:
    """RapidOCR with its three sessions replaced."""
    backend = TensorRTBackend()
    detect, classify, recognise = (
        backend.optimize_model(MODELS / f"{name}.onnx", {"x": shape}) for name, shape in SHAPES.items()
    )
    reader = rapidocr_onnxruntime.RapidOCR()
    reader.text_det.infer = lambda x: [detect(x)]
    reader.text_cls.infer = lambda x: [classify(x)]
    reader.text_rec.session = lambda x: [recognise(x)]
    return reader


def read(reader: rapidocr_onnxruntime.RapidOCR, page: np.ndarray) -> tuple[list[Any], float]:
    """What stands on the page, and the milliseconds that the second of two readings took."""
    reader(page)
    start = time.perf_counter()
    lines, _ = reader(page)
    return lines or [], 1e3 * (time.perf_counter() - start)


def main() -> None:
    page = skimage.data.page()
    lines, ours = read(reader_on_neurenix(), page)
    theirs_lines, theirs = read(rapidocr_onnxruntime.RapidOCR(), page)

    image = Image.fromarray(page).convert("RGB")
    draw = ImageDraw.Draw(image)
    for box, text, score in lines:
        draw.polygon([tuple(corner) for corner in box], outline=(220, 0, 0))
        print(f"{float(score):.3f}  {text}")
    image.save("page_boxes.png")

    same = [text for _, text, _ in lines] == [text for _, text, _ in theirs_lines]
    print(f"{len(lines)} lines, drawn into page_boxes.png; the same texts as ONNX Runtime's: {'yes' if same else 'no'}")
    print(f"one page: Neurenix {ours:.0f} ms, ONNX Runtime {theirs:.0f} ms")


if __name__ == "__main__":
    main()
