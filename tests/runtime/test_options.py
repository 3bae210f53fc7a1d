"""What options promise: builds that repeat, calls that share the threads, and what the report says of both."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import nn
from neurenix.hardware import AsyncQueue, OptimizedModel, probe
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.packages import install

SHAPE = (2, 3, 16, 16)


def network() -> nn.Sequential:
    nx.random.seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1, groups=4),
        nn.MaxPool2d(2), nn.Conv2d(16, 32, 1), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Linear(128, 64), nn.Softmax(-1),
    )  # fmt: skip


def build(**options: Any) -> OptimizedModel:
    return TensorRTBackend(**options).optimize_model(network(), SHAPE)


def kernels(model: OptimizedModel) -> list[Any]:
    return [[k[key] for key in ("kernel", "form", "implementation", "layers")] for k in model.report()["kernels"]]


X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
IN_ANOTHER_PROCESS = """
import json, sys
from tests.runtime.test_options import X, build, kernels
model = build(deterministic=True, timing_cache=sys.argv[1])
print(json.dumps([kernels(model), model(X).tobytes().hex()]))
"""


def test_deterministic_builds_repeat_in_other_processes(tmp_path: Path) -> None:
    caches = [tmp_path / name for name in ("one", "two")]
    root = Path(__file__).parents[2]
    runs = [
        subprocess.Popen([sys.executable, "-c", IN_ANOTHER_PROCESS, cache], cwd=root, stdout=subprocess.PIPE)
        for cache in caches
    ]
    first, second = (json.loads(run.communicate(timeout=60)[0]) for run in runs)
    assert first == second
    # Times that another build left behind do not decide either.
    timed = build(timing_cache=caches[0])
    assert caches[0].exists() and not caches[1].exists()
    again = build(deterministic=True, timing_cache=caches[0])
    assert [kernels(again), again(X).tobytes().hex()] == first
    np.testing.assert_allclose(again(X), timed(X), rtol=1e-4, atol=1e-6)


def test_a_deterministic_engine_stays_so_in_a_file(tmp_path: Path) -> None:
    model = build(deterministic=True)
    report = model.report()
    assert report["deterministic"] and not any(kernel["tuned_nanoseconds"] for kernel in report["kernels"])
    assert "deterministic: nothing was timed" in str(report)
    model.save(tmp_path / "m.engine")
    opened = TensorRTBackend().load(tmp_path / "m.engine")
    assert opened.report()["deterministic"]
    assert kernels(opened) == kernels(model) and np.array_equal(opened(X), model(X))


@pytest.mark.parametrize("threads", [1, 3])
def test_throughput_gives_each_call_one_thread(threads: int, tmp_path: Path) -> None:
    latency = build(threads=threads, optimization_level=0)
    assert latency.report()["threads"] == {"call": threads, "calls": 2} and latency.jobs == 2
    cache = tmp_path / "times"
    model = build(threads=threads, hint="throughput", optimization_level=1, timing_cache=cache)
    assert model.report()["threads"] == {"call": 1, "calls": max(2, threads)}
    assert {line.partition(" threads ")[2].split()[0] for line in cache.read_text().splitlines()} == {"1"}
    with AsyncQueue(model) as queue:
        assert queue.jobs == model.jobs == max(2, threads)
        futures = [queue.start_async(i * X) for i in range(8)]
    for i, future in enumerate(futures):
        np.testing.assert_allclose(future.result()["output"], latency(i * X), rtol=1e-4, atol=1e-6)


def test_the_report_says_the_share_of_arithmetic() -> None:
    report = build(optimization_level=0).report()
    assert report["layers_per_dtype"] == report["arithmetic_per_dtype"] == {"float32": 1.0}
    net = nx.Network("weights alone")
    x = net.add_input("x", "float32", [1, 64])
    stored = net.add_constant("w", np.ones((64, 32), np.int8))
    # Scales of rows, which no kernel of packed weights takes.
    scale = net.add_constant("scale", np.linspace(0.5, 1, 64, dtype=np.float32)[:, None])
    (weights,) = net.add_layer("DequantizeLinear", [stored, scale], {}, "dequantize")
    (product,) = net.add_layer("MatMul", [x, weights], {}, "product")
    net.mark_output(product, "y")
    model = TensorRTBackend(optimization_level=0).optimize_model(net)
    shares = model.report()["arithmetic_per_dtype"]
    # 2 * 64 * 32 operations of the product, 64 * 32 elements that are dequantized.
    assert shares == pytest.approx({"float32 with int8 weights": 2 / 3, "float32": 1 / 3})
    assert model.report()["layers_per_dtype"] == {"float32 with int8 weights": 0.5, "float32": 0.5}
    assert "arithmetic: float32 33%, float32 with int8 weights 67%" in str(model.report())


def test_memory_is_asked_for_in_the_words_of_shapes() -> None:
    model = TensorRTBackend(optimization_level=0).optimize_model(
        network(), nx.Shape((1, 3, 16, 16), SHAPE, (4, 3, 16, 16))
    )
    usual = model.memory_required()
    assert usual == model.memory_required(SHAPE) == model.memory_required({"input": X}) == model.memory_required(X)
    assert model.memory_required("input:4x3x16x16").activations > usual.activations
    with pytest.raises(nx.InvalidArgumentError, match="the nearest name is 'input'"):
        model.memory_required({"inputs": SHAPE})
    with pytest.raises(nx.InvalidArgumentError, match="the shape of an input is missing"):
        model.memory_required({})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"hint": "speed"}, '"latency" or "throughput"'),
        ({"deterministic": 1}, "True or False"),
        ({"target": "8.6"}, "an engine file is planned anew where it is opened"),
        ({"metric": "rms"}, "a function, or None"),
        ({"throughput": True}, 'it is a value: hint="throughput"'),
        ({"fp16": True}, 'it is a value: precision="fp16"'),
        ({"calibrator": []}, "the nearest name is 'calibration'"),
        ({"calib": []}, "the nearest name is 'calibration'"),
        ({"accuracy_budget": -1}, "a number that is not negative"),
        ({"targets": 1}, "the nearest name is 'target', which is not supported: kernels are chosen"),
        ({"max_workspace_size": 1}, "the nearest name is 'workspace_size'"),
        ({"num_threads": 1}, "the nearest name is 'threads'"),
        ({"opt_level": 1}, "the nearest name is 'optimization_level'"),
        ({"precision": "mixd"}, "the nearest name is 'mixed'"),
        ({"hint": "LATENCY"}, "the nearest name is 'latency'"),
        ({"io_dtype": "FP32"}, "the nearest name is 'fp32'"),
    ],
)
def test_options_that_are_refused_say_why(option: dict[str, Any], message: str) -> None:
    with pytest.raises(nx.Error, match=message):
        TensorRTBackend(**option)


def test_an_argument_of_the_backend_is_no_option() -> None:
    with pytest.raises(nx.InvalidArgumentError, match=r"it belongs to the backend: TensorRTBackend\(device=...\)"):
        TensorRTBackend().optimize_model(network(), SHAPE, device=1)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("float16", "fp16"), ("half", "fp16"), ("FP16", "fp16"), (np.float16, "fp16"), ("torch.float16", "fp16"),
        ("FP32", "fp32"), ("float32", "fp32"), ("single", "fp32"), (np.dtype("f4"), "fp32"), ("bfloat16", "bf16"),
        ("openvino", None), ("int4", "int8"), ("mxfp6", None),
    ],
)  # fmt: skip
def test_precisions_are_hinted_at_by_their_other_names(word: Any, meant: str | None) -> None:
    with pytest.raises(nx.InvalidArgumentError, match="the option 'precision' can't have this value") as caught:
        TensorRTBackend(precision=word)
    hint = caught.value.hint
    assert hint is None if meant is None else str(hint).startswith(f"the nearest name is {meant!r}")
    # What the machine can't compute in is not recommended without a word on that.
    can = meant in TensorRTBackend().get_device_info(0).precisions
    assert meant is None or can is not (", but this machine has arithmetic for fp32" in str(hint))


@pytest.mark.parametrize(
    ("name", "near", "runs"),
    [
        ("gpu", "cuda", False), ("trt", "tensorrt", False), ("CUDAExecutionProvider", "cuda", False),
        ("CPU", "cpu", True), ("cup", "cpu", True), ("openvino", None, True),
    ],
)  # fmt: skip
def test_providers_are_hinted_at_with_what_can_run(
    name: str, near: str | None, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "state", lambda name, device=0: probe.State(name, None if name == "cpu" else "no GPU"))
    with pytest.raises(nx.InvalidArgumentError, match=f"there is no provider {name!r}") as caught:
        TensorRTBackend(providers=[name])
    way = "" if runs else ", which can't run here (no GPU); 'cpu' can"
    assert caught.value.hint == (near and f"the nearest name is {near!r}{way}")


@pytest.mark.skipif("tensorrt" in nx.hardware.backends(), reason="TensorRT is here: nothing falls back to another one")
def test_strict_takes_no_provider_but_the_preferred_one() -> None:
    assert build(strict=True, providers=["cpu"], optimization_level=0)(X).shape == (2, 64)
    assert nx.hardware.get_backend("cpu", strict=True).initialize()
    for options in ({"strict": True}, {"fallback": False}, {"strict": True, "providers": ["tensorrt", "cpu"]}):
        with pytest.raises(RuntimeError, match=r"tensorrt.*can't run here") as caught:
            TensorRTBackend(**options).initialize()
        assert install("tensorrt") in str(caught.value)
