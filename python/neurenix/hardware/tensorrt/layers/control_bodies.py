"""Turns loops and conditionals into layers that hold networks: Loop and If."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neurenix._native import Network, Tensor
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.control_classes import (
    Block,
    IIteratorLayer,
    ILoopOutputLayer,
    IRecurrenceLayer,
    require_shape,
)
from neurenix.hardware.tensorrt.layer import ILayer, ITensor, Scope
from neurenix.hardware.tensorrt.layer_enums import LoopOutput, TripLimit
from neurenix.hardware.tensorrt.layers.conditional import IIfConditional
from neurenix.hardware.tensorrt.layers.control_structure import Structure
from neurenix.hardware.tensorrt.layers.loop import ILoop


class Frame:
    """A network in the making, or a second reading of a part of one, and what stands for which tensor in it."""

    def __init__(
        self,
        network: Network,
        tensors: dict[int, Tensor] | None = None,
        around: Frame | None = None,
        prefix: str = "",
        step: Tensor | None = None,
        ahead: bool = False,
    ) -> None:
        self.network = network
        self.around = around
        #: What stands in front of the names of its layers.
        self.prefix = prefix
        #: The number of the iteration, int64.
        self.step = step
        #: Whether that may be an iteration that never comes.
        self.ahead = ahead
        #: What the last inputs of the network stand for in the network around.
        self.captures: list[Tensor] = []
        self._tensors: dict[int, Tensor] = {} if tensors is None else tensors

    def scope(self, name: str, inputs: Sequence[Tensor | None] = ()) -> Scope:
        """Where to add a layer."""
        return Scope(self.network, self.prefix + name, list(inputs))

    def read(self, tensor: ITensor) -> Tensor:
        """What stands for a tensor here; one of a network around is captured.

        Raises `InvalidArgumentError` for one from inside of another block.
        """
        if id(tensor) not in self._tensors:
            if self.around is None:
                raise InvalidArgumentError(
                    "a tensor from inside of a loop or conditional is read outside of it",
                    tensor=tensor.name,
                    hint="give it out by add_loop_output of the loop, or add_output of the conditional",
                )
            outer = self.around.read(tensor)
            self._tensors[id(tensor)] = outer if self.around.network is self.network else self._capture(outer)
        return self._tensors[id(tensor)]

    def bind(self, layer: ILayer, outputs: Sequence[Tensor]) -> None:
        """Says what stands for the outputs of a layer."""
        self._tensors.update(zip(map(id, layer._outputs), outputs, strict=True))

    def _capture(self, outer: Tensor) -> Tensor:
        before = len(self.network.inputs)
        tensor = self.network.capture(outer)
        if len(self.network.inputs) > before:
            self.captures.append(outer)
        return tensor


class Bodies:
    """Adds layers to networks, those inside of loops and conditionals to the networks that these hold."""

    def __init__(self, results: Sequence[ITensor]) -> None:
        self._structure = Structure(results)

    def fill(self, frame: Frame, block: Block | None, results: Sequence[ITensor]) -> list[Tensor]:
        """Adds what stands in a block itself, or in none, and is needed for these results; gives them."""
        for node in self._structure.held(block, results):
            if isinstance(node, ILoop):
                self._add_loop(frame, node)
            elif isinstance(node, IIfConditional):
                self._add_conditional(frame, node)
            elif isinstance(node, IIteratorLayer):
                frame.bind(node, [_element(frame, node)])
            elif isinstance(node, ILayer):
                self._add(frame, node)
        return [frame.read(tensor) for tensor in results]

    def _add(self, frame: Frame, layer: ILayer) -> None:
        scope = frame.scope(layer.name, [None if t is None else frame.read(t) for t in layer._inputs])
        scope.names = layer._weight_names
        frame.bind(layer, layer._made(scope))

    def _add_conditional(self, frame: Frame, conditional: IIfConditional) -> None:
        held = {}
        for side, attr in enumerate(("then_branch", "else_branch")):
            branch = Frame(Network(f"{conditional.name}.{attr}"), around=frame)
            results = self.fill(branch, conditional, [_input(output, side) for output in conditional._outputs])
            _mark(branch.network, results)
            held[attr] = (branch.network, branch.captures)
        assert conditional._condition is not None
        condition = frame.read(_input(conditional._condition, 0))
        outputs = frame.network.add_control("If", [condition], held, {}, frame.prefix + conditional.name)
        for output, tensor in zip(conditional._outputs, outputs, strict=True):
            frame.bind(output, [tensor])

    def _add_loop(self, frame: Frame, loop: ILoop) -> None:
        initial = [frame.read(_input(recurrence, 0)) for recurrence in loop._recurrences]
        stacked = [output for output in loop._outputs if output.kind is not LoopOutput.LAST_VALUE]
        body = self._body(frame, loop, initial, stacked)
        limits = [self._count(frame, loop), self._starts(frame, loop, initial)]
        held, attrs = {"body": (body.network, body.captures)}, {"carried": len(initial)}
        given = frame.network.add_control("Loop", [*limits, *initial], held, attrs, frame.prefix + loop.name)
        last = dict(zip((r._outputs[0] for r in loop._recurrences), given, strict=False))
        for output in loop._outputs:
            if output.kind is LoopOutput.LAST_VALUE:
                frame.bind(output, [last[_input(output, 0)]])
        for output, tensor in zip(stacked, given[len(initial) :], strict=True):
            frame.bind(output, [_stack(frame, output, tensor)])

    def _body(self, frame: Frame, loop: ILoop, initial: list[Tensor], stacked: list[ILoopOutputLayer]) -> Frame:
        """What runs in each iteration."""
        network = Network(loop.name)
        step, goes_on = network.add_input("step", np.int64, ()), network.add_input("goes_on", np.bool_, ())
        body = Frame(network, around=frame, step=step)
        for index, (recurrence, tensor) in enumerate(zip(loop._recurrences, initial, strict=True)):
            body.bind(recurrence, [network.add_input(f"carried_{index}", tensor.dtype, tensor.shape)])
        nexts, parts = [_input(r, 1) for r in loop._recurrences], [_input(output, 0) for output in stacked]
        given = self.fill(body, loop, nexts + parts)
        for index, recurrence in enumerate(loop._recurrences):
            given[index] = _kept(body, recurrence, given[index])
        _mark(network, [self._goes_on(body, loop, given) or goes_on, *given])
        return body

    def _count(self, frame: Frame, loop: ILoop) -> Tensor | None:
        limit = loop._limits.get(TripLimit.COUNT)
        if limit is None:
            return None
        return frame.scope(limit.name).add("Cast", frame.read(_input(limit, 0)), to=np.dtype(np.int64))

    def _starts(self, frame: Frame, loop: ILoop, initial: Sequence[Tensor]) -> Tensor | None:
        """Whether the condition of a loop holds of what the first iteration begins with."""
        if TripLimit.WHILE not in loop._limits:
            return None
        step = frame.scope(loop.name).constant(0, np.int64, "first")
        return self._condition(
            Frame(frame.network, None, frame, f"{frame.prefix}{loop.name}.start/", step), loop, initial
        )

    def _goes_on(self, body: Frame, loop: ILoop, following: Sequence[Tensor]) -> Tensor | None:
        """Whether it holds of what the next iteration begins with."""
        if TripLimit.WHILE not in loop._limits:
            return None
        assert body.step is not None
        scope = body.scope(loop.name)
        step = scope.add("Add", body.step, scope.constant(1, np.int64, "one"))
        return self._condition(Frame(body.network, None, body, f"{loop.name}.next/", step, ahead=True), loop, following)

    def _condition(self, frame: Frame, loop: ILoop, values: Sequence[Tensor]) -> Tensor:
        for recurrence, value in zip(loop._recurrences, values, strict=False):
            frame.bind(recurrence, [value])
        return self.fill(frame, loop, [_input(loop._limits[TripLimit.WHILE], 0)])[0]


def _input(layer: ILayer, index: int) -> ITensor:
    """An input that is there: blocks that lack one were refused before."""
    tensor = layer.get_input(index)
    assert tensor is not None
    return tensor


def _mark(network: Network, results: Sequence[Tensor]) -> None:
    for index, tensor in enumerate(results):
        network.mark_output(tensor, f"{index}: {tensor.name}")


def _kept(body: Frame, recurrence: IRecurrenceLayer, following: Tensor) -> Tensor:
    """The next value of a recurrence, of the shape that it has: that two dynamic dimensions are equal a call tells."""
    now = body.read(recurrence._outputs[0])
    require_shape(recurrence, now.shape, following.shape)
    if now.shape == following.shape:
        return following
    scope = body.scope(recurrence.name)
    return scope.add("Reshape", following, scope.add("Shape", now), allowzero=1)


def _element(frame: Frame, iterator: IIteratorLayer) -> Tensor:
    """The slice of an iteration; the last one for an iteration that never comes."""
    x, axis, step = frame.read(_input(iterator, 0)), iterator.axis, frame.step
    scope = frame.scope(iterator.name)
    if iterator.reverse or frame.ahead:
        last = scope.add("Sub", _extent(scope, x, axis), scope.constant(1, np.int64, "one"))
        step = scope.add("Min", step, last) if frame.ahead else step
        step = scope.add("Sub", last, step) if iterator.reverse else step
    return scope.add("Gather", x, step, axis=axis)


def _extent(scope: Scope, x: Tensor, axis: int) -> Tensor:
    return scope.add("Gather", scope.add("Shape", x), scope.constant(axis, np.int64, "axis"), axis=0)


def _stack(frame: Frame, output: ILoopOutputLayer, x: Tensor) -> Tensor:
    """What a loop stacked along axis 0, of the length, the direction and along the axis that were asked for."""
    scope, rank = frame.scope(output.name), len(x.shape)
    x = _of_length(scope, x, frame.read(_input(output, 1)))
    if output.kind is LoopOutput.REVERSE:
        bounds = {"last": -1, "end": np.iinfo(np.int64).min, "axis": 0, "back": -1}
        x = scope.add("Slice", x, *(scope.constant([value], np.int64, what) for what, value in bounds.items()))
    order = [*range(1, rank)]
    order.insert(output.axis, 0)
    return x if output.axis == 0 else scope.add("Transpose", x, perm=order)


def _of_length(scope: Scope, x: Tensor, length: Tensor) -> Tensor:
    """The first elements along axis 0, zeros behind them where there are fewer."""
    known, value = length.known(), length.value
    wanted = int(known) if known is not None else value[0] if value else None
    if wanted == x.shape[0]:
        return x
    zero, one = scope.constant([0], np.int64, "zero"), scope.constant([1], np.int64, "one")
    length = scope.add("Reshape", scope.add("Cast", length, to=np.dtype(np.int64)), one)
    missing = scope.add("Sub", length, scope.add("Shape", x, end=1))
    pads = scope.add("Concat", zero, scope.add("Max", missing, zero), axis=0)
    padded = scope.add("Pad", x, pads, None, zero, mode="constant")
    # The shape rules see the length as it was given, not as what padding and slicing make of the number of iterations.
    shape = scope.add("Concat", length, scope.add("Shape", x, start=1), axis=0)
    return scope.add("Reshape", scope.add("Slice", padded, zero, length, zero), shape, allowzero=1)
