"""If, Loop and Scan whose conditions and counts come with the call, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import onnxruntime as ort
from onnx import ModelProto, parser

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend

BRANCH = """
<ir_version: 9, opset_import: ["" : 18]>
agraph (float[batch, 4] x, bool c) => (float[batch, k] y) <float[4, 4] w = {WEIGHT}> {
    doubled = Add(x, x)
    y = If (c) <
        then_branch = yes () => (float[batch, a] t) { s = Relu(doubled) t = MatMul(s, w) },
        else_branch = no () => (float[batch, b] e) { s = Neg(x) e = Concat <axis = 1> (s, doubled) }
    >
}"""

POWERS = """
<ir_version: 9, opset_import: ["" : 18]>
agraph (float[batch, 3] x, int64 n) => (float[batch, 3] last, float[steps, batch, 3] all) {
    last, all = Loop (n, , x) <
        body = step (int64 i, bool before, float[b, 3] v) => (bool goes_on, float[b, 3] w, float[b, 3] kept) {
            goes_on = Identity(before)
            f = Cast <to = 1> (i)
            w0 = Mul(v, x)
            w = Add(w0, f)
            kept = Neg(w)
        }
    >
}"""

UNTIL = """
<ir_version: 9, opset_import: ["" : 18]>
agraph (float[n] x, float limit) => (float[m] y, int64 count) {
    yes = Constant <value = bool {1}> ()
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    y, count = Loop (, yes, x, zero) <
        body = step (int64 i, bool before, float[k] v, int64 c) => (bool goes_on, float[j] w, int64 d) {
            w = Concat <axis = 0> (v, x)
            d = Add(c, one)
            sum = ReduceSum <keepdims = 0> (w)
            goes_on = Less(sum, limit)
        }
    >
}"""

NESTED = """
<ir_version: 9, opset_import: ["" : 18]>
agraph (float[batch, 2] x, int64 n) => (float[batch, 2] y) {
    three = Constant <value = int64 {3}> ()
    y = Loop (n, , x) <
        body = outer (int64 i, bool a, float[batch, 2] v) => (bool b, float[batch, 2] w) {
            b = Identity(a)
            big = Constant <value = int64 {1}> ()
            late = Greater(i, big)
            w = If (late) <
                then_branch = then () => (float[batch, 2] t) {
                    t = Loop (three, , v) <
                        body = inner (int64 j, bool c, float[batch, 2] p) => (bool d, float[batch, 2] q) {
                            d = Identity(c)
                            ij = Add(i, j)
                            f = Cast <to = 1> (ij)
                            q0 = Add(p, f)
                            q = Sub(q0, x)
                        }
                    >
                },
                else_branch = other () => (float[batch, 2] e) { e = Tanh(v) }
            >
        }
    >
}"""

RUNNING = """
<ir_version: 9, opset_import: ["" : 18]>
agraph (float[2] start, float[batch, steps, 2] x) => (float[2] last, float[a, b] sums, float[c, d] back) {
    last, sums, back = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1, -2],
                             scan_output_directions = [0, 1],
        body = step (float[2] s, float[batch, 2] slice) => (float[2] t, float[batch] o, float[2] p) {
            m = ReduceSum <keepdims = 0> (slice, axis)
            t = Add(s, m)
            last = Constant <value = int64[1] {1}> ()
            o = ReduceSum <keepdims = 0> (slice, last)
            p = Identity(t)
        }
    > (start, x)
}"""


def model(text: str) -> ModelProto:
    """The model that a text describes."""
    weight = ", ".join(f"{v:.3f}" for v in np.random.default_rng(1).standard_normal(16))
    text = text.replace("WEIGHT", weight)
    if "axis)" in text:
        text = text.replace("{\n    last, sums", "{\n    axis = Constant <value = int64[1] {0}> ()\n    last, sums")
    return parser.parse_model(text)


def random(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers of this shape."""
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


CASES = {
    "If, then": (BRANCH, {"x": random(3, 4), "c": np.array(True)}),
    "If, else": (BRANCH, {"x": random(2, 4), "c": np.array(False)}),
    "Loop": (POWERS, {"x": random(2, 3), "n": np.array(4)}),
    "Loop until": (UNTIL, {"x": np.abs(random(5)), "limit": np.float32(30)}),
    "Loop in If in Loop": (NESTED, {"x": random(3, 2), "n": np.array(5)}),
    "Scan": (RUNNING, {"start": random(2), "x": random(3, 5, 2)}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", [0, 3])
def test_results_are_those_of_onnx_runtime(name: str, level: int, tmp_path: Path) -> None:
    text, inputs = CASES[name]
    proto = model(text)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {key: np.asarray(value) for key, value in inputs.items()})
    optimized = TensorRTBackend().optimize_model(proto, optimization_level=level)
    optimized.save(tmp_path / "a.engine")
    for engine in (optimized, TensorRTBackend().load(tmp_path / "a.engine")):
        got = list(engine.run(inputs).values())
        for answer, expected in zip(got, want, strict=True):
            assert answer.shape == expected.shape
            np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)


def test_branches_of_different_ranks_are_refused_by_name() -> None:
    text = BRANCH.replace("e = Concat <axis = 1> (s, doubled)", "e = ReduceSum <keepdims = 0> (s)")
    with pytest.raises(nx.UnsupportedError, match="numbers of dimensions") as caught:
        TensorRTBackend().optimize_model(model(text))
    assert "If" in str(caught.value)


def test_results_of_steps_that_do_not_stack_are_refused_by_name() -> None:
    text = UNTIL.replace("int64 count)", "int64 count, float[s, t] all)").replace("y, count =", "y, count, all =")
    text = text.replace("int64 d) {", "int64 d, float[j] kept) { kept = Identity(w)")
    engine = TensorRTBackend().optimize_model(model(text))
    with pytest.raises(nx.ShapeError, match="differ in shape") as caught:
        engine.run({"x": np.ones(2, np.float32), "limit": np.float32(9)})
    assert "Loop" in str(caught.value)


def test_a_loop_without_a_step_gives_what_it_carries_and_an_empty_stack() -> None:
    x = random(2, 3)
    last, everything = TensorRTBackend().optimize_model(model(POWERS)).run({"x": x, "n": np.array(0)}).values()
    np.testing.assert_array_equal(last, x)
    assert everything.shape == (0, 2, 3)


def test_a_scan_of_nothing_gives_the_state_and_empty_stacks() -> None:
    start = random(2)
    last, sums, back = (
        TensorRTBackend().optimize_model(model(RUNNING)).run({"start": start, "x": random(3, 0, 2)}).values()
    )
    np.testing.assert_array_equal(last, start)
    assert (sums.shape, back.shape) == ((3, 0), (0, 2))
