"""Which layers of whole networks the CUDA provider leaves to the CPU, against a recorded H200, and why.

Each is a small model of an architecture of the zoo, as PyTorch's exporter writes it, with dynamic sizes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cuda import jobs
from tests.cuda.stand_in import Process

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("transformers")
zoo = pytest.importorskip("benchmarks.zoo")
models = pytest.importorskip("benchmarks.zoo_models")

#: The reasons for what the CPU runs. A reason that is gone is to be taken out, so that it does not come back unseen.
LEFT: dict[str, set[str]] = {
    "bert": set(),
    "clip_text": set(),
    "clip_vision": set(),
    "convnext_tiny": set(),
    "deit": set(),
    "densenet121": set(),
    "distilbert": set(),
    "gpt2": set(),
    "llama": set(),
    "lstm_tagger": set(),
    "mae_decoder": set(),
    "mae_encoder": set(),
    "mobilenetv3": set(),
    "resnet50": set(),
    "roberta": set(),
    "swin_t": set(),
    "t5_encoder": set(),
    "unet": set(),
    "unet3d": set(),
    "vit_b_16": set(),
    "whisper_encoder": set(),
    "yolov8n": set(),
}


@pytest.mark.parametrize("name", LEFT)
def test_the_cpu_runs_what_is_listed_and_nothing_else(name: str, process: Process, tmp_path: Path) -> None:
    entry: Any = models.ZOO[name].sibling()
    path = tmp_path / "model.onnx"
    zoo.export_entry(entry, entry.build(), False, path, torch)
    shapes = {key: [x.at(sizes) for sizes in entry.sizes] for key, x in entry.inputs.items()}
    found = process.run(jobs.refusals, path, shapes)
    open("/tmp/left.txt","a").write(f"{name}: {found}\n")
    assert set(found) == LEFT[name]
