"""A lower precision that loses too much: the layers at fault alone stay float32, and the report names them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.cli import main
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from fuzz.blocks import FAR, WIDTH, Graph  # noqa: E402

Array = np.ndarray[Any, Any]
F32 = np.float32

pytestmark = pytest.mark.skipif(
    "bf16" not in TensorRTBackend().get_device_info().precisions, reason="this processor has no bfloat16 arithmetic"
)


def blocks(bad: tuple[int, ...], count: int = 12) -> tuple[Graph, str]:
    g = Graph(1)
    x = g.linear("x")
    for number in range(count):
        x = g.block(x, FAR if number in bad else 0.0)
    return g, x


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    caplog.set_level(logging.WARNING, logger="neurenix")
    yield lambda: [record.getMessage() for record in caplog.records]


def built(model: Any, shapes: Any = None, **options: Any) -> Any:
    backend = TensorRTBackend(providers=["cpu"], optimization_level=0, timing_cache=False)
    return backend.optimize_model(model, shapes, "bf16", **options)


def error(got: Array, want: Array) -> float:
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)))


def exact(model: Any, x: Array) -> list[Array]:
    found = ReferenceEvaluator(model).run(None, {"x": x})
    return [np.asarray(array, np.float64) for array in found]


def shares(model: Any) -> float:
    return float(model.report()["arithmetic_per_dtype"]["bfloat16"])


@pytest.mark.parametrize("bad", [(5,), (2, 6, 9)])
def test_only_the_layers_at_fault_stay_float32(bad: tuple[int, ...], messages: Any) -> None:
    g, x = blocks(bad)
    model = g.model({x: 1})
    engine = built(model)
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    assert error(engine.run({"x": data})[x], exact(model, data)[0]) < 0.0625
    (message,) = messages()
    assert "departs by" in message and "stay float32" in message, message
    assert shares(engine) > 0.9


def test_products_stay_low_where_all_that_stands_behind_them_is_lifted(messages: Any) -> None:
    g, x = blocks(tuple(range(12)))
    model = g.model({x: 1})
    engine = built(model)
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    assert error(engine.run({"x": data})[x], exact(model, data)[0]) < 0.0625
    assert "stay float32" in messages()[-1], messages()
    assert 0.5 < shares(engine) < 0.9


def test_a_network_that_loses_everywhere_goes_back_as_a_whole(messages: Any) -> None:
    """Each layer makes what came before it eight times as wrong."""
    g = Graph(8)
    x = "x"
    for _ in range(10):
        w = g.random.standard_normal((WIDTH, WIDTH)).astype(F32) * F32(8 / WIDTH**0.5)
        x = g.add("Sin", g.add("MatMul", x, g.constant(w)))
    model = g.model({x: 1})
    engine = built(model)
    assert messages()[-1].endswith("every layer went back to float32")
    assert engine.report()["arithmetic_per_dtype"] == {"float32": 1.0}


def test_what_is_joined_to_large_numbers_is_judged_by_itself(messages: Any) -> None:
    """Scores that are wrong by half are not seen beside boxes of hundreds of pixels."""
    g = Graph(3)
    features = g.block(g.linear("x"))
    boxes = g.add("Mul", g.linear(features, 4), g.constant(np.array(640.0, F32)))
    scores = g.linear(g.block(features, FAR), 4)
    y = g.add("Concat", boxes, scores, axis=1)
    model = g.model({y: 1})
    engine = built(model)
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    got, want = engine.run({"x": data})[y], exact(model, data)[0]
    assert error(got[:, 4:], want[:, 4:]) < 0.0625
    assert "of what Add" in messages()[0] and "stay float32" in messages()[0], messages()
    assert shares(engine) > 0.5


def test_a_channel_of_small_numbers_is_judged_by_itself(messages: Any) -> None:
    """One product gives boxes of hundreds of pixels and scores that are wrong by half."""
    g = Graph(3)
    features = g.linear("x")
    both = g.add("Concat", g.block(features), g.block(features, FAR), axis=1)
    w = np.zeros((2 * WIDTH, 8), F32)
    w[:WIDTH, :4], w[WIDTH:, 4:] = (g.random.standard_normal((WIDTH, 4)) for _ in range(2))
    w[:WIDTH] *= 640
    y = g.add("MatMul", both, g.constant(w))
    model = g.model({y: 1})
    engine = built(model)
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    got, want = engine.run({"x": data})[y], exact(model, data)[0]
    assert error(got[:, 4:], want[:, 4:]) < 2 * 0.0625
    assert "along axis 1" in messages()[0] and "stay float32" in messages()[0], messages()
    assert shares(engine) > 0.5


def test_what_is_small_because_terms_cancel_is_no_fault(messages: Any) -> None:
    """Rows that hardly differ: of 1,000 scores some are next to 0 in each of them."""
    g = Graph(4)
    x = g.add(
        "Add",
        g.add("Mul", "x", g.constant(np.array(0.01, F32))),
        g.constant(g.random.standard_normal(WIDTH).astype(F32)),
    )
    w = g.random.standard_normal((WIDTH, 1000)).astype(F32)
    model = g.model({g.add("MatMul", g.block(x), g.constant(w)): 1})
    engine = built(model)
    assert not messages()
    assert shares(engine) > 0.9
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    (got,), (want,) = engine.run({"x": data}).values(), exact(model, data)
    channels = [error(got[:, at], want[:, at]) for at in range(1000)]
    assert error(got, want) < 0.02 and max(channels) > 0.5


def test_a_probability_is_judged_beside_what_makes_it(messages: Any) -> None:
    """Some scores are certain, with logits of thousands; beside these those of others are lost."""
    g = Graph(5)
    features = g.linear("x")
    sure = g.add("Mul", g.linear(features, 28), g.constant(np.array(1e4, F32)))
    scores = g.add("MatMul", g.block(features, FAR), g.constant(g.random.standard_normal((WIDTH, 4)).astype(F32)))
    y = g.add(
        "Sigmoid",
        g.add(
            "Add",
            g.add("Pad", sure, g.constant(np.array([0, 0, 0, 4], np.int64))),
            g.add("Pad", scores, g.constant(np.array([0, 28, 0, 0], np.int64))),
        ),
    )
    model = g.model({y: 1})
    engine = built(model)
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    got, want = engine.run({"x": data})[y], exact(model, data)[0]
    assert np.sqrt(np.mean((got[:, 28:] - want[:, 28:]) ** 2)) < 2 / 16
    assert "stay float32" in messages()[0], messages()


def test_integers_are_judged_by_the_floats_that_decide_them(messages: Any) -> None:
    for bad, loses in (((), False), ((5,), True)):
        g, x = blocks(bad)
        best = g.add("ArgMax", g.linear(x, 1000), axis=1)
        engine = built(g.model({best: 7}))
        assert [("stay float32" in message) for message in messages()] == [True] * loses
        assert shares(engine) > 0.9


def test_networks_in_stages_are_compared(messages: Any) -> None:
    g, x = blocks((5,))
    found = g.add("NonZero", x)
    first = g.add("Slice", found, *(g.constant(np.array([n], np.int64)) for n in (0, 1, 0)))
    rows = g.add("Gather", x, g.add("Squeeze", first), axis=0)
    y = g.block(rows)
    model = g.model({y: 1})
    engine = built(model)
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    assert any("stay float32" in message for message in messages()), messages()
    got, want = engine.run({"x": data})[y], exact(model, data)[0]
    assert got.shape == want.shape and error(got, want) < 0.0625


def far_out(g: Graph, x: str, offset: str) -> str:
    """A product that takes no notice of what is added to all features, behind numbers as far out as `offset` says."""
    w = g.random.standard_normal((WIDTH, WIDTH)).astype(F32)
    return g.add("MatMul", g.add("Add", x, offset), g.constant(w - w.mean(0)))


@pytest.mark.parametrize("given", [False, True])
def test_stages_are_compared_on_what_flows_between_them(given: bool, messages: Any) -> None:
    """The second stage reads numbers of some 3,000, where numbers of its own would be below 1."""
    g = Graph(12)
    ahead = g.add("Add", "x", "offset") if given else g.add("Add", "x", g.constant(np.array(FAR, F32)))
    first = g.add("Slice", g.add("NonZero", ahead), *(g.constant(np.array([n], np.int64)) for n in (0, 1, 0)))
    rows = g.add("Gather", ahead, g.add("Squeeze", first), axis=0)
    y = g.linear(far_out(g, rows, g.constant(np.array(0, F32))))
    for _ in range(8):
        y = g.block(y)
    feeds = {"x": np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)}
    if given:
        feeds[g.input("offset", 1, ())] = np.array(FAR, F32)
    model = g.model({y: 1})
    engine = built(model, sample=feeds if given else None)
    assert any("stay float32" in message for message in messages()), messages()
    (got,), (want,) = engine.run(feeds).values(), ReferenceEvaluator(model).run(None, feeds)
    assert error(got, want) < 0.0625
    assert shares(engine) > 0.5


def test_the_network_of_an_if_is_compared_on_what_it_captures(messages: Any) -> None:
    g = Graph(13)
    x = g.add("Add", g.linear("x"), g.constant(np.array(FAR, F32)))
    low = g.add("Less", g.add("ReduceMin", x, keepdims=0), g.constant(np.array(0, F32)))
    branches = {}
    for number, name in enumerate(("then_branch", "else_branch")):
        inner = Graph(14 + number, name)
        result = far_out(inner, x, inner.constant(np.array(0, F32)))
        result = inner.linear(result)
        outputs = [helper.make_tensor_value_info(result, 1, (8, WIDTH))]
        branches[name] = helper.make_graph(inner.nodes, name, [], outputs, inner.weights)
    y = g.add("If", low, **branches)
    model = g.model({y: 1})
    engine = built(model)
    assert any("float32" in message and "departs" in message for message in messages()), messages()
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    assert error(engine.run({"x": data})[y], exact(model, data)[0]) < 0.0625


def test_a_loop_s_network_is_compared(messages: Any) -> None:
    g = Graph(4)
    x = g.linear("x")
    inner = Graph(5, "body_")
    carried = inner.block("state", FAR)
    kept = inner.add("Identity", "go")
    body = helper.make_graph(
        inner.nodes,
        "body",
        [
            helper.make_tensor_value_info("number", 7, []),
            helper.make_tensor_value_info("go", 9, []),
            helper.make_tensor_value_info("state", 1, (8, WIDTH)),
        ],
        [helper.make_tensor_value_info(kept, 9, []), helper.make_tensor_value_info(carried, 1, (8, WIDTH))],
        inner.weights,
    )
    trips = g.constant(np.array(3, np.int64))
    y = g.add("Loop", trips, g.constant(np.array(True)), x, body=body)
    model = g.model({y: 1})
    engine = built(model)
    data = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    assert any("float32" in message and "departs" in message for message in messages()), messages()
    assert error(engine.run({"x": data})[y], exact(model, data)[0]) < 0.0625


def longer() -> tuple[Any, str]:
    """As long as the rows are, as far out they are before a norm."""
    g = Graph(6)
    x = g.linear("x")
    count = g.add("Cast", g.add("Shape", "x", start=0, end=1), to=1)
    far = g.add("Mul", count, g.constant(np.array(4.0, F32)))
    hidden = g.add("LayerNormalization", g.add("Add", g.linear(x), far), g.constant(np.ones(WIDTH, F32)))
    for _ in range(8):
        hidden = g.block(hidden)
    return g.model({hidden: 1}, ("n", WIDTH)), hidden


def test_every_profile_is_compared(messages: Any) -> None:
    model, y = longer()
    small, large = ((0, WIDTH), (1, WIDTH), (1, WIDTH)), ((32, WIDTH), (64, WIDTH), (64, WIDTH))
    built(model, {"x": small})
    assert messages() == []
    engine = built(model, [{"x": small}, {"x": large}])
    assert "stay float32" in messages()[0], messages()
    data = np.random.default_rng(2).standard_normal((64, WIDTH)).astype(F32)
    assert error(engine.run({"x": data})[y], exact(model, data)[0]) < 0.0625


def norm_first() -> tuple[Any, str]:
    g = Graph(7)
    x = g.linear(g.add("LayerNormalization", "x", g.constant(np.ones(WIDTH, F32))))
    for _ in range(8):
        x = g.block(x)
    return g.model({x: 1}, ("n", WIDTH)), x


def test_the_caller_s_arrays_decide(messages: Any) -> None:
    model, y = norm_first()
    data = (np.random.default_rng(2).standard_normal((8, WIDTH)) + FAR).astype(F32)
    shapes = {"x": ((1, WIDTH), (8, WIDTH), (8, WIDTH))}
    for sample in (None, data - F32(FAR)):
        built(model, shapes, sample=sample)
        assert messages() == []
    for sample in (data, {"x": data}, [data], iter([{"x": data[:3]}, {"x": data}]), (data,)):
        engine = built(model, shapes, sample=sample)
        assert "stay float32" in messages()[-1], messages()
    assert error(engine.run({"x": data})[y], exact(model, data)[0]) < 0.0625


def masked() -> tuple[Any, dict[str, Array]]:
    """A mask that says which rows are not seen: where it says so of all, there is nothing but NaN."""
    g = Graph(9)
    ignored = g.input("ignored_mask", 9, (8,))
    x = g.linear("x")
    scores = g.add("MatMul", x, g.add("Transpose", g.linear("x"), perm=[1, 0]))
    scores = g.add("Where", ignored, g.constant(np.array(-np.inf, F32)), scores)
    y = g.block(g.add("MatMul", g.add("Softmax", scores, axis=-1), x), FAR)
    return g.model({y: 1}), {ignored: np.array([False] * 6 + [True] * 2)}


def looked_up() -> tuple[Any, dict[str, Array]]:
    """Ids below the rows of a table, that are places in a shorter one besides."""
    g = Graph(10)
    ids = g.input("ids", 7, (8, WIDTH))
    table = g.constant(g.random.standard_normal(1000).astype(F32))
    x = g.add("Add", "x", g.add("Gather", table, ids, axis=0))
    short = g.constant(g.random.standard_normal((2, WIDTH)).astype(F32))
    y = g.block(g.add("Add", g.linear(x), g.add("GatherElements", short, ids, axis=0)), FAR)
    return g.model({y: 1}), {ids: np.random.default_rng(3).integers(0, 2, (8, WIDTH))}


@pytest.mark.parametrize("make", [masked, looked_up])
def test_numbers_are_found_that_a_network_takes(make: Any, messages: Any) -> None:
    model, given = make()
    engine = built(model)
    assert "stay float32" in messages()[-1], messages()
    given["x"] = np.random.default_rng(2).standard_normal((8, WIDTH)).astype(F32)
    (got,) = engine.run(given).values()
    (want,) = ReferenceEvaluator(model).run(None, given)
    assert error(got, want) < 0.0625


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (3, "`sample` holds something that is no batch"),
        ([{"y": 1}], "does not have an array for each input"),
        ([[1, 2]], "`sample` holds something that is no batch"),
        ({"x": np.zeros((8, 3), F32)}, "shape that the network does not take"),
        ({"x": np.zeros((8, WIDTH))}, "another dtype than its input"),
    ],
)
def test_samples_that_fit_no_input_are_refused(sample: Any, message: str) -> None:
    model, _ = norm_first()
    with pytest.raises(nx.Error) as caught:
        built(model, sample=sample)
    assert message in str(caught.value), str(caught.value)


def test_the_command_line_takes_samples_from_files(tmp_path: Path) -> None:
    model, _ = norm_first()
    onnx.save(model, tmp_path / "model.onnx")
    data = (np.random.default_rng(2).standard_normal((8, WIDTH)) + FAR).astype(F32)
    np.save(tmp_path / "x.npy", data)
    np.savez(tmp_path / "x.npz", x=data)
    for sample in ("x.npy", "x.npz"):
        engine = tmp_path / "model.engine"
        words = [
            "export",
            tmp_path / "model.onnx",
            "--output",
            engine,
            "--precision",
            "bf16",
            "--input-shape",
            8,
            WIDTH,
        ]
        words += ["--backend", "cpu", "--optimization-level", 0, "--sample", tmp_path / sample]
        assert main([str(word) for word in words]) == 0
        notes = TensorRTBackend(providers=["cpu"]).load(engine).report()["notes"]
        assert any("stay float32" in note for note in notes), notes


def test_networks_that_were_read_already_take_samples(messages: Any) -> None:
    model, y = norm_first()
    data = (np.random.default_rng(2).standard_normal((8, WIDTH)) + FAR).astype(F32)
    engine = built(from_onnx(model), {"x": data.shape}, sample=data)
    assert "stay float32" in messages()[-1]
    assert error(engine.run({"x": data})[y], exact(model, data)[0]) < 0.0625
