"""A small model of each architecture of the zoo, with dynamic sizes, out of both exporters, against double precision.

`python -m benchmarks.zoo` does the same with the models at their real size.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from neurenix.hardware.tensorrt import TensorRTBackend

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("transformers")
zoo = pytest.importorskip("benchmarks.zoo")
models = pytest.importorskip("benchmarks.zoo_models")

#: All but what needs a control flow that depends on data, and MiniLM, whose architecture is BERT's.
SMALL = [name for name in models.ZOO if name not in (*zoo.DETECTORS, "resnet18", "minilm")]
#: The newer exporter takes seconds for each.
BOTH = ["convnext_tiny", "densenet121", "mae_encoder", "roberta", "vit_b_16", "yolov8n"]


@pytest.mark.parametrize(
    ("name", "dynamo"),
    [(name, False) for name in SMALL] + [(name, True) for name in BOTH],
    ids=[f"{name}-torchscript" for name in SMALL] + [f"{name}-dynamo" for name in BOTH],
)
def test_model(name: str, dynamo: bool, tmp_path: Path) -> None:
    entry = models.ZOO[name].sibling()
    module, path = entry.build(), tmp_path / "model.onnx"
    zoo.export_entry(entry, module, dynamo, path, torch)
    wide = module.double()
    cases = [zoo.case_of(wide, entry.fill(sizes, seed), torch) for seed, sizes in enumerate(entry.sizes)]
    optimized = TensorRTBackend().optimize_model(path, zoo.profile_of(cases), optimization_level=0)
    found = zoo.checked(name, optimized, cases)
    assert found["right"], found
    assert "naive reference" not in str(optimized.report())
