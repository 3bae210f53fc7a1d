"""Sequences of which a call decides the length, the positions or the shapes of elements, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.importers.single import Array, theirs
from tests.importers.test_sequences import BACKEND, agree, model, normal, refuses

#: What is read of a sequence `s`: joined along the axis on which elements differ, its length, one element.
READ = """
    y = ConcatFromSequence<axis = AXIS>(s)
    n = SequenceLength(s)
    z = SequenceAt(s, at)"""
GIVES = "(float[] y, int64 n, float[] z)"


def reads(axis: int = 0) -> str:
    return READ.replace("AXIS", str(axis))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dims", ["N,5", "M,N", "5,5"])
def test_parts_of_one_size_of_which_a_call_decides_how_many(size: int, axis: int, known: bool, dims: str) -> None:
    body = f"s = SplitToSequence<axis = {axis}>(x, k)" + reads(axis)
    proto = model(f"(float[{dims}] x, int64 k, int64 at) => {GIVES}", body)
    values = {"input_values": {"k": np.asarray(size)}} if known else {}
    for at in (0, -1):
        agree(proto, {"x": normal(5, 5), "k": np.asarray(size), "at": np.asarray(at)}, **values)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("sizes", [[5], [2, 3], [0, 4, 1], [1, 1, 1, 2]])
def test_parts_of_which_a_call_decides_sizes_and_number(sizes: list[int], dtype: Any) -> None:
    body = "s = SplitToSequence<axis = 1>(x, k)" + reads(1)
    proto = model(f"(float[2,N] x, {np.dtype(dtype)}[P] k, int64 at) => {GIVES}", body)
    given = {"x": normal(2, 5), "k": np.asarray(sizes, dtype), "at": np.asarray(len(sizes) - 1)}
    agree(proto, given)
    with pytest.raises(nx.Error):
        BACKEND.optimize_model(proto, {name: array.shape for name, array in given.items()}).run(
            given | {"k": np.full(len(sizes), 9, dtype)}
        )


@pytest.mark.parametrize("joined", ["<axis = 1>", "<axis = 0, new_axis = 1>", "<axis = -1, new_axis = 1>"])
def test_parts_that_are_equal_in_a_call_are_rows(joined: str) -> None:
    proto = model(
        "(float[N,3] x, int64 k) => (float[] y)", f"s = SplitToSequence(x, k) y = ConcatFromSequence{joined}(s)"
    )
    given = {"x": normal(6, 3), "k": np.asarray(2)}
    agree(proto, given)
    with pytest.raises(nx.Error):
        BACKEND.optimize_model(proto, {"x": (6, 3), "k": ()}).run(given | {"k": np.asarray(4)})


@pytest.mark.parametrize("at", [0, 1, 2, -1, -3])
def test_a_choice_among_shapes(at: int) -> None:
    proto = model(
        f"(float[2,3] x, float[2,1] w, float[2,N] v, int64 at) => {GIVES}", "s = SequenceConstruct(x, w, v)" + reads(1)
    )
    agree(proto, {"x": normal(2, 3), "w": normal(2, 1), "v": normal(2, 4), "at": np.asarray(at)})


@pytest.mark.parametrize("at", [0, 1, 2, -1, -2])
def test_positions_among_shapes(at: int) -> None:
    body = """
        a = SequenceConstruct(x, w, x)
        b = SequenceInsert(a, v, at)
        c = SequenceErase(b, at)
        d = SequenceErase(b)
        e = SequenceInsert(d, x)
        s = SequenceInsert(e, v, at)
        t = ConcatFromSequence<axis = 0>(c)""" + reads()
    proto = model("(float[3] x, float[1] w, float[2] v, int64 at) => (float[] y, int64 n, float[] z, float[] t)", body)
    agree(proto, {"x": normal(3), "w": normal(1), "v": normal(2), "at": np.asarray(at)})


BRANCHES = {
    "two and four": ("d = Add(x, x) p = SequenceConstruct(d, x)", "q = SplitToSequence<keepdims = 0>(w)"),
    "one and none": ("p = SequenceConstruct(x)", "q = SequenceEmpty<dtype = 1>()"),
    "none and one": ("p = SequenceEmpty<dtype = 1>()", "q = SequenceConstruct(x)"),
    "other shapes": ("p = SequenceConstruct(x)", "q = SequenceConstruct(v, x)"),
    "parts and one": ("two = Constant<value = int64 {2}>() p = SplitToSequence(v, two)", "q = SequenceConstruct(x)"),
}


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_that_give_sequences_of_different_lengths(name: str, holds: bool) -> None:
    then, other = BRANCHES[name]
    body = f"""
        r = If(c) <
            then_branch = t () => (seq(float[]) p) {{ {then} }},
            else_branch = e () => (seq(float[]) q) {{ {other} }}>
        s = SequenceInsert(r, x)""" + reads()
    proto = model(f"(bool c, float[3] x, float[4,3] w, float[N] v, int64 at) => {GIVES}", body)
    agree(proto, {"c": np.asarray(holds), "x": normal(3), "w": normal(4, 3), "v": normal(5), "at": np.asarray(-1)})


def loop(body: str, initial: str = "e = SequenceEmpty<dtype = 1>()") -> str:
    return f"""
        {initial}
        s = Loop(k, , e) <body = b (int64 i, bool c, seq(float[]) s0) => (bool c, seq(float[]) s1) {{
            one = Constant<value = int64[1] {{1}}>() zero = Constant<value = int64[1] {{0}}>()
            two = Constant<value = int64 {{2}}>() last = Constant<value = int64 {{-1}}>()
            f = Cast<to = 1>(i) a = Add(x, f) end = Add(i, one) rest = Mod(i, two)
            none = Constant<value = int64 {{0}}>() even = Equal(rest, none)
            part = Slice(a, zero, end)
            {body}
        }}>"""


UNDER = """s1 = If(even) <
    then_branch = t () => (seq(float[]) p) { p = SequenceInsert(s0, THEN) },
    else_branch = o () => (seq(float[]) q) { q = Identity(s0) }>"""
APPENDS = {
    "under a condition": UNDER.replace("THEN", "a"),
    "parts under a condition": UNDER.replace("THEN", "part"),
    "one or another": UNDER.replace("THEN", "a").replace("q = Identity(s0)", "q = SequenceInsert(s0, part)"),
    "one or two": UNDER.replace("THEN", "a").replace(
        "q = Identity(s0)", "m = SequenceInsert(s0, a) q = SequenceInsert(m, x)"
    ),
    "parts": "s1 = SequenceInsert(s0, part)",
    "the whole and parts": "m = SequenceInsert(s0, a) s1 = SequenceInsert(m, part)",
    "what it reads": "m = SequenceInsert(s0, part) g = SequenceAt(m, last) h = Tanh(g) s1 = SequenceInsert(m, h)",
    "at the front": "m = SequenceInsert(s0, a) s1 = SequenceInsert(m, part, none)",
    "and takes off": "m = SequenceInsert(s0, a) j = SequenceInsert(m, part) s1 = SequenceErase(j, none)",
}


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize(
    "initial", ["e = SequenceEmpty<dtype = 1>()", "e = SequenceConstruct(x)", "e = SequenceConstruct(x, w)"]
)
@pytest.mark.parametrize("dims", ["6", "N"])
@pytest.mark.parametrize("name", APPENDS)
def test_loops_that_append(name: str, dims: str, initial: str, steps: int) -> None:
    proto = model(
        f"(int64 k, float[{dims}] x, float[2] w, int64 at) => {GIVES}", loop(APPENDS[name], initial) + reads()
    )
    agree(proto, {"k": np.asarray(steps), "x": normal(6), "w": normal(2), "at": np.asarray(0)})


@pytest.mark.parametrize("name", ["under a condition", "parts"])
def test_a_loop_without_steps_leaves_a_sequence_empty(name: str) -> None:
    body = loop(APPENDS[name]) + "n = SequenceLength(s) u = SequenceInsert(s, x) y = ConcatFromSequence<axis = 0>(u)"
    agree(model("(int64 k, float[N] x) => (int64 n, float[] y)", body), {"k": np.asarray(0), "x": normal(6)})


@pytest.mark.parametrize("kind", ["float16", "int64", "bool"])
def test_other_dtypes_and_numbers_alone(kind: str) -> None:
    number = {"float16": 10, "int64": 7, "bool": 9}[kind]
    body = f"""
        e = SequenceEmpty<dtype = {number}>()
        s = Loop(k, , e) <body = b (int64 i, bool c, seq({kind}[]) s0) => (bool c, seq({kind}[]) s1) {{
            g = Gather(x, i) s1 = If(c) <
                then_branch = t () => (seq({kind}[]) p) {{ p = SequenceInsert(s0, g) }},
                else_branch = o () => (seq({kind}[]) q) {{ q = Identity(s0) }}>
        }}>
        y = ConcatFromSequence<axis = 0, new_axis = 1>(s)"""
    x: Array = (np.arange(6) % 3).astype(kind)
    agree(model(f"(int64 k, {kind}[6] x) => ({kind}[] y)", body), {"k": np.asarray(4), "x": x})


@pytest.mark.parametrize("dims", ["6", "N"])
@pytest.mark.parametrize("element", ["a", "part"])
def test_a_loop_in_a_loop_appends(element: str, dims: str) -> None:
    inner = f"""s1 = Loop(k, , s0) <body = d (int64 j, bool h, seq(float[]) t0) => (bool h, seq(float[]) t1) {{
        t1 = SequenceInsert(t0, {element})
    }}>"""
    proto = model(f"(int64 k, float[{dims}] x, int64 at) => {GIVES}", loop(inner) + reads())
    agree(proto, {"k": np.asarray(3), "x": normal(6), "at": np.asarray(4)})


@pytest.mark.parametrize(
    "result", ["r = Concat<axis = 0>(p, q)", "r = ReduceSum<keepdims = 1>(p)", "d = Shape(p) r = Expand(q, d)"]
)
@pytest.mark.parametrize(
    "source", ["s = SplitToSequence(x, k)", "s = SequenceConstruct(x, w)", "s = SplitToSequence(x)"]
)
def test_a_map_over_elements_of_other_shapes(source: str, result: str) -> None:
    body = f"""
        {source}
        m, t = SequenceMap(s, q0) <body = f (float[] p, float[] q) => (float[] r, float[] u) {{ {result} u = Neg(p) }}>
        y = ConcatFromSequence<axis = 0>(m) z = ConcatFromSequence<axis = 0>(t) n = SequenceLength(m)"""
    proto = model("(float[N] x, float[2] w, float[1] q0, int64 k) => (float[] y, float[] z, int64 n)", body)
    agree(proto, {"x": normal(5), "w": normal(2), "q0": normal(1), "k": np.asarray(2)})


def test_elements_of_other_shapes_come_out_side_by_side() -> None:
    proto = model("(float[2,N] x, int64 k) => (seq(float[]) y)", "y = SplitToSequence<axis = 1>(x, k)")
    x = normal(2, 5)
    got = BACKEND.optimize_model(proto, {"x": (2, 5), "k": ()}).run({"x": x, "k": np.asarray(2)})
    assert list(got) == ["y", "y_lengths"]
    parts = np.split(got["y"], np.cumsum(got["y_lengths"])[:-1], axis=1)
    (want,) = theirs(proto, {"x": x, "k": np.asarray(2)}).values()
    assert len(parts) == len(want)
    for one, other in zip(parts, want, strict=True):
        np.testing.assert_array_equal(one, other)


REFUSED = {
    "shapes that differ along two axes": (
        "(float[2,3] x, float[3,2] w, int64 at) => (float[] z)", "s = SequenceConstruct(x, w) z = SequenceAt(s, at)",
        "float32[2, 3], float32[3, 2]",
    ),
    "parts of nothing": (
        "(float[N] x) => (int64 n)",
        "k = Constant<value = int64 {0}>() s = SplitToSequence(x, k) n = SequenceLength(s)", "have no size",
    ),
    "a list that a loop reads before it appends": (
        "(int64 k, float[6] x) => (int64 n)",
        loop("m = SequenceAt(s0, last) s1 = SequenceInsert(s0, a)") + "n = SequenceLength(s)",
        "SequenceAt reads a sequence that a Loop of an unknown number of steps grows",
    ),
    "elements whose shape is known inside alone": (
        "(int64 k, float[6] x, float[6] w) => (int64 n)",
        loop("t = Greater(x, w) g = NonZero(t) v = Mul(g, g) h = Transpose(g) u = MatMul(h, g) "
             "e1 = Cast<to = 1>(u) s1 = SequenceInsert(s0, e1)") + "n = SequenceLength(s)",
        "differ in more than one extent",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_the_node_and_the_way_out(name: str) -> None:
    refuses(*REFUSED[name])
