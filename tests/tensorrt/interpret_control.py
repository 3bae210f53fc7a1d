"""What NVIDIA says that loops and conditionals of TensorRT do, in ops of ONNX.

TensorRT has no bodies: a layer is inside of a loop if it depends on what the loop iterates over or carries. A branch of
a conditional is computed whether it is taken or not, which shows in no result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.tensorrt.interpret import DTYPES, Layer, Reader, kind, name

#: ILoopOutputLayer's LoopOutput.
LAST_VALUE, CONCATENATE, REVERSE = range(3)
#: ITripLimitLayer's TripLimit.
COUNT, WHILE = range(2)


def nested(layers: list[Layer]) -> list[Layer]:
    """The layers of a network in an order of execution; those of a loop are one layer, which holds them."""
    return grouped([conditioned(layer, layers) for layer in layers])


def grouped(left: list[Layer]) -> list[Layer]:
    while loops := [layer["loop"] for layer in left if "loop" in layer]:
        insides = {loop: inside(loop, left) for loop in loops}
        # The outermost first: nothing that it depends on is inside of another.
        outer = next(a for a in loops if not any(a != b and has_boundary(insides[b], a) for b in loops))
        ids = {id(layer) for layer in insides[outer]}
        left = [layer for layer in left if id(layer) not in ids] + [held(outer, insides[outer])]
    return ordered(left)


def conditioned(layer: Layer, layers: list[Layer]) -> Layer:
    """An output of a conditional, with the condition as its first input; other layers as they are."""
    if layer["kind"] != "ConditionalOutput":
        return layer
    same = [other for other in layers if other.get("conditional") == layer["conditional"]]
    (condition,) = (other for other in same if other["kind"] == "Condition")
    return layer | {"inputs": [*condition["inputs"], *layer["inputs"]]}


def inside(loop: int, layers: list[Layer]) -> list[Layer]:
    """The boundaries of a loop, and what depends on its slices and recurrences."""
    held_ids = {id(layer) for layer in layers if layer.get("loop") == loop}
    changed = True
    while changed:
        chosen = [layer for layer in layers if id(layer) in held_ids]
        given = {t for layer in chosen if not leaves(layer, loop) for t in layer["outputs"]}
        loops = {layer["loop"] for layer in chosen if "loop" in layer}
        more = [layer for layer in layers if given & set(layer["inputs"]) or layer.get("loop") in loops]
        changed = bool({id(layer) for layer in more} - held_ids)
        held_ids |= {id(layer) for layer in more}
    return [layer for layer in layers if id(layer) in held_ids]


def leaves(layer: Layer, loop: int) -> bool:
    return layer["kind"] == "LoopOutput" and layer["loop"] == loop


def has_boundary(layers: list[Layer], loop: int) -> bool:
    return any(layer.get("loop") == loop for layer in layers)


def held(loop: int, layers: list[Layer]) -> Layer:
    """A loop as one layer."""
    made = {t for layer in layers for t in layer["outputs"]}
    read = {t for layer in layers for t in layer["inputs"]} - made
    outputs = [t for layer in layers if leaves(layer, loop) for t in layer["outputs"]]
    own = [layer for layer in layers if layer.get("loop") == loop]
    others = [layer for layer in layers if layer.get("loop") != loop]
    return {"kind": "Loop", "inputs": sorted(read - {None}), "outputs": outputs, "own": own, "others": others}


def ordered(layers: list[Layer]) -> list[Layer]:
    """Layers behind those that they read."""
    source = {t: layer for layer in layers for t in layer["outputs"]}
    done: set[int] = set()
    found: list[Layer] = []
    stack = [(layer, False) for layer in reversed(layers)]
    while stack:
        layer, ready = stack.pop()
        if ready:
            found.append(layer)
        elif id(layer) not in done:
            done.add(id(layer))
            stack.append((layer, True))
            stack += [(source[t], False) for t in layer["inputs"] if t in source]
    return found


def typed(called: str, layer: Layer) -> onnx.ValueInfoProto:
    """A tensor of the dtype and shape that the double tells of a layer."""
    shape = [f"{called} {axis}" if extent < 0 else extent for axis, extent in enumerate(layer["extents"])]
    return helper.make_tensor_value_info(called, DTYPES[layer["dtype"]], shape)


@kind("Loop")
def loop(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    """At most as many steps as COUNT says, as long as WHILE holds before a step."""
    own = layer["own"]
    by_kind = {which: [one for one in own if one["kind"] == which] for which in {one["kind"] for one in own}}
    limits = {one["limit"]: one["inputs"][0] for one in by_kind["TripLimit"]}
    carried, outputs = by_kind.get("Recurrence", []), by_kind.get("LoopOutput", [])
    trips = r.integers(name(limits[COUNT])) if COUNT in limits else ""
    watched = [one for one in carried if one["outputs"][0] == limits.get(WHILE)]
    if WHILE in limits and not watched:
        raise NotImplementedError("a condition that no recurrence is")
    around, r.nodes = r.nodes, []
    step, goes_on = r.fresh("step"), r.fresh("goes on")
    for one in by_kind.get("Iterator", []):
        at = step
        if one["reverse"]:
            at = r.add("Sub", [r.add("Sub", [trips, r.ints(1)]), step])
        r.add("Gather", [name(one["inputs"][0]), at], name(one["outputs"][0]), axis=int(one["axis"]))
    for one in grouped(layer["others"]):
        r.read(one)
    always = r.constant(np.array(True))
    results = [r.add("Identity", [name(watched[0]["inputs"][1]) if watched else always])]
    infos = [helper.make_tensor_value_info(results[0], TensorProto.BOOL, [])]
    stacks = [one for one in outputs if one["output"] != LAST_VALUE]
    for one, of in [(one, one["inputs"][1]) for one in carried] + [(one, one["inputs"][0]) for one in stacks]:
        results.append(r.add("Identity", [name(of)]))
        infos.append(typed(results[-1], one))
    given = [helper.make_tensor_value_info(step, TensorProto.INT64, [])]
    given += [helper.make_tensor_value_info(goes_on, TensorProto.BOOL, [])]
    given += [typed(name(one["outputs"][0]), one) for one in carried]
    body = helper.make_graph(r.nodes, "body", given, infos)
    r.nodes = around
    start = name(watched[0]["inputs"][0]) if watched else ""
    made = [r.fresh("looped") for _ in results[1:]]
    r.add("Loop", [trips, start, *(name(one["inputs"][0]) for one in carried)], *made, body=body)
    last = {one["outputs"][0]: made[at] for at, one in enumerate(carried)}
    stacked = iter(made[len(carried) :])
    for one in outputs:
        if one["output"] == LAST_VALUE:
            r.add("Identity", [last[one["inputs"][0]]], name(one["outputs"][0]))
        else:
            stack(r, one, next(stacked))


def stack(r: Reader, layer: Layer, x: str) -> None:
    """The values of all steps, along an axis of their own."""
    if layer["output"] == REVERSE:
        least = np.iinfo(np.int64).min
        x = r.add("Slice", [x, r.ints([-1]), r.ints([least]), r.ints([0]), r.ints([-1])])
    order = list(range(1, layer["rank"]))
    order.insert(int(layer["axis"]), 0)
    r.add("Transpose", [x], name(layer["outputs"][0]), perm=order)


@kind("Condition")
def condition(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    """What it means stands at the outputs."""


@kind("ConditionalInput")
def conditional_input(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("Identity", x, *y)


@kind("ConditionalOutput")
def conditional_output(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    def branch(of: str) -> onnx.GraphProto:
        result = r.fresh("branch")
        info: Any = helper.make_tensor_value_info(result, DTYPES[layer["dtype"]], [None] * layer["rank"])
        return helper.make_graph([helper.make_node("Identity", [of], [result])], "branch", [], [info])

    r.add("If", [x[0]], *y, then_branch=branch(x[1]), else_branch=branch(x[2]))
