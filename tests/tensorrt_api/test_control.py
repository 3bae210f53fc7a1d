"""Loops and conditionals put together layer by layer, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.tensorrt_api.made import constant, engine_of, profile

RNG = np.random.default_rng(0)
SUM, PROD = trt.ElementWiseOperation.SUM, trt.ElementWiseOperation.PROD
LESS, GREATER = trt.ElementWiseOperation.LESS, trt.ElementWiseOperation.GREATER
LAST, STACK, BACKWARDS = trt.LoopOutput.LAST_VALUE, trt.LoopOutput.CONCATENATE, trt.LoopOutput.REVERSE
COUNT, WHILE = trt.TripLimit.COUNT, trt.TripLimit.WHILE
NONE, TRANSPOSE, VECTOR = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE, trt.MatrixOperation.VECTOR

Network = trt.INetworkDefinition
X = RNG.standard_normal((5, 3)).astype(np.float32)


def run(build: Callable[..., Any], **inputs: np.ndarray) -> list[np.ndarray]:
    def make(network: Network) -> Any:
        return build(network, *(network.add_input(name, x.dtype, x.shape) for name, x in inputs.items()))

    given = engine_of(make).create_execution_context().execute(inputs)
    return list(given.values())


def whole(network: Network, value: int) -> trt.ILayer:
    return constant(network, value, np.int32)


def counted(network: Network, count: int) -> trt.ILoop:
    loop = network.add_loop()
    loop.add_trip_limit(whole(network, count).get_output(0), COUNT)
    return loop


def carried(loop: trt.ILoop, first: Any, following: Callable[[Any], Any]) -> trt.IRecurrenceLayer:
    recurrence = loop.add_recurrence(first)
    recurrence.set_input(1, following(recurrence.get_output(0)))
    return recurrence


def stacked(network: Network, loop: trt.ILoop, tensor: Any, kind: Any, length: int, axis: int = 0) -> trt.ILayer:
    output = loop.add_loop_output(tensor, kind, axis)
    output.set_input(1, whole(network, length))
    return output


def test_a_sum_adds_up_and_its_values_are_stacked_both_ways_along_each_axis() -> None:
    def build(n: Network, x: Any) -> list[Any]:
        loop = counted(n, 5)
        row = loop.add_iterator(x)
        total = carried(loop, constant(n, np.zeros(3)), lambda now: n.add_elementwise(now, row, SUM))
        following = total.get_input(1)
        outputs = [
            loop.add_loop_output(total.get_output(0), LAST),
            stacked(n, loop, following, STACK, 5),
            stacked(n, loop, following, BACKWARDS, 5, axis=1),
            stacked(n, loop, total, STACK, 5),
        ]
        assert [tuple(o.get_output(0).shape) for o in outputs] == [(3,), (5, 3), (3, 5), (5, 3)]
        return outputs

    sums = np.cumsum(X, 0)
    want = [sums[-1], sums, sums[::-1].T, np.concatenate([np.zeros((1, 3)), sums[:-1]])]
    for got, expected in zip(run(build, x=X), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_fibonacci_ends_before_its_condition_fails() -> None:
    def build(n: Network, bound: Any) -> list[Any]:
        loop = n.add_loop()
        a, b = loop.add_recurrence(whole(n, 0)), loop.add_recurrence(whole(n, 1))
        a.set_input(1, b.get_output(0))
        b.set_input(1, n.add_elementwise(a, b, SUM).get_output(0))
        loop.add_trip_limit(n.add_elementwise(a, bound, LESS).get_output(0), WHILE)
        stacks = [stacked(n, loop, a, kind, 10) for kind in (STACK, BACKWARDS)]
        return [loop.add_loop_output(a.get_output(0), LAST), *stacks]

    for bound, last, terms in ((20, 21, [0, 1, 1, 2, 3, 5, 8, 13]), (0, 0, []), (100, 144, [])):
        got = run(build, bound=np.array(bound, np.int32))
        terms = terms or [0, 1, 1, 2, 3, 5, 8, 13, 21, 34][: 10 if bound else 0]
        padded = terms + [0] * (10 - len(terms))
        np.testing.assert_array_equal(got[0], last)
        np.testing.assert_array_equal(got[1], padded)
        np.testing.assert_array_equal(got[2], padded[::-1])


def test_a_condition_reads_the_slices_of_iterators_and_the_lesser_limit_ends_the_loop() -> None:
    def build(n: Network, x: Any, count: Any) -> list[Any]:
        loop = n.add_loop()
        loop.add_trip_limit(count, COUNT)
        now = loop.add_iterator(x)
        loop.add_trip_limit(n.add_elementwise(now, constant(n, 0), GREATER).get_output(0), WHILE)
        total = carried(loop, constant(n, 0), lambda total: n.add_elementwise(total, now, SUM))
        return [loop.add_loop_output(total.get_output(0), LAST)]

    values = np.array([1, 2, 3, -1, 5], np.float32)
    for given, count, want in ((values, 5, 6), (values, 2, 3), (abs(values), 5, 12), (values, 0, 0)):
        assert run(build, x=given, count=np.array(count, np.int64)) == [want]


def test_lengths_are_those_of_the_engine_though_a_condition_ends_the_loop() -> None:
    def build(n: Network) -> Any:
        bound = n.add_input("bound", trt.float32, (3, 7))
        loop = n.add_loop()
        now = carried(loop, constant(n, 1), lambda now: n.add_elementwise(now, now, SUM))
        loop.add_trip_limit(n.add_elementwise(now, constant(n, 30), LESS).get_output(0), WHILE)
        output = loop.add_loop_output(now.get_output(0), STACK)
        output.set_input(1, n.add_gather(n.add_shape(bound), constant(n, 1, np.int32), 0))
        return output

    engine = engine_of(build)
    assert tuple(engine.get_tensor_shape("LoopOutput_0_output")) == (7,)
    given = engine.create_execution_context().execute({"bound": np.zeros((3, 7), np.float32)})
    np.testing.assert_array_equal(given["LoopOutput_0_output"], [1, 2, 4, 8, 16, 0, 0])


W, R = (RNG.standard_normal((4, k)).astype(np.float32) for k in (3, 4))


@pytest.mark.parametrize("reverse", [False, True])
def test_an_rnn_cell_runs_over_a_sequence_of_any_length_and_batch(reverse: bool) -> None:
    def build(n: Network) -> Any:
        x, h0 = n.add_input("x", trt.float32, (-1, -1, 3)), n.add_input("h0", trt.float32, (-1, 4))
        shape = n.add_gather(n.add_shape(x), constant(n, 1, np.int32), 0)
        loop = n.add_loop()
        loop.add_trip_limit(shape.get_output(0), COUNT)
        step = loop.add_iterator(x, axis=1, reverse=reverse)

        def cell(h: Any) -> Any:
            new = n.add_matrix_multiply(step, NONE, constant(n, W), TRANSPOSE)
            old = n.add_matrix_multiply(h, NONE, constant(n, R), TRANSPOSE)
            return n.add_activation(n.add_elementwise(old, new, SUM), trt.ActivationType.TANH)

        hidden = carried(loop, h0, cell)
        output = loop.add_loop_output(hidden.get_input(1), BACKWARDS if reverse else STACK, 1)
        output.set_input(1, shape)
        return [output, loop.add_loop_output(hidden.get_output(0), LAST)]

    shapes = {"x": [(1, 1, 3), (2, 4, 3), (8, 8, 3)], "h0": [(1, 4), (2, 4), (8, 4)]}
    engine = engine_of(build, lambda builder, config: profile(builder, config, **shapes))
    context = engine.create_execution_context()
    for batch, length in ((2, 4), (3, 7)):
        x, h = (RNG.standard_normal(s).astype(np.float32) for s in ((batch, length, 3), (batch, 4)))
        arrays = {"x": x, "h0": h}
        for name in engine:
            if name in arrays:
                assert context.set_input_shape(name, arrays[name].shape)
            else:
                arrays[name] = np.empty(context.get_tensor_shape(name), np.float32)
            context.set_tensor_address(name, arrays[name].ctypes.data)
        assert context.execute_async_v3(0), trt.last_error()
        stack, last = list(arrays.values())[2:]
        want = np.zeros((batch, length, 4), np.float32)
        for at in range(length)[:: -1 if reverse else 1]:
            h = want[:, at] = np.tanh(x[:, at] @ W.T + h @ R.T)
        np.testing.assert_allclose(stack, want, atol=1e-5)
        np.testing.assert_allclose(last, h, atol=1e-5)


def test_that_dynamic_dimensions_of_a_recurrence_stay_is_seen_by_calls() -> None:
    network = trt.Builder().create_network()
    x, first = network.add_input("x", trt.float32, (2, "m")), network.add_input("first", trt.float32, ("n",))
    loop = counted(network, 2)
    row = loop.add_iterator(x)
    output = loop.add_loop_output(carried(loop, first, lambda now: row.get_output(0)).get_output(0), LAST)
    network.mark_output(output)
    made = network.to_network()
    assert [tensor.shape for tensor in made.outputs.values()] == [("n",)]
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    (given,) = made.evaluate({"x": rows, "first": np.zeros(3, np.float32)}).values()
    np.testing.assert_array_equal(given, rows[1])
    with pytest.raises(nx.Error, match="Recurrence_0"):
        made.evaluate({"x": rows, "first": np.zeros(2, np.float32)})


def test_a_loop_in_a_loop_reads_what_the_outer_one_carries() -> None:
    def build(n: Network, x: Any) -> list[Any]:
        outer = counted(n, 5)
        row = outer.add_iterator(x)

        def added(total: Any) -> Any:
            inner = counted(n, 3)
            entry = inner.add_iterator(row.get_output(0))

            def product(now: Any) -> Any:
                return n.add_elementwise(n.add_elementwise(now, entry, PROD), total, SUM)

            return inner.add_loop_output(carried(inner, constant(n, 1), product).get_output(0), LAST)

        total = carried(outer, constant(n, 0.5), added)
        return [stacked(n, outer, total.get_input(1), STACK, 5)]

    total, want = 0.5, []
    for row in X.astype(np.float64):
        now = 1.0
        for entry in row:
            now = now * entry + total
        total = now
        want.append(total)
    np.testing.assert_allclose(run(build, x=X)[0], want, rtol=1e-4)


def branches(n: Network, x: Any, condition: Any) -> trt.ILayer:
    """x + 1 where the condition holds, else x * 3."""
    choice = n.add_if_conditional()
    choice.set_condition(condition)
    inside = choice.add_input(x)
    one, three = (constant(n, np.full([1] * len(inside.get_output(0).shape), value)) for value in (1, 3))
    return choice.add_output(
        n.add_elementwise(inside, one, SUM).get_output(0), n.add_elementwise(inside, three, PROD).get_output(0)
    )


def test_a_constant_condition_chooses_a_branch() -> None:
    for holds in (True, False):
        given = run(lambda n, x, holds=holds: branches(n, x, constant(n, holds, np.bool_).get_output(0)), x=X)[0]
        np.testing.assert_allclose(given, X + 1 if holds else X * 3, rtol=1e-6)


def test_a_computed_condition_chooses_a_branch() -> None:
    def build(n: Network, x: Any) -> Any:
        total = n.add_reduce(x, trt.ReduceOperation.SUM, 3, False)
        return branches(n, x, n.add_elementwise(total, constant(n, 0), GREATER).get_output(0))

    for x in (abs(X), -abs(X)):
        np.testing.assert_allclose(run(build, x=x)[0], x + 1 if x.sum() > 0 else x * 3, rtol=1e-6)


def test_outputs_of_a_conditional_may_differ_in_extents_and_come_from_outside() -> None:
    def build(n: Network, x: Any, holds: Any) -> list[Any]:
        choice = n.add_if_conditional()
        choice.set_condition(holds)
        half = n.add_slice(choice.add_input(x), (0, 0), (2, 3), (1, 1))
        output = choice.add_output(half.get_output(0), x)
        assert tuple(output.get_output(0).shape) == (-1, 3)
        return [output, choice.add_output(x, x)]

    for holds in (True, False):
        got = run(build, x=X, holds=np.array(holds))
        np.testing.assert_array_equal(got[0], X[:2] if holds else X)
        np.testing.assert_array_equal(got[1], X)


def test_a_conditional_in_a_loop_and_a_loop_in_a_conditional() -> None:
    def build(n: Network, x: Any) -> list[Any]:
        loop = counted(n, 5)
        value = loop.add_iterator(x).get_output(0)

        def chosen(now: Any) -> Any:
            condition = n.add_elementwise(value, constant(n, 0), GREATER).get_output(0)
            return n.add_elementwise(branches(n, now, condition), value, SUM)

        changed = loop.add_loop_output(carried(loop, constant(n, 1), chosen).get_output(0), LAST)
        choice = n.add_if_conditional()
        choice.set_condition(n.add_elementwise(changed, constant(n, 0), GREATER).get_output(0))
        inside = choice.add_input(changed.get_output(0))
        powers = counted(n, 3)
        power = carried(powers, inside, lambda now: n.add_elementwise(now, inside, PROD))
        cubed = powers.add_loop_output(power.get_output(0), LAST)
        return [changed, choice.add_output(cubed.get_output(0), constant(n, -7).get_output(0))]

    for x in (X[:, 0], -abs(X[:, 1]) * 20):
        now = 1.0
        for value in x.astype(np.float64):
            now = (now + 1 if value > 0 else now * 3) + value
        got = run(build, x=x.copy())
        np.testing.assert_allclose(got, [now, now**4 if now > 0 else -7], rtol=1e-4)


def test_layers_tell_what_they_are() -> None:
    n = trt.Builder().create_network()
    loop, choice = n.add_loop(), n.add_if_conditional()
    limit = loop.add_trip_limit(whole(n, 2), COUNT)
    iterator = loop.add_iterator(n.add_input("x", trt.float32, (2, 3)), 1, True)
    total = loop.add_recurrence(constant(n, 0))
    output = loop.add_loop_output(total, LAST)
    condition = choice.set_condition(constant(n, True, np.bool_))
    inside = choice.add_input(total)
    chosen = choice.add_output(inside, total)
    assert (limit.kind, output.kind) == (COUNT, LAST)
    assert (iterator.axis, iterator.reverse, output.axis) == (1, True, 0)
    assert total.num_inputs == 1
    total.set_input(1, total.get_output(0))
    assert total.num_inputs == 2 and total.get_input(1) is total.get_output(0)
    assert all(layer.loop is loop for layer in (limit, iterator, total, output))
    assert all(layer.conditional is choice for layer in (condition, inside, chosen))
    kinds = ["TRIP_LIMIT", "ITERATOR", "RECURRENCE", "LOOP_OUTPUT"]
    kinds += ["CONDITION", "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT"]
    layers: list[Any] = [limit, iterator, total, output, condition, inside, chosen]
    assert [layer.type for layer in layers] == [getattr(trt.LayerType, kind) for kind in kinds]
    loop.name = choice.name = "mine"
    assert loop.name == choice.name == "mine"


def unfinished(n: Network, x: Any, missing: str) -> None:
    loop, choice = n.add_loop(), n.add_if_conditional()
    now = loop.add_recurrence(x)
    if missing != "next":
        now.set_input(1, n.add_elementwise(now, x, SUM).get_output(0))
    if missing != "limit":
        loop.add_trip_limit(whole(n, 2).get_output(0), COUNT)
    output = loop.add_loop_output(now.get_output(0), STACK)
    if missing != "length":
        output.set_input(1, whole(n, 2))
    if missing == "output of the loop":
        n.mark_output(now.get_input(1))
    if missing == "loop of its own":
        now.set_input(1, loop.add_loop_output(now.get_output(0), LAST).get_output(0))
    if missing != "condition":
        choice.set_condition(constant(n, True, np.bool_).get_output(0))
    n.mark_output(choice.add_output(output.get_output(0), output.get_output(0)))


@pytest.mark.parametrize(
    "missing, words",
    [
        ("next", ("Recurrence_0", "set_input(1, tensor)")),
        ("limit", ("Loop_0", "add_trip_limit")),
        ("length", ("LoopOutput_0", "set_input(1, length)")),
        ("condition", ("Conditional_1", "set_condition")),
        ("output of the loop", ("ElementWise_0_output", "read outside of it", "add_loop_output")),
        ("loop of its own", ("Loop_0", "read inside of it", "recurrence")),
    ],
)
def test_what_is_unfinished_is_refused_when_the_network_is_built(missing: str, words: tuple[str, ...]) -> None:
    builder = trt.Builder()
    network = builder.create_network()
    unfinished(network, network.add_input("x", trt.float32, (3,)), missing)
    with pytest.raises(nx.InvalidArgumentError) as caught:
        network.to_network()
    assert all(word in str(caught.value) for word in words), str(caught.value)


Wrong = Callable[[Network, trt.ILoop, trt.IIfConditional, Any], Any]
WRONG: dict[str, Wrong] = {
    "is no TripLimit": lambda n, loop, choice, x: loop.add_trip_limit(x, LAST),
    "int32 or int64": lambda n, loop, choice, x: loop.add_trip_limit(x, COUNT),
    "has no dimensions": lambda n, loop, choice, x: choice.set_condition(constant(n, [True], np.bool_)),
    "the condition is of another type": lambda n, loop, choice, x: choice.set_condition(x),
    "has a limit of kind COUNT": lambda n, loop, choice, x: [
        loop.add_trip_limit(whole(n, 2).get_output(0), COUNT) for _ in range(2)
    ],
    "has a condition": lambda n, loop, choice, x: [choice.set_condition(constant(n, True, np.bool_)) for _ in range(2)],
    "0 to 1": lambda n, loop, choice, x: loop.add_iterator(x, 2),
    "0 to 2": lambda n, loop, choice, x: loop.add_loop_output(x, STACK, -1),
    "of a recurrence": lambda n, loop, choice, x: loop.add_loop_output(x, LAST),
    "the length of what a loop gives": lambda n, loop, choice, x: [
        output := loop.add_loop_output(x, STACK),
        output.set_input(1, x),
        output.get_output(0).shape,
    ],
    "has two inputs": lambda n, loop, choice, x: loop.add_recurrence(x).set_input(2, x),
    "of another type than the first": lambda n, loop, choice, x: loop.add_recurrence(x).set_input(1, whole(n, 1)),
    "another shape than the first": lambda n, loop, choice, x: loop.add_recurrence(x).set_input(1, constant(n, 1)),
    "add_cast": lambda n, loop, choice, x: loop.add_recurrence(x).set_output_type(0, trt.float16),
    "different types": lambda n, loop, choice, x: choice.add_output(x, whole(n, 1).get_output(0)),
    "numbers of dimensions": lambda n, loop, choice, x: choice.add_output(x, constant(n, 1).get_output(0)),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arguments_are_refused_at_the_call(words: str) -> None:
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (5, 3))
    with pytest.raises(nx.Error, match=words):
        WRONG[words](network, network.add_loop(), network.add_if_conditional(), x)
