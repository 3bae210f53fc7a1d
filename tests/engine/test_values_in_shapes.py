"""Integers whose number of elements a symbol decides: they are saved as layers, not as values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from neurenix.hardware.tensorrt import TensorRTBackend

parser = pytest.importorskip("onnx.parser")

HEAD = '<ir_version: 10, opset_import: ["" : 21]> m (float[n,4] x) => (float[n,4] y) '
TABLE = "<int64[8] w = {1, 2, 3, 4, 5, 6, 7, 8}>"
MODELS = {
    "shape": HEAD + TABLE + "{ s = Shape(x) r = Reshape(w, s) f = Cast<to = 1>(r) y = Add(f, x) }",
    "rows": HEAD + TABLE + """{ n = Shape<start = 0, end = 1>(x) rest = Constant<value_ints = [-1]>()
        s = Concat<axis = 0>(n, rest) r = Reshape(w, s) f = Cast<to = 1>(r) y = Add(f, x) }""",
    "turned": HEAD + TABLE + """{ s = Shape(x) r = Reshape(w, s) t = Transpose<perm = [1, 0]>(r)
        u = Transpose<perm = [1, 0]>(t) f = Cast<to = 1>(u) y = Add(f, x) }""",
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_constant_in_a_shape_with_a_symbol_is_saved(name: str, tmp_path: Path) -> None:
    backend = TensorRTBackend(optimization_level=0)
    model = backend.optimize_model(parser.parse_model(MODELS[name]))
    model.save(tmp_path / "a.engine")
    x = np.ones((2, 4), np.float32)
    for each in (model, backend.load(tmp_path / "a.engine")):
        np.testing.assert_array_equal(each({"x": x})["y"], np.arange(2, 10, dtype=np.float32).reshape(2, 4))
