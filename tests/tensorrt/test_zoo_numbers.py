"""Known networks, whole, through NVIDIA's real builder and the double of its runtime: the numbers of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tensorrt import jobs
from tests.tensorrt.doubled import Process
from tests.tensorrt.test_zoo import NETWORKS

pytest.importorskip("onnx")
BATCHES = (1, 2, 4)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_plan_computes_what_the_model_says(name: str, tmp_path: Path, process: Process) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    pytest.importorskip("transformers")
    from benchmarks.zoo import export_entry
    from benchmarks.zoo_models import ZOO

    # BERT's numbers are those of any of its layers; its own size, whose weights are 0.4 GB, is built in test_zoo.py.
    entry, path = ZOO[name].sibling() if name == "bert" else ZOO[name], tmp_path / f"{name}.onnx"
    export_entry(entry, entry.build(), False, path, torch)
    sizes = {key: min(size, 64) for key, size in NETWORKS[name].items()}
    profile = {key: tuple(x.at(sizes | {"batch": b}) for b in BATCHES) for key, x in entry.inputs.items()}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {}
    for given in session.get_inputs():
        shape = profile[given.name][1]
        whole = "int" in given.type
        feeds[given.name] = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape).astype("float32")
    (found,) = process.run(jobs.of_file, str(path), profile, [feeds])
    names = [output.name for output in session.get_outputs()]
    for output, wanted in zip(names, session.run(names, feeds), strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found[output] / scale, wanted / scale, atol=2e-4)
