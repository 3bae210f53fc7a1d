"""Random float expressions: an engine gives what numpy gives op by op, bit for bit, NaN and infinities included."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import neurenix as nx
from fuzz.children import Run, brief, main
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

Array = np.ndarray[Any, Any]
F32 = np.float32
SHAPE = (5, 13)
#: What numbers of inputs and constants are drawn from; the last ones round what they are added to.
EDGES = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1 / 3, 0.1, -7.25, 255.0, 1023.0, 65504.0, 65520.0, 1e-3, 6e-8, 1e-12),
    *(float("nan"), float("inf"), float("-inf"), 3.4028235e38, -3.4028235e38, 1e30, -1e30, 1e-30),
    *(1.1754944e-38, -1.1754944e-38, 1e-40, -1e-45, 16777216.0, 16777217.0, 12582912.0, -12582912.0, 8388608.5),
]
#: Exact in IEEE 754: each has one right result.
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
}
UNARY: dict[str, Callable[[Array], Array]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: F32(1) / x,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Relu": lambda x: np.maximum(x, F32(0)),
    "Identity": lambda x: x,
}
COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
}
#: Which give a number that may be off by some units in the last place; only at the end of an expression.
INEXACT: dict[str, Callable[[Array], Array]] = {
    "Exp": np.exp,
    "Log": np.log,
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sin": np.sin,
    "Cos": np.cos,
}
#: Units in the last place, and the power of two below which a result may vanish.
ULPS, LEAST = 6, 2.0**-126
POWERS = (0.5, -0.5, 1.0, 2.0, 3.0, -1.0)
#: The zeros that these give may have either sign.
UNSIGNED = {"Max", "Min", "Clip", "Relu", "Floor", "Ceil", "Round"}
SHORT = {
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}


@dataclass
class Known:
    """A tensor of an expression as numpy computes it."""

    array: Array
    #: Whether the sign of its zeros is as numpy says.
    signed: bool = True
    #: Whether it is right to the last bit.
    exact: bool = True


@dataclass
class Expression:
    """A graph of ONNX nodes with what each of them gives."""

    rng: random.Random
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    known: dict[str, Known] = field(default_factory=dict)

    def numbers(self, shape: tuple[int, ...], plain: float = 0.5) -> Array:
        count = int(np.prod(shape))
        drawn = [self.rng.gauss(0, 3) if self.rng.random() < plain else self.rng.choice(EDGES) for _ in range(count)]
        return np.array(drawn, F32).reshape(shape)

    def input(self) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.known[name] = Known(self.numbers(SHAPE))
        return name

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        self.known[name] = Known(array)
        return name

    def some_constant(self) -> str:
        shape = self.rng.choice([(), (), (1,), SHAPE[1:], SHAPE])
        return self.constant(self.numbers(shape, plain=0.3))

    def add(self, op: str, given: list[str], array: Array, exact: bool = True, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, given, [name], **attributes))
        signed = op not in UNSIGNED and all(self.known[g].signed for g in given)
        self.known[name] = Known(array, signed, exact)
        return name

    def arrays(self, *names: str) -> list[Array]:
        return [self.known[name].array for name in names]


def step(e: Expression, x: str) -> str:
    """One more exact node behind a tensor."""
    rng = e.rng
    kind = rng.random()
    if kind < 0.5:
        op = rng.choice(list(BINARY))
        others = [n for n, k in e.known.items() if k.exact and k.array.shape == SHAPE and k.array.dtype == F32]
        other = rng.choice(others) if rng.random() < 0.25 else e.some_constant()
        given = [x, other] if rng.random() < 0.7 else [other, x]
        if op == "Div" and not e.known[given[1]].signed:
            op = "Mul"
        return e.add(op, given, BINARY[op](*e.arrays(*given)))
    if kind < 0.65:
        op = rng.choice(list(UNARY))
        if op == "Reciprocal" and not e.known[x].signed:
            op = "Neg"
        return e.add(op, [x], UNARY[op](*e.arrays(x)))
    if kind < 0.75:
        # A bound that is NaN is none here; ONNX leaves it open.
        low, high = (
            e.constant(np.nan_to_num(e.numbers(()), posinf=np.inf)) if rng.random() < 0.7 else "" for _ in "lh"
        )
        array = e.known[x].array
        array = np.maximum(array, e.known[low].array) if low else array
        array = np.minimum(array, e.known[high].array) if high else array
        e.known[""] = Known(np.zeros((), F32))
        name = e.add("Clip", [x, low, high], array)
        del e.known[""]
        return name
    if kind < 0.9:
        return half(e, x)
    op, other = rng.choice(list(COMPARISONS)), e.some_constant()
    truth = e.add(op, [x, other], COMPARISONS[op](*e.arrays(x, other)))
    choice = [truth, x, e.some_constant()]
    return e.add("Where", choice, np.where(*e.arrays(*choice)))


def half(e: Expression, x: str) -> str:
    """There and back by way of 16 bits, perhaps with one sum or product between, which float32 rounds as 16 bits do."""
    to = e.rng.choice(list(SHORT))
    short = e.known[x].array.astype(SHORT[to])
    name = e.add("Cast", [x], short, to=to)
    if e.rng.random() < 0.5:
        op, c = e.rng.choice(["Add", "Mul"]), e.numbers(()).astype(SHORT[to])
        name = e.add(op, [name, e.constant(c)], BINARY[op](short, c))
    return e.add("Cast", [name], e.known[name].array.astype(F32), to=TensorProto.FLOAT)


def last(e: Expression, x: str) -> str:
    """A node that libraries may compute in several ways."""
    exact = e.known[x].array.astype(np.float64)
    if e.rng.random() < 0.4:
        power = e.rng.choice(POWERS)
        if power < 0 and not e.known[x].signed:
            power = 2.0
        # Of one exponent for all, numpy makes a square root.
        powers = np.power(exact, np.full(exact.shape, power)).astype(F32)
        return e.add("Pow", [x, e.constant(F32(power))], powers, exact=False)
    op = e.rng.choice(list(INEXACT))
    return e.add(op, [x], INEXACT[op](exact).astype(F32), exact=False)


def grow(seed: str) -> Expression:
    """A random expression of up to a dozen nodes."""
    e = Expression(random.Random(seed))
    newest = e.input()
    for _ in range(e.rng.randint(1, 10)):
        newest = step(e, newest)
        if e.rng.random() < 0.1:
            newest = e.input()
    if e.rng.random() < 0.3:
        last(e, newest)
    return e


def differs(got: Array, want: Known) -> str | None:
    """What is wrong with a result; None if nothing is."""
    a, b = got.astype(np.float64), want.array.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if want.exact and want.signed:
        same &= (np.signbit(a) == np.signbit(b)) | (a != 0)
    if not want.exact:
        unit = np.maximum(np.spacing(np.abs(np.where(np.isfinite(b), b, 0)).astype(F32)).astype(np.float64), LEAST)
        near = np.abs(a - b) <= ULPS * unit
        # At the end of the range a unit more is infinite.
        near |= (np.abs(a) >= 3.4e38) & (np.abs(b) >= 3.4e38) & (np.sign(a) == np.sign(b))
        same |= near
    if same.all():
        return None
    return f"{got[~same].reshape(-1)[:4]} for {want.array[~same].reshape(-1)[:4]}"


def model_of(e: Expression, results: list[str]) -> onnx.ModelProto:
    """The expression as a model of opset 21."""

    def port(name: str) -> Any:
        array = e.known[name].array
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        e.nodes, "floats", [port(name) for name in e.inputs], [port(name) for name in results], e.constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def check(e: Expression) -> str | None:
    """What an engine gets wrong."""
    read = {name for node in e.nodes for name in node.input}
    results = [name for node in e.nodes for name in node.output if name not in read]
    network = from_onnx(model_of(e, results))
    backend = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False, verify=False)
    got = backend.optimize_model(network).run({name: e.known[name].array for name in e.inputs})
    for name in results:
        wrong = differs(np.asarray(got[name]), e.known[name])
        if wrong is not None:
            return f"{name}: {wrong}"
    return None


def target(seed: int) -> Run:
    """A function that runs the case of a number."""
    warnings.simplefilter("ignore")

    def case(number: int, out: Path) -> str:
        with np.errstate(all="ignore"):
            e = grow(f"{seed} {number}")
            try:
                wrong = check(e)
            except nx.Error as error:
                wrong = brief(error)
        if wrong is None:
            return "fine"
        results = [node.output[0] for node in e.nodes]
        (out / f"floats-{seed}-{number}.onnx").write_bytes(model_of(e, results).SerializeToString())
        ops = ", ".join(f"{node.output[0]}={node.op_type}({','.join(node.input)})" for node in e.nodes)
        return f"bad: {ops}: {wrong}"

    return case


if __name__ == "__main__":
    main("fuzz.floats", target, __doc__ or "")
