"""ONNX's own tests: every case through `TensorRTBackend`, on planned engines.

    pytest tests/conformance/test_onnx_nodes.py -s

prints for each kind what does not pass, grouped by the reason.
"""

from __future__ import annotations

import collections
import functools
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case.node import collect_testcases

from neurenix.errors import Error, UnsupportedError
from neurenix.hardware.tensorrt import TensorRTBackend
from tests.conformance.reference import is_float

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Floor:
    """How many cases of a kind are in scope, and how many pass at least. The latter only rise."""

    scope: int
    #: With every input left to the call.
    plain: int
    #: These, and those that pass once `input_values` says what the inputs for shapes and axes are.
    passed: int


FLOORS = {
    "node": Floor(scope=1770, plain=1745, passed=1753),
    "simple": Floor(scope=15, plain=15, passed=15),
    "pytorch-operator": Floor(scope=35, plain=35, passed=35),
    "pytorch-converted": Floor(scope=82, plain=82, passed=82),
}
#: Node tests of older operator sets are out of scope; the other kinds have hardly any newer ones.
OLDEST = {"node": 13}
#: Ops on texts: a case with one is out of scope.
OUT_OF_SCOPE = re.compile("String|Regex")


@dataclass(frozen=True)
class NodeTest:
    """One model with its inputs, by name, and what comes out: arrays, and lists of arrays for sequences."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    outputs: list[Array | list[Array]]
    rtol: float
    atol: float
    #: Empty sequences and optional values, of which no call can tell anything.
    nothing: dict[str, Any] = field(default_factory=dict)


@dataclass
class Tally:
    """What came of the cases of a kind."""

    plain: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    failed: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))

    def text(self) -> str:
        """For people: the numbers, then one paragraph for each reason."""
        failed = sum(map(len, self.failed.values()))
        lines = [f"{len(self.plain)} pass, {len(self.given)} more with input_values, {failed} do not"]
        for reason, names in sorted(self.failed.items(), key=lambda item: -len(item[1])):
            lines.append(f"{len(names):4}  {reason}")
            lines += textwrap.wrap(" ".join(names), 110, initial_indent=" " * 10, subsequent_indent=" " * 10)
        return "\n".join(lines)


def in_scope(model: onnx.ModelProto, name: str, oldest: int) -> bool:
    """Whether a case is one of inference on tensors, in ONNX's own domain, of an operator set that counts."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    if versions.get("", 0) < oldest or "ai.onnx.preview.training" in versions:
        return False
    if "training" in name or any(OUT_OF_SCOPE.match(node.op_type) for node in model.graph.node):
        return False
    ports = [port.type for port in (*model.graph.input, *model.graph.output)]
    return all(port.tensor_type.elem_type != onnx.TensorProto.STRING for port in ports)


def named(model: onnx.ModelProto, given: list[Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays by the names of the inputs that the model does not hold itself, and what is empty.

    The elements of a sequence `x` are called `x_0`, `x_1` and so on.
    """
    held = {tensor.name for tensor in model.graph.initializer}
    names = [port.name for port in model.graph.input if port.name not in held]
    arrays, nothing = {}, {}
    for name, value in zip(names, map(array_of, given), strict=False):
        if value is None or (isinstance(value, list) and not value):
            nothing[name] = value
        elif isinstance(value, list):
            arrays |= {f"{name}_{index}": array for index, array in enumerate(value)}
        else:
            arrays[name] = value
    return arrays, nothing


def array_of(value: Any) -> Any:
    """An array of what a case has (an array, a number, a TensorProto), a list of them of a list, None of None."""
    if isinstance(value, list):
        return [array_of(one) for one in value]
    if value is None:
        return None
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def node_cases() -> Iterator[NodeTest]:
    """The cases that ONNX makes for each of its operators."""
    for case in collect_testcases(None):
        if in_scope(case.model, case.name, OLDEST["node"]):
            inputs, outputs = case.data_sets[0]
            given, nothing = named(case.model, inputs)
            yield NodeTest(case.name, case.model, given, [*map(array_of, outputs)], case.rtol, case.atol, nothing)


def stored_cases(kind: str) -> Iterator[NodeTest]:
    """The cases that ONNX keeps in files."""
    for case in loader.load_model_tests(kind=kind):
        model = onnx.load(f"{case.model_dir}/model.onnx")
        if in_scope(model, case.name, 0):
            held = {tensor.name for tensor in model.graph.initializer}
            wanted = sum(port.name not in held for port in model.graph.input)
            inputs = [read(f"{case.model_dir}/test_data_set_0/input_{i}.pb") for i in range(wanted)]
            outputs = [read(f"{case.model_dir}/test_data_set_0/output_{i}.pb") for i in range(len(model.graph.output))]
            yield NodeTest(case.name, model, named(model, inputs)[0], outputs, case.rtol, case.atol)


def read(path: str) -> Array:
    """The array in a file."""
    return numpy_helper.to_array(onnx.load_tensor(path))


def shape_inputs(case: NodeTest) -> dict[str, Array]:
    """The inputs that may say shapes, axes or conditions: few integers and truths, or few numbers beside the data."""
    whole = {port.name for port in case.model.graph.input}
    inputs = [(i, name, a) for i, (name, a) in enumerate(case.inputs.items()) if name in whole]
    few = [(i, name, a) for i, name, a in inputs if a.ndim <= 1 and a.size <= 16]
    return {name: a for i, name, a in few if i or a.dtype.kind in "ib"}


def attempt(case: NodeTest, values: dict[str, Array]) -> None:
    """Builds the model, runs it, and compares; raises what is wrong."""
    inputs = {name: array for name, array in case.inputs.items() if name not in values}
    shapes = {name: array.shape for name, array in inputs.items()}
    values = values | case.nothing
    model = BACKEND.optimize_model(case.model, shapes, **({"input_values": values} if values else {}))
    results = model.run(inputs)
    names = [name for name in results if name.removesuffix("_lengths") == name]
    if len(names) < len(results):
        # Elements of different shapes of which a call decides how many there are.
        got = [part for name, want in zip(names, case.outputs, strict=True) for part in apart(results, name, want)]
    else:
        got = list(results.values())
    # A sequence whose length is known comes in its elements.
    wanted = [array for want in case.outputs for array in (want if isinstance(want, list) else [want])]
    assert len(got) == len(wanted), f"{len(got)} outputs, not {len(wanted)}"
    for answer, want in zip(got, wanted, strict=True):
        compare(answer, want, case)


def apart(results: dict[str, Array], name: str, want: Array | list[Array]) -> list[Array]:
    """The elements of a result, which lie side by side along the axis along which those of the case would."""
    array, lengths = results[name], results.get(f"{name}_lengths")
    if lengths is None or not isinstance(want, list):
        return [array]
    axes = [axis for axis in range(array.ndim) if np.concatenate(want, axis).shape == array.shape]
    return np.split(array, np.cumsum(lengths)[:-1], axes[0]) if axes else [array]


def compare(got: Array, want: Array, case: NodeTest) -> None:
    """Compares dtype, shape and elements: exactly in 8 bits and for integers, else within what the case allows."""
    assert got.dtype == want.dtype, f"dtype {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"shape {got.shape}, not {want.shape}"
    if want.dtype.itemsize == 1:
        # A NaN of ml_dtypes is not known as one to numpy.
        got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(got, want)
        return
    if not is_float(want.dtype):
        np.testing.assert_array_equal(got, want)
        return
    half = want.dtype.itemsize < 4
    rtol, atol = (1e-2, 1e-2) if half else (case.rtol, max(case.atol, 1e-6))
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)


def tally(cases: Iterator[NodeTest]) -> Tally:
    """Runs all cases."""
    result = Tally()
    for case in cases:
        try:
            attempt(case, {})
            result.plain.append(case.name)
            continue
        except UnsupportedError as error:
            first: Exception = error
        except (Error, AssertionError) as error:
            result.failed[reason(error)].append(case.name)
            continue
        try:
            values = shape_inputs(case)
            if not values:
                raise first
            attempt(case, values)
            result.given.append(case.name)
        except UnsupportedError:
            result.failed[reason(first)].append(case.name)
        except (Error, AssertionError) as error:
            result.failed[reason(error)].append(case.name)
    return result


def reason(error: Exception) -> str:
    """Why a case does not pass, in the words that others of its kind share."""
    if isinstance(error, Error):
        text = error.message
        if "can't be imported" in text:
            text = "can't be imported: " + ", ".join(sorted({p.split(" (")[0] for p in str(error.got).split("; ")}))
        return f"{type(error).__name__}: {text}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "wrong: " + " | ".join(lines[:3])


BACKEND = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)
CASES: dict[str, Callable[[], Iterator[NodeTest]]] = {
    "node": node_cases,
    **{kind: functools.partial(stored_cases, kind) for kind in FLOORS if kind != "node"},
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning:onnx")
@pytest.mark.parametrize("kind", FLOORS)
def test_onnx_cases(kind: str) -> None:
    result, floor = tally(CASES[kind]()), FLOORS[kind]
    print(f"\n{kind}: {result.text()}")
    scope = len(result.plain) + len(result.given) + sum(map(len, result.failed.values()))
    assert scope == floor.scope
    assert len(result.plain) >= floor.plain
    assert len(result.plain) + len(result.given) >= floor.passed
