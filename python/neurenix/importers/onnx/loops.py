"""Loop and SequenceMap: as a network that a layer holds, or step by step where the import knows every step."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix._native import Dim, Tensor
from neurenix.errors import Error, UnsupportedError
from neurenix.importers.onnx import check, control, packed
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.packed import Packed, joined, merged
from neurenix.importers.onnx.sequence import listed
from neurenix.importers.onnx.values import (
    AppendedSequence,
    AppendedTensor,
    AppendOnlyError,
    Element,
    Given,
    Kind,
    KnownSequence,
    List,
    Ports,
    RaggedSequence,
    Shape,
    StackedSequence,
    form,
    is_list,
    kind,
    rebuilt,
)

if TYPE_CHECKING:
    import onnx

    from neurenix.importers.onnx.graph import Graph

#: A Loop over sequences with so few nodes in all its steps is written out rather than run as a network of its own.
FEW_NODES = 64
#: A Loop that can't be a network of its own is written out up to so many nodes in all its steps.
MOST_NODES = 1 << 14


def loop(node: Node) -> list[Given]:
    """Loop: a network of its own; written out where it is short, or its steps differ, and their number is known."""
    steps = _steps(node)
    nodes = None if steps is None else steps * max(1, len(node.need("body").node))
    if nodes is not None and nodes <= FEW_NODES and _has_sequences(node):
        # A condition that only a call knows, or a result without steps, wants a network.
        with contextlib.suppress(UnsupportedError):
            return unrolled(node)
    try:
        return as_network(node)
    except UnsupportedError as error:
        if nodes is None or nodes > MOST_NODES:
            raise
        return _unrolled_or(node, error)


def _unrolled_or(node: Node, error: UnsupportedError) -> list[Given]:
    """The steps one behind the other; where these can't be either, the error says why there is no network."""
    try:
        return unrolled(node)
    except AppendOnlyError:
        # Who carries the sequence may do it in another way.
        raise
    except UnsupportedError:
        raise error from None


def _steps(node: Node) -> int | None:
    """The greatest number of steps, where it is known."""
    if node.has(1) and node.truth(1) is None:
        return None
    known = node.known(0)
    return max(0, known[0]) if known else None


def _has_sequences(node: Node) -> bool:
    return any(
        node.has(index) and node.graph.value(node.proto.input[index]) is not None for index in range(2, len(node))
    )


def unrolled(node: Node) -> list[Given]:
    """The steps one behind the other; raises `UnsupportedError` where a condition is not known."""
    body, steps = node.need("body"), _steps(node) or 0
    goes_on = not node.has(1) or bool(node.truth(1))
    carried = [node.graph.given(node.proto.input[index]) for index in range(2, len(node))]
    scanned: list[list[Given]] = [[] for _ in body.output[1 + len(carried) :]]
    step = 0
    while goes_on and step < steps:
        inputs = [np.asarray(step, np.int64), np.asarray(True), *carried]
        condition, *results = node.graph.inline(f"{node.name}.{step}", body, inputs)
        carried = results[: len(carried)]
        for rows, given in zip(scanned, results[len(carried) :], strict=True):
            rows.append(given)
        goes_on, step = _holds(node, condition), step + 1
    return [*carried, *(_rows(node, rows) for rows in scanned)]


def _holds(node: Node, condition: Given) -> bool:
    array = condition.array if isinstance(condition, Element) else None
    if array is None:
        known = node.graph.tensor_of(condition).known()
        array = None if known is None else np.asarray(known)
    if array is None:
        raise UnsupportedError(
            "the number of steps of a Loop whose steps differ depends on data",
            expected="a condition that the import knows, or steps that take and give the same shapes",
        )
    return bool(array.reshape(-1)[0])


def _rows(node: Node, rows: list[Given]) -> Tensor:
    """The results of the steps along a new first axis."""
    if not rows:
        raise UnsupportedError("the shape of what a Loop without steps gives is not known")
    tensors = [node.graph.tensor_of(given) for given in rows]
    like = [(tensor.dtype, tensor.shape) for tensor in tensors]
    if len(set(like)) > 1:
        raise UnsupportedError(
            "the steps of a Loop give a result in different shapes",
            expected="one shape",
            got=", ".join(f"{dtype}{list(shape)}" for dtype, shape in like[:8]),
        )
    return packed.rows(node, KnownSequence(tuple(map(Element, tensors)))).tensor


@dataclass
class Carried:
    """What a Loop carries from step to step under one name."""

    node: Node
    index: int
    initial: Given
    #: The shapes of the tensors that go through the layer; those of a sequence that the loop grows do not.
    shapes: list[Shape]
    grows: bool = False
    #: The axis along which each step makes a tensor longer, and does nothing else with it.
    axis: int | None = None

    @classmethod
    def of(cls, node: Node, index: int, initial: Given) -> Carried:
        """That of an input of the node, which stands for `initial`."""
        made = cls(node, index, initial, [])
        made.axis = _longer_along(node.need("body"), index)
        made.grows = made.axis is not None or (isinstance(initial, KnownSequence) and not initial.elements)
        made.shapes = [tensor.shape for tensor in made.tensors()]
        return made

    def tensors(self) -> list[Tensor]:
        """What goes into the layer."""
        return [] if self.grows else self.node.graph.tensors_of(self.initial)

    def port(self) -> Any:
        """What the body sees."""
        if self.grows:
            return AppendedSequence(self) if self.axis is None else AppendedTensor(self)
        ports = [(tensor.dtype, shape) for tensor, shape in zip(self.tensors(), self.shapes, strict=True)]
        return Ports(self.initial, ports)

    def settle(self, appended: Sequence[Kind]) -> None:
        """Carries a sequence in tensors from now on, which hold elements of these dtypes and shapes too.

        Raises `UnsupportedError` where no tensors do.
        """
        assert isinstance(self.initial, (KnownSequence, StackedSequence))
        at = packed.Layers(self.node.graph, self.node.proto.input[2 + self.index])
        like = [*packed.kinds(self.initial), *appended]
        self.initial = packed.pack(at, self.initial, like, _inside(self.node))
        self._carry()

    def fit(self, body: Graph, given: Given) -> Given | None:
        """What a step gives, as the next one takes it; None where steps take something more general from now on."""
        if isinstance(given, AppendedSequence):
            if given.owner is not self:
                raise AppendOnlyError(given.owner, "Loop", packed.kinds(given))
            return given if self._grows_by(body.tensors_of(given)) else None
        if is_list(given) and is_list(self.initial) and (self.grows or form(given) != form(self.initial)):
            listed_ = self._listed(body, given)
            if listed_ is None:
                return None
            given = listed_
        if form(given) == form(self.initial) and not self.grows:
            pairs = enumerate(zip(self.shapes, body.tensors_of(given), strict=True))
            wider = [self._common(at, have, tensor.shape) for at, (have, tensor) in pairs]
            same, self.shapes = wider == self.shapes, wider
            return given if same else None
        raise UnsupportedError(
            f"what the loop carries as number {self.index} is another kind of value behind a step",
            expected=kind(self.initial),
            got=kind(given),
            hint="fix the number of steps, or say it where it is an input: input_values={name: value}",
        )

    def _listed(self, body: Graph, given: List) -> List | None:
        """A sequence that a step gives in the form in which they are carried; None where that is another one now."""
        if isinstance(self.initial, KnownSequence):
            known = packed.kinds(given)
            if not self.initial.elements and not known:
                # There is never an element.
                self.grows = False
            elif self.initial.elements and not self.grows and isinstance(given, KnownSequence):
                # First without the rest of the sequence: what is appended need not be copied in each step.
                self.grows, self.shapes = True, []
            else:
                self.settle(known)
            return None
        assert isinstance(self.initial, (StackedSequence, RaggedSequence))
        like = [*packed.kinds(self.initial), *packed.kinds(given)]
        made = packed.pack(packed.Layers(body, self.node.name), given, like, _inside(self.node))
        if form(made) == form(self.initial):
            return made
        self.settle(packed.kinds(given))
        return None

    def _grows_by(self, tensors: list[Tensor]) -> bool:
        """Whether what each step appends can lie in one tensor; if not, the whole is carried from now on."""
        kinds = [(tensor.dtype, tensor.shape) for tensor in tensors]
        if isinstance(self.initial, KnownSequence):
            kinds += packed.kinds(self.initial)
        if not _vary(self.node, tensors) and (self.axis is not None or len(set(kinds)) < 2):
            return True
        if self.axis is None:
            self.settle(kinds)
        else:
            self._carry()
        return False

    def _common(self, at: int, have: Shape, given: Shape) -> Shape:
        """The shape that holds for what a step takes and what it gives."""
        name = f"{self.index}.{at}" if len(self.shapes) > 1 else str(self.index)
        if len(have) != len(given):
            raise UnsupportedError(
                f"what the loop carries as number {name} changes its number of dimensions",
                expected=f"{len(have)} dimensions",
                got=f"{len(given)} dimensions",
            )
        own = [f"'{self.node.name}.{name}.{axis}'" for axis in range(len(have))]
        return tuple(h if h in (g, o) or _is_of(h, g) else o for h, g, o in zip(have, given, own, strict=True))

    def _carry(self) -> None:
        """Carries a whole tensor from now on, which each step copies."""
        self.grows, self.axis = False, None
        self.shapes = [tensor.shape for tensor in self.tensors()]

    def grown(self, rows: list[Tensor]) -> Given:
        """The sequence behind the loop: `rows` hold what its steps appended first, second and so on."""
        node = self.node
        if self.axis is not None:
            axis = self.axis % (len(rows[0].shape) - 1)
            return node.add("Concat", *node.graph.tensors_of(self.initial), joined(node, rows[0], axis), axis=axis)
        if not rows:
            return self.initial
        new = rows[0]
        if len(rows) > 1:
            # [steps, each, ...] in the order in which they were appended.
            apart = [node.add("Unsqueeze", part, axes=[1]) for part in rows]
            new = merged(node, node.add("Concat", *apart, axis=1), 0)
        assert isinstance(self.initial, KnownSequence)
        if self.initial.elements:
            new = node.add("Concat", packed.rows(node, self.initial).tensor, new, axis=0)
        return StackedSequence(new)


def _inside(node: Node) -> tuple[str, str]:
    """What stands in the names of extents that differ from step to step."""
    return f"{node.name}/", f"{node.name}."


def _vary(node: Node, tensors: Sequence[Tensor]) -> bool:
    """Whether tensors of a step have shapes that another step may not give them."""
    return any(isinstance(d, str) and any(i in d for i in _inside(node)) for t in tensors for d in t.shape)


def _is_of(have: int | str, given: int | str) -> bool:
    """Whether an extent is broadcast from one that a loop carries: taken to be that one, as a state keeps its shape."""
    return isinstance(given, str) and have in Dim(given).operands()


#: The number of the step, and the condition.
_FIRST = [Ports(Element(None), [(dtype, ())]) for dtype in (np.int64, np.bool_)]


def _longer_along(body: onnx.GraphProto, index: int) -> int | None:
    """The axis where all that a body does with what it carries is to make it longer: x => Concat(x, more)."""
    if len(body.input) < 3 + index or len(body.output) < 2 + index:
        return None
    name, result = body.input[2 + index].name, body.output[1 + index].name
    readers = [node for node in body.node if name in check.tensors_read(node)]
    if len(readers) != 1 or readers[0].op_type != "Concat" or readers[0].domain:
        return None
    concat = readers[0]
    if len(concat.input) < 2 or concat.input[0] != name or list(concat.output) != [result]:
        return None
    shown = [output.name for output in body.output]
    if name in concat.input[1:] or name in shown or shown.count(result) != 1:
        return None
    if any(result in check.tensors_read(node) for node in body.node):
        return None
    return next((attr.i for attr in concat.attribute if attr.name == "axis"), None)


def as_network(node: Node) -> list[Given]:
    """A layer: shapes that differ from step to step become symbols of the body."""
    initial = [node.graph.given(node.proto.input[index]) for index in range(2, len(node))]
    # What a loop around grows is carried by this one as well: what this one appends tells how that one has to hold it.
    own = [KnownSequence(one.elements) if isinstance(one, AppendedSequence) else one for one in initial]
    made = _as_network(node, own)
    for index, (before, taken) in enumerate(zip(initial, own, strict=True)):
        if isinstance(before, AppendedSequence):
            after = made[index]
            if after is not taken:
                assert isinstance(after, (KnownSequence, StackedSequence, RaggedSequence))
                raise AppendOnlyError(before.owner, "Loop", packed.kinds(after))
            made[index] = before
    return made


def _as_network(node: Node, initial: Sequence[Given]) -> list[Given]:
    carried = [Carried.of(node, index, one) for index, one in enumerate(initial)]
    while True:
        body, fitting = _step(node, carried)
        if None not in fitting:
            break
    tensors = [[] if given is None else body.tensors_of(given) for given in fitting]
    states = [t for one, given in zip(carried, tensors, strict=True) if not one.grows for t in given]
    appended = [given if one.grows else [] for one, given in zip(carried, tensors, strict=True)]
    condition, *rest = (body.tensor_of(given) for given in (body.results[0], *body.results[1 + len(carried) :]))
    body.mark([condition, *states, *(t for part in appended for t in part), *rest])
    inputs = [node.get(0), node.get(1), *(t for one in carried for t in one.tensors())]
    given = iter(control.add(node, "Loop", inputs, {"body": body}, carried=len(states)))
    after: list[Given | None] = [None if one.grows else rebuilt(one.initial, given) for one in carried]
    for index, part in enumerate(appended):
        if carried[index].grows:
            after[index] = carried[index].grown([next(given) for _ in part])
    return [*(one for one in after if one is not None), *given]


def _step(node: Node, carried: Sequence[Carried]) -> tuple[Graph, list[Given | None]]:
    """The body, and what it gives to the next step; None for what must be carried in another way."""
    results: Sequence[Given] = []
    body = None
    try:
        body = node.graph.body(node.name, node.need("body"), [*_FIRST, *(one.port() for one in carried)])
        results = body.results[1 : 1 + len(carried)]
        return body, [one.fit(body, given) for one, given in zip(carried, results, strict=True)]
    except AppendOnlyError as error:
        grown = next((one for one in carried if one is error.owner), None)
        if grown is None or not is_list(grown.initial):
            raise
        # Another one of this step may have settled it.
        if isinstance(grown.initial, KnownSequence):
            known = error.appended + (_kinds(results[grown.index]) if results else [])
            if not known and not grown.initial.elements:
                known = _of_first_step(node, carried, grown)
            if not known and not grown.initial.elements:
                raise
            grown.settle(known)
        return node.graph, [None]


def _of_first_step(node: Node, carried: Sequence[Carried], grown: Carried) -> list[Kind]:
    """dtype and shape of what the first step leaves in a sequence that is empty before; none where it can't run."""
    ports = [grown.initial if one is grown else one.port() for one in carried]
    try:
        body = node.graph.body(node.name, node.need("body"), [*_FIRST, *ports])
    except Error:
        return []
    return _kinds(body.results[1 + grown.index])


def _kinds(given: Given) -> list[Kind]:
    return packed.kinds(given) if is_list(given) or isinstance(given, AppendedSequence) else []


def sequence_map(node: Node) -> list[Given]:
    """SequenceMap: the graph inside for each element of the sequences, beside tensors that are the same for all."""
    body, names = node.need("body"), list(node.proto.input)
    lists = [index for index, name in enumerate(names) if index == 0 or node.graph.value(name) is not None]
    values = [listed(node, index) for index in lists]
    if not all(isinstance(value, KnownSequence) for value in values):
        whole = {index: packed.packed(node.graph, names[index]) for index in lists}
        return _scanned(node, whole) or _looped(node, whole)
    elements = [value.elements for value in values if isinstance(value, KnownSequence)]
    results: list[list[Given]] = [[] for _ in body.output]
    for step, mapped in enumerate(zip(*elements, strict=True)):
        given: list[Given] = [node.graph.given(name) for name in names]
        for index, one in zip(lists, mapped, strict=True):
            given[index] = one
        for rows, result in zip(results, node.graph.inline(f"{node.name}.{step}", body, given), strict=True):
            rows.append(result)
    return [KnownSequence(tuple(map(_element, rows))) for rows in results]


def _element(given: Given) -> Element:
    if isinstance(given, Element):
        return given
    raise UnsupportedError("a SequenceMap makes sequences of what are no tensors", got=kind(given))


def _scanned(node: Node, lists: Mapping[int, Packed]) -> list[Given] | None:
    """A Scan over sequences that are rows; None where elements, or results, may differ in shape."""
    if any(isinstance(one, RaggedSequence) for one in lists.values()):
        return None
    ports: list[Ports | Given] = [node.graph.given(name) for name in node.proto.input]
    for index, one in lists.items():
        ports[index] = control.one_tensor(one.tensor, one.tensor.shape[1:])
    body = node.graph.body(node.name, node.need("body"), ports)
    results = [body.tensor_of(given) for given in body.results]
    if _vary(node, results):
        return None
    body.mark(results)
    zeros, own = [0] * len(lists), [0] * len(results)
    axes = {"input_axes": zeros, "input_directions": zeros, "output_axes": own, "output_directions": own}
    made = control.add(node, "Scan", [one.tensor for one in lists.values()], {"body": body}, states=0, **axes)
    return [StackedSequence(tensor) for tensor in made]


def _looped(node: Node, lists: Mapping[int, Packed]) -> list[Given]:
    """A Loop over the positions, which appends to a sequence for each result."""
    from onnx import GraphProto, NodeProto, ValueInfoProto
    from onnx.helper import make_node

    def ports(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
        return [ValueInfoProto(name=name) for name in names]

    def step(op: str, inputs: Sequence[str], output: str) -> onnx.NodeProto:
        return NodeProto(op_type=op, name=f"{own}.{output}", input=inputs, output=[output])

    body, own = node.need("body"), node.name
    count, place, condition = f"{own}.count", f"{own}.place", f"{own}.condition"
    initial, before, after = ([f"{own}.{at}{when}" for at in range(len(body.output))] for when in ("", "<", ">"))
    node.graph.put(count, packed.length(node, lists[0]))
    for name in initial:
        node.graph.put(name, KnownSequence(()))
    taken = [
        step("SequenceAt", [name, place], port.name) if index in lists else step("Identity", [name], port.name)
        for index, (name, port) in enumerate(zip(node.proto.input, body.input, strict=True))
    ]
    given = [
        step("SequenceInsert", [name, output.name], result)
        for name, output, result in zip(before, body.output, after, strict=True)
    ]
    inner = GraphProto()
    inner.CopyFrom(body)
    for field, values in {
        "node": [*taken, *body.node, *given],
        "input": ports([place, condition, *before]),
        "output": ports([condition, *after]),
    }.items():
        inner.ClearField(field)
        getattr(inner, field).extend(values)
    loop = make_node("Loop", [count, "", *initial], node.outputs, name=own, body=inner)
    return as_network(Node(node.graph, loop, own, node.version))


RULES: dict[str, Rule] = {"Loop": loop, "SequenceMap": sequence_map}
