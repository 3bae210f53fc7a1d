"""Real exports come out of the passes in their simplest form, and compute what ONNX Runtime computes."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from neurenix import _native
from neurenix.importers import from_onnx

onnxruntime = pytest.importorskip("onnxruntime")
# It imports OpenCV, which wants libraries of the system.
rapidocr = pytest.importorskip("rapidocr_onnxruntime", exc_type=ImportError)

MODELS = Path(rapidocr.__file__).parent / "models"

#: Model, a small input, and how many layers of some ops are left.
CASES = {
    "ch_PP-OCRv4_det_infer.onnx": ((1, 3, 64, 96), {"Conv": 62, "ConvTranspose": 2, "HardSwish": 24}),
    "ch_PP-OCRv4_rec_infer.onnx": ((1, 3, 48, 96), {"Conv": 38, "HardSwish": 28, "Silu": 7, "LayerNormalization": 5}),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": ((2, 3, 48, 192), {"Conv": 53, "HardSwish": 18, "HardSigmoid": 9}),
}

#: What an exporter writes and no kernel should ever see.
SIMPLIFIED = {"BatchNormalization", "Cast", "Clip", "Div", "Gather", "Pow", "Shape", "Sqrt", "Squeeze", "Sub"}


@pytest.mark.parametrize("name", CASES)
def test_paddle_exports_lose_their_shape_arithmetic_and_norms(name):
    shape, left = CASES[name]
    network = from_onnx(MODELS / name)
    counts = network.simplify()
    ops = Counter(layer.op for layer in network.layers)
    assert not SIMPLIFIED & set(ops), ops
    assert left == {op: ops[op] for op in left}
    assert counts["fold_batch_norm"] > 0

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(MODELS / name, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {session.get_inputs()[0].name: x})
    (have,) = network.evaluate({session.get_inputs()[0].name: x}).values()
    np.testing.assert_allclose(have, want, atol=2e-5)


def test_lower_precision_puts_casts_at_the_edges_alone():
    network = from_onnx(MODELS / "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    network.simplify("bfloat16")
    assert Counter(layer.op for layer in network.layers)["Cast"] == 2
    assert {str(tensor.dtype) for tensor in network.outputs.values()} == {"float32"}


def test_knobs_are_told_with_their_docs():
    knobs = {knob["name"]: knob for knob in _native.knobs()}
    assert "after:PASS" in knobs["NEURENIX_DUMP"]["doc"]


def test_the_network_is_printed_around_a_pass(monkeypatch, tmp_path):
    path = tmp_path / "dump.txt"
    monkeypatch.setenv("NEURENIX_DUMP", f"before:decompose={path},after:recognise_activations={path}")
    from_onnx(MODELS / "ch_ppocr_mobile_v2.0_cls_infer.onnx").simplify()
    text = path.read_text()
    assert text.startswith("# before decompose\nnetwork ")
    assert "# after recognise_activations\nnetwork " in text
    assert text.index("HardSwish") > text.index("# after")
