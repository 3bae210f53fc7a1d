"""Two answers side by side, tensor by tensor: ours, and those of somebody who is trusted."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from neurenix import arrays, shapes
from neurenix.cli import cutting
from neurenix.cli.common import given_shapes, load_inputs, options, random_array
from neurenix.cli.cutting import Arrays
from neurenix.cli.peers import STATISTICS
from neurenix.errors import InvalidArgumentError
from neurenix.hardware import get_backend
from neurenix.hardware.optimized import OptimizedModel
from neurenix.importers.onnx.reads import given_by, read_by
from neurenix.packages import need


@dataclass(frozen=True)
class Row:
    """One output of one node: how far ours is from the reference, over the reference's greatest value."""

    number: int
    node: str
    op: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    #: None where the reference does not know this tensor.
    error: float | None
    #: The greatest error of what the node reads: what is not its own fault.
    inherited: float
    not_finite: int
    reference_not_finite: int

    @property
    def state(self) -> str:
        """What is wrong, in a word."""
        if self.not_finite > self.reference_not_finite:
            return "not finite"
        return "unknown" if self.error is None else ""

    def departs(self, tolerance: float) -> bool:
        """Whether it is further away than it may be."""
        return self.state == "not finite" or (self.error is not None and not self.error <= tolerance)


@dataclass(frozen=True)
class Subject:
    """A model under suspicion, with inputs and the trusted value of every tensor."""

    model: onnx.ModelProto
    inputs: Arrays
    values: Arrays
    reference: str

    def outputs(self) -> list[str]:
        """The model's own outputs."""
        return [value.name for value in self.model.graph.output]

    def tensors(self) -> list[str]:
        """What its nodes give, in order, as far as it is an array."""
        return [name for node in self.model.graph.node for name in given_by(node) if name in self.values]


def subject_of(source: Any, arguments: argparse.Namespace) -> Subject:
    """The model of the arguments with its inputs, run by the reference.

    Raises `InvalidArgumentError` for a model that is neither ONNX nor torch, or whose shapes are not known.
    """
    if isinstance(source, str):
        model = cutting.read(source)
        inputs = _inputs(model, arguments)
        values = reference_values(model, inputs, arguments.reference)
        return Subject(model, inputs, inputs | values, arguments.reference)
    torch = need("torch", "running a PyTorch model")
    if not isinstance(source, (torch.nn.Module, torch.export.ExportedProgram)):
        raise InvalidArgumentError(
            "only ONNX and torch models can be compared layer by layer", got=type(source).__name__,
            hint="for a neurenix module: neurenix run MODEL --compare torch --torch-module ...",
        )  # fmt: skip
    from neurenix.importers.torch.tracing import trace

    given = given_shapes(arguments)
    traced = trace(source, given, lambda names: load_inputs(arguments.load_inputs), arguments.seed)
    return Subject(traced.model, traced.inputs, traced.inputs | traced.values, "torch")


def reference_values(model: onnx.ModelProto, inputs: Arrays, reference: str) -> Arrays:
    """The value of every tensor that is an array."""
    names = [name for node in model.graph.node for name in given_by(node)]
    marked = cutting.with_outputs(model, names)
    with np.errstate(all="ignore"):
        if reference == "onnx":
            found = ReferenceEvaluator(marked).run(names, inputs)
        else:
            ort = need("onnxruntime", "comparing with ONNX Runtime")
            settings = ort.SessionOptions()
            settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            settings.log_severity_level = 3
            session = ort.InferenceSession(marked.SerializeToString(), settings, providers=["CPUExecutionProvider"])
            found = session.run(names, inputs)
    arrays_alone = {name: value for name, value in zip(names, found, strict=True) if not isinstance(value, list)}
    return {name: np.asarray(value) for name, value in arrays_alone.items() if value is not None}


def _inputs(model: onnx.ModelProto, arguments: argparse.Namespace) -> Arrays:
    names = cutting.input_names(model)
    loaded = {name: array for name, array in load_inputs(arguments.load_inputs).items() if name in names}
    given = shapes.profiles(given_shapes(arguments), names)
    generator = np.random.default_rng(arguments.seed)
    for value in model.graph.input:
        if value.name not in names or value.name in loaded:
            continue
        tensor = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
        shape = given[0][value.name].opt if given and value.name in given[0] else dims
        if any(isinstance(d, str) for d in shape):
            raise InvalidArgumentError(
                "the shape of an input is dynamic", tensor=value.name, got=str(dims),
                hint=f"say it: --shapes {value.name}:{'x'.join('1' if isinstance(d, str) else str(d) for d in dims)}",
            )  # fmt: skip
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        loaded[value.name] = random_array(generator, dtype, [int(d) for d in shape])
    return {name: loaded[name] for name in names}


def build(model: onnx.ModelProto, inputs: Mapping[str, Any], arguments: argparse.Namespace) -> OptimizedModel:
    """An engine that says what it computes, however wrong: nothing is taken back."""
    given = {name: np.shape(array) for name, array in inputs.items()}
    backend = get_backend(arguments.backend)
    return backend.optimize_model(model, given, arguments.precision, **(options(arguments) | {"verify": False}))


def ours(model: onnx.ModelProto, inputs: Arrays, arguments: argparse.Namespace) -> Arrays:
    """What an engine of the model answers, by the names of the model."""
    outputs = build(model, inputs, arguments)(inputs)
    return {name: arrays.to_numpy(value) for name, value in outputs.items()}


def compare(subject: Subject, answers: Mapping[str, np.ndarray[Any, Any]], statistic: str) -> list[Row]:
    """A row for each tensor that both know, in the order of the nodes."""
    measure: Callable[..., float] = STATISTICS[statistic]
    errors: dict[str, float] = {}
    rows = []
    for number, node in enumerate(subject.model.graph.node):
        inherited = max((errors.get(name, 0.0) for name in read_by(node)), default=0.0)
        for name in given_by(node):
            if name not in answers:
                continue
            answer, trusted = answers[name], subject.values.get(name)
            if trusted is not None:
                errors[name] = measure(answer, trusted)
            rows.append(
                Row(number, node.name or f"#{number}", node.op_type, name, str(answer.dtype), answer.shape,
                    errors.get(name), inherited, not_finite(answer), 0 if trusted is None else not_finite(trusted))
            )  # fmt: skip
    return rows


def not_finite(array: np.ndarray[Any, Any]) -> int:
    """How many elements are NaN or infinite."""
    if array.dtype.kind in "biuSUO":
        return 0
    return int(array.size - np.isfinite(array.astype(np.float64)).sum())


def first_fused(subject: Subject, arguments: argparse.Namespace, names: Sequence[str]) -> str | None:
    """The first of these tensors that departs when nothing after it is built and nothing before it is looked at.

    An engine of what leads to a tensor fuses as the whole one does; halving finds it, if from there on all depart.
    """

    def departs(name: str) -> bool:
        answer = ours(cutting.with_outputs(subject.model, [name]), subject.inputs, arguments)[name]
        return not STATISTICS[arguments.check_error_stat](answer, subject.values[name]) <= arguments.tolerance

    low, high = 0, len(names) - 1
    if not names or not departs(names[high]):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if departs(names[middle]) else (middle + 1, high)
    return names[low]
