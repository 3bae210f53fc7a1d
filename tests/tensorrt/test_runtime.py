"""How TensorRT's runtime is driven, against a double of it: `doubled.py` says what that shows and what not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import errors
from neurenix.hardware.tensorrt.plan_engine import open_plan
from tests.tensorrt import jobs
from tests.tensorrt.doubled import Process


def test_an_engine_says_what_it_takes_and_gives(process: Process) -> None:
    tensors, profiles, memory, layers = process.run(jobs.described)
    ranges = (((1, 6), (4, 6), (8, 6)), ((2, 6), (16, 6), (32, 6)))
    assert tensors == [
        ("x", "FLOAT", (-1, 6), True, False, ranges),
        ("y", "FLOAT", (-1, 5), False, False, ()),
        ("z", "FLOAT", (-1,), False, False, ()),
    ]
    assert profiles == 2 and memory > 0
    # What the inspector tells of each layer leads back to the model.
    sources = {layer["Metadata"] for layer in layers}
    assert {"product", "bias", "cut", "rows"} <= {name for text in sources for name in text.split(", ")}


def test_numbers_are_numpys_at_every_batch(process: Process) -> None:
    assert process.run(jobs.batches, [1, 8, 3, 3, 5]) == [True] * 5


def test_profiles_are_changed_between_calls(process: Process) -> None:
    assert process.run(jobs.profiles) == [True] * 3


def test_a_model_gives_what_onnx_says(process: Process, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    model, path = small_network(onnx), tmp_path / "small.onnx"
    onnx.save(model, path)
    rng = np.random.default_rng(0)
    feeds = [{"image": rng.standard_normal((size, 3, 12, 12)).astype("float32")} for size in (1, 4, 7)]
    shapes = {"image": ((1, 3, 12, 12), (4, 3, 12, 12), (8, 3, 12, 12))}
    found = process.run(jobs.of_file, str(path), shapes, feeds)
    evaluator = reference.ReferenceEvaluator(model)
    for feed, outputs in zip(feeds, found, strict=True):
        (wanted,) = evaluator.run(None, feed)
        np.testing.assert_allclose(outputs["scores"], wanted, rtol=2e-5, atol=2e-6)


def small_network(onnx: Any) -> Any:
    """A small network for images, with a batch that comes with the call."""
    make, rng = onnx.helper, np.random.default_rng(1)
    nodes = [
        make.make_node("Conv", ["image", "k", "kb"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        make.make_node("Relu", ["c"], ["r"]),
        make.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        make.make_node("Flatten", ["p"], ["f"]),
        make.make_node("Gemm", ["f", "w", "wb"], ["g"], transB=1),
        make.make_node("Softmax", ["g"], ["scores"]),
    ]
    weights = {"k": (8, 3, 3, 3), "kb": (8,), "w": (10, 72), "wb": (10,)}
    held = [
        onnx.numpy_helper.from_array((0.2 * rng.standard_normal(shape)).astype("float32"), name)
        for name, shape in weights.items()
    ]
    value = make.make_tensor_value_info
    image, scores = value("image", 1, ["batch", 3, 12, 12]), value("scores", 1, ["batch", 10])
    graph = make.make_graph(nodes, "small", [image], [scores], held)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 21)], ir_version=10)


#: What the double does wrong; the step that shows it; what the error says; the tensor that it names.
FAILURES = {
    "no runtime": ({"runtime": 1}, "open", "the double gives no runtime", "None"),
    "null": ({"deserialize": 1}, "open", "the double does not take this plan", "None"),
    "null without a word": ({"deserialize": 1, "silent": 1}, "open", "gives no reason", "None"),
    "another version": ({"validity": 1}, "open", "another version of TensorRT-RTX built it", "None"),
    "another gpu": ({"validity": 2}, "open", "other compute capabilities", "None"),
    "an old driver": ({"validity": 4}, "open", "the NVIDIA driver is too old", "None"),
    "odd layouts": ({"layout": 1}, "open", "row-major", "x"),
    "no context": ({"context": 1}, "context", "the double gives no context", "None"),
    "no profile": ({"profile": 1}, "profile", "the double refuses profile 0", "None"),
    "no shape": ({"shape": 1}, "call", "the double refuses the shape of x", "x"),
    "no shapes": ({"infer": 1}, "infer", "the double finds no shapes", "None"),
    "no size": ({"memory": 1}, "memory", "the double does not know how much memory", "None"),
    "no address": ({"address": 1}, "call", "the double refuses the address of x", "x"),
    "no run": ({"enqueue": 1}, "call", "the double does not run", "None"),
    "no run without a word": ({"enqueue": 1, "silent": 1}, "call", "does not run and gives no reason", "None"),
    "words of another thread": ({"enqueue": 1, "other_thread": 1}, "call", "the double does not run", "None"),
    "no inspector": ({"inspector": 1}, "layers", "the inspector says nothing", "None"),
    "no times": ({"report": 1}, "times", "the double has no times", "None"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_is_one_error_and_the_next_call_is_right(name: str, process: Process) -> None:
    settings, step, words, tensor = FAILURES[name]
    found, at, is_right = process.run(jobs.refused, settings, step)
    assert words in found and at == tensor, found
    assert is_right


def test_what_is_wrong_is_told_before_tensorrt_hears_of_it(process: Process) -> None:
    found = process.run(jobs.misused)
    expected = [
        r"ShapeError: profile 0 does not have this shape.*from \[1, 6\] to \[8, 6\].*\[9, 6\]",
        r"ShapeError: profile 0 does not have this shape.*\[1, 5\]",
        "InvalidArgumentError: this is an output",
        "InvalidArgumentError: the plan has no such input or output.*x, y, z",
        "InvalidArgumentError: the plan has no such input or output",
        "InvalidArgumentError: the plan has no profile 1",
        "InvalidArgumentError: the plan has no profile 7",
        "DeviceError: the address of x is not a multiple of 256",
        "DeviceError: TensorRT runs: not all shapes are set",
        "InvalidArgumentError: no call has told the shape",
        "InvalidArgumentError: this is an input",
        "DeviceError: the double streams no weights beyond what there are",
    ]
    assert len(found) == len(expected)
    for text, pattern in zip(found, expected, strict=True):
        assert_matches(pattern, text)


def assert_matches(pattern: str, text: str) -> None:
    import re

    assert re.match(pattern, text, re.DOTALL), text


def test_inputs_without_a_shape_are_named(process: Process) -> None:
    assert process.run(jobs.missing) == ["x"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "FormatError: this is no plan of TensorRT but empty"),
        (b"x" * 20, "shorter than any"),
        (b"PK\x03\x04" + bytes(100), "a zip archive, such as PyTorch writes"),
        (b"\x20\x01\x00\x00" + b'{"names": 1}' + bytes(100), "a header of Ultralytics"),
        (bytes(100), "its bytes are damaged"),
    ],
)
def test_what_is_no_plan_is_an_error(data: bytes, words: str, process: Process) -> None:
    assert words in process.run(jobs.bad_bytes, data)


def test_damaged_plans_are_errors(process: Process) -> None:
    found = process.run(jobs.damaged)
    assert len(found) == 3
    assert all(text.startswith("DeviceError: TensorRT opens a plan: its bytes are damaged") for text in found)


def test_plans_are_opened_for_those_who_trust_them_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(bytes(100))
    for plan in (path, bytes(100)):
        with pytest.raises(errors.InvalidArgumentError, match="native code") as caught:
            open_plan(plan)
        assert "trust=True" in str(caught.value.hint)
    with pytest.raises(OSError, match="none"):
        open_plan(tmp_path / "none.plan", trust=True)


def test_results_whose_size_the_run_tells_get_their_memory_then(process: Process) -> None:
    is_right, asked, shape, before = process.run(jobs.collected)
    assert is_right and asked == [60] and shape == (3, 5) and before == (-1, 5)


def test_memory_may_be_asked_for_twice(process: Process) -> None:
    is_right, asked, _, _ = process.run(jobs.collected, reallocate=1)
    assert is_right and asked == [1, 60]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["null", "raises", "odd"])
def test_without_memory_for_a_result_the_call_fails(kind: str, process: Process) -> None:
    assert "output y has no memory" in process.run(jobs.no_memory, kind)


def test_eight_threads_with_contexts_of_their_own(process: Process) -> None:
    assert process.run(jobs.threads, 8, 6) == (48, [])


def test_threads_that_fail_at_once_hear_of_their_own_failure(process: Process) -> None:
    found = process.run(jobs.errors_of_threads, 8)
    assert [("not all shapes" in text, "multiple of 256" in text) for text in found] == [
        (False, True),
        (True, False),
    ] * 4


def test_nothing_is_left_of_what_nobody_holds(process: Process) -> None:
    assert process.run(jobs.leaves) == {"runtime": 0, "engine": 0, "context": 0}


def test_layers_are_timed(process: Process) -> None:
    assert process.run(jobs.times) == [("the whole network", 0.5)]


def test_weights_get_a_budget(process: Process) -> None:
    size, told = process.run(jobs.budget)
    assert size == 4 * (6 * 5 + 5) and told == 3


def test_weights_are_replaced_by_name(process: Process) -> None:
    names, found, times = process.run(jobs.refitted)
    assert names == ["w", "b"] and times == 1
    expected = [
        "TensorRT replaces weights: the double has no weights no",
        "weights that belong to these must be replaced with them.*b",
        "TensorRT replaces weights: the double does not replace weights",
        "TensorRT replaces weights: the library gives no refitter",
        "TensorRT has no float64.*w",
        "TensorRT replaces weights: the plan was not built with refittable weights",
    ]
    assert len(found) == len(expected)
    for text, pattern in zip(found, expected, strict=True):
        assert_matches(".*" + pattern, text)
