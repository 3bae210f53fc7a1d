"""TensorRT as a provider, against a double of its runtime on the recorded device: which regions it runs, that what they
give is right, and what happens where it fails. `doubled.py` says what the double shows, and what not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import errors
from tests.cuda import stand_in
from tests.tensorrt import region_jobs as jobs
from tests.tensorrt.doubled import Process


@pytest.fixture(scope="module")
def machine(double_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A process with the double and the recorded device."""
    libraries = stand_in.build(tmp_path_factory.mktemp("recorded") / "libraries")
    settings = {"NEURENIX_CUDA_LIBRARIES": str(libraries), "NEURENIX_PROVIDERS": ""}
    with Process(double_library, **settings) as process:
        process.run(jobs.begin)
        yield process


@pytest.fixture
def process(machine: Process, tmp_path: Path) -> Iterator[Process]:
    """The same with a cache of the test's own; nothing may be left or misused behind it."""
    machine.run(jobs.cache_at, str(tmp_path / "cache"))
    yield machine
    assert machine.run(jobs.left) == {"misuse": [], "alive": {"engine": 0, "context": 0, "runtime": 0}}


def model_of(nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], **held: Any) -> Any:
    """An ONNX model of float32 tensors."""
    onnx = pytest.importorskip("onnx")
    make = onnx.helper
    values = [make.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()]
    results = [make.make_tensor_value_info(name, 1, None) for name in outputs]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = make.make_graph(nodes, "model", values, results, weights)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 21)], ir_version=10)


def node(op: str, inputs: str, output: str, **attrs: Any) -> Any:
    onnx = pytest.importorskip("onnx")
    return onnx.helper.make_node(op, inputs.split(), [output], name=output, **attrs)


def classifier() -> Any:
    """Convolutions with a shortcut, a pooling, a norm, a softmax."""
    rng = np.random.default_rng(1)
    held = {
        name: (0.3 * rng.standard_normal(shape)).astype("float32")
        for name, shape in {"k": (8, 3, 3, 3), "kb": (8,), "l": (8, 8, 1, 1), "w": (10, 128), "s": (10,)}.items()
    }
    nodes = [
        node("Conv", "image k kb", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "c", "r"),
        node("Conv", "r l", "d"),
        node("Add", "d r", "a"),
        node("MaxPool", "a", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "p", "f"),
        node("Gemm", "f w", "g", transB=1),
        node("LayerNormalization", "g s", "n"),
        node("LogSoftmax", "n", "scores", axis=-1),
    ]
    return model_of(nodes, {"image": ["batch", 3, 16, 16]}, ["scores"], **held)


def tagger() -> Any:
    """An LSTM in both directions with lengths, a product and a softmax."""
    rng = np.random.default_rng(2)
    held = {
        name: (0.3 * rng.standard_normal(shape)).astype("float32")
        for name, shape in {"w": (2, 32, 6), "r": (2, 32, 8), "b": (2, 64), "p": (16, 5)}.items()
    }
    nodes = [
        node("Tanh", "x", "t"),
        node("LSTM", "t w r b", "y", hidden_size=8, direction="bidirectional"),
        node("Transpose", "y", "m", perm=[0, 2, 1, 3]),
        node("Reshape", "m shape", "f"),
        node("MatMul", "f p", "q"),
        node("Softmax", "q", "scores"),
    ]
    return model_of(nodes, {"x": [7, "batch", 6]}, ["scores"], **held, shape=np.array([7, -1, 16]))


def repeated() -> Any:
    """A chain of layers in a Loop."""
    onnx = pytest.importorskip("onnx")
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 5] x) => (float[batch, 5] y) {
        trips = Constant <value_int = 3> ()
        y = Loop (trips, , x) <
            body = step (int64 i, bool before, float[batch, 5] v) => (bool after, float[batch, 5] w) {
            after = Identity (before)
            a = Sin (v)
            b = Exp (a)
            c = Tanh (b)
            w = Add (c, x)
        }>
    }"""
    return onnx.parser.parse_model(text)


SHAPES = {"image": ((1, 3, 16, 16), (4, 3, 16, 16), (8, 3, 16, 16))}


def images(batch: int) -> dict[str, Any]:
    return {"image": np.random.default_rng(batch).standard_normal((batch, 3, 16, 16)).astype("float32")}


def test_a_build_that_must_repeat_leaves_it_out(process: Process) -> None:
    model = classifier().SerializeToString()
    _, summary = process.run(jobs.outputs, model, SHAPES, [images(4)], deterministic=True)
    assert not summary["regions"] and summary["reasons"]
    assert all(reason.startswith("deterministic=True: ") for reason in summary["reasons"].values())


def test_a_hint_that_changes_nothing_there_says_so(process: Process) -> None:
    model = classifier().SerializeToString()
    _, summary = process.run(jobs.outputs, model, SHAPES, [images(4)], hint="throughput", threads=8)
    assert "threads: 1 a call, 2 calls at once" in summary["text"]
    assert summary["regions"] and any(note.startswith('hint="throughput" shares') for note in summary["notes"])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_whole_model_is_one_region_and_right_at_every_batch(process: Process, precision: str) -> None:
    reference = pytest.importorskip("onnx.reference")
    model, calls = classifier(), [images(batch) for batch in (1, 4, 7)]
    found, summary = process.run(jobs.outputs, model.SerializeToString(), SHAPES, calls, precision=precision)
    evaluator = reference.ReferenceEvaluator(model)
    close = 2e-5 if precision == "fp32" else 2e-2
    for feeds, outputs in zip(calls, found, strict=True):
        (wanted,) = evaluator.run(None, feeds)
        np.testing.assert_allclose(outputs["scores"], wanted, rtol=close, atol=close)
    assert len(summary["regions"]) == 1 and summary["reasons"] == {} and summary["providers"]["cpu"] == 0
    # What NVIDIA's inspector would say stands in the report, and so do the layers of the model.
    assert summary["inside"] and "tensorrt: TensorRT's plan, profile 0 of 1" in summary["text"]


def test_a_layer_that_tensorrt_does_not_take_stands_between_two_regions(process: Process) -> None:
    reference = pytest.importorskip("onnx.reference")
    nodes = [
        node("Sigmoid", "x", "a"),
        node("Tanh", "a", "b"),
        node("Exp", "b", "c"),
        node("Det", "c", "determinant"),
        node("Sigmoid", "determinant", "e"),
        node("Tanh", "e", "f"),
        node("Exp", "f", "g"),
        node("ReduceSum", "c axes", "h", keepdims=0),
        node("Add", "g h", "y"),
    ]
    model = model_of(nodes, {"x": ["batch", 3, 3]}, ["y", "c"], axes=np.array([1, 2]))
    calls = [{"x": np.random.default_rng(b).standard_normal((b, 3, 3)).astype("float32")} for b in (1, 2, 5)]
    shapes = {"x": ((1, 3, 3), (2, 3, 3), (6, 3, 3))}
    found, summary = process.run(jobs.outputs, model.SerializeToString(), shapes, calls)
    evaluator = reference.ReferenceEvaluator(model)
    for feeds, outputs in zip(calls, found, strict=True):
        for got, wanted in zip(outputs.values(), evaluator.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)
    assert [len(region) for region in summary["regions"]] == [3, 5], summary["regions"]
    assert list(summary["reasons"]) == ["determinant"] and "Det" in summary["reasons"]["determinant"]


def test_what_the_caller_excludes_is_in_no_region(process: Process) -> None:
    summary, right = process.run(jobs.excluded)
    assert right and [len(region) for region in summary["regions"]] == [3, 3]
    assert summary["reasons"] == {"Neg 3": "excluded by the caller"}


def test_profiles_are_chosen_by_shape_and_other_kernels_run_what_lies_outside(process: Process) -> None:
    inside, outside, regions = process.run(jobs.beyond)
    assert inside and outside and [len(region) for region in regions] == [4]


#: What goes wrong in TensorRT, and what the reason says.
FAILURES: dict[str, tuple[dict[str, int], str]] = {
    "no runtime": ({"runtime": -1}, "the double gives no runtime"),
    "null": ({"deserialize": -1}, "the double does not take this plan"),
    "another version": ({"validity": 1}, "another version of TensorRT-RTX built it"),
    "no context": ({"context": -1}, "the double gives no context"),
    "no shape": ({"shape": -1}, "the double refuses the shape of x"),
    "no shapes": ({"infer": -1}, "the double finds no shapes"),
    "other shapes": ({"wrong_shape": 1}, "TensorRT gives another shape than the network"),
    "sizes that depend on data": ({"unknown": 1}, "TensorRT gives another shape than the network"),
    "no size of memory": ({"memory": -1}, "the double does not know how much memory"),
    "no address": ({"address": -1}, "the double refuses the address of x"),
    "no run": ({"enqueue": -1}, "the double does not run"),
    "nan": ({"nan": 1}, "are not finite in float32"),
    "wrong numbers": ({"wrong": 1}, "departs by"),
}


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", FAILURES)
def test_what_fails_goes_to_the_next_provider_with_the_reason(process: Process, name: str, level: int) -> None:
    settings, words = FAILURES[name]
    summary, right = process.run(jobs.failing, settings, optimization_level=level)
    assert right and summary["regions"] == []
    assert set(summary["reasons"]) == {f"{op} {place}" for place, op in enumerate(jobs.OPS)}
    assert all(words in reason for reason in summary["reasons"].values()), summary["reasons"]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "tf32"])
@pytest.mark.parametrize("name", ["null", "no run", "wrong numbers"])
def test_what_fails_in_other_precisions_is_right_too(process: Process, name: str, precision: str) -> None:
    settings, words = FAILURES[name]
    summary, right = process.run(jobs.failing, settings, precision=precision)
    assert right and summary["regions"] == [] and all(words in reason for reason in summary["reasons"].values())


@pytest.mark.parametrize("name", ["null", "no run", "wrong numbers"])
def test_strict_raises_instead(process: Process, name: str) -> None:
    settings, words = FAILURES[name]
    with pytest.raises(errors.UnsupportedError, match=words):
        process.run(jobs.failing, settings, strict=True)


def test_what_can_not_be_recorded_is_enqueued(process: Process) -> None:
    summary, right = process.run(jobs.failing, {"uncapturable": 1})
    assert right and len(summary["regions"]) == 1


def test_a_second_build_takes_the_plan_from_the_users_cache(process: Process) -> None:
    first, second, kept, right, regions = process.run(jobs.built_twice)
    assert (first, second, kept, right, len(regions)) == (1, 0, 1, True, 1)


@pytest.mark.parametrize("how", ["changed", "torn", "open to others", "another's"])
def test_a_plan_that_others_may_have_written_is_not_run(process: Process, how: str) -> None:
    notes, builds, right = process.run(jobs.spoilt, how)
    assert builds == 1 and right
    assert any("the plan is not run, and built anew" in note for note in notes), notes


def test_a_plan_that_the_library_does_not_take_any_more_is_built_anew(process: Process) -> None:
    notes, builds, right = process.run(jobs.misfit)
    assert builds == 1 and right
    assert any("a plan of the cache is built anew" in note for note in notes), notes


def test_an_engine_file_brings_no_plan_and_finds_it_in_the_cache(process: Process, tmp_path: Path) -> None:
    notes, builds, right, regions = process.run(jobs.saved, str(tmp_path), forgotten=False)
    assert builds == 0 and right and len(regions) == 1
    assert not any("compiled anew" in note for note in notes), notes


def test_an_engine_file_without_its_plan_is_compiled_anew_with_one_note(process: Process, tmp_path: Path) -> None:
    notes, builds, right, regions = process.run(jobs.saved, str(tmp_path), forgotten=True)
    assert builds == 1 and right and len(regions) == 1
    assert sum("compiled anew" in note for note in notes) == 1, notes


def test_whoever_watches_may_end_the_build(process: Process) -> None:
    error, told = process.run(jobs.cancelled)
    assert told > 0 and "cancelled" in error


def test_both_run_in_one_graph_on_the_gpu(process: Process) -> None:
    summary, launches, providers = process.run(jobs.beside_cuda, 0)
    assert providers == ["tensorrt", "cuda", "tensorrt"] and len(summary["regions"]) == 2
    # Call by call: as it is, then recorded whole and replayed.
    assert launches[0] == 0 and launches[2:] == [1, 1, 1], launches


def test_a_caller_may_record_calls(process: Process) -> None:
    assert process.run(jobs.recorded_by_the_caller) == [True] * 6


def test_a_region_that_is_clearly_slower_than_kernels_of_ours_is_not_taken(process: Process) -> None:
    # On the recorded device whatever is timed takes 160 us: a region once, 16 launches of a kernel together.
    summary, _, providers = process.run(jobs.beside_cuda, 1)
    assert set(providers) == {"cuda"}
    reasons = [reason for layer, reason in summary["reasons"].items() if layer != "Neg 3"]
    assert len(reasons) == 6
    assert all(reason.startswith("slower: the region takes 160.0 us, kernels of cuda") for reason in reasons)


def test_addresses_are_aligned_where_others_put_results_together(process: Process) -> None:
    assert process.run(jobs.unaligned) == ["tensorrt", "cuda"]


def test_the_backend_alone_uses_tensorrt_and_says_that_it_can(process: Process) -> None:
    assert process.run(jobs.available) == (True, None, True)


def test_selftest_passes_where_everything_runs(process: Process, tmp_path: Path) -> None:
    path = tmp_path / "selftest.json"
    status = process.run(jobs.selftest, "--json", str(path))
    found = json.loads(path.read_text())
    failed = [check for check in found["checks"] if not check["passed"]]
    assert status == 0 and found["passed"] and not failed, failed
    assert len(found["checks"]) == 19 and found["machine"]["library"]["version"].startswith("1.7")


def test_a_recurrent_layer_is_part_of_a_region(process: Process) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("torch")
    from tests.conformance.cases.lstm import by_torch

    model = tagger()
    x = np.random.default_rng(3).standard_normal((7, 4, 6)).astype("float32")
    shapes = {"x": ((7, 1, 6), (7, 4, 6), (7, 8, 6))}
    (found,), told = process.run(jobs.outputs, model.SerializeToString(), shapes, [{"x": x}])
    assert len(told["regions"]) == 1 and "y" in told["regions"][0] and told["reasons"] == {}
    held = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    w, r, b = (held[name].astype(np.float64) for name in "wrb")
    y = by_torch(np.tanh(x.astype(np.float64)), w, r, b)[0].transpose(0, 2, 1, 3)
    powers = np.exp(y.reshape(7, 4, 16) @ held["p"])
    np.testing.assert_allclose(found["scores"], powers / powers.sum(-1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_regions_lie_in_the_bodies_of_loops(process: Process) -> None:
    x = np.random.default_rng(4).standard_normal((4, 5)).astype("float32")
    model = repeated().SerializeToString()
    (found,), told = process.run(jobs.outputs, model, {"x": ((1, 5), (4, 5), (8, 5))}, [{"x": x}])
    want = x
    for _ in range(3):
        want = np.tanh(np.exp(np.sin(want))) + x
    np.testing.assert_allclose(found["y"], want, rtol=1e-5, atol=1e-5)
    assert [len(layers) for layers in told["regions"]] == [4]
