"""Sequences and optional values against ONNX Runtime: known lists, lists of a call's length, branches, loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx
from tests.importers.single import Array, theirs

BACKEND = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)
RNG = np.random.default_rng(5)


def model(signature: str, body: str, version: int = 18) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {version}]> m {signature} {{ {body} }}')


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def flat(answers: Any) -> list[Array]:
    """Tensors as they are, sequences in their elements."""
    return [array for answer in answers for array in (answer if isinstance(answer, list) else [answer])]


def agree(proto: onnx.ModelProto, given: dict[str, Any], shapes: dict[str, Any] | None = None, **options: Any) -> None:
    """An engine gives what ONNX Runtime gives; lists go in and come out by their elements, or as one array."""
    want = list(theirs(proto, given).values())
    ours = {name: array for name, array in given.items() if not isinstance(array, list)}
    for name, value in given.items():
        if isinstance(value, list):
            ours |= {f"{name}_{index}": array for index, array in enumerate(value)}
    ours = {name: array for name, array in ours.items() if name not in options.get("input_values", {})}
    shapes = shapes or {name: array.shape for name, array in ours.items()}
    got = list(BACKEND.optimize_model(proto, shapes, **options).run(ours).values())
    parts = flat(want)
    if len(got) != len(parts):
        # A list of a length that only a call knows comes as one array.
        got = [
            row
            for array, answer in zip(got, want, strict=True)
            for row in (array if isinstance(answer, list) else [array])
        ]
    assert len(got) == len(parts)
    for one, other in zip(got, parts, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("version", [11, 18])
def test_lists_of_a_known_length(version: int) -> None:
    body = """
        s = SequenceConstruct(x, z)
        one = Constant<value_int = 1>() first = Constant<value_int = -2>()
        t = SequenceInsert(s, w, one)
        u = SequenceInsert(t, z)
        v = SequenceErase(u, first)
        last = SequenceErase(v)
        a = SequenceAt(v, one)
        n = SequenceLength(v)
        c = ConcatFromSequence<axis = 1>(last)
        e = SequenceEmpty<dtype = 1>()
        f = SequenceInsert(e, x)
        d = ConcatFromSequence<axis = -1, new_axis = 1>(f)"""
    proto = model(
        "(float[2,3] x, float[2,3] w, float[2,5] z) => (float[2,3] a, int64 n, float[2,6] c, float[2,3,1] d)",
        body.replace("value_int = 1", "value = int64 {1}").replace("value_int = -2", "value = int64 {-2}"),
        version,
    )
    agree(proto, {"x": normal(2, 3), "w": normal(2, 3), "z": normal(2, 5)})


@pytest.mark.parametrize("attrs", ["", "<axis = 1>", "<axis = -1, keepdims = 0>", "<keepdims = 0>"])
@pytest.mark.parametrize(
    "joined", ["<axis = 1>", "<axis = 0>", "<axis = -1, new_axis = 1>", "<axis = 0, new_axis = 1>"]
)
@pytest.mark.parametrize("dims", ["4,3,2", "N,M,2"])
def test_slices_of_one_and_back(attrs: str, joined: str, dims: str) -> None:
    body = f"""
        s = SplitToSequence{attrs}(x)
        y = ConcatFromSequence{joined}(s)
        n = SequenceLength(s)
        p = Constant<value = int64 {{-2}}>()
        z = SequenceAt(s, p)
        w = SequenceAt(s, i)"""
    proto = model(f"(float[{dims}] x, int64 i) => (float[] y, int64 n, float[] z, float[] w)", body)
    agree(proto, {"x": normal(4, 3, 2), "i": np.asarray(1)})


@pytest.mark.parametrize("sizes", [np.asarray(2), np.asarray([1, 3]), np.asarray([2, 2], np.int32), np.asarray(3)])
@pytest.mark.parametrize("given", [True, False])
def test_parts_of_other_sizes(sizes: Array, given: bool) -> None:
    if given and sizes.ndim == 0:
        return
    kind = f"{'int32' if sizes.dtype == np.int32 else 'int64'}{'[2]' if sizes.ndim else ''}"
    proto = model(
        f"(float[4,3] x, {kind} k) => (seq(float[]) y, float[] z)",
        "y = SplitToSequence(x, k) i = Constant<value = int64 {1}>() z = SequenceAt(y, i)",
    )
    values = {} if given else {"input_values": {"k": sizes}}
    agree(proto, {"x": normal(4, 3), "k": sizes}, **values)


@pytest.mark.parametrize("place", [0, 2, 3, -1])
def test_positions_that_a_call_knows(place: int) -> None:
    body = """
        s = SplitToSequence<keepdims = 0>(x)
        t = SequenceInsert(s, w, i)
        end = SequenceInsert(t, w)
        u = SequenceErase(end, i)
        y = ConcatFromSequence<axis = 0>(u)
        last = SequenceErase(t)
        z = ConcatFromSequence<axis = 0, new_axis = 1>(last)"""
    proto = model("(float[N,2] x, float[2] w, int64 i) => (float[] y, float[] z)", body)
    agree(proto, {"x": normal(3, 2), "w": normal(2), "i": np.asarray(place)})


def test_sequences_in_and_out() -> None:
    body = "y = SequenceInsert(s, x) n = SequenceLength(s) z = Identity(y)"
    proto = model("(seq(float[N]) s, float[2] x) => (seq(float[]) y, int64 n, seq(float[]) z)", body)
    agree(proto, {"s": [normal(3), normal(5)], "x": normal(2)})
    network = from_onnx(proto, input_shapes={"s_0": ("N",), "s_1": (4,)})
    assert [tensor.name for tensor in network.inputs] == ["s_0", "s_1", "x"]
    assert list(network.outputs) == ["y_0", "y_1", "y_2", "n", "z_0", "z_1", "z_2"]
    known = from_onnx(proto, input_values={"s": [np.ones(3, np.float32)]})
    assert [tensor.name for tensor in known.inputs] == ["x"]
    assert list(from_onnx(proto, input_values={"s": []}).outputs) == ["y_0", "n", "z_0"]


def test_sizes_pass_through_sequences() -> None:
    body = """
        shape = Shape(x) s = SplitToSequence(shape) i = Constant<value = int64 {1}>() a = SequenceAt(s, i)
        two = Constant<value = int64[1] {2}>() half = Div(a, two)
        t = SequenceConstruct(half, two) joined = ConcatFromSequence<axis = 0>(t)
        minus = Constant<value = int64[1] {-1}>() all = Concat<axis = 0>(minus, joined)
        y = Reshape(x, all)"""
    proto = model("(float[3,4] x) => (float[] y)", body)
    assert from_onnx(proto).outputs["y"].shape == (3, 2, 2)
    agree(proto, {"x": normal(3, 4)})


BRANCHES = """
    y = If(c) <
        then_branch = a () => (seq(float[]) p) { d = Add(x, x) p = SequenceConstruct(d, x) },
        else_branch = b () => (seq(float[]) q) { q = SplitToSequence<keepdims = 0>(z) }>
    i = Constant<value = int64 {1}>()
    w = SequenceAt(y, i)"""


@pytest.mark.parametrize("holds", [True, False])
def test_branches_that_give_sequences(holds: bool) -> None:
    proto = model("(bool c, float[3] x, float[2,3] z) => (float[] w)", BRANCHES)
    given = {"c": np.asarray(holds), "x": normal(3), "z": normal(2, 3)}
    agree(proto, given)


APPEND = """
    e = SequenceEmpty<dtype = 1>()
    t = Constant<value = bool {1}>()
    r, h, rows = Loop(n, t, e, x) <body = b (int64 i, bool c, seq(float[]) s, float[2,3] v)
            => (bool d, seq(float[]) u, float[2,3] w, float[2,3] row) {
        d = Identity(c)
        f = Cast<to = 1>(i)
        a = Add(v, f)
        w = Tanh(a)
        q = SequenceInsert(s, a)
        u = SequenceInsert(q, w)
        row = Neg(w)
    }>
    y = ConcatFromSequence<axis = 1>(r)
    k = SequenceLength(r)
    z = SequenceAt(r, at)"""


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("known", [True, False])
def test_a_loop_that_appends(steps: int, known: bool) -> None:
    signature = "(int64 n, int64 at, float[2,3] x) => (float[] y, int64 k, float[] z, float[] h, float[] rows)"
    given = {"n": np.asarray(steps), "at": np.asarray(1), "x": normal(2, 3)}
    values = {"input_values": {"n": given["n"]}} if known else {}
    agree(model(signature, APPEND), given, **values)


def test_a_loop_that_appends_to_what_is_there() -> None:
    body = APPEND.replace("e = SequenceEmpty<dtype = 1>()", "e = SequenceConstruct(x, x)")
    signature = "(int64 n, int64 at, float[2,3] x) => (float[] y, int64 k, float[] z, float[] h, float[] rows)"
    agree(model(signature, body), {"n": np.asarray(4), "at": np.asarray(-1), "x": normal(2, 3)})


def test_a_loop_that_carries_a_list() -> None:
    body = """
        s = SequenceConstruct(x, z)
        r = Loop(n, , s) <body = b (int64 i, bool c, seq(float[]) s0) => (bool c, seq(float[]) s2) {
            zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>()
            p = SequenceAt(s0, zero) q = SequenceAt(s0, one)
            p1 = Tanh(p) q1 = Sin(q)
            s1 = SequenceErase(s0, zero)
            s2 = SequenceInsert(s1, p1, zero)
        }>
        y = ConcatFromSequence<axis = 0>(r)"""
    proto = model("(int64 n, float[2] x, float[3] z) => (float[] y)", body)
    agree(proto, {"n": np.asarray(3), "x": normal(2), "z": normal(3)})


def test_a_loop_that_reads_the_end_of_what_it_appends_to() -> None:
    body = """
        s = SequenceConstruct(x)
        last = Constant<value = int64 {-1}>()
        r = Loop(n, , s) <body = b (int64 i, bool c, seq(float[]) s0) => (bool c, seq(float[]) s1) {
            p = SequenceAt(s0, last) q = Tanh(p) s1 = SequenceInsert(s0, q)
        }>
        y = ConcatFromSequence<axis = 0, new_axis = 1>(r)"""
    proto = model("(int64 n, float[2] x) => (float[] y)", body)
    agree(proto, {"n": np.asarray(6), "x": normal(2)})


@pytest.mark.parametrize("dims", ["4,3", "N,3"])
def test_a_loop_over_a_sequence(dims: str) -> None:
    body = """
        s = SplitToSequence<keepdims = 0>(x)
        n = SequenceLength(s)
        t = Constant<value = bool {1}>()
        y = Loop(n, t, w) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] u) {
            d = Identity(c) p = SequenceAt(s, i) q = Mul(v, p) u = Tanh(q)
        }>"""
    proto = model(f"(float[{dims}] x, float[3] w) => (float[3] y)", body)
    agree(proto, {"x": normal(4, 3), "w": normal(3)})


@pytest.mark.parametrize("dims", ["4,3", "N,3"])
def test_a_branch_within_a_loop_reads_a_sequence_around(dims: str) -> None:
    body = """
        s = SplitToSequence<keepdims = 0>(x)
        n = SequenceLength(s)
        t = Constant<value = bool {1}>()
        y = Loop(n, t, w) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] u) {
            d = Identity(c) two = Constant<value = int64 {2}>() even = Less(i, two)
            u = If(even) <
                then_branch = a () => (float[3] p) { q = SequenceAt(s, i) p = Add(v, q) },
                else_branch = e () => (float[3] r) {
                    first = Constant<value = int64 {0}>() o = SequenceAt(s, first) l = SequenceAt(s, i) m = Mul(o, l)
                    r = Sub(v, m) }>
        }>"""
    proto = model(f"(float[{dims}] x, float[3] w) => (float[3] y)", body)
    agree(proto, {"x": normal(4, 3), "w": normal(3)})


def test_a_loop_of_few_steps_that_append_other_shapes_is_written_out() -> None:
    body = """
        e = SequenceEmpty<dtype = 1>() t = Constant<value = bool {1}>()
        y = Loop(n, t, e) <body = b (int64 i, bool c, seq(float[]) s) => (bool d, seq(float[]) u) {
            one = Constant<value = int64[1] {1}>() zero = Constant<value = int64[1] {0}>()
            end = Add(i, one) part = Slice(x, zero, end)
            far = Constant<value = int64 {2}>() d = Less(i, far)
            u = SequenceInsert(s, part)
        }>"""
    proto = model("(int64 n, float[6] x) => (seq(float[]) y)", body)
    given = {"n": np.asarray(5), "x": normal(6)}
    # The condition ends it after three steps.
    assert len(from_onnx(proto, input_values={"n": np.asarray(5)}).outputs) == 3
    agree(proto, given, input_values={"n": given["n"]})


def test_a_loop_whose_steps_change_the_rank_is_written_out() -> None:
    body = """
        t = Constant<value = bool {1}>() n = Constant<value = int64 {3}>()
        y = Loop(n, t, x) <body = b (int64 i, bool c, float[] v) => (bool d, float[] u) {
            d = Identity(c) zero = Constant<value = int64[1] {0}>() w = Unsqueeze(v, zero) u = Sin(w)
        }>"""
    agree(model("(float[2] x) => (float[] y)", body), {"x": normal(2)})


@pytest.mark.parametrize("dims", ["3,2", "N,2"])
def test_sequence_map(dims: str) -> None:
    body = """
        s = SplitToSequence<keepdims = 0>(x)
        a, b = SequenceMap(s, w, s) <body = f (float[2] p, float[2] q, float[2] o) => (float[2] sum, float[] twice) {
            sum = Add(p, q) twice = Concat<axis = 0>(o, p)
        }>
        y = ConcatFromSequence<axis = 0>(a)
        z = ConcatFromSequence<axis = 0, new_axis = 1>(b)"""
    agree(model(f"(float[{dims}] x, float[2] w) => (float[] y, float[] z)", body), {"x": normal(3, 2), "w": normal(2)})


def test_optional_values() -> None:
    body = """
        o = Optional(x) h = OptionalHasElement(o) e = OptionalGetElement(o)
        none = Optional<type = float[2]>() g = OptionalHasElement(none)
        y = If(g) <
            then_branch = a () => (float[] p) { p = OptionalGetElement(none) },
            else_branch = b () => (float[] q) { q = Neg(e) }>"""
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> m (float[2] x) => (bool h, bool g, float[] y) {'
        + body.replace("<type = float[2]>", "<type: type_proto = float[2]>")
        + "}"
    )
    x = normal(2)
    h, g, y = BACKEND.optimize_model(proto, {"x": (2,)}).run({"x": x}).values()
    assert h and not g
    np.testing.assert_array_equal(y, -x)


REFUSED = {
    "a sequence whose length nothing tells": (
        "(seq(float[2]) s) => (int64 n)", "n = SequenceLength(s)", "how many tensors a sequence has"
    ),
    "a position out of range": (
        "(float[2] x) => (float[] y)",
        "s = SequenceConstruct(x) i = Constant<value = int64 {1}>() y = SequenceAt(s, i)",
        "expected: -1 to 0",
    ),
    "a tensor for a sequence": ("(float[2] x) => (int64 n)", "n = SequenceLength(x)", "is no sequence"),
    "a sequence for a tensor": (
        "(float[2] x) => (float[] y)", "s = SequenceConstruct(x) y = Relu(s)", "a tensor is wanted here"
    ),
    "nothing to join": (
        "(float[2] x) => (float[] y)", "s = SequenceEmpty() y = ConcatFromSequence<axis = 0>(s)", "an empty sequence"
    ),
}  # fmt: skip


def refuses(signature: str, body: str, text: str) -> None:
    """A model that is refused with a text, and with the node or the tensor."""
    with pytest.raises(nx.Error) as caught:
        from_onnx(model(signature, body))
    assert text in str(caught.value)
    assert caught.value.layer or caught.value.tensor


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_the_node_and_the_way_out(name: str) -> None:
    refuses(*REFUSED[name])


def test_optional_inputs() -> None:
    proto = model("(optional(float[2]) o, float[2] x) => (float[] y)", "g = OptionalGetElement(o) y = Add(g, x)")
    assert [tensor.name for tensor in from_onnx(proto).inputs] == ["o", "x"]
    with pytest.raises(nx.InvalidArgumentError, match="without an element"):
        from_onnx(proto, input_values={"o": None})


def test_the_names_of_elements_leave_other_inputs_alone() -> None:
    proto = model("(seq(float[2]) s, float[2] s_1) => (int64 n)", "t = SequenceInsert(s, s_1) n = SequenceLength(t)")
    assert [tensor.name for tensor in from_onnx(proto, input_shapes={"s_0": (2,), "s_1": (2,)}).inputs] == [
        "s_0",
        "s_1",
    ]
    with pytest.raises(nx.InvalidArgumentError, match="no input 's_2'"):
        from_onnx(proto, input_shapes={"s_0": (2,), "s_2": (2,)})
    with pytest.raises(nx.InvalidArgumentError, match="a list of arrays"):
        from_onnx(proto, input_values={"s": np.ones(2, np.float32)})


LONGER = """
    t = Constant<value = bool {1}>()
    y, h = Loop(n, t, x, v) <body = b (int64 i, bool c, float[N,2] s, float[3,2] a)
            => (bool d, float[M,2] u, float[3,2] w) {
        d = Identity(c) w = Tanh(a) BODY
    }>"""


def longer(body: str) -> onnx.ModelProto:
    return model("(int64 n, float[k,2] x, float[3,2] v) => (float[] y, float[] h)", LONGER.replace("BODY", body))


def carried(proto: onnx.ModelProto) -> int:
    """How many tensors go from step to step."""
    (loop,) = [layer for layer in from_onnx(proto).layers if layer.op == "Loop"]
    return int(loop.attrs["carried"])


@pytest.mark.parametrize("body", ["u = Concat<axis = 0>(s, w)", "u = Concat<axis = -2>(s, w, a)"])
@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("rows", [0, 2])
def test_a_tensor_that_a_loop_makes_longer_is_not_copied_in_each_step(body: str, steps: int, rows: int) -> None:
    proto = longer(body)
    assert carried(proto) == 1
    agree(proto, {"n": np.asarray(steps), "x": normal(rows, 2), "v": normal(3, 2)})


@pytest.mark.parametrize(
    "body",
    [
        "u = Concat<axis = 0>(w, s)",
        "m = ReduceMean<keepdims = 1>(s) p = Add(w, m) u = Concat<axis = 0>(s, p)",
        "one = Constant<value = int64[1] {1}>() zero = Constant<value = int64[1] {0}>() e = Add(i, one) "
        "p = Slice(w, zero, e) u = Concat<axis = 0>(s, p)",
        "u = Concat<axis = 0>(s, w, s)",
    ],
)
def test_a_tensor_that_a_loop_reads_or_makes_longer_otherwise_is_carried(body: str) -> None:
    proto = longer(body)
    assert carried(proto) == 2
    agree(proto, {"n": np.asarray(3), "x": normal(1, 2), "v": normal(3, 2)})


def test_a_long_list_is_rows_of_a_tensor() -> None:
    proto = model("(float[2000000000,2] x, int64 i) => (float[] y)", "s = SplitToSequence(x) y = SequenceAt(s, i)")
    assert from_onnx(proto).outputs["y"].shape == (1, 2)
    body = "k = Constant<value = int64 {2}>() s = SplitToSequence(x, k) n = SequenceLength(s)"
    (layer,) = [one for one in from_onnx(model("(float[9000] x) => (int64 n)", body)).layers if one.op == "Range"]
    assert layer.outputs[0].shape == (4500,)
