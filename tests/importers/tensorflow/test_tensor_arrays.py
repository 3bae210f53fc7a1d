"""TensorArrays give what TensorFlow gives, wherever a loop writes them; in order they are stacked, and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.importers.tensorflow.models import needs_tensorflow, tf

pytestmark = needs_tensorflow

Array = np.ndarray[Any, Any]


def traced(function: Callable[[Any], Any], *dims: int | None) -> Any:
    """A function of one input of these dimensions, with AutoGraph."""
    return tf.function(function, input_signature=[tf.TensorSpec(dims, tf.float32, name="x")])


def same(function: Any, x: Array, level: int = 1) -> list[str]:
    """Compares an engine with TensorFlow; gives the ops of the network."""
    network = nx.importers.from_tensorflow(function)
    engine = nx.optimize(network, {"x": x.shape}, verify=False, optimization_level=level)
    found, wanted = list(engine({"x": x}).values()), tf.nest.flatten(function(tf.constant(x)))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == tuple(other.shape)
        np.testing.assert_allclose(one, other.numpy(), atol=1e-5)
    return [layer.op for layer in network.layers]


def random(*shape: int) -> Array:
    """Values that are others in each run."""
    return np.random.default_rng().normal(size=shape).astype("float32")


def array(size: Any, **options: Any) -> Any:
    """A TensorArray that may be read several times."""
    return tf.TensorArray(tf.float32, size=size, clear_after_read=False, **options)


def in_a_map(x: Any) -> Any:
    return tf.map_fn(tf.sin, x)


def in_a_scan(x: Any) -> Any:
    return tf.scan(lambda a, b: a * 0.5 + b, x, initializer=tf.zeros(3))


def in_order(x: Any) -> Any:
    n = tf.shape(x)[0]
    made = array(n)
    for i in tf.range(n):
        made = made.write(i, tf.sin(x[i]))
    return made.stack()


def in_a_while(x: Any) -> Any:
    n = tf.shape(x)[0]
    return tf.while_loop(lambda i, _: i < n, lambda i, to: (i + 1, to.write(i, tf.sin(x[i]))), [0, array(n)])[1].stack()


def growing(x: Any) -> Any:
    made = array(0, dynamic_size=True)
    for i in tf.range(tf.shape(x)[0]):
        made = made.write(i, tf.sin(x[i]))
    return made.stack()


def from_one(x: Any) -> Any:
    n = tf.shape(x)[0]
    made = array(n - 1)
    for i in tf.range(1, n):
        made = made.write(i - 1, tf.sin(x[i]))
    return made.stack()


def nested(x: Any) -> Any:
    n = tf.shape(x)[0]
    made = array(n)
    for i in tf.range(n):
        row = array(3)
        for j in tf.range(3):
            row = row.write(j, tf.sin(x[i, j]))
        made = made.write(i, row.stack())
    return made.stack()


def read_in_front(x: Any) -> Any:
    def step(i: Any, given: Any, to: Any) -> Any:
        return i + 1, given, to.write(i, tf.sin(given.read(i)))

    return tf.while_loop(lambda i, *_: i < 6, step, [0, array(6).unstack(x), array(6)])[2].stack()


@pytest.mark.parametrize(
    "function", [in_a_map, in_a_scan, in_order, in_a_while, growing, from_one, nested], ids=lambda one: one.__name__
)
def test_what_is_written_in_order_is_stacked(function: Callable[[Any], Any]) -> None:
    found = same(traced(function, None, 3), random(5, 3))
    assert "Loop" in found and not {"ScatterND", "Concat"} & set(found)


def test_a_list_in_front_of_the_written_one() -> None:
    assert "ScatterND" not in same(traced(read_in_front, 6, 3), random(6, 3))


def write(index: Callable[[Any, Any], Any], size: Any, **options: Any) -> Callable[[Any], Any]:
    """A loop over rows that writes at any index."""

    def function(x: Any) -> Any:
        n = tf.shape(x)[0]
        made = array(size(n), **options)
        for i in tf.range(n):
            made = made.write(index(i, n), tf.sin(x[i]))
        return made.stack()

    return function


WRITES = {
    "reversed": (lambda i, n: n - 1 - i, lambda n: n, {}),
    "every other": (lambda i, n: 2 * i, lambda n: 2 * n, {"element_shape": [3]}),
    "repeated": (lambda i, n: i // 2, lambda n: n, {"element_shape": [3]}),
    "the same": (lambda i, n: 0 * i, lambda n: 1, {}),
    "not the last": (lambda i, n: i, lambda n: n + 2, {}),
    "with gaps, growing": (lambda i, n: 2 * i + 1, lambda n: 2, {"dynamic_size": True, "element_shape": [3]}),
}


@pytest.mark.parametrize("kind", WRITES)
def test_indices(kind: str) -> None:
    index, size, options = WRITES[kind]
    same(traced(write(index, size, **options), None, 3), random(5, 3))


@pytest.mark.parametrize("level", [0, 3])
def test_the_last_of_several_writes_stays(level: int) -> None:
    index, size, options = WRITES["repeated"]
    assert "ScatterND" in same(traced(write(index, size, **options), None, 3), random(6, 3), level)


@pytest.mark.parametrize("kind", ["reversed", "not the last"])
def test_no_steps(kind: str) -> None:
    index, size, _ = WRITES[kind]
    same(traced(write(index, size, element_shape=[3]), None, 3), random(0, 3))


def test_a_loop_that_ends_early() -> None:
    def function(x: Any) -> Any:
        def step(i: Any, n: Any, to: Any) -> Any:
            return i + 1, n - 1, to.write(i, x[i])

        return tf.while_loop(lambda i, n, _: i < n, step, [0, 6, array(6)])[2].stack()

    same(traced(function, 6, 3), random(6, 3))


def test_viterbi() -> None:
    between = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")

    def function(x: Any) -> Any:
        score, back = x[:, 0], tf.TensorArray(tf.int32, size=6)
        for t in tf.range(1, 7):
            every = score[:, :, None] + between
            back = back.write(t - 1, tf.argmax(every, 1, output_type=tf.int32))
            score = tf.reduce_max(every, 1) + x[:, t]
        before, tag = back.stack(), tf.argmax(score, 1, output_type=tf.int32)
        tags = tf.TensorArray(tf.int32, size=7).write(6, tag)
        for t in tf.range(5, -1, -1):
            tag = tf.gather(before[t], tag, batch_dims=1)
            tags = tags.write(t, tag)
        return tf.transpose(tags.stack())

    same(traced(function, None, 7, 4), random(3, 7, 4))


def reads_its_own(x: Any) -> Any:
    made = array(7, element_shape=[3]).write(0, tf.ones(3))
    for i in tf.range(6):
        made = made.write(i + 1, made.read(i) * 0.5 + x[i])
    return made.stack()


def sometimes(x: Any) -> Any:
    made = array(6, element_shape=[3])
    for i in tf.range(6):
        if x[i, 0] > 0:
            made = made.write(i, x[i])
    return made.stack()


def twice(x: Any) -> Any:
    made = array(12)
    for i in tf.range(6):
        made = made.write(2 * i, x[i]).write(2 * i + 1, -x[i])
    return made.stack()


def shared_by_nested(x: Any) -> Any:
    made = array(18)
    for i in tf.range(6):
        for j in tf.range(3):
            made = made.write(i + 6 * j, x[i, j])
    return made.stack()


def two_lengths(x: Any) -> Any:
    first, second = array(6), array(3)
    for i in tf.range(6):
        first, second = first.write(i, tf.sin(x[i])), second.write(i // 2, tf.cos(x[i]))
    return first.stack(), second.stack()


def two_loops(x: Any) -> Any:
    made = array(6, element_shape=[3])
    for i in tf.range(3):
        made = made.write(i, tf.sin(x[i]))
    for i in tf.range(3, 6):
        made = made.write(i, tf.cos(x[i]))
    return made.stack()


def backwards(x: Any) -> Any:
    return tf.scan(lambda a, b: a * 0.5 + b, x, reverse=True)


def read_behind(x: Any) -> Any:
    made = array(8, element_shape=[3])
    for i in tf.range(6):
        made = made.write(5 - i, tf.sin(x[i]))
    return made.concat(), made.gather([2, 0]), made.read(1), made.size()


def in_branches(x: Any) -> Any:
    made = array(6, element_shape=[3])
    for k in tf.range(2):
        if x[k, 0] > 0:
            for i in tf.range(3):
                made = made.write(2 * i + k, tf.sin(x[i]))
        else:
            made = made.write(k, x[5])
    return made.stack()


def called_twice(x: Any) -> Any:
    inner = traced(write(lambda i, n: n - 1 - i, lambda n: n), 6, 3)
    return inner(x) + 2 * inner(tf.cos(x))


def without_a_loop(x: Any) -> Any:
    made = array(4, element_shape=[3]).write(2, x[0]).write(0, x[1])
    scattered = array(6, element_shape=[3]).scatter([3, 1, 0, 2, 5, 4], x)
    return made.stack(), array(6).unstack(x).stack(), scattered.stack()


@pytest.mark.parametrize(
    "function",
    [
        reads_its_own, sometimes, twice, shared_by_nested, two_lengths, two_loops, backwards, read_behind,
        in_branches, called_twice, without_a_loop,
    ],
    ids=lambda one: one.__name__,
)  # fmt: skip
def test_other_uses(function: Callable[[Any], Any]) -> None:
    same(traced(function, 6, 3), random(6, 3))


def open_elements(x: Any) -> Any:
    made = array(4)
    for i in tf.range(4):
        made = made.write(i, made.read(tf.maximum(i - 1, 0)) + x[:, 0])
    return made.stack()


def read_by_the_condition(x: Any) -> Any:
    def more(i: Any, made: Any) -> Any:
        return (i < 6) & (made.read(tf.maximum(i - 1, 0))[0] < 3.0)

    made = array(6, element_shape=[3])
    return tf.while_loop(more, lambda i, made: (i + 1, made.write(i, x[i])), [0, made])[1].stack()


def lengths(x: Any) -> Any:
    made = tf.TensorArray(tf.float32, size=3, infer_shape=False)
    for i in tf.range(3):
        made = made.write(i, x[: i + 1])
    return made.concat()


@pytest.mark.parametrize(
    ("function", "reason", "layer"),
    [
        (open_elements, "the shape of its elements is not known", "while"),
        (read_by_the_condition, "the condition of a loop reads it", "while"),
        (lengths, "elements whose lengths may differ", "TensorListConcatV2"),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_refused(function: Callable[[Any], Any], reason: str, layer: str) -> None:
    with pytest.raises(nx.errors.UnsupportedError, match=reason) as caught:
        nx.importers.from_tensorflow(traced(function, None, 3))
    assert caught.value.layer == layer and caught.value.hint


def first_version(index: Callable[[Any], Any], size: int) -> Any:
    """A loop as TensorFlow 1 has it."""
    v1 = tf.compat.v1
    graph = tf.Graph()
    v1.disable_control_flow_v2()
    try:
        with graph.as_default():
            x = v1.placeholder(tf.float32, [6, 3], name="x")
            made = tf.TensorArray(tf.float32, size=size, element_shape=[3])

            def step(i: Any, made: Any) -> Any:
                return i + 1, made.write(index(i), tf.sin(x[i]))

            made = v1.while_loop(lambda i, _: i < 6, step, [0, made])[1]
            tf.identity(made.stack(), name="y")
    finally:
        v1.enable_control_flow_v2()
    return graph.as_graph_def()


@pytest.mark.parametrize(("index", "size"), [(lambda i: 5 - i, 6), (lambda i: i, 8)], ids=["reversed", "not the last"])
def test_loops_of_the_first_version_are_refused(index: Callable[[Any], Any], size: int) -> None:
    with pytest.raises(nx.errors.UnsupportedError, match="loop of TensorFlow 1") as caught:
        nx.importers.from_tensorflow(first_version(index, size), outputs=["y:0"])
    assert caught.value.layer == "while/TensorArrayWrite/TensorArrayWriteV3"


def test_a_loop_of_the_first_version_in_order() -> None:
    network = nx.importers.from_tensorflow(first_version(lambda i: i, 6), outputs=["y:0"])
    x = random(6, 3)
    (found,) = nx.optimize(network, {"x": x.shape}, verify=False)({"x": x}).values()
    np.testing.assert_allclose(found, np.sin(x), atol=1e-5)


def test_counters_that_are_no_integers_prove_nothing() -> None:
    def function(x: Any) -> Any:
        def step(i: Any, time: Any, made: Any) -> Any:
            return i + 1, time + 1.5, made.write(i, x[i])

        return tf.while_loop(lambda i, time, _: time < 6.0, step, [0, 0.0, array(6)])[2].stack()

    same(traced(function, 6, 3), random(6, 3))


def test_rows_of_a_ragged_tensor_that_a_loop_reads() -> None:
    def function(x: Any) -> Any:
        rows = tf.RaggedTensor.from_row_lengths(x, [1, 2, 3])
        return tf.map_fn(lambda row: tf.reduce_sum(tf.sin(row)), rows, fn_output_signature=tf.float32)

    same(traced(function, 6, 3), random(6, 3))
