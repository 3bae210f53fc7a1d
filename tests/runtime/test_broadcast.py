"""Two symbols that meet in a broadcast: an engine is planned for equal ones, and either is 1 where a call says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import parser, reference  # noqa: E402

RNG = np.random.default_rng(0)
ADD = ("(float[n] x, float[m] y) => (float[] z)", "z = Add(x, y)")
TOGETHER = [(5, 5), (5, 1), (1, 5), (1, 1), (0, 1), (1, 0), (0, 0)]
NOT_TOGETHER = [(5, 4), (0, 5), (4, 0)]


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def network_of(signature: str, body: str) -> nx.Network:
    return from_onnx(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> m {signature} {{ {body} }}'))


def built(network: nx.Network, shapes: Any = None, level: int = 0) -> Any:
    return TensorRTBackend(threads=2, optimization_level=level, timing_cache=False).optimize_model(network, shapes)


@pytest.mark.parametrize("level", [0, 3])
def test_equal_or_either_is_1(level: int, tmp_path: Path) -> None:
    model = built(network_of(*ADD), level=level)
    model.save(tmp_path / "add.engine")
    for engine in (model, nx.load(tmp_path / "add.engine")):
        for n, m in TOGETHER:
            x, y = floats(n), floats(m)
            assert np.array_equal(engine.run({"x": x, "y": y})["z"], x + y), (n, m)
        for n, m in NOT_TOGETHER:
            with pytest.raises(nx.ShapeError, match=r"(?s)Add.*that are equal or 1.*\d and \d"):
                engine.run({"x": floats(n), "y": floats(m)})


def test_the_reference_and_the_rule_say_the_same() -> None:
    network = network_of(*ADD)
    assert network.outputs["z"].shape == ("broadcast(m, n)",)
    for n, m in TOGETHER:
        x, y = floats(n), floats(m)
        assert np.array_equal(network.evaluate({"x": x, "y": y})["z"], x + y)
    with pytest.raises(nx.ShapeError):
        network.evaluate({"x": floats(5), "y": floats(4)})


def test_what_is_planned_follows_the_sizes_to_optimise_for() -> None:
    """Equal ones give a plan for equal ones, and a call of others is told to be slower; else the plan is for both."""
    for shapes, slower in (
        (None, True),
        ({"x": (7,), "y": (7,)}, True),
        ({"x": nx.Shape((1,), (32,), (64,)), "y": (1,)}, False),
    ):
        model = built(network_of(*ADD), shapes)
        assert not [note for note in model.report()["notes"] if "nothing was timed" in note]
        for n, m in [(7, 7), (7, 1)] if slower else [(7, 1), (1, 1)]:
            x, y = floats(n), floats(m)
            assert np.array_equal(model.run({"x": x, "y": y})["z"], x + y)
        told = [note for note in model.report()["notes"] if "taken to be equal" in note and "input_shapes" in note]
        assert bool(told) == slower, shapes


def test_default_dims_are_equal_and_numbers_go_on() -> None:
    """A size that nobody told is timed as the one that it meets, and what meets a number is that or 1."""
    model = built(network_of(*ADD), {"x": nx.Shape((1,), (32,), (64,))})
    assert not [note for note in model.report()["notes"] if "nothing was timed" in note]
    fixed = built(network_of("(float[n] x, float[m] y, float[4] w) => (float[] z)", "a = Add(x, y) z = Mul(a, w)"))
    for n, m in [(4, 4), (4, 1), (1, 4), (1, 1)]:
        x, y, w = floats(n), floats(m), floats(4)
        assert np.array_equal(fixed.run({"x": x, "y": y, "w": w})["z"], (x + y) * w)
    with pytest.raises(nx.ShapeError, match="do not go together"):
        fixed.run({"x": floats(5), "y": floats(5), "w": floats(4)})


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


#: What the network reads, what it does, and numpy's word for it.
BEHIND: dict[str, tuple[str, str, Any]] = {
    "three": (
        "float[a,b] x, float[c,d] y, float[e,f] w",
        "s = Add(x, y) p = Mul(s, w) z = Sub(p, x)",
        lambda x, y, w: (x + y) * w - x,
    ),
    "where": (
        "float[a,b] x, float[c,d] y, float[e,f] w",
        "t = Less(x, y) z = Where(t, w, x)",
        lambda x, y, w: np.where(x < y, w, x),
    ),
    "reductions": (
        "float[a,b] x, float[c,d] y",
        "s = Add(x, y) i = Constant<value_ints = [1]>() r = ReduceSum(s, i) q = Softmax<axis = -1>(s) z = Mul(q, r)",
        lambda x, y: softmax(x + y) * (x + y).sum(1, keepdims=True),
    ),
    "layouts": (
        "float[a,b] x, float[c,d] y",
        "s = Add(x, y) t = Transpose<perm = [1, 0]>(s) r = Relu(t) o = Constant<value_ints = [-1]>() "
        "f = Reshape(r, o) z = Exp(f)",
        lambda x, y: np.exp(np.maximum((x + y).T, 0)).reshape(-1),
    ),
    "sizes": (
        "float[a,b] x, float[c,d] y",
        "s = Add(x, y) h = Shape(s) k = ConstantOfShape<value = float[1] {2.0}>(h) z = Mul(k, x)",
        lambda x, y: np.full((x + y).shape, 2, np.float32) * x,
    ),
    "expand": ("float[a,b] x, float[c,d] y", "h = Shape(y) z = Expand(x, h)", lambda x, y: x + np.zeros_like(y)),
    "concat": (
        "float[a,b] x, float[c,d] y",
        "s = Add(x, y) t = Mul(y, x) z = Concat<axis = 0>(s, t)",
        lambda x, y: np.concatenate([x + y, y * x]),
    ),
    "products": (
        "float[a,b,3] x, float[c,3,d] y",
        "p = MatMul(x, y) z = Relu(p)",
        lambda x, y: np.maximum(x @ y, 0),
    ),
    "a product and a bias": (
        "float[a,3] x, float[3,b] w, float[c,d] y",
        "p = MatMul(x, w) s = Add(p, y) z = Relu(s)",
        lambda x, w, y: np.maximum(x @ w + y, 0),
    ),
    "a convolution and a residual": (
        "float[a,2,b,8] x, float[2,2,1,1] w, float[c,2,d,8] y",
        "p = Conv(x, w) s = Add(p, y) z = Relu(s)",
        lambda x, w, y: np.maximum(np.einsum("oi,nihw->nohw", w[:, :, 0, 0], x) + y, 0),
    ),
    "a norm": (
        "float[a,b,8] x, float[c,d,8] y, float[8] w",
        "s = Add(x, y) z = LayerNormalization(s, w) q = Neg(s)",
        lambda x, y, w: (x + y - (x + y).mean(-1, keepdims=True)) / np.sqrt((x + y).var(-1, keepdims=True) + 1e-5) * w,
    ),
}


def arrays_of(inputs: str, sizes: dict[str, int]) -> dict[str, Any]:
    found = {}
    for port in inputs.split(", "):
        dims, name = port.removeprefix("float[").split("] ")
        found[name] = floats(*(int(sizes.get(dim, dim)) for dim in dims.split(",")))
    return found


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", BEHIND)
def test_what_is_behind_goes_on(name: str, level: int) -> None:
    inputs, body, reference = BEHIND[name]
    network = network_of(f"({inputs}) => (float[] z)", body)
    model = built(network, level=level)
    tried = 0
    for _ in range(40):
        rows, columns = int(RNG.integers(1, 6)), int(RNG.integers(1, 6))
        either = lambda size: int(RNG.choice([1, size]))  # noqa: E731
        given = arrays_of(inputs, {s: either(rows) for s in "ace"} | {s: either(columns) for s in "bdf"})
        try:
            want = reference(*given.values())
        except ValueError:
            continue
        tried += 1
        for got in (model.run(given)["z"], network.evaluate(given)["z"]):
            assert got.shape == want.shape, {key: a.shape for key, a in given.items()}
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
    assert tried > 20


def test_any_graph_of_them() -> None:
    """Random graphs of pointwise layers over inputs whose symbols meet."""
    rng = np.random.default_rng(7)
    ops: dict[str, Any] = {"Add": np.add, "Mul": np.multiply, "Max": np.maximum, "Sub": np.subtract}
    names = ["a,b", "c,d", "e,b", "a,1", "3,f"]
    for _ in range(12):
        steps = [(str(rng.choice(list(ops))), *rng.integers(0, 5 + i, 2).tolist()) for i in range(8)]
        value = [f"x{i}" for i in range(5)] + [f"v{i}" for i in range(8)]
        body = " ".join(f"v{i} = {op}({value[p]}, {value[q]})" for i, (op, p, q) in enumerate(steps))
        inputs = ", ".join(f"float[{dims}] x{i}" for i, dims in enumerate(names))
        network = network_of(f"({inputs}) => (float[] v7, float[] v3)", body)
        model = built(network)
        for _ in range(12):
            sizes = {s: int(rng.choice([1, 3])) for s in "ace"} | {s: int(rng.choice([1, 4])) for s in "bdf"}
            given = arrays_of(inputs, sizes)
            known = list(given.values())
            for op, p, q in steps:
                known.append(ops[op](known[p], known[q]))
            used = {port.name: given[port.name] for port in network.inputs}
            got = model.run(used)
            for name, want in (("v7", known[-1]), ("v3", known[8])):
                assert got[name].shape == want.shape, (body, sizes)
                np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-5)


def test_what_a_loop_carries_keeps_its_shape() -> None:
    body = "b (int64 i, bool c, float[n,4] s) => (bool k, float[n,4] t) { k = Identity(c) t = Add(s, x) }"
    text = f"steps = Constant<value = int64 {{3}}>() z = Loop<body = {body}>(steps, , h)"
    network = network_of("(float[n,4] h, float[m,4] x) => (float[a,4] z)", text)
    assert network.outputs["z"].shape == ("n", 4)
    model = built(network)
    for n, m in [(5, 5), (5, 1), (1, 1)]:
        h, x = floats(n, 4), floats(m, 4)
        np.testing.assert_allclose(model.run({"h": h, "x": x})["z"], h + 3 * x, rtol=1e-5, atol=1e-5)
    with pytest.raises(nx.ShapeError, match="do not go together"):
        model.run({"h": floats(1, 4), "x": floats(5, 4)})


def test_branches_and_sizes_that_depend_on_data() -> None:
    """Stages: If over both kinds of sizes, and a NonZero beside them."""
    branches = (
        "<then_branch = t () => (float[] p) { p = Add(x, y) }, else_branch = e () => (float[] q) { q = Mul(y, x) }>"
    )
    counted = "d = NonZero(s) r = Shape(d) k = Cast<to = 1>(r) j = ReduceSum<keepdims = 0>(k)"
    body = f"s = If(c) {branches} {counted} z = Add(s, j)"
    model = built(network_of("(bool c, float[n] x, float[m] y) => (float[] z)", body))
    for flag in (True, False):
        for n, m in TOGETHER[:4]:
            x, y = floats(n), floats(m)
            s = x + y if flag else x * y
            got = model.run({"c": np.array(flag), "x": x, "y": y})["z"]
            np.testing.assert_allclose(got, s + 1 + np.count_nonzero(s), rtol=1e-5)


def test_threads_share_the_engine_for_other_sizes() -> None:
    model = built(network_of(*ADD))
    sizes = [(5, 5), (5, 1), (1, 5), (3, 3), (1, 3)] * 8

    def call(pair: tuple[int, int]) -> bool:
        x, y = floats(pair[0]), floats(pair[1])
        return np.array_equal(model.run({"x": x, "y": y})["z"], x + y)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, sizes))


ATTENTION = "(float[b, 2, s, 8] q, float[b, 2, t, 8] k, float[b, 2, t, 8] v, float[p, 1, r, t] m) => (float[] z)"
#: Inputs that are broadcast to another one: signature, body, and shapes of calls, the first of equal symbols.
ONE_WAY: dict[str, tuple[str, str, list[list[tuple[int, ...]]]]] = {
    "PRelu": ("(float[n, c] x, float[k] s) => (float[] z)", "z = PRelu(x, s)", [[(3, 4), (4,)], [(3, 4), (1,)]]),
    "LayerNormalization": (
        "(float[n, c] x, float[k] s, float[j] b) => (float[] z)",
        "z = LayerNormalization(x, s, b)",
        [[(3, 4), (4,), (4,)], [(3, 4), (1,), (4,)], [(3, 4), (4,), (1,)], [(3, 1), (1,), (1,)]],
    ),
    "RMSNormalization": (
        "(float[n, c] x, float[k] s) => (float[] z)",
        "z = RMSNormalization(x, s)",
        [[(3, 4), (4,)], [(3, 4), (1,)]],
    ),
    "Gemm": (
        "(float[n, c] x, float[d, c] y, float[m, k] b) => (float[] z)",
        "z = Gemm<transB = 1>(x, y, b)",
        [[(3, 4), (5, 4), (3, 5)], [(3, 4), (5, 4), (1, 5)], [(3, 4), (5, 4), (3, 1)], [(3, 4), (5, 4), (1, 1)]],
    ),
    "Attention": (
        ATTENTION,
        "z = Attention(q, k, v, m)",
        [
            [(2, 2, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8), mask]
            for mask in ((2, 1, 3, 5), (1, 1, 3, 5), (2, 1, 1, 5), (1, 1, 1, 5))
        ],
    ),
}


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", ONE_WAY)
def test_what_is_broadcast_to_another_input_may_be_1_too(name: str, level: int) -> None:
    signature, body, calls = ONE_WAY[name]
    text = f'<ir_version: 10, opset_import: ["" : 23]> m {signature} {{ {body} }}'
    model_proto = parser.parse_model(text)
    model = built(from_onnx(model_proto), level=level)
    for shapes in calls:
        given = {port.name: floats(*shape) for port, shape in zip(model_proto.graph.input, shapes, strict=True)}
        want = reference.ReferenceEvaluator(model_proto).run(None, given)[0]
        np.testing.assert_allclose(model.run(given)["z"], want, rtol=1e-5, atol=1e-5, err_msg=str(shapes))
    # Of equal symbols nothing is copied.
    assert not [kernel for kernel in model.report()["kernels"] if kernel["kernel"] == "Expand"]


@pytest.mark.parametrize("name", ["PRelu", "LayerNormalization", "RMSNormalization"])
def test_the_input_that_others_are_broadcast_to_does_not_grow(name: str) -> None:
    signature, body, calls = ONE_WAY[name]
    text = f'<ir_version: 10, opset_import: ["" : 23]> m {signature} {{ {body} }}'
    model = built(from_onnx(parser.parse_model(text)))
    for columns, others in ((1, 5), (4, 5)):
        shapes = [(3, columns), *((others,) for _ in calls[0][1:])]
        given = {port.name: floats(*shape) for port, shape in zip(model.inputs, shapes, strict=True)}
        with pytest.raises(nx.ShapeError, match=f"(?s){name}.*{columns} and {others}"):
            model.run(given)
