"""`neurenix inspect`, and what `bench` writes beside its figures."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Answer

onnx = pytest.importorskip("onnx")

Call = Callable[..., Answer]


@pytest.fixture
def model(folder: Path) -> str:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> inspected (float[1,3,8,8] x) => (float[1,4,6,6] y)'
        " { c = Conv(x, w) r = Relu(c) s = Softmax<axis=1>(r) y = Exp(s) }"
    )
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(proto, folder / "m.onnx")
    return "m.onnx"


def test_as_text(call: Call, model: str) -> None:
    code, out, _ = call("inspect", model, "--profile")
    assert code == 0
    assert "layers: 4 layers as given, 4 after the passes" in out
    assert "  Conv+Relu: Conv_0 + Relu_0\n" in out
    assert "cpu Softmax: " in out
    assert "memory map of host: " in out
    assert re.search(r"  A: [\d.]+ KiB at \d+, ", out)
    assert "Time(ms)" in out


def test_as_json(call: Call, model: str) -> None:
    code, out, _ = call("inspect", model, "--json", "--profile")
    report = json.loads(out)
    assert code == 0
    assert [layer["op"] for layer in report["graph"]["before"]["layers"]] == ["Conv", "Relu", "Softmax", "Exp"]
    (after,) = report["graph"]["after"]
    kernels = report["kernels"]
    # The layers name their kernels, and the kernels their layers.
    assert all(layer["name"] in kernels[layer["kernel"]]["layers"] for layer in after["layers"])
    assert after["layers"][0]["kernel"] == after["layers"][1]["kernel"]
    assert {row["name"] for row in report["profile"]} >= {"Conv_0 + Relu_0"}


def test_the_memory_map_is_what_the_planner_did(call: Call, model: str) -> None:
    """No two tensors that live at once overlap, and all lie in the arena."""
    report = json.loads(call("inspect", model, "--json")[1])
    blocks = report["memory"]["blocks"]
    assert blocks
    for number, a in enumerate(blocks):
        assert a["offset"] + a["bytes"] <= report["memory"]["arena"]
        assert 0 <= a["first"] <= a["last"] < len(report["kernels"])
        for b in blocks[number + 1 :]:
            together = a["first"] <= b["last"] and b["first"] <= a["last"]
            apart = a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"]
            assert apart or not together
    given = {name for layer in report["graph"]["after"][0]["layers"] for name in layer["outputs"]} | {"x"}
    assert {name for block in blocks for name in block["tensors"]} <= given


def test_an_engine_file(call: Call, model: str) -> None:
    assert call("export", model, "--precision", "fp32")[0] == 0
    code, out, _ = call("inspect", "m.engine", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["graph"]["before"] is None
    assert [layer["op"] for layer in report["graph"]["after"][0]["layers"]] == ["Conv", "Relu", "Softmax", "Exp"]
    assert call("run", "m.engine", "--validate")[0] == 0
    code, out, _ = call("bench", "m.engine", "--iterations", 10, "--warmup", 1)
    assert code == 0
    assert "MiB deserialized in " in out


def test_bench_writes_what_trtexec_writes(call: Call, model: str, folder: Path) -> None:
    files = ("--exportTimes", "t.json", "--exportProfile", "p.json", "--plot", "p.svg")
    code, out, _ = call(
        "bench", model, "--iterations", 12, "--warmUp", 1, *files, "--percentile", "50,99", "--dumpProfile"
    )
    assert code == 0
    assert "percentile(50%) = " in out and "percentile(95%)" not in out
    times = json.loads((folder / "t.json").read_text())
    assert len(times) == 12
    assert all(row["latencyMs"] == pytest.approx(row["endComputeMs"] - row["startComputeMs"]) for row in times)
    count, *layers = json.loads((folder / "p.json").read_text())
    assert count == {"count": 10}
    assert {"name", "timeMs", "averageMs", "medianMs", "percentage"} <= set(layers[0])
    assert sum(row["percentage"] for row in layers) == pytest.approx(100)
    picture = ElementTree.parse(folder / "p.svg").getroot()
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text and text.startswith("neurenix: median ") for text in texts)


def test_a_precision_that_is_not_attained_fails(call: Call, model: str) -> None:
    from neurenix.hardware.tensorrt import TensorRTBackend

    has = "fp16" in TensorRTBackend().get_device_info(0).precisions
    code, out, _ = call("bench", model, "--precision", "fp16", "--iterations", 10, "--warmup", 1)
    assert code == (0 if has else 1)
    assert out.splitlines()[-1].startswith("&&&& PASSED" if has else "&&&& FAILED")


def test_errors_are_json_too(call: Call, model: str) -> None:
    code, out, err = call("bench", model, "--percentile", "200", "--json")
    content = json.loads(out)
    assert (code, content["passed"]) == (1, False)
    assert content["error"]["message"] == "the percentiles can't be read"
    assert "the percentiles can't be read" in err


def test_run_compares_with_files_and_the_reference(call: Call, model: str, folder: Path) -> None:
    kept = ("--save-inputs", "i.npz", "--save-outputs", "o.npz")
    assert call("run", model, *kept)[0] == 0
    same = ("--load-inputs", "i.npz", "--load-outputs", "o.npz", "--compare", "onnx", "--check-error-stat", "mean")
    code, out, _ = call("run", model, *same, "--json")
    rows = json.loads(out)["outputs"]
    assert code == 0
    assert rows["y"]["error_file"] == 0
    assert rows["y"]["error_onnx"] < 1e-6
    code, out, _ = call("run", model, "--load-outputs", "o.npz", "--seed", 5)
    assert code == 1
    assert out.endswith("FAILED: y\n")


def test_raw_inputs(call: Call, model: str, folder: Path) -> None:
    x = np.arange(192, dtype=np.float32).reshape(1, 3, 8, 8)
    x.tofile(folder / "x.bin")
    np.save(folder / "x.npy", x)
    first = json.loads(call("run", model, "--loadInputs", "x=x.bin", "--json")[1])["outputs"]
    second = json.loads(call("run", model, "--load-inputs", "x:x.npy", "--json")[1])["outputs"]
    assert first == second


def test_an_engine_file_runs_as_it_was_built(call: Call, model: str) -> None:
    """Its level and hint are not those that a command has where nobody asks for any."""
    asked = ("--optimization-level", 0, "--hint", "throughput", "--threads", 2)
    assert call("export", model, "-o", "o.engine", "--precision", "fp32", *asked)[0] == 0
    for command in ("inspect", "run"):
        code, out, err = call(command, "o.engine", "--json")
        assert code == 0 and "planned anew" not in out + err
    assert "optimization_level 0, here 3" in call("inspect", "o.engine", "--optimization-level", 3, "--json")[1]


def test_an_input_that_the_model_has_not_is_named(call: Call, model: str) -> None:
    np.save("x.npy", np.ones((1, 3, 8, 8), np.float32))
    code, _, err = call("run", model, "--load-inputs", "q:x.npy")
    assert code == 1 and "no input 'q'" in err and "--shapes" not in err
