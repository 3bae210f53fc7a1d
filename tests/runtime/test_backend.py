"""Backends, options, and what an optimised model takes and gives."""

import copy
import logging
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neurenix as nx
from neurenix import _native, nn
from neurenix.hardware import backend as backends
from neurenix.hardware import options, probe
from neurenix.hardware.options import Options
from neurenix.hardware.tensorrt import TensorRTBackend


@pytest.fixture
def backend(tmp_path: Path) -> TensorRTBackend:
    return TensorRTBackend(timing_cache=str(tmp_path / "timing.cache"), optimization_level=0)


class Two(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a + b, a - b


def two(backend: TensorRTBackend) -> Any:
    return backend.optimize_model(Two(), {"a": (2, 3), "b": (2, 3)})


A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)


def test_an_example_of_a_model_whose_sizes_depend_on_data(backend: TensorRTBackend) -> None:
    made = nx.Network("sizes")
    x = made.add_input("x", np.float32, ("n", 3))
    made.mark_output(made.add_layer("NonZero", [x], {}, name="where")[0], "where")
    model = backend.optimize_model(made)
    assert model.example()["x"].shape == (1, 3)
    assert model(np.ones((2, 3), np.float32)).shape == (2, 6)


def test_every_way_to_call(backend: TensorRTBackend) -> None:
    model = two(backend)
    want = {"output": A + B, "output_1": A - B}
    for got in (model({"a": A, "b": B}), model(a=A, b=B), dict(zip(want, model(A, B), strict=True))):
        assert list(got) == list(want)
        assert all(np.array_equal(got[name], want[name]) for name in want)
    single = backend.optimize_model(nn.ReLU(), (2, 3))
    assert np.array_equal(single(-A), np.zeros((2, 3)))
    assert list(single({"input": A})) == ["output"]


def test_inputs_and_outputs_are_described(backend: TensorRTBackend) -> None:
    shape = nx.Shape((1, 3), (4, 3), (8, 3))
    model = backend.optimize_model(nn.Linear(3, 5), {"x": shape})
    assert model.inputs == (("x", np.dtype("f4"), ("batch", 3)),)
    assert model.outputs[0].shape == ("batch", 5)
    assert repr(model) == "OptimizedModel(x: float32[batch, 3] -> output: float32[batch, 5])"
    assert model.example()["x"].shape == (4, 3)


def test_torch_in_torch_out(backend: TensorRTBackend) -> None:
    torch = pytest.importorskip("torch")
    model = two(backend)
    x = torch.arange(6.0).reshape(3, 2).t()
    got = model({"a": x, "b": torch.ones(2, 3, requires_grad=True)})
    assert all(isinstance(v, torch.Tensor) for v in got.values())
    assert torch.equal(got["output"], x + 1)
    half = nx.Network()
    y = half.add_input("x", ml_dtypes.bfloat16, (4,))
    half.mark_output(half.add_layer("Relu", [y])[0], "y")
    assert backend.optimize_model(half)(torch.ones(4, dtype=torch.bfloat16)).dtype is torch.bfloat16


def test_arrays_that_are_not_dense(backend: TensorRTBackend) -> None:
    model = two(backend)
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    for a in (wide[::2, ::2], wide[:2, 5:2:-1], wide.T[:2, :3], np.broadcast_to(wide[0, :3], (2, 3)), wide[1:3, 1:4]):
        assert np.array_equal(model(a, a)[0], a + a)
    swapped = A.astype(">f4")
    assert np.array_equal(model(swapped, B)[0], A + B)


def test_outputs_outlive_the_model_and_are_new(backend: TensorRTBackend) -> None:
    model = two(backend)
    first, second = model(A, B)[0], model(B, B)[0]
    del model
    assert np.array_equal(first, A + B)
    assert np.array_equal(second, B + B)


def test_many_threads(backend: TensorRTBackend) -> None:
    model = backend.optimize_model(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), nx.Shape((1, 3, 8, 8), (1, 3, 8, 8), (4, 3, 8, 8))
    )
    inputs = [nx.random.randn(1 + i % 4, 3, 8, 8) for i in range(16)]
    wanted = [model(x) for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(20):
            i = (number + turn) % 16
            if not np.array_equal(model(inputs[i]), wanted[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_shape_outside_of_the_profile_runs_with_one_warning(
    backend: TensorRTBackend, caplog: pytest.LogCaptureFixture
) -> None:
    model = backend.optimize_model(nn.Linear(3, 5), {"x": nx.Shape((1, 3), (2, 3), (4, 3))})
    with caplog.at_level(logging.WARNING, "neurenix"):
        model(np.ones((4, 3), np.float32))
        assert caplog.messages == []
        for _ in range(2):
            assert model(np.ones((9, 3), np.float32)).shape == (9, 5)
    assert len(caplog.messages) == 1
    assert "outside of every profile (batch 1 to 4)" in caplog.text


def test_several_profiles(backend: TensorRTBackend) -> None:
    shapes = [{"x": nx.Shape((1, 3), (1, 3), (1, 3))}, {"x": ((2, 3), (8, 3), (64, 3))}]
    module = nn.trace(nn.Linear(3, 5), {"x": nx.Shape((1, 3), (1, 3), (64, 3))})
    model = backend.optimize_model(module, shapes)
    context = model.engine._engine.create_context()
    for batch, profile in ((1, 0), (2, 1), (64, 1)):
        context.run({"x": np.ones((batch, 3), np.float32)})
        assert context.profile == (profile, True)


def test_report_profile_and_memory(backend: TensorRTBackend) -> None:
    model = backend.optimize_model(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3)), (1, 3, 16, 16)
    )
    report = model.report()
    assert [name for name, _ in report["providers"]] == ["cpu"]
    assert [state["provider"] for state in report["fallbacks"]] == ["tensorrt", "cuda"]
    assert all(state["reason"] for state in report["fallbacks"])
    assert "not tensorrt: " in str(report)
    rows = model.profile(iterations=3)
    assert sum(row.percentage for row in rows) == pytest.approx(100)
    assert str(rows).splitlines()[0].split() == ["Time(ms)", "Avg.(ms)", "Median(ms)", "Time(%)", "Layer"]
    memory = model.memory_required()
    assert memory.total == memory.weights + memory.activations
    assert memory.weights >= 4 * (3 * 8 * 9 + 8 + 8 * 8 * 9 + 8)


def test_save_and_load(backend: TensorRTBackend, tmp_path: Path) -> None:
    model = backend.optimize_model(nn.Linear(3, 5), {"x": (2, 3)})
    backend.save(model, tmp_path / "m.engine")
    again = backend.load(tmp_path / "m.engine")
    assert again.inputs == model.inputs
    x = nx.random.randn(2, 3)
    assert np.array_equal(again(x), model(x))
    with pytest.raises(OSError):
        backend.load(tmp_path / "nowhere.engine")
    (tmp_path / "bad.engine").write_bytes(b"nonsense" * 100)
    with pytest.raises(nx.FormatError):
        backend.load(tmp_path / "bad.engine")


def test_inference_builds_and_runs(backend: TensorRTBackend) -> None:
    assert np.array_equal(backend.inference(Two(), {"a": A, "b": B})["output"], A + B)


def test_bf16_and_fp16_are_what_was_asked_or_the_report_says_why(backend: TensorRTBackend) -> None:
    module = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))
    x = nx.random.randn(1, 8, 12, 12)
    exact = backend.optimize_model(module, (1, 8, 12, 12))
    want = exact(x)
    assert exact.report()["verify_seconds"] == 0
    for precision, dtype, error in (("bf16", "bfloat16", 0.02), ("fp16", "float16", 0.005)):
        model = backend.optimize_model(module, (1, 8, 12, 12), precision=precision)
        report = model.report()
        assert model.inputs[0].dtype == np.float32
        assert np.abs(model(x) - want).max() <= error * np.abs(want).max()
        if report["layers_per_dtype"].get(dtype, 0) > 0:
            assert 0 < report["verify_seconds"] < report["build_seconds"]
            assert f"{report['verify_seconds']:.2f} of them verification" in str(report)
        else:
            assert any(dtype in note for note in report["notes"])


def test_a_model_whose_dynamic_shapes_are_in_the_way_runs_at_the_given_ones(backend: TensorRTBackend) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> m (float[1,4,h,8] x) => (float[1,2,h,8] a, float[1,2,h,8] b)'
        " { a, b = Split<axis=1, num_outputs=2>(x) }"
    )
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    got = backend.optimize_model(model, {"x": (1, 4, 3, 8)})(np.zeros((1, 4, 3, 8), np.float32))
    assert [array.shape for array in got] == [(1, 2, 3, 8)] * 2


@pytest.mark.parametrize("shapes", [{"x": (1, 4)}, (1, 4), [(1, 4)], [{"x": (1, 4)}], {"min": (1, 4), "opt": (1, 4)}])
def test_an_unknown_op_is_named_however_the_shapes_are_given(backend: TensorRTBackend, shapes: Any) -> None:
    onnx = pytest.importorskip("onnx")
    text = '<ir_version: 8, opset_import: ["" : 18, "a" : 1]> m (float[1,4] x) => (float[1,4] y) { y = a.Nope(x) }'
    with pytest.raises(nx.UnsupportedError, match="Nope"):
        backend.optimize_model(onnx.parser.parse_model(text), shapes)


def test_the_default_backend_can_be_chosen() -> None:
    assert nx.hardware.backends()[-1] == "cpu"
    assert type(nx.hardware.get_backend()) is TensorRTBackend
    with nx.hardware.use("cpu") as cpu:
        assert cpu.name == nx.hardware.get_backend().name == "cpu"
    nx.hardware.set_default("cuda")
    assert nx.hardware.get_backend().name == "cuda"
    nx.hardware.set_default("tensorrt")


def test_device_info(backend: TensorRTBackend) -> None:
    assert backend.initialize() is True
    assert backend.get_device_count() >= 1
    info = backend.get_device_info(0)
    assert info.name == info["name"]
    assert 0 < info.free_memory <= info.total_memory
    assert "fp32" in info.precisions
    with pytest.raises(AttributeError):
        _ = info.nothing


@pytest.mark.parametrize("gpus", [0, 2])
def test_a_device_that_is_not_there_is_refused(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "gpu_count", lambda: gpus)
    backend = TensorRTBackend(device=2)
    for use in (backend.initialize, lambda: backend.optimize_model(nn.ReLU(), (2, 3))):
        with pytest.raises(nx.InvalidArgumentError, match="there is no such device") as caught:
            use()
        assert caught.value.expected == ("0 to 1" if gpus else "0, the processor") and caught.value.got == "2"
        assert str(caught.value.hint).startswith("no GPU can be used here: ") is not bool(gpus)
    with pytest.raises(nx.InvalidArgumentError, match="there is no such device"):
        nx.hardware.get_backend("cpu", device=1).initialize()


def test_what_is_missing_and_what_to_do_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "state", lambda name, device=0: probe.State(name, "no GPU\n  hint: install its driver"))
    with pytest.raises(nx.DeviceError, match="tensorrt can't run here") as caught:
        TensorRTBackend(fallback=False).initialize()
    assert caught.value.got == "no GPU"
    assert caught.value.hint == "install its driver; or allow the cpu provider, which runs everywhere"


def test_every_option_has_a_check_and_a_doc() -> None:
    assert set(options.names()) == set(options._CHECKS)
    assert all(f"`{name}`" in (Options.__doc__ or "") for name in options.names())
    assert not set(options.names()) & set(options.LATER)
    assert backends.CHAINS.keys() == {"tensorrt", "cuda", "cpu"}


def test_each_level_times_more_than_the_one_before(tmp_path: Path) -> None:
    made = nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 8, 3), nn.Flatten(), nn.Linear(800, 4)
    )
    x = nx.random.randn(1, 16, 12, 12)
    lines: list[list[str]] = []
    answers = []
    for level in range(6):
        cache = tmp_path / f"times {level}"
        backend = TensorRTBackend(optimization_level=level, timing_cache=str(cache), providers=("cpu",))
        answers.append(backend.optimize_model(made, x.shape)(x))
        lines.append(cache.read_text().splitlines() if cache.exists() else [])
        np.testing.assert_allclose(answers[-1], answers[0], rtol=1e-4, atol=1e-4)
    counts = [len(found) for found in lines]
    assert counts[0] == 0 < counts[1] < counts[2] == counts[3] == counts[4] == counts[5]
    assert [all(f"|{n} rounds" in line for line in lines[level]) for level, n in ((4, 3), (5, 10))] == [True, True]
    # What was timed more often need not be timed again.
    cache = tmp_path / "times 5"
    TensorRTBackend(optimization_level=3, timing_cache=str(cache), providers=("cpu",)).optimize_model(made, x.shape)
    assert cache.read_text().splitlines() == lines[5]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("io_dtype", ["fp16", "bf16", np.float16])
def test_inputs_and_outputs_come_in_the_dtype_that_was_asked_for(precision: str, io_dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    made = torch.nn.Sequential(torch.nn.Linear(24, 32), torch.nn.GELU(), torch.nn.Linear(32, 5)).eval()
    x = torch.randn(3, 24, generator=torch.Generator().manual_seed(7))
    wanted = torch.bfloat16 if io_dtype == "bf16" else torch.float16
    model = TensorRTBackend().optimize_model(made, (3, 24), precision=precision, io_dtype=io_dtype)
    assert {str(tensor.dtype) for tensor in [*model.inputs, *model.outputs]} == {str(wanted).removeprefix("torch.")}
    given = x.to(wanted)
    with torch.no_grad():
        exact = copy.deepcopy(made).double()(given.double())
    got = model(given)
    assert got.dtype == wanted
    # Results are rounded once to the dtype of the output, and sums in that of the layers.
    np.testing.assert_allclose(
        got.double().numpy(), exact.numpy(), rtol=2e-2, atol=2e-2 if wanted != torch.float16 else 3e-3
    )
    with pytest.raises(nx.DTypeError):
        model(x)


def test_an_engine_file_keeps_the_dtypes_of_its_inputs_and_outputs(tmp_path: Path) -> None:
    made = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    backend = TensorRTBackend()
    model = backend.optimize_model(made, (2, 8), io_dtype="fp16")
    x = nx.random.randn(2, 8).astype(np.float16)
    model.save(tmp_path / "m.engine")
    again = backend.load(tmp_path / "m.engine")
    assert again(x).dtype == np.float16
    np.testing.assert_array_equal(again(x), model(x))


def test_an_io_dtype_that_is_none_is_refused() -> None:
    with pytest.raises(nx.InvalidArgumentError, match="io_dtype"):
        TensorRTBackend(io_dtype="int8")
