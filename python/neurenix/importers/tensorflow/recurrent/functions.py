"""The functions of cells, under the names that ONNX's recurrent layers have for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurenix.importers.tensorflow.recurrent.reading import NoMatch, Reader, need

#: Those that have an op and a name, the same in TensorFlow and ONNX, and no numbers.
NAMED = ("Sigmoid", "Tanh", "Relu", "Softplus", "Softsign")


@dataclass(frozen=True)
class Function:
    """A function, and its numbers if it has some."""

    name: str
    alpha: float | None = None
    beta: float | None = None


def function(reader: Reader, tensor: str) -> tuple[Function, str]:
    """The function that gives a tensor, and the tensor it takes; that which changes nothing where there is none."""
    try:
        node = reader.node(tensor)
        if node.type in NAMED:
            return Function(node.type), node.input[0]
        if node.type == "Elu":
            return Function("Elu", 1.0), node.input[0]
        return Function("HardSigmoid", 1 / 6, 0.0), _hard_sigmoid(reader, tensor)
    except NoMatch:
        return Function("Affine", 1.0, 0.0), reader.root(tensor)


def _hard_sigmoid(reader: Reader, tensor: str) -> str:
    """What is behind relu6(x) / 6: the 3 that Keras adds is a part of the sum, often of its bias."""
    if reader.node(tensor).type in ("RealDiv", "Div"):
        node = reader.node(tensor)
        need(_is(reader, node.input[1], 6.0))
        return str(reader.of(node.input[0], "Relu6").input[0])
    for clipped, factor in reader.operands(tensor, "Mul"):
        if reader.graph.get_node_by_output(clipped) is not None and reader.node(clipped).type == "Relu6":
            need(_is(reader, factor, 1 / 6))
            return str(reader.node(clipped).input[0])
    raise NoMatch


def _is(reader: Reader, tensor: str, wanted: float) -> bool:
    value = reader.value(tensor)
    return bool(np.size(value) == 1 and abs(float(np.ravel(value)[0]) / wanted - 1) < 1e-3)


def attributes(functions: list[Function]) -> dict[str, list[str] | list[float]]:
    """The attributes of an ONNX layer with these functions: numbers stand in the order of those that take some."""
    found: dict[str, list[str] | list[float]] = {"activations": [one.name for one in functions]}
    for name in ("alpha", "beta"):
        numbers = [number for one in functions if (number := getattr(one, name)) is not None]
        if numbers:
            found[f"activation_{name}"] = numbers
    return found
