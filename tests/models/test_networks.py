"""Whole networks out of both of PyTorch's exporters, against PyTorch in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import Shape
from neurenix.hardware.tensorrt import TensorRTBackend

torch = pytest.importorskip("torch")
networks = pytest.importorskip("benchmarks.networks")

#: Odd in every way that the network takes, and small: what the exporters write does not depend on it.
STATIC = {
    "resnet50": (1, 3, 97, 65),
    "mobilenetv3": (1, 3, 97, 65),
    "unet": (1, 1, 48, 80),
    "yolov5s": (1, 3, 96, 160),
}
#: (least, expected, greatest) and the shapes that come; height and width vary where the exported graph lets them.
DYNAMIC = {
    "resnet50": (Shape((1, 3, 64, 64), (2, 3, 64, 64), (5, 3, 64, 64)), [(1, 64, 64), (2, 64, 64), (5, 64, 64)]),
    "mobilenetv3": (Shape((1, 3, 64, 64), (2, 3, 64, 64), (5, 3, 64, 64)), [(1, 64, 64), (2, 64, 64), (5, 64, 64)]),
    "unet": (Shape((1, 1, 32, 32), (2, 1, 48, 64), (3, 1, 96, 96)), [(2, 48, 64), (1, 80, 32), (3, 32, 32)]),
    "yolov5s": (Shape((1, 3, 64, 64), (2, 3, 96, 64), (3, 3, 160, 160)), [(2, 96, 64), (1, 160, 96), (3, 64, 64)]),
}
WITHIN = 1e-4


def export(model: Any, example: Any, path: Path, dynamo: bool, dynamic: bool, any_size: bool) -> None:
    """Writes an ONNX file as the exporter does by itself."""
    options: dict[str, Any] = {"input_names": ["input"], "dynamo": dynamo}
    if not dynamo:
        options["opset_version"] = 17
        sizes = {2: "height", 3: "width"} if any_size else {}
        options["dynamic_axes"] = {"input": {0: "batch", **sizes}} if dynamic else None
    elif dynamic:
        sizes = {2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO} if any_size else {}
        options["dynamic_shapes"] = ({0: torch.export.Dim("batch", min=1, max=64), **sizes},)
    torch.onnx.export(model, (example,), path, **options)


def check(model: Any, optimized: Any, shape: tuple[int, ...], seed: int) -> None:
    """Every output within 1e-4 of the greatest of PyTorch's in double precision."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        exact = model.double()(x.double())
        model.float()
    exact = exact if isinstance(exact, tuple) else (exact,)
    got = list(optimized({"input": x.numpy()}).values())
    assert len(got) == len(exact)
    for y, reference in zip(got, exact, strict=True):
        reference = reference.numpy()
        assert y.dtype == np.float32 and y.shape == reference.shape
        assert np.abs(y - reference).max() <= WITHIN * np.abs(reference).max()


@pytest.mark.parametrize("name", STATIC)
def test_fixed_shape(name: str, tmp_path: Path) -> None:
    model, shape = networks.make(name), STATIC[name]
    export(model, torch.randn(shape), tmp_path / "model.onnx", dynamo=False, dynamic=False, any_size=False)
    optimized = TensorRTBackend().optimize_model(tmp_path / "model.onnx", {"input": shape})
    assert "reference" not in str(optimized.report())
    check(model, optimized, shape, 1)
    check(model, optimized, shape, 2)


# An export by dynamo takes PyTorch 10 to 30 s: test_zoo.py has others.
@pytest.mark.parametrize(
    ("name", "dynamo"), [("resnet50", False), ("mobilenetv3", True), ("unet", True), ("yolov5s", False)]
)
def test_dynamic_shape(name: str, dynamo: bool, tmp_path: Path) -> None:
    model, (profile, shapes) = networks.make(name, seed=1), DYNAMIC[name]
    any_size = profile.min[2:] != profile.max[2:]
    export(model, torch.randn(profile.opt), tmp_path / "model.onnx", dynamo, dynamic=True, any_size=any_size)
    optimized = TensorRTBackend().optimize_model(tmp_path / "model.onnx", {"input": profile})
    for seed, (batch, height, width) in enumerate(shapes):
        check(model, optimized, (batch, profile.opt[1], height, width), seed)


def test_a_module_needs_no_file() -> None:
    model = networks.make("unet", seed=2)
    optimized = TensorRTBackend().optimize_model(model, {"input": (1, 1, 48, 80)})
    check(model, optimized, (1, 1, 48, 80), 3)
