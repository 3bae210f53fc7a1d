"""`neurenix debug`: the first layer that departs, NaN and Inf, and the smallest failing graph."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from neurenix.hardware.tensorrt import TensorRTBackend
from tests.cli.conftest import Answer

onnx = pytest.importorskip("onnx")

Call = Callable[..., Answer]

#: The product is that of a number with 257 and with -256: in bfloat16, which has no 257, nothing is left of it.
LOSSY = """
<ir_version: 8, opset_import: ["" : 18]> lossy (float[2,1] x) => (float[2,1] y, float[2,1] z)
<float[2,1] w = {257, -256}> {
    a = Tanh(x)
    z = Relu(a)
    b = Concat<axis=1>(a, a)
    d = MatMul(b, w)
    e = Sigmoid(d)
    y = Mul(e, a)
}
"""
#: The square of a large number is too large for float32, and its difference from itself is no number.
OVERFLOW = """
<ir_version: 8, opset_import: ["" : 18]> overflow (float[4] x) => (float[4] y)
<float[1] c = {1e30}> { a = Relu(x) b = Add(a, c) d = Mul(b, b) e = Sub(d, d) y = Neg(e) }
"""


@pytest.fixture
def lossy(folder: Path) -> Path:
    return written(LOSSY, folder / "lossy.onnx")


def written(text: str, path: Path) -> Path:
    proto = onnx.parser.parse_model(text)
    for node in proto.graph.node:
        node.name = f"{node.op_type.lower()}_of_{node.input[0]}"
    onnx.save(proto, path)
    return path


def needs_bf16() -> None:
    if "bf16" not in TensorRTBackend().get_device_info(0).precisions:
        pytest.skip("this processor has no bfloat16 arithmetic")


def test_a_right_model_passes(call: Call, lossy: Path) -> None:
    code, out, _ = call("debug", lossy, "--json")
    content = json.loads(out)
    assert code == 0
    assert content["passed"] and content["first"] is None
    assert [row["tensor"] for row in content["layers"]] == ["a", "z", "b", "d", "e", "y"]
    assert all(row["error"] <= 1e-4 for row in content["layers"])
    code, out, _ = call("debug", lossy)
    assert out.splitlines()[-1] == "PASSED: fp32 against onnx"


def test_the_first_layer_that_departs(call: Call, lossy: Path) -> None:
    needs_bf16()
    code, out, _ = call("debug", lossy, "--precision", "bf16", "--tolerance", "0.05", "--json")
    content = json.loads(out)
    assert code == 1
    assert content["first"]["node"] == "matmul_of_b"
    # What it reads is right to a few roundings of its size.
    assert content["first"]["inherited"] < 0.01 < content["first"]["error"]
    assert {row["tensor"] for row in content["layers"] if row["error"] > 0.05} >= {"d", "y"}
    _, out, _ = call("debug", "layers", lossy, "--precision", "bf16", "--tolerance", "0.05")
    assert "FIRST THAT DEPARTS: matmul_of_b (MatMul) -> d" in out
    assert out.splitlines()[-1] == "FAILED: bf16 against onnx"


@pytest.mark.parametrize("reference", ["onnx", "onnxruntime"])
def test_nan_of_the_model_itself_is_located(call: Call, folder: Path, reference: str) -> None:
    if reference == "onnxruntime":
        pytest.importorskip("onnxruntime")
    model = written(OVERFLOW, folder / "m.onnx")
    code, out, _ = call("debug", model, "--reference", reference, "--json")
    content = json.loads(out)
    assert content["reference_not_finite"]["node"] == "mul_of_b"
    assert content["first_not_finite"] is None
    # NaN where the reference has NaN is right.
    assert code == 0


def test_given_inputs_are_used(call: Call, lossy: Path, folder: Path) -> None:
    needs_bf16()
    np.save(folder / "x.npy", np.zeros((2, 1), np.float32))
    given = ("--load-inputs", "x:x.npy", "--precision", "bf16", "--tolerance", "0.05")
    assert call("debug", lossy, *given)[0] == 0


def test_a_torch_model_against_torch(call: Call, folder: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    (folder / "debugged_net.py").write_text(
        "import torch\n"
        "W = torch.tensor([[257.0], [-256.0]])\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        a = torch.tanh(x)\n"
        "        return torch.sigmoid(torch.cat((a, a), 1) @ W) * a\n"
        "make = Net\n"
    )
    code, out, _ = call("debug", "debugged_net:make", "--input-shape", 2, 1, "--tolerance", "0.05", "--json")
    content = json.loads(out)
    assert (code, content["reference"]) == (0, "torch")
    assert [row["op"] for row in content["layers"]] == ["Tanh", "Concat", "MatMul", "Sigmoid", "Mul"]
    assert None not in [row["error"] for row in content["layers"]]
    if "bf16" in TensorRTBackend().get_device_info(0).precisions:
        words = ("--input-shape", 2, 1, "--tolerance", "0.05", "--precision", "bf16", "--json")
        code, out, _ = call("debug", "debugged_net:make", *words)
        assert (code, json.loads(out)["first"]["op"]) == (1, "MatMul")
    sys.modules.pop("debugged_net")


def test_reduce_writes_the_smallest_graph_that_departs(call: Call, lossy: Path, folder: Path) -> None:
    needs_bf16()
    words = ("--precision", "bf16", "--tolerance", "0.05", "-o", "small.onnx", "--json")
    code, out, _ = call("debug", "reduce", lossy, *words)
    content = json.loads(out)
    assert code == 1
    assert content["failure"] == "departs"
    assert content["nodes"] == ["matmul_of_b (MatMul)"]
    small = onnx.load(folder / "small.onnx")
    onnx.checker.check_model(small)
    inputs, outputs = np.load(folder / "small.inputs.npz"), np.load(folder / "small.outputs.npz")
    (want,) = onnx.reference.ReferenceEvaluator(small).run(None, dict(inputs))
    np.testing.assert_array_equal(want, outputs["d"])
    # It fails by itself, and so can be reported.
    given = ("--load-inputs", "small.inputs.npz", "--precision", "bf16", "--tolerance", "0.05")
    assert call("debug", "small.onnx", *given)[0] == 1


def test_reduce_keeps_what_a_command_calls_failing(call: Call, lossy: Path, folder: Path) -> None:
    """The command fails where both the Concat and the Sigmoid are left; what is between them may go."""
    (folder / "check.py").write_text(
        "import sys, onnx, numpy\n"
        "ops = {node.op_type for node in onnx.load(sys.argv[1]).graph.node}\n"
        "numpy.load(sys.argv[1].removesuffix('.onnx') + '.inputs.npz')\n"
        "sys.exit(3 if {'Concat', 'Sigmoid'} <= ops else 0)\n"
    )
    code, out, _ = call("debug", "reduce", lossy, "--check", f"{sys.executable} check.py {{}}", "--json")
    content = json.loads(out)
    assert code == 1
    assert content["failure"] == "status 3"
    assert content["nodes"] == ["concat_of_a (Concat)", "sigmoid_of_d (Sigmoid)"]
    assert content["of"] == 6
    small = onnx.load(folder / "reduced.onnx")
    assert [value.name for value in small.graph.input] == ["a", "d"]
    assert [value.name for value in small.graph.output] == ["b", "e"]


def test_reduce_of_what_does_not_fail(call: Call, lossy: Path, folder: Path) -> None:
    code, out, _ = call("debug", "reduce", lossy)
    assert (code, out) == (0, "PASSED: the model does not fail; nothing to reduce\n")
    assert not (folder / "reduced.onnx").exists()


def test_reduce_finds_what_can_not_be_built(call: Call, folder: Path) -> None:
    model = written(
        '<ir_version: 8, opset_import: ["" : 18]> m (float[4] x) => (float[4] y)'
        " { a = Relu(x) r = RandomUniformLike<seed=1.0>(a) b = Abs(r) y = Neg(b) }",
        folder / "m.onnx",
    )
    code, out, _ = call("debug", "reduce", model, "--reference", "onnx", "--json")
    content = json.loads(out)
    assert (code, content["failure"]) == (1, "raises UnsupportedError")
    assert content["nodes"] == ["randomuniformlike_of_a (RandomUniformLike)"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("debug", "m.engine"), "an engine file has no original to compare with"),
        (("debug", "nowhere.onnx"), "the model can't be read"),
        (("debug", "{lossy}", "--precision", "int4"), "the nearest name is 'int8'"),
        (("debug", "reduce", "{lossy}", "--check", "no-such-command"), "--check can't be run"),
        (("debug", "reduce", "{lossy}", "--check", ""), "--check needs a command"),
    ],
)
def test_refusals(call: Call, lossy: Path, words: tuple[str, ...], message: str) -> None:
    code, out, err = call(*(word.format(lossy=lossy) for word in words))
    assert (code, out) == (1, "")
    assert message in err
