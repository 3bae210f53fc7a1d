"""InferenceEngine: what it is made of, calls, devices, precisions, lists of unequal inputs and what fails in them."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import DTypeError, FileError, InvalidArgumentError, Shape, ShapeError, UnsupportedError, nn
from neurenix.hardware import get_backend, probe
from neurenix.inference import BatchError, InferenceEngine, TensorRTInferenceEngine
from tests.inference.conftest import by_torch, convolutions, optimized

torch = pytest.importorskip("torch")
CHEAP: dict[str, Any] = {"optimization_level": 0, "threads": 2, "timing_cache": False}
no_gpu = pytest.mark.skipif(probe.has_gpu(), reason="it is about a machine without a GPU")


@pytest.fixture(scope="module")
def module() -> Any:
    return convolutions(2)


@pytest.fixture(scope="module")
def engine(module: Any) -> InferenceEngine:
    return InferenceEngine(module, (1, 1, 32, 32), **CHEAP)


@pytest.fixture(scope="module")
def saved(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine's file, for tests that do not get as far as a call."""
    path = tmp_path_factory.mktemp("saved") / "model.engine"
    optimized(module, (1, 1, 8, 8)).save(path)
    return path


class Pair(nn.Module):
    """Two inputs, two outputs."""

    def forward(self, a: Any, b: Any) -> Any:
        return a + b, a - b


@pytest.fixture(scope="module")
def pair() -> InferenceEngine:
    return InferenceEngine(Pair(), {"a": (2, 3), "b": (2, 3)}, **CHEAP)


def test_the_same_class_has_both_names() -> None:
    assert TensorRTInferenceEngine is InferenceEngine


def test_calls_agree_with_torch_in_every_form(engine: InferenceEngine, module: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 1, 32, 32)).astype(np.float32)
    expected = by_torch(module, x)
    for found in (engine(x), engine({"input": x})["output"], engine(input=x), engine(torch.from_numpy(x))):
        found = found["output"] if isinstance(found, dict) else found
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-5)
    assert isinstance(engine(torch.from_numpy(x)), torch.Tensor)
    assert engine(x.astype(np.float64)).dtype == np.float32
    np.testing.assert_array_equal(engine(x[1, :]), engine(x[1:2])[0])


@pytest.mark.parametrize("kind", [".engine", ".onnx", ".pt2", "OptimizedModel", "program"])
def test_what_an_engine_is_made_of(kind: str, module: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 1, 32, 32)).astype(np.float32)
    path: Any = tmp_path / f"model{kind}"
    if kind == ".engine":
        optimized(module, (1, 1, 32, 32)).save(path)
    elif kind == ".onnx":
        torch.onnx.export(module, (torch.from_numpy(x),), path, dynamo=True, verbose=False)
    elif kind == ".pt2":
        torch.export.save(torch.export.export(module, (torch.from_numpy(x),)), path)
    elif kind == "program":
        path = torch.export.export(module, (torch.from_numpy(x),))
    else:
        path = optimized(module, (1, 1, 32, 32))
    options = {} if kind == "OptimizedModel" else {"threads": 2}
    engine = InferenceEngine(path, input_shape=(1, 1, 32, 32), device="cpu", **options)
    np.testing.assert_allclose(engine(x), by_torch(module, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_an_engine_of_a_fixed_batch_takes_any_number_of_rows(count: int, module: Any, rng: np.random.Generator) -> None:
    engine = InferenceEngine(optimized(module, (4, 1, 16, 16), most=None))
    x = rng.standard_normal((count, 1, 16, 16)).astype(np.float32)
    np.testing.assert_allclose(engine(x), by_torch(module, x), rtol=0, atol=1e-5)


def test_several_inputs_and_outputs(pair: InferenceEngine, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((2, 5, 3)).astype(np.float32)
    total, difference = pair(a, b)
    np.testing.assert_array_equal(total, a + b)
    found = pair(a=a, b=b)
    assert list(found) == [port.name for port in pair.outputs]
    np.testing.assert_array_equal(found["output_1"], difference)
    several = pair.batch_inference([(a[:2], b[:2]), {"a": a[2], "b": b[2]}, (a[3:], b[3:])], batch_size=4)
    np.testing.assert_array_equal(several[0][1], a[:2] - b[:2])
    np.testing.assert_array_equal(several[1]["output"], a[2] + b[2])
    np.testing.assert_array_equal(several[2][0], a[3:] + b[3:])


@pytest.mark.parametrize("batch_size", [1, 2, 4, 7, 100])
def test_lists_keep_their_order_whatever_the_shapes(batch_size: int, module: Any, rng: np.random.Generator) -> None:
    sizes = Shape((1, 1, 8, 8), (2, 1, 16, 16), (8, 1, 32, 32))
    engine = InferenceEngine(module, sizes, **CHEAP)
    shapes = [(1, 16, 16), (1, 1, 32, 8), (3, 1, 16, 16), (1, 16, 16), (1, 1, 16, 16), (9, 1, 16, 16), (1, 32, 8)]
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    mixed = [torch.from_numpy(x) if i % 2 else x for i, x in enumerate(inputs)]
    outputs = engine.batch_inference(mixed, batch_size=batch_size)
    for i, (x, y) in enumerate(zip(inputs, outputs, strict=True)):
        assert isinstance(y, torch.Tensor) == bool(i % 2)
        np.testing.assert_allclose(np.asarray(y), by_torch(module, x), rtol=0, atol=1e-5)


def test_the_rows_of_an_array_are_a_list(engine: InferenceEngine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 1, 32, 32)).astype(np.float32)
    found = engine.batch_inference(torch.from_numpy(x), batch_size=2)
    np.testing.assert_allclose(torch.stack(found).numpy(), engine(x), rtol=0, atol=1e-6)
    assert engine.batch_inference([]) == []


def test_what_fails_names_its_index_and_the_rest_is_there(engine: InferenceEngine, rng: np.random.Generator) -> None:
    inputs: list[Any] = [rng.standard_normal((1, 1, 32, 32)).astype(np.float32) for _ in range(6)]
    inputs[1], inputs[4] = np.zeros((1, 1, 32, 30), np.float32), "no array"
    with pytest.raises(BatchError, match="2 of 6 inputs failed: index 1, and 1 more") as caught:
        engine.batch_inference(inputs, batch_size=3)
    assert set(caught.value.failures) == {1, 4}
    assert isinstance(caught.value.failures[1], ShapeError)
    assert [output is None for output in caught.value.outputs] == [False, True, False, False, True, False]
    found = engine.batch_inference(inputs, batch_size=3, on_error="return")
    assert isinstance(found[4], InvalidArgumentError)
    np.testing.assert_array_equal(found[5], caught.value.outputs[5])


def test_one_bad_row_does_not_take_its_batch_along(engine: InferenceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = engine.model.run

    def picky(inputs: Any, stream: Any = None) -> Any:
        if any((array == 7).any() for array in inputs.values()):
            raise RuntimeError("seven")
        return run(inputs, stream)

    monkeypatch.setattr(engine.model, "run", picky)
    inputs = [np.full((1, 32, 32), i, np.float32) for i in range(10)]
    found = engine.batch_inference(inputs, batch_size=5, on_error="return")
    assert [i for i, y in enumerate(found) if isinstance(y, Exception)] == [7]


def test_functions_before_and_behind(module: Any, rng: np.random.Generator) -> None:
    picture = rng.integers(0, 255, (32, 32, 1), np.uint8)
    engine = InferenceEngine(
        optimized(module, (1, 1, 32, 32)),
        preprocess=lambda hwc: hwc.transpose(2, 0, 1).astype(np.float32) / 255,
        postprocess=lambda y: y.argmax(0),
    )
    expected = by_torch(module, picture.transpose(2, 0, 1)[None] / 255)[0].argmax(0)
    np.testing.assert_array_equal(engine(picture), expected)
    np.testing.assert_array_equal(engine.batch_inference([picture] * 3)[2], expected)


def test_integers_are_not_taken_for_floats(engine: InferenceEngine) -> None:
    with pytest.raises(DTypeError, match="wrong dtype") as caught:
        engine(np.zeros((1, 1, 32, 32), np.uint8))
    assert "preprocess=" in str(caught.value)


@no_gpu
def test_without_a_gpu_the_processor_does_the_work_and_says_why(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = optimized(module, (1, 1, 8, 8))
    with caplog.at_level(logging.WARNING, "neurenix"):
        engine = InferenceEngine(model, device="cuda:1")
    assert engine.device == "cpu"
    assert engine.fallback is not None and "GPU" in engine.fallback
    assert "the processor does the work" in caplog.text
    assert InferenceEngine(model, device=torch.device("cpu")).fallback is None


def test_half_precision_is_what_it_says(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = optimized(module, (1, 1, 8, 8))
    with caplog.at_level(logging.WARNING, "neurenix"):
        InferenceEngine(model, half_precision=True)
    assert "the engine was built for fp32" in caplog.text
    lower = get_backend(optimization_level=0).optimize_model(module, (1, 1, 8, 8), "bf16")
    with pytest.raises(InvalidArgumentError, match="does not compute in float32"):
        InferenceEngine(lower, half_precision=False)


def test_a_batch_that_the_engine_has_not_is_told_once(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    engine = InferenceEngine(optimized(module, (2, 1, 8, 8), most=None))
    with caplog.at_level(logging.WARNING, "neurenix"):
        for _ in range(2):
            engine.batch_inference(np.zeros((5, 1, 8, 8), np.float32), batch_size=4)
    assert caplog.text.count("just 2 rows a call") == 1


@pytest.mark.parametrize(
    ("kind", "keywords", "text"),
    [
        (FileError, {"model_path": "missing.engine"}, "no such file"),
        (FileError, {"model_path": "os:getcwd"}, "no such file"),
        (InvalidArgumentError, {"device": "gpu"}, "no such device"),
        (InvalidArgumentError, {"warmup": -1}, "warmup"),
        (InvalidArgumentError, {"preprocess": 3}, "preprocess"),
        (InvalidArgumentError, {"precision": "bf16"}, "built already"),
        (InvalidArgumentError, {"thread": 2}, "no option"),
        (ShapeError, {"input_shape": (1, 1, 9, 8)}, "another shape"),
    ],
)
def test_wrong_arguments(kind: Any, keywords: dict[str, Any], text: str, saved: Path) -> None:
    with pytest.raises(kind, match=text):
        InferenceEngine(**({"model_path": str(saved)} | keywords))


def test_torchscript_is_refused_with_the_way_out(module: Any, tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(module), tmp_path / "model.ts")
    with pytest.raises(UnsupportedError, match="TorchScript") as caught:
        InferenceEngine(tmp_path / "model.ts")
    assert caught.value.hint


def test_calls_with_nothing_or_twice(engine: InferenceEngine) -> None:
    x = np.zeros((1, 1, 32, 32), np.float32)
    for call in (lambda: engine(), lambda: engine(x, input=x), lambda: engine(x, x), lambda: engine([1.0])):
        with pytest.raises(InvalidArgumentError):
            call()
    for bad in (0, -1, True, 2.5):
        with pytest.raises(InvalidArgumentError, match="batch_size"):
            engine.batch_inference([x], batch_size=bad)
    for nothing in (5, {"input": x}, "text", np.float32(1)):
        with pytest.raises(InvalidArgumentError, match="inputs is a list"):
            engine.batch_inference(nothing)


def test_many_threads_at_once(engine: InferenceEngine, rng: np.random.Generator) -> None:
    inputs = [rng.standard_normal((i % 3 + 1, 1, 32, 32)).astype(np.float32) for i in range(24)]
    expected = [engine(x) for x in inputs]
    wrong: list[int] = []

    def call(number: int) -> None:
        found = engine.batch_inference(inputs[number::4], batch_size=3)
        wrong.extend(
            i for i, y in zip(range(number, 24, 4), found, strict=True) if np.abs(y - expected[i]).max() > 1e-6
        )

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
