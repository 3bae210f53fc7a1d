"""TensorRT-RTX's real builder, without a GPU: options, refusals, names, callbacks."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native, errors
from neurenix.hardware.tensorrt import Logger
from neurenix.hardware.tensorrt.plan import TensorRTPlan, build_plan
from neurenix.hardware.tensorrt.plan_engine import open_plan
from tests.tensorrt.plan_bytes import has_extents, texts

pytestmark = pytest.mark.usefixtures("library")

RANGE = {"x": ((1, 8, 16, 16), (4, 8, 16, 16), (32, 8, 16, 16))}


def network(*ops: str, dtype: str = "float32") -> nx.Network:
    """A convolution and, behind it, these ops; the batch is dynamic."""
    made = nx.Network("small")
    x = made.add_input("x", dtype, ["batch", 8, 16, 16])
    weights = np.random.default_rng(0).standard_normal((64, 8, 3, 3)).astype(dtype)
    y = made.add_layer("Conv", [x, made.add_constant("weights", weights)], {"pads": [1, 1, 1, 1]}, name="first conv")[0]
    for op in ops:
        y = made.add_layer(op, [y], name=f"my {op}")[0]
    made.mark_output(y, "y")
    return made


def build(model: Any = None, shapes: Any = RANGE, **options: Any) -> TensorRTPlan:
    return build_plan(network("Relu") if model is None else model, shapes, **{"targets": ["8.6"]} | options)


def test_a_plan_says_what_it_takes_and_gives() -> None:
    plan = build()
    assert plan.inputs == (("x", "FLOAT", (-1, 8, 16, 16), (RANGE["x"],)),)
    assert plan.outputs == (("y", "FLOAT", (-1, 64, 16, 16), ()),)
    assert {"x", "y"} <= texts(plan.data)
    assert all(has_extents(plan.data, shape) for shape in RANGE["x"])
    assert repr(plan).startswith("<TensorRTPlan of 2 layers, ")


def test_layers_keep_their_names() -> None:
    named = " ".join(texts(build(network("Relu", "Sigmoid")).data))
    assert "first conv" in named and "my Sigmoid" in named


def test_several_profiles() -> None:
    few, many = ((1, 8, 16, 16),) * 3, ((2, 8, 16, 16), (16, 8, 16, 16), (64, 8, 16, 16))
    plan = build(shapes=[{"x": few}, {"x": many}])
    assert plan.inputs[0].profiles == (few, many)
    assert all(has_extents(plan.data, shape) for shape in (*few, *many))


def test_sizes_that_are_computed_come_with_the_call() -> None:
    made = nx.Network()
    x = made.add_input("x", "float32", ["batch", "length", 6])
    flat = made.add_layer("Reshape", [x, made.add_constant("", np.array([-1, 3]))])[0]
    y = made.add_layer("Expand", [x, made.add_constant("", np.array([2, 1, 1, 6]))])[0]
    made.mark_output(flat, "flat")
    made.mark_output(y, "y")
    plan = build(made, {"x": ((1, 2, 6), (4, 8, 6), (9, 9, 6))})
    assert [port.shape for port in plan.outputs] == [(-1, 3), (2, -1, -1, 6)]


def test_precision_is_in_the_graph_and_weights_shrink_with_it() -> None:
    plans = {precision: build(precision=precision) for precision in ("fp32", "fp16", "bf16", "tf32")}
    for plan in plans.values():
        assert plan.inputs[0].dtype == plan.outputs[0].dtype == "FLOAT"
    found = {precision: build_texts(plan.data) for precision, plan in plans.items()}
    assert "tf32=1" in found["tf32"] and all("tf32=0" in found[other] for other in ("fp32", "fp16", "bf16"))
    assert [p for p in found if "type=half" in found[p]] == ["fp16"]
    assert [p for p in found if "type=bf16" in found[p]] == ["bf16"]
    # The weights are 64 * 8 * 9 numbers.
    assert len(plans["fp32"].data) - len(plans["fp16"].data) > 64 * 8 * 9


def build_texts(data: bytes) -> set[str]:
    """Which dtypes and switches the compiled part of a plan names."""
    return {found.decode() for found in re.findall(rb"tf32=\d|type=\w+", data)}


@pytest.mark.parametrize("option", ["refittable", "strip_weights"])
def test_weights_to_be_replaced_need_a_gpu_at_the_build(option: str) -> None:
    try:
        assert build(**{option: True}).data
    except errors.DeviceError as error:
        assert "CUDA" in error.message and "needs a GPU at hand" in str(error.hint)


def test_weights_can_be_streamed() -> None:
    assert build(weight_streaming=True).data


@pytest.mark.parametrize(
    ("data", "words"), [(bytes(100), "damaged"), (b"ftrt" + bytes(5000), "damaged"), (b"x" * 63, "shorter than any")]
)
def test_what_is_no_plan_is_refused_by_tensorrt_itself(data: bytes, words: str) -> None:
    with pytest.raises((errors.DeviceError, errors.FormatError), match=words):
        open_plan(data, trust=True)


def test_without_a_gpu_a_plan_is_refused_with_what_tensorrt_says() -> None:
    data = build().data
    try:
        open_plan(data, trust=True)
    except errors.DeviceError as error:
        assert error.message.startswith("TensorRT opens a plan: ") and "version" in str(error.got), error
        assert re.search("CUDA|driver|compute capabilities", error.message), error


def test_builds_for_several_gpus_hold_code_for_each() -> None:
    one, two = build(), build(targets=["8.6", "12.0"])
    assert b"accelerators={sm86 }" in one.data and b"accelerators={sm86 sm120 }" in two.data


@pytest.mark.parametrize("target", ["9.0", "sm_86", ""])
def test_other_gpus_are_refused_with_those_that_there_are(target: str) -> None:
    with pytest.raises(errors.Error, match=r"7\.5, 8\.0, 8\.6, 8\.9 and 12\.0"):
        build(targets=[target])


def test_what_is_not_taken_is_refused_with_layer_and_reason() -> None:
    made = network()
    det = made.add_layer("Det", [made.add_input("m", "float32", ["batch", 3, 3])], name="volume")[0]
    made.mark_output(made.add_layer("Exp", [det], name="behind")[0], "z")
    with pytest.raises(errors.UnsupportedError, match="does not take 1 of the layers") as caught:
        build(made, RANGE | {"m": ((1, 3, 3), (4, 3, 3), (32, 3, 3))})
    assert caught.value.layer == "volume" and "Det: " in str(caught.value.got)
    plan = build(made, RANGE | {"m": ((1, 3, 3), (4, 3, 3), (32, 3, 3))}, partial=True)
    assert [refusal.layer for refusal in plan.refusals] == ["volume"]
    cut = plan.inputs[-1]
    assert (cut.dtype, cut.shape, cut.profiles) == ("FLOAT", (-1,), (((1,), (4,), (32,)),))
    assert [port.name for port in plan.outputs] == ["y", "z"]


def test_dtypes_that_tensorrt_has_not_are_refused_by_name() -> None:
    with pytest.raises(errors.UnsupportedError, match="takes no layer") as caught:
        build(network("Relu", dtype="float64"), partial=True)
    assert "TensorRT has no float64" in str(caught.value.got)


def test_layers_and_ops_can_be_excluded() -> None:
    plan = build(network("Relu", "Sigmoid", "Exp"), partial=True, exclude=["Sigmoid", "my Exp"])
    assert {r.layer: r.reason for r in plan.refusals} == {
        "my Sigmoid": "Sigmoid: excluded by the caller",
        "my Exp": "Exp: excluded by the caller",
    }


def test_asymmetric_quantization_is_refused_with_the_way_out() -> None:
    made = nx.Network()
    x = made.add_input("x", "float32", [4, 8])
    scale, zero = (made.add_constant("", np.array(v, t)) for v, t in ((0.1, "float32"), (3, "int8")))
    q = made.add_layer("QuantizeLinear", [x, scale, zero], {"to": "int8"}, name="q")[0]
    made.mark_output(made.add_layer("DequantizeLinear", [q, scale, zero], name="dq")[0], "y")
    with pytest.raises(errors.UnsupportedError) as caught:
        build(made, None)
    assert "the zero point must be 0" in str(caught.value.got)


def test_int8_convolutions_are_built() -> None:
    pytest.importorskip("onnx")
    from benchmarks.tensorrt_zoo import quantized

    plan = build(quantized(), {"x": ((1, 16, 32, 32), (4, 16, 32, 32), (8, 16, 32, 32))})
    assert plan.refusals == ()
    # The weights stand there as they came, and so does what the convolution reads.
    assert re.search(rb"const_payload_size=4608 dims={ 32 16 3 3 } [^\n]* type=int8 }", plan.data)
    assert re.search(rb"dims={ \"[^\"]+\" 16 32 32 } [^\n]* type=int8 }", plan.data)


def test_what_rtx_has_not_is_refused_or_left_aside(tmp_path: Path) -> None:
    with pytest.raises(errors.UnsupportedError, match="no hardware compatibility") as caught:
        build(hardware_compatibility="ampere+")
    assert "targets" in str(caught.value.hint)
    with pytest.raises(errors.InvalidArgumentError, match="there is no hardware compatibility"):
        build(hardware_compatibility="everything")
    build(timing_cache=tmp_path / "model.timing")
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told_and_false_ends_the_build() -> None:
    told: list[tuple[str, int, int]] = []
    build(progress=lambda *step: told.append(step))
    assert told and all(isinstance(phase, str) and done >= 0 for phase, done, _ in told)
    with pytest.raises(errors.DeviceError, match="the build was cancelled"):
        build(progress=lambda *step: False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_callback_raises_ends_the_build_and_not_the_process() -> None:
    def progress(*step: Any) -> None:
        raise ValueError("my own mistake")

    with pytest.raises(ValueError, match="my own mistake"):
        build(progress=progress)


def test_messages_go_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "neurenix"):
        build(logger=Logger(Logger.Severity.INFO))
    assert any(message.startswith("[TRT] ") for message in caplog.messages)
    assert {record.levelno for record in caplog.records} <= {logging.INFO, logging.WARNING}


def test_a_plan_is_saved_whole_and_for_its_owner(tmp_path: Path) -> None:
    plan, path = build(), tmp_path / "model.plan"
    plan.save(path)
    assert path.read_bytes() == plan.data
    assert path.stat().st_mode & 0o077 == 0 and list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="nowhere"):
        plan.save(tmp_path / "nowhere" / "model.plan")


@pytest.mark.parametrize(
    "options", [{"precision": "int4"}, {"optimization_level": 9}, {"workspace_size": -1}, {"targets": "8.6"}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        build(**options)


def test_the_provider_says_what_it_lacks_or_is_there() -> None:
    reason = dict(_native.provider_states())["tensorrt"]
    assert reason is None or "no NVIDIA GPU" in reason or "does not run on GPUs" in reason
