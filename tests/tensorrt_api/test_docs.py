"""The code in docs/tensorrt-api.md runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
PAGE = Path(__file__).parents[2] / "docs" / "tensorrt-api.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def model(path: Path) -> None:
    helper = onnx.helper
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])], "g",
        [port("x", onnx.TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [port("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def test_the_code_runs_as_it_stands_there(tmp_path: Path) -> None:
    (code,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    model(tmp_path / "model.onnx")
    script = tmp_path / "script.py"
    script.write_text(code + "assert y.shape == (2, 4, 46, 38) and not y.any()\n")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    script.write_text(script.read_text().replace("import neurenix.hardware.tensorrt as trt", "import tensorrt as trt"))
    command = [sys.executable, "-m", "neurenix.hardware.tensorrt", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_a_script_it_says_what_it_wants() -> None:
    command = [sys.executable, "-m", "neurenix.hardware.tensorrt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "usage: python -m neurenix.hardware.tensorrt" in done.stderr
