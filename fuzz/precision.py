"""Random networks in bfloat16: none departs too far without a note, and few layers at fault take few layers back.

    python -m fuzz.precision --cases 1000

A network is a row of blocks, some of which bfloat16 can't compute, with heads, masks, positions, wide ranges, control
flow and sizes that depend on data. It is run on numbers that the build has not seen, and compared with ONNX Runtime in
float32. A finding is a result off by more than was allowed, beyond what other numbers explain, or a network that went
back to float32 as a whole though the blocks at fault make less than a tenth of its operations.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from fuzz.blocks import F32, FAR, WIDTH, Array, Graph
from fuzz.children import Run, main
from neurenix.hardware.tensorrt import TensorRTBackend

ROWS = 6
#: Of bfloat16.
ROUNDING = 2.0**-8
#: What a result may depart by (root mean square, relative): what the build allows, and for other numbers than it saw.
ALLOWED = 16 * ROUNDING
OTHER_NUMBERS = 2.0
#: Blocks of a network; so few at fault make less than a tenth of it.
BLOCKS = (10, 16)
MOST_AT_FAULT = 2


class Net:
    """A network that grows, with what its inputs hold."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.g = Graph(self.random.randrange(2**31))
        self.staged = False
        self.results: dict[str, int] = {}
        self.given: dict[str, Array] = {"x": self.numbers((ROWS, WIDTH))}
        #: The results that are probabilities, and those to compare part by part: the columns of each part.
        self.parts: dict[str, list[int]] = {}

    def numbers(self, shape: tuple[int, ...]) -> Array:
        return np.random.default_rng(self.random.randrange(2**31)).standard_normal(shape).astype(F32)

    def scalar(self, value: float) -> str:
        return self.g.constant(np.array(value, F32))

    def ints(self, *values: int) -> str:
        return self.g.constant(np.array(values, np.int64))


def attention(net: Net, x: str) -> str:
    """Rows that see each other through a mask, as exporters write it."""
    g = net.g
    mask = g.input(f"mask{len(g.inputs)}", TensorProto.INT64, (ROWS,))
    net.given[mask] = np.array([1] * (ROWS - 2) + [0] * 2, np.int64)
    seen = g.add("Sub", net.scalar(1.0), g.add("Cast", mask, to=TensorProto.FLOAT))
    lowest = net.random.choice([-1e4, -1e9, float(np.finfo(F32).min)])
    hidden = g.add("Mul", seen, net.scalar(lowest))
    q, k, v = (g.linear(x) for _ in range(3))
    scores = g.add("MatMul", q, g.add("Transpose", k, perm=[1, 0]))
    scores = g.add("Add", g.add("Mul", scores, net.scalar(WIDTH**-0.5)), hidden)
    return g.add("Add", x, g.linear(g.add("MatMul", g.add("Softmax", scores, axis=-1), v)))


def positions(net: Net, x: str) -> str:
    """Waves of positions to 1,023."""
    g = net.g
    place = g.input(f"position_ids{len(g.inputs)}", TensorProto.INT64, (ROWS, 1))
    net.given[place] = np.array([[net.random.randrange(1024)] for _ in range(ROWS)], np.int64)
    waves = g.constant((10000.0 ** -np.linspace(0, 1, WIDTH)).astype(F32))
    angles = g.add("Mul", g.add("Cast", place, to=TensorProto.FLOAT), waves)
    return g.add("Add", x, g.linear(g.add("Cos", angles)))


def wide(net: Net, x: str) -> str:
    """Far out and back."""
    factor = 10.0 ** net.random.randint(3, 8)
    far = net.g.linear(net.g.add("Mul", x, net.scalar(factor)))
    return net.g.add("Add", x, net.g.add("Mul", far, net.scalar(1 / factor)))


def loop(net: Net, x: str) -> str:
    """A block, run a few times."""
    net.staged = True
    g, inner = net.g, Graph(net.random.randrange(2**31), f"loop{len(net.g.nodes)}_")
    state, go = f"{inner.prefix}state", f"{inner.prefix}go"
    carried, kept = inner.block(state, FAR if net.random.random() < 0.3 else 0.0), inner.add("Identity", go)
    body = helper.make_graph(
        inner.nodes,
        "body",
        [
            helper.make_tensor_value_info(f"{inner.prefix}number", TensorProto.INT64, []),
            helper.make_tensor_value_info(go, TensorProto.BOOL, []),
            helper.make_tensor_value_info(state, TensorProto.FLOAT, (ROWS, WIDTH)),
        ],
        [
            helper.make_tensor_value_info(kept, TensorProto.BOOL, []),
            helper.make_tensor_value_info(carried, TensorProto.FLOAT, (ROWS, WIDTH)),
        ],
        inner.weights,
    )
    trips, condition = g.constant(np.array(3, np.int64)), g.constant(np.array(True))
    return g.add("Loop", trips, condition, x, body=body)


def counted(net: Net, x: str) -> str:
    """A size that depends on data, between two stages."""
    net.staged = True
    g = net.g
    flags = g.add("Greater", "x", net.scalar(-100.0))
    found = g.add("Slice", g.add("NonZero", flags), net.ints(0), net.ints(1), net.ints(0))
    rows = g.add("Squeeze", found, net.ints(0))
    some = g.add("Slice", rows, net.ints(0), net.ints(ROWS), net.ints(0))
    # Where all count there are as many as rows, though nobody knows it.
    first = g.add("Reshape", g.add("Gather", x, some, axis=0), net.ints(ROWS, WIDTH))
    return g.add("Add", x, g.add("Mul", first, net.scalar(0.5)))


def across(net: Net, x: str) -> str:
    """Numbers far out in front of a boundary between stages, and a difference of them behind it."""
    net.staged = True
    g = net.g
    far = g.add("Add", x, net.scalar(FAR))
    flags = g.add("Greater", far, net.scalar(-100.0))
    found = g.add("Slice", g.add("NonZero", flags), net.ints(0), net.ints(1), net.ints(0))
    some = g.add("Slice", g.add("Squeeze", found, net.ints(0)), net.ints(0), net.ints(ROWS), net.ints(0))
    rows = g.add("Reshape", g.add("Gather", far, some, axis=0), net.ints(ROWS, WIDTH))
    w = net.numbers((WIDTH, WIDTH)) / F32(WIDTH**0.5)
    return g.add("Add", x, g.add("MatMul", rows, g.constant(w - w.mean(0))))


def detections(net: Net, x: str) -> None:
    """Boxes in pixels beside scores, as they are or as probabilities."""
    g = net.g
    boxes = g.add("Mul", g.linear(x, 4), net.scalar(640.0))
    scores = g.linear(g.block(x, FAR if net.random.random() < 0.3 else 0.0), 5)
    if net.random.random() < 0.5:
        scores = g.add("Sigmoid", scores)
    name = g.add("Concat", boxes, scores, axis=1)
    net.results[name], net.parts[name] = TensorProto.FLOAT, [4, 9]


def classes(net: Net, x: str) -> None:
    net.results[net.g.add("ArgMax", net.g.linear(x, 100), axis=1, keepdims=0)] = TensorProto.INT64


def features(net: Net, x: str) -> None:
    net.results[x] = TensorProto.FLOAT


def grow(seed: str) -> Net:
    """A network with up to two blocks at fault, and more where it says nothing of how much goes back."""
    net = Net(seed)
    count = net.random.randint(*BLOCKS)
    bad = net.random.sample(range(count), net.random.randint(0, MOST_AT_FAULT))
    others = [attention, positions, wide, loop, counted, across]
    chosen = {at: net.random.choice(others) for at in net.random.sample(range(count), net.random.randint(0, 3))}
    x = net.g.linear("x")
    for number in range(count):
        x = net.g.block(x, FAR if number in bad else 0.0)
        if number in chosen:
            x = chosen[number](net, x)
    heads = [detections, classes, features]
    for head in net.random.sample(heads, net.random.randint(1, len(heads))):
        head(net, x)
    return net


def departure(got: Array, want: Array, parts: list[int]) -> float:
    """The greatest error of a part, root mean square and relative; of probabilities in themselves or their logits."""
    worst, start = 0.0, 0
    for end in parts or [want.shape[-1]]:
        g, w = (array[..., start:end].astype(np.float64) for array in (got, want))
        if not np.isfinite(g).all():
            return float("inf")
        if w.min() >= 0 and w.max() <= 1:
            worst = max(worst, float(np.sqrt(np.mean((g - w) ** 2))))
            g, w = logits(g), logits(w)
        worst, start = max(worst, float(np.sqrt(np.mean((g - w) ** 2) / np.mean(w**2)))), end
    return worst


def logits(probabilities: Array) -> Array:
    """As far as bfloat16 tells a probability from 0 and 1."""
    inside = np.clip(probabilities, ROUNDING, 1 - ROUNDING)
    return np.log(inside / (1 - inside))


def check(net: Net) -> str:
    """How the engine of a network does; what is wrong begins with "bad"."""
    model = net.g.model(net.results, (ROWS, WIDTH))
    backend = TensorRTBackend(providers=["cpu"], optimization_level=0, timing_cache=False, threads=1)
    engine = backend.optimize_model(model, precision="bf16")
    notes = engine.report()["notes"]
    whole = [note for note in notes if note.endswith("every layer went back to float32")]
    if whole:
        return f"bad: thrown back as a whole: {whole[0]}"
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = dict(zip(net.results, session.run(list(net.results), net.given), strict=True))
    got = engine.run(net.given)
    for name, kind in net.results.items():
        if kind == TensorProto.INT64:
            share = float(np.mean(got[name] != want[name]))
            if share > 0.5:
                return f"bad: {name}: {share:.0%} of the classes are others"
            continue
        error = departure(got[name], want[name], net.parts.get(name, []))
        if not error <= OTHER_NUMBERS * ALLOWED:
            return f"bad: {name} departs by {error:.1%}, notes {notes}"
    return "lifted" if any("stay float32" in note for note in notes) else "fine"


def target(seed: int) -> Run:
    """The function that checks a case."""
    logging.getLogger("neurenix").setLevel(logging.ERROR)
    onnxruntime.set_default_logger_severity(3)

    def case(number: int, out: Path) -> str:
        net = grow(f"{seed} {number}")
        word = check(net)
        if not word.startswith("bad"):
            return word
        path = out / f"precision-{seed}-{number}.onnx"
        path.write_bytes(net.g.model(net.results, (ROWS, WIDTH)).SerializeToString())
        return word

    return case


if __name__ == "__main__":
    main("fuzz.precision", target, __doc__ or "")
