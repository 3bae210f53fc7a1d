"""The cells that Keras has: GRU, LSTM and SimpleRNN, found in the body of a loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neurenix.importers.tensorflow.recurrent.functions import Function, function
from neurenix.importers.tensorflow.recurrent.linear import Linear, Recipe, Sums
from neurenix.importers.tensorflow.recurrent.reading import ADD, NoMatch, need

#: Each new state with the one before it, as tensors of the body.
States = list[tuple[str, str]]


@dataclass
class Gate:
    """The sum of a gate: weights of the input and of the state, biases of both."""

    kernel: Recipe
    recurrent: Recipe
    bias: list[Recipe]
    recurrent_bias: list[Recipe] = field(default_factory=list)


@dataclass
class Cell:
    """A cell: ONNX's op, its gates in ONNX's order, its functions, and the states that it gives and takes."""

    op: str
    gates: list[Gate]
    functions: list[Function]
    states: States
    item: str
    linear_before_reset: bool = False


def cell(sums: Sums, output: str) -> Cell:
    """The cell whose new state a tensor is. Raises `NoMatch` where it is none of these."""
    finders: tuple[Callable[[Sums, str], Cell], ...] = (_lstm, _gru, _simple)
    for find in finders:
        try:
            return find(sums, output)
        except NoMatch:
            continue
    raise NoMatch


def _gate(sums: Linear, state: str) -> tuple[Gate, str]:
    """A gate over the state and one other tensor, which is the item of the input."""
    items = [name for name in sums.terms if name != state]
    need(len(items) == 1 and state in sums.terms)
    kernel, recurrent = sums.terms[items[0]], sums.terms[state]
    if kernel is None or recurrent is None:
        raise NoMatch
    return Gate(kernel, recurrent, sums.bias), items[0]


def _same(items: list[str]) -> str:
    need(len(set(items)) == 1)
    return items[0]


def _states(sums: Sums, tensors: list[str]) -> list[str]:
    """The tensors that are inputs of the body, without the weights."""
    return [tensor for tensor in tensors if tensor in sums.graph.input_names]


def _simple(sums: Sums, output: str) -> Cell:
    """act(x W + h R + b)."""
    applied, inner = function(sums, output)
    total = sums.linear(inner)
    state = _same(_states(sums, list(total.terms)))
    gate, item = _gate(total, state)
    return Cell("RNN", [gate], [applied], [(output, state)], item)


def _gru(sums: Sums, output: str) -> Cell:
    """z * h + (1 - z) * candidate."""
    for kept, fresh in sums.operands(output, *ADD):
        for update, state in sums.operands(kept, "Mul"):
            for rest, candidate in sums.operands(fresh, "Mul"):
                try:
                    need(state in sums.graph.input_names)
                    _complement(sums, rest, update)
                    return _gated(sums, output, update, state, candidate)
                except NoMatch:
                    continue
    raise NoMatch


def _complement(sums: Sums, rest: str, update: str) -> None:
    one, other = sums.of(rest, "Sub").input
    need(float(sums.value(one)) == 1.0 and sums.root(other) == update)


def _gated(sums: Sums, output: str, update: str, state: str, candidate: str) -> Cell:
    gating, inner = function(sums, update)
    z, x_of_z = _gate(sums.linear(inner), state)
    applied, total = function(sums, candidate)
    fresh = sums.linear(total)
    resets = [name for name in fresh.terms if name != x_of_z]
    need(len(resets) == 1 and x_of_z in fresh.terms)
    for reset, of_state in sums.operands(resets[0], "Mul"):
        try:
            reset_by, inner = function(sums, reset)
            r, x_of_r = _gate(sums.linear(inner), state)
            need(reset_by == gating)
            last, after = _candidate(sums, fresh, x_of_z, resets[0], of_state, state)
        except NoMatch:
            continue
        return Cell("GRU", [z, r, last], [gating, applied], [(output, state)], _same([x_of_z, x_of_r]), after)
    raise NoMatch


def _candidate(sums: Sums, fresh: Linear, item: str, reset: str, of_state: str, state: str) -> tuple[Gate, bool]:
    """The gate of the candidate, and whether the reset comes behind the product with the state."""
    kernel, recurrent = fresh.terms[item], fresh.terms[reset]
    if kernel is None:
        raise NoMatch
    if recurrent is not None:
        need(of_state == state)
        return Gate(kernel, recurrent, fresh.bias), False
    inner = sums.linear(of_state)
    product = inner.terms.get(state)
    need(list(inner.terms) == [state])
    if product is None:
        raise NoMatch
    return Gate(kernel, product, fresh.bias, inner.bias), True


def _lstm(sums: Sums, output: str) -> Cell:
    """c' = f * c + i * g; h' = o * act(c')."""
    for give, spread in sums.operands(output, "Mul"):
        applied, inner = function(sums, spread)
        try:
            return _cell(sums, output, give, sums.root(inner), applied)
        except NoMatch:
            continue
    raise NoMatch


def _cell(sums: Sums, output: str, give: str, carried: str, applied: Function) -> Cell:
    gating, total = function(sums, give)
    of_give = sums.linear(total)
    state = _same(_states(sums, list(of_give.terms)))
    o, x_of_o = _gate(of_give, state)
    for kept, taken in sums.operands(carried, *ADD):
        for forget, before in sums.operands(kept, "Mul"):
            for take, fresh in sums.operands(taken, "Mul"):
                try:
                    need(before in sums.graph.input_names and before != state)
                    found = [function(sums, one) for one in (take, forget, fresh)]
                    need(found[0][0] == found[1][0] == gating)
                    (i, x_of_i), (f, x_of_f), (g, x_of_g) = (_gate(sums.linear(one), state) for _, one in found)
                except NoMatch:
                    continue
                item, functions = _same([x_of_o, x_of_i, x_of_f, x_of_g]), [gating, found[2][0], applied]
                return Cell("LSTM", [i, o, f, g], functions, [(output, state), (carried, before)], item)
    raise NoMatch


def weights(cell: Cell, values: Any) -> list[Any]:
    """W, R and B as ONNX has them. Raises `NoMatch` where shapes do not fit."""
    try:
        kernels = [gate.kernel(values) for gate in cell.gates]
        recurrent = [gate.recurrent(values) for gate in cell.gates]
        units = recurrent[0].shape[0]
        need(all(one.shape == (units, units) for one in recurrent))
        need(all(one.shape == (kernels[0].shape[0], units) for one in kernels))
        dtype = kernels[0].dtype
        need(all(one.dtype == dtype for one in (*kernels, *recurrent)))
        zero = np.zeros(units, dtype)
        sums = [sum((one(values) for one in gate.bias), zero) for gate in cell.gates]
        sums += [sum((one(values) for one in gate.recurrent_bias), zero) for gate in cell.gates]
        bias = np.concatenate([one.reshape(units) for one in sums]).astype(dtype)
    except (ValueError, IndexError, KeyError) as error:
        raise NoMatch from error
    stack = [np.concatenate([one.T for one in parts])[None] for parts in (kernels, recurrent)]
    return [np.ascontiguousarray(array) for array in (*stack, bias[None])]
