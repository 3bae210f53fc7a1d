"""What users of such toolkits have written runs as it is, but for import lines and the ending of the engine's file."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix.inference import TensorRTInferenceEngine, export_to_tensorrt
from tests.inference.conftest import by_torch, convolutions, optimized

torch = pytest.importorskip("torch")

QUICK_START = """
from neurenix.inference import TensorRTInferenceEngine
import torch

# Load TensorRT model
engine = TensorRTInferenceEngine(
    model_path="models/labelfree_trt_fp16.engine",
    input_shape=(1, 1, 256, 256),
    device="cuda"
)

# Run inference
input_image = torch.randn(1, 1, 256, 256).cuda()
output = engine(input_image)
"""

METHOD_1 = """
from neurenix.inference import TensorRTInferenceEngine

# Create engine
engine = TensorRTInferenceEngine(
    model_path="model_trt.engine",
    input_shape=(1, 1, 256, 256),
    device="cuda",
    half_precision=True  # Use FP16
)

# Single inference
output = engine(input_tensor)

# Batch inference
outputs = engine.batch_inference(
    inputs=[img1, img2, img3, img4],
    batch_size=4
)

# Sliding window for large images
output = engine.sliding_window_inference(
    image=large_image,
    roi_size=(256, 256),
    overlap=0.25,
    batch_size=4
)
"""

BATCH_SIZES = """
# Benchmark different batch sizes
for batch_size in [1, 2, 4, 8, 16]:
    outputs = engine.batch_inference(images, batch_size=batch_size)
    # Measure throughput
"""

EACH_GPU = """
# Export for each GPU
for gpu_id in range(num_gpus):
    torch.cuda.set_device(gpu_id)
    export_to_tensorrt(model, ..., device=f"cuda:{gpu_id}")
"""

ENSEMBLE = """
models = [
    TensorRTInferenceEngine(f"model_{i}_trt.engine")
    for i in range(num_models)
]

# Ensemble inference
outputs = [model(input) for model in models]
final_output = torch.mean(torch.stack(outputs), dim=0)
"""

STREAMING = """
import cv2

engine = TensorRTInferenceEngine(...)

cap = cv2.VideoCapture(0)
while True:
    ret, frame = cap.read()
    input_tensor = preprocess(frame)
    output = engine(input_tensor)
    result = postprocess(output)
    cv2.imshow('Result', result)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    (tmp_path / "models").mkdir()
    model = optimized(convolutions(2), (1, 1, 256, 256))
    for name in ("models/labelfree_trt_fp16", "model_trt", *(f"model_{i}_trt" for i in range(3))):
        model.save(tmp_path / f"{name}.engine")
    return tmp_path


def run(text: str, **names: Any) -> dict[str, Any]:
    exec(text, names)
    return names


def test_quick_start(folder: Path) -> None:
    found = run(QUICK_START)
    x = found["input_image"]
    assert isinstance(found["output"], torch.Tensor) and found["output"].device == x.device
    np.testing.assert_allclose(found["output"].cpu(), by_torch(convolutions(2), x.cpu()), rtol=0, atol=1e-2)


def test_method_1_and_batch_sizes(folder: Path) -> None:
    images = [torch.randn(1, 1, 256, 256).cuda() for _ in range(4)]
    large = torch.randn(1, 1, 600, 500).cuda()
    names = {f"img{i + 1}": image for i, image in enumerate(images)}
    found = run(METHOD_1, input_tensor=images[0], large_image=large, **names)
    assert found["output"].shape == (1, 2, 600, 500)
    for x, y in zip(images, found["outputs"], strict=True):
        np.testing.assert_allclose(y.cpu(), by_torch(convolutions(2), x.cpu()), rtol=0, atol=1e-2)
    again = run(BATCH_SIZES, engine=found["engine"], images=images)
    assert len(again["outputs"]) == 4


def test_an_export_for_each_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    count = max(torch.cuda.device_count(), 1)
    text = EACH_GPU.replace("...", "f'gpu_{gpu_id}.engine', (1, 1, 16, 16), 'fp32', optimization_level=0")
    run(text, num_gpus=count, torch=torch, model=convolutions(2), export_to_tensorrt=export_to_tensorrt)
    assert (folder / "gpu_0.engine").exists()


def test_an_ensemble_by_hand(folder: Path) -> None:
    x = torch.randn(1, 1, 256, 256).cuda()
    found = run(ENSEMBLE, num_models=3, input=x, torch=torch, TensorRTInferenceEngine=TensorRTInferenceEngine)
    np.testing.assert_allclose(found["final_output"].cpu(), by_torch(convolutions(2), x.cpu()), rtol=0, atol=1e-2)


def test_a_camera_by_hand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in of OpenCV's camera and window, which a machine for tests lacks."""
    shown: list[Any] = []

    class Unplugged(Exception):
        pass

    class Camera:
        def __init__(self, number: int) -> None:
            self.left = 5

        def read(self) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Unplugged
            return True, np.random.default_rng(self.left).integers(0, 255, (256, 256, 3), np.uint8)

    cv2 = types.ModuleType("cv2")
    cv2.VideoCapture, cv2.imshow = Camera, lambda title, picture: shown.append(picture)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cv2", cv2)
    text = STREAMING.replace("TensorRTInferenceEngine(...)", "TensorRTInferenceEngine('model_trt.engine')")
    with pytest.raises(Unplugged):
        run(
            text,
            TensorRTInferenceEngine=TensorRTInferenceEngine,
            preprocess=lambda frame: torch.from_numpy(frame.mean(2, dtype=np.float32) / 255)[None, None],
            postprocess=lambda output: output[0].argmax(0).numpy().astype(np.uint8),
        )
    assert len(shown) == 5 and shown[0].shape == (256, 256)
