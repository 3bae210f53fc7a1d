"""Models with loops and conditions, as plans and in a process whose TensorRT is the double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, checker, parser

from neurenix.hardware.tensorrt.plan import TensorRTPlan, build_plan
from tests.tensorrt.doubled import call

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


#: Models, and what goes into them.
MODELS: dict[str, tuple[str, list[Arrays]]] = {
    "while_it_is_small": (
        """small (float[n, 3] x) => (float[n, 3] y) {
            most = Constant <value_int = 9> ()
            yes = Constant <value = bool {1}> ()
            y = Loop (most, yes, x) <body = step (int64 i, bool before, float[n, 3] v) => (bool after, float[n, 3] w) {
                two = Constant <value_float = 2.0> ()
                w = Mul (v, two)
                size = ReduceMax <keepdims = 0> (w)
                limit = Constant <value_float = 20.0> ()
                after = Less (size, limit)
            }>
        }""",
        [{"x": np.abs(normal(2, 3))}, {"x": np.abs(normal(5, 3)) + 8}],
    ),
    "while_a_captured_limit_says_so": (
        """captured (float[4] x, bool starts, float[1] limit) => (float[4] y) {
            many = Constant <value_int = 9223372036854775807> ()
            y = Loop (many, starts, x) <body = step (int64 i, bool before, float[4] v) => (bool after, float[4] w) {
                number = Cast <to = 1> (i)
                one = Constant <value_float = 1.0> ()
                more = Add (number, one)
                w = Add (v, more)
                sum = ReduceSum <keepdims = 0> (w)
                under = Less (sum, limit)
                shape = Constant <value_ints = [0]> ()
                none = Constant <value = int64[0] {}> ()
                after = Reshape (under, none)
            }>
        }""",
        [
            {"x": normal(4), "starts": np.array(True), "limit": np.array([30], np.float32)},
            {"x": normal(4), "starts": np.array(False), "limit": np.array([30], np.float32)},
        ],
    ),
    "a_loop_in_a_loop": (
        """nested (float[n, 3] x) => (float[n, 3] y, float[4, n, 3] all) {
            outer = Constant <value_int = 4> ()
            y, all = Loop (outer, , x) <
                body = out (int64 i, bool before, float[n, 3] v) => (bool after, float[n, 3] w, float[n, 3] kept) {
                after = Identity (before)
                inner = Constant <value_int = 3> ()
                w = Loop (inner, , v) <
                    body = in (int64 j, bool was, float[n, 3] a) => (bool goes, float[n, 3] b) {
                    goes = Identity (was)
                    s = Sin (a)
                    b = Add (s, x)
                }>
                kept = Neg (v)
            }>
        }""",
        [{"x": normal(2, 3)}, {"x": normal(1, 3)}],
    ),
    "trips_of_a_shape": (
        """counted (float[n, 3] x) => (float[3] y, float[n, 3] all) {
            shape = Shape <start = 0, end = 1> (x)
            zero = Constant <value_int = 0> ()
            trips = Gather (shape, zero)
            first = Gather (x, zero)
            y, all = Loop (trips, , first) <
                body = step (int64 i, bool before, float[3] v) => (bool after, float[3] w, float[3] row) {
                after = Identity (before)
                row = Gather (x, i)
                t = Tanh (v)
                w = Add (t, row)
            }>
        }""",
        [{"x": normal(2, 3)}, {"x": normal(6, 3)}],
    ),
    "one_of_two": (
        """branches (float[n, 4] x, bool c) => (float[n, 4] y, float[m, 4] z) {
            y, z = If (c) <
                then_branch = t () => (float[n, 4] a, float[p, 4] b) { a = Exp (x) b = Concat <axis = 0> (x, x) },
                else_branch = e () => (float[n, 4] a, float[p, 4] b) { a = Neg (x) b = Identity (x) }
            >
        }""",
        [{"x": normal(2, 4), "c": np.array(True)}, {"x": normal(3, 4), "c": np.array(False)}],
    ),
    "something_or_nothing": (
        """empty (float[n, 4] x, bool c) => (float[m, 4] y) {
            y = If (c) <
                then_branch = t () => (float[p, 4] a) { a = Identity (x) },
                else_branch = e () => (float[p, 4] a) { a = Constant <value = float[0, 4] {}> () }
            >
        }""",
        [{"x": normal(2, 4), "c": np.array(True)}, {"x": normal(2, 4), "c": np.array(False)}],
    ),
    "a_choice_in_a_loop": (
        """choice (float[4] x) => (float[4] y) {
            trips = Constant <value_int = 5> ()
            y = Loop (trips, , x) <body = step (int64 i, bool before, float[4] v) => (bool after, float[4] w) {
                after = Identity (before)
                sum = ReduceSum <keepdims = 0> (v)
                zero = Constant <value_float = 0.0> ()
                positive = Greater (sum, zero)
                w = If (positive) <
                    then_branch = t () => (float[4] a) { t = Cos (v) a = Sub (t, x) },
                    else_branch = e () => (float[4] a) { s = Sin (v) a = Mul (s, x) }
                >
            }>
        }""",
        [{"x": normal(4)}, {"x": -normal(4)}],
    ),
    "rows_that_are_appended": (
        """append (float[1, 3] x) => (float[n, 3] y) {
            trips = Constant <value_int = 3> ()
            y = Loop (trips, , x) <body = step (int64 i, bool before, float[m, 3] v) => (bool after, float[k, 3] w) {
                after = Identity (before)
                number = Cast <to = 1> (i)
                row = Sub (x, number)
                w = Concat <axis = 0> (v, row)
            }>
        }""",
        [{"x": normal(1, 3)}],
    ),
    "columns_from_the_last_on": (
        """scan (float[3] s, float[3, n] x) => (float[3] t, float[3, n] y, float[n, 3] z) {
            t, y, z = Scan (s, x) <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
                scan_output_axes = [1, 0], scan_output_directions = [0, 1],
                body = step (float[3] before, float[3] column) => (float[3] after, float[3] a, float[3] b) {
                after = Add (before, column)
                a = Tanh (after)
                b = Sin (after)
            }>
        }""",
        [{"s": normal(3), "x": normal(3, 2)}, {"s": normal(3), "x": normal(3, 7)}],
    ),
}


def small(x: Array) -> list[Array]:
    for _ in range(9):
        x = x * 2
        if x.max() >= 20:
            break
    return [x]


def captured(x: Array, starts: Array, limit: Array) -> list[Array]:
    step, goes_on = 0, bool(starts)
    while goes_on:
        step += 1
        x = x + step
        goes_on = x.sum() < limit[0]
    return [x]


def nested(x: Array) -> list[Array]:
    v, kept = x, []
    for _ in range(4):
        kept.append(-v)
        for _ in range(3):
            v = np.sin(v) + x
    return [v, np.stack(kept)]


def counted(x: Array) -> list[Array]:
    v = x[0]
    for row in x:
        v = np.tanh(v) + row
    return [v, x]


def branches(x: Array, c: Array) -> list[Array]:
    return [np.exp(x), np.concatenate([x, x])] if c else [-x, x]


def something(x: Array, c: Array) -> list[Array]:
    return [x if c else x[:0]]


def choice(x: Array) -> list[Array]:
    v = x
    for _ in range(5):
        v = np.cos(v) - x if v.sum() > 0 else np.sin(v) * x
    return [v]


def append(x: Array) -> list[Array]:
    return [np.concatenate([x, *(x - i for i in range(3))])]


def scan(s: Array, x: Array) -> list[Array]:
    sums = s[:, None] + np.cumsum(x[:, ::-1], 1)
    return [sums[:, -1], np.tanh(sums), np.sin(sums).T[::-1]]


#: What the models give: ONNX's own evaluator gives up on loops in loops, on Scan backwards, and on If in a Loop.
REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "while_it_is_small": small,
    "while_a_captured_limit_says_so": captured,
    "a_loop_in_a_loop": nested,
    "trips_of_a_shape": counted,
    "one_of_two": branches,
    "something_or_nothing": something,
    "a_choice_in_a_loop": choice,
    "rows_that_are_appended": append,
    "columns_from_the_last_on": scan,
}
#: Models that TensorRT does not take, and the reason.
REFUSED: dict[str, tuple[str, str]] = {
    "a layer inside": (
        """g (float[3, 3] x) => (float[3, 3] y) {
            trips = Constant <value_int = 5> ()
            y = Loop (trips, , x) <body = step (int64 i, bool before, float[3, 3] v) => (bool after, float[3, 3] w) {
                after = Identity (before)
                d = Det (v)
                w = Mul (v, d)
            }>
        }""",
        r'Loop: its body has layer "Loop_0/Det_0", Det: Neurenix does not write it',
    ),
    "a stack of nobody knows how many": (
        """g (float[3] x) => (float[3] y, float[n, 3] all) {
            trips = Constant <value_int = 5> ()
            y, all = Loop (trips, , x) <
                body = step (int64 i, bool before, float[3] v) => (bool after, float[3] w, float[3] kept) {
                w = Add (v, v)
                sum = ReduceSum <keepdims = 0> (w)
                limit = Constant <value_float = 20.0> ()
                after = Less (sum, limit)
                kept = Neg (w)
            }>
        }""",
        "a condition ends it, and tells the number of results that are stacked too late",
    ),
    "a shape that changes": (
        """g (float[1, 3] x) => (float[n, 3] y) {
            trips = Constant <value_int = 3> ()
            y = Loop (trips, , x) <body = step (int64 i, bool before, float[m, 3] v) => (bool after, float[k, 3] w) {
                after = Identity (before)
                w = Concat <axis = 0> (v, v)
            }>
        }""",
        "loops carry tensors of one shape, and here FLOAT\\[1, 3\\] becomes FLOAT",
    ),
    "a stack of as many as a call says": (
        """g (float[3] x, int64 trips) => (float[3] y, float[n, 3] all) {
            y, all = Loop (trips, , x) <
                body = step (int64 i, bool before, float[3] v) => (bool after, float[3] w, float[3] kept) {
                after = Identity (before)
                w = Add (v, v)
                kept = Neg (w)
            }>
        }""",
        "the number of results that are stacked comes with a call",
    ),
    "nothing ends it": (
        """g (float[3] x) => (float[3] y) {
            y = Loop (, , x) <body = step (int64 i, bool before, float[3] v) => (bool after, float[3] w) {
                after = Identity (before)
                w = Neg (v)
            }>
        }""",
        "nothing ends it",
    ),
}


def model(text: str) -> ModelProto:
    parsed = parser.parse_model(HEAD + text)
    checker.check_model(parsed)
    return parsed


def plan(name: str) -> TensorRTPlan:
    """The plan of a model of `MODELS`, whose dynamic extents are 1 to 8."""
    text, _ = MODELS[name]
    parsed = model(text)
    profile = {}
    for given in parsed.graph.input:
        dims = given.type.tensor_type.shape.dim
        if any(dim.dim_param for dim in dims):
            sizes = [tuple(n if dim.dim_param else dim.dim_value for dim in dims) for n in (1, 4, 8)]
            profile[given.name] = tuple(sizes)
    return build_plan(parsed, profile or None, targets=["8.6"])


def run(name: str) -> list[list[Array]]:
    """What the plan of a model gives for each of its inputs."""
    made = plan(name)
    engine = made.open()
    names = [port.name for port in made.outputs]
    return [[call(engine.context(), feeds)[name] for name in names] for feeds in MODELS[name][1]]
