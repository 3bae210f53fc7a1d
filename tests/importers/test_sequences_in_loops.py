"""Loops that carry sequences from step to step in other ways than by appending to them, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import neurenix as nx
from tests.importers.test_sequences import BACKEND, agree, model, normal

ONE = "(int64 i, bool c, seq(float[]) s0) => (bool c, seq(float[]) s1)"
TWO = "(int64 i, bool c, seq(float[]) s0, seq(float[]) t0) => (bool c, seq(float[]) s1, seq(float[]) t1)"
READ = " n = SequenceLength(s) u = SequenceInsert(s, x) y = ConcatFromSequence<axis = 0>(u)"
NONE, X, WX = "SequenceEmpty<dtype = 1>()", "SequenceConstruct(x)", "SequenceConstruct(w, x)"
A = "f = Cast<to = 1>(i) a = Add(x, f) "


def one(body: str, initial: str = NONE) -> str:
    return f"e = {initial} s = Loop(k, , e) <body = b {ONE} {{ {body} }}>"


def two(body: str, first: str = NONE, second: str = NONE, results: str = "s, r") -> str:
    return f"e = {first} e2 = {second} {results} = Loop(k, , e, e2) <body = b {TWO} {{ {body} }}>"


INNER = "m = Loop(i, , s0) <body = d (int64 j, bool h, seq(float[]) q0) => (bool h, seq(float[]) q1) { BODY }> "
CLEARED = """two = Constant<value = int64 {2}>() o = Equal(i, two) m = If(o) <
    then_branch = t () => (seq(float[]) p) { p = SequenceEmpty<dtype = 1>() },
    else_branch = g () => (seq(float[]) q) { q = Identity(s0) }> """
CASES = {
    "another list in each step": one(A + "s1 = SequenceConstruct(a, x)"),
    "another, from one": one(A + "s1 = SequenceConstruct(a, x)", X),
    "another, from rows": one("s1 = SequenceConstruct(w, w)", "SplitToSequence(x)"),
    "a list around": "o = SequenceConstruct(w, x) " + one("s1 = Identity(o)", "SplitToSequence(x)"),
    "an open list around": "o = SplitToSequence(x) " + one("s1 = Identity(o)", WX),
    "one of another shape": one("g = Concat<axis = 0>(x, x) s1 = SequenceConstruct(g)", X),
    "none": one("s1 = SequenceEmpty<dtype = 1>()", X),
    "none from none": one("s1 = SequenceEmpty<dtype = 1>()"),
    "swapped": two("s1 = Identity(t0) t1 = Identity(s0)", X, "SequenceConstruct(w)"),
    "swapped, of other lengths": two("s1 = Identity(t0) t1 = Identity(s0)", X, WX),
    "swapped and longer": two("s1 = Identity(t0) t1 = SequenceInsert(s0, x)"),
    "swapped and longer, of other lengths": two("s1 = Identity(t0) t1 = SequenceInsert(s0, x)", X, WX),
    "a copy": two("s1 = SequenceInsert(s0, x) t1 = Identity(s1)", results="r, s"),
    "a copy of before": two("s1 = SequenceInsert(s0, x) t1 = Identity(s0)", results="r, s"),
    "a copy of other shapes": two("s1 = SequenceInsert(s0, w) t1 = Identity(s1)", X, X, "r, s"),
    "a copy beside what it reads": two(
        "m = SequenceLength(t0) s1 = SequenceInsert(s0, w) t1 = Identity(s1)", X, X, "r, s"
    ),
    "at the front of none": one(A + "z = Constant<value = int64 {0}>() s1 = SequenceInsert(s0, a, z)"),
    "its length before it appends": one(
        "l = SequenceLength(s0) f = Cast<to = 1>(l) a = Add(x, f) s1 = SequenceInsert(s0, a)"
    ),
    "cleared under a condition": one(CLEARED + "s1 = SequenceInsert(m, x)"),
    "through a loop that leaves it": one(INNER.replace("BODY", "q1 = Identity(q0)") + "s1 = SequenceInsert(m, w)"),
    "through a loop that clears it": one(
        INNER.replace("BODY", "q1 = SequenceEmpty<dtype = 1>()") + "s1 = SequenceInsert(m, w)"
    ),
    "taken off": one("s1 = SequenceErase(s0)", "SequenceConstruct(x, w, x, w, x)"),
    "a map": one("s1 = SequenceMap(s0) <body = f (float[] p) => (float[] o) { o = Concat<axis = 0>(p, w) }>", WX),
}  # fmt: skip


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("name", CASES)
def test_what_goes_from_step_to_step(name: str, steps: int) -> None:
    proto = model("(int64 k, float[N] x, float[M] w) => (int64 n, float[] y)", CASES[name] + READ)
    agree(proto, {"k": np.asarray(steps), "x": normal(3), "w": normal(2)})


@pytest.mark.parametrize("length", [0, 40])
def test_a_condition_of_data_ends_few_known_steps(length: int) -> None:
    more = " ".join(f"p{at} = Neg({f'p{at - 1}' if at else 'a'})" for at in range(length))
    body = f"""
        k = Constant<value = int64 {{3}}>() e = SequenceConstruct(x)
        s = Loop(k, , e) <body = b (int64 i, bool c0, seq(float[]) s0) => (bool c, seq(float[]) s1) {{
            {A} s1 = SequenceInsert(s0, a) z = ReduceSum<keepdims = 0>(a) six = Constant<value = float {{6}}>()
            c = Less(z, six) {more}
        }}>"""
    proto = model("(float[N] x) => (int64 n, float[] y)", body + READ)
    for start in (-9, 0, 3):
        agree(proto, {"x": np.full(3, start, np.float32)})


def test_branches_without_a_tensor() -> None:
    branches = f"""then_branch = t () => (seq(float[]) p) {{ p = {NONE} }},
        else_branch = g () => (seq(float[]) q) {{ q = {NONE} }}"""
    agree(
        model("(bool c, float[N] x) => (int64 n, float[] y)", f"s = If(c) <{branches}>" + READ),
        {"c": np.asarray(True), "x": normal(3)},
    )


@pytest.mark.parametrize("holds", [True, False])
def test_a_branch_whose_elements_are_as_long_as_it_finds(holds: bool) -> None:
    body = """
        s = If(c) <
            then_branch = t () => (seq(int64[]) p) { a = NonZero(x) p = SequenceConstruct(a) },
            else_branch = g () => (seq(int64[]) q) { q = SequenceEmpty<dtype = 7>() }>
        o = NonZero(x) u = SequenceInsert(s, o) n = SequenceLength(s) y = ConcatFromSequence<axis = 1>(u)"""
    agree(model("(bool c, float[N] x) => (int64 n, int64[] y)", body), {"c": np.asarray(holds), "x": normal(3)})


@pytest.mark.parametrize("sequence", ["SplitToSequence(x)", "SequenceConstruct(x, x, x)", "SequenceConstruct(x, w, x)"])
@pytest.mark.parametrize(
    ("change", "good", "wrong"),
    [("SequenceErase(q, k)", (-3, -1, 2), (-4, 3)), ("SequenceInsert(q, x, k)", (-3, -1, 3), (-4, 4))],
)
def test_positions_out_of_range_are_errors(
    sequence: str, change: str, good: tuple[int, ...], wrong: tuple[int, ...]
) -> None:
    proto = model("(float[N] x, float[M] w, int64 k) => (int64 n, float[] y)", f"q = {sequence} s = {change}" + READ)
    given = {"x": normal(3), "w": normal(2)}
    for place in good:
        agree(proto, given | {"k": np.asarray(place)})
    engine = BACKEND.optimize_model(proto, {"x": (3,), "w": (2,), "k": ()})
    for place in wrong:
        with pytest.raises(nx.ShapeError, match="out of range"):
            engine.run(given | {"k": np.asarray(place)})


def test_a_position_in_an_empty_list() -> None:
    proto = model("(float[N] x, int64 k) => (int64 n, float[] y)", f"e = {NONE} s = SequenceInsert(e, x, k)" + READ)
    agree(proto, {"x": normal(3), "k": np.asarray(0)})
    proto = model(
        "(float[N] x, int64 k) => (int64 n)",
        f"{one('s1 = SequenceInsert(s0, x)')} t = SequenceErase(s) n = SequenceLength(t)",
    )
    agree(proto, {"x": normal(3), "k": np.asarray(2)})
    with pytest.raises(nx.ShapeError, match="out of range"):
        BACKEND.optimize_model(proto, {"x": (3,), "k": ()}).run({"x": normal(3), "k": np.asarray(0)})


@pytest.mark.parametrize("dims", ["3,2", "N,2"])
def test_parts_of_one_without_their_dimension(dims: str) -> None:
    body = (
        "k = Constant<value = int64 {1}>() q = SplitToSequence<keepdims = 0>(x, k) y = ConcatFromSequence<axis = 0>(q)"
    )
    agree(model(f"(float[{dims}] x) => (float[] y)", body), {"x": normal(3, 2)})
