"""Models whose image sizes nobody says."""

import numpy as np
import pytest
from onnx import parser

from neurenix.hardware.tensorrt import TensorRTBackend

ort = pytest.importorskip("onnxruntime")

MODEL = """<ir_version: 8, opset_import: ["" : 20]>
m (float[n, 1, h, w] x, float[1, 1, 7, 7] k) => (float[a, b, c, d] y) {
    z = Conv (x, k)
    p = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (z)
    y = Conv (p, k)
}"""


def test_a_model_without_any_sizes_is_tuned_and_runs() -> None:
    proto = parser.parse_model(MODEL)
    optimized = TensorRTBackend().optimize_model(proto)
    assert not [note for note in optimized.report()["notes"] if "timed" in note]
    rng = np.random.default_rng(0)
    for shape in ((2, 1, 40, 50), (1, 1, 21, 33)):
        inputs = {"x": rng.standard_normal(shape, np.float32), "k": rng.standard_normal((1, 1, 7, 7), np.float32)}
        want = ort.InferenceSession(proto.SerializeToString()).run(None, inputs)[0]
        np.testing.assert_allclose(optimized.run(inputs)["y"], want, rtol=1e-4, atol=1e-3)
