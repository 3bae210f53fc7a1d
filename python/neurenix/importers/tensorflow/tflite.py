"""TensorFlow Lite's files (.tflite), through tf2onnx."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurenix import files
from neurenix import names as naming
from neurenix._native import Network
from neurenix.errors import FormatError, InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow import convert, handlers, onnx_names, ports
from neurenix.importers.tensorflow.libraries import quiet, tensorflow
from neurenix.importers.tensorflow.ports import Port
from neurenix.importers.tensorflow.request import Request

#: What stands in a file of this kind behind the first four bytes.
MAGIC = b"TFL3"
#: The signature that is taken where nobody names one.
DEFAULT = "serving_default"


@dataclass
class Signature:
    """One of the computations of a file."""

    graph: int
    inputs: list[Port]
    outputs: list[Port]


def import_tflite(path: Path, request: Request) -> Network:
    """The network of a signature of a file, of the only one, or of the first graph where there are none.

    Raises `FormatError` for what is no such file, and as `from_tensorflow`.
    """
    model, signature, shapes = converted(path, request)
    return convert.imported(model, signature.inputs, signature.outputs, shapes)


def exported(path: str | os.PathLike[str]) -> bytes:
    """The ONNX model of a file, with our names."""
    model, signature, _ = converted(Path(path), Request())
    onnx_names.rename(model.graph, {port.tensor: port.name for port in (*signature.inputs, *signature.outputs)})
    return bytes(model.SerializeToString())


def converted(path: Path, request: Request) -> tuple[Any, Signature, dict[str, list[int | str]]]:
    """The ONNX model, what it was made of, and the shapes of its inputs."""
    tensorflow("reading a .tflite file")
    if files.read(path, "the model")[4:8] != MAGIC:
        raise FormatError("this is no file of TensorFlow Lite's", got=str(path))
    from tf2onnx import tflite_utils

    try:
        with quiet():
            _, codes, file, known = tflite_utils.read_tflite_model(str(path))
        signature = _chosen(dict(_signatures(file)), request.signature) or _whole(file)
        graphs = [(index, file.Subgraphs(index)) for index in _needed(file, signature.graph)]
        own = _shapes(file, signature, known)
    except (InvalidArgumentError, UnsupportedError):
        raise
    except Exception as error:
        raise FormatError(f"the file is damaged: {type(error).__name__}: {error}", got=str(path)) from error
    shapes = ports.dims(signature.inputs, lambda port: own[port.tensor], request)
    shapes_of_all = known if signature.graph == 0 else None
    with convert.LOCK:
        model = convert.to_onnx(
            lambda: convert.finished(lambda: _processed(file, codes, graphs, shapes_of_all), path.stem), plugins=False
        )
    return model, signature, shapes


def _processed(file: Any, codes: Any, graphs: list[tuple[int, Any]], known: Any) -> Any:
    from tf2onnx import tflite_utils, tfonnx
    from tf2onnx.graph import Graph

    made = []
    for position, (_, graph) in enumerate(graphs):
        last = position == len(graphs) - 1
        prefix = "" if last else graph.Name().decode() + "_"
        nodes, _, _, shapes, dtypes, inputs, outputs, title = tflite_utils.parse_tflite_graph(
            graph, codes, file, prefix, known if last else None
        )
        made.append(
            Graph(
                nodes, shapes, dtypes, input_names=inputs, output_names=outputs, is_subgraph=not last, graph_name=title
            )
        )
    for one in made:
        one.set_config(None, convert.OPSET, None)
    tfonnx.clear_functions()
    own = {**convert.HANDLERS, "TFL_GELU": (handlers.gelu, [])}
    return tfonnx.process_graphs(made[-1], made[:-1], own, [], [], True, None, None, None, is_tflite=True)


def _signatures(file: Any) -> Iterator[tuple[str, Signature]]:
    for index in range(file.SignatureDefsLength()):
        found = file.SignatureDefs(index)
        graph = file.Subgraphs(found.SubgraphIndex())
        inputs = [found.Inputs(i) for i in range(found.InputsLength())]
        outputs = [found.Outputs(i) for i in range(found.OutputsLength())]
        yield (
            (found.SignatureKey() or b"").decode(),
            Signature(
                found.SubgraphIndex(),
                [Port(one.Name().decode(), _name(graph, one.TensorIndex())) for one in inputs],
                [Port(one.Name().decode(), _name(graph, one.TensorIndex())) for one in outputs],
            ),
        )


def _chosen(found: dict[str, Signature], name: str | None) -> Signature | None:
    if not found and name is None:
        return None
    chosen = name or (DEFAULT if DEFAULT in found else next(iter(found)) if len(found) == 1 else None)
    if chosen is not None and chosen in found:
        return found[chosen]
    raise InvalidArgumentError(
        f"there is no signature {name!r}" if name else "the model has several signatures",
        expected=", ".join(found) or "none",
        hint=naming.hint(name, found) if name else f"from_tensorflow(path, signature={next(iter(found))!r})",
    )


def _whole(file: Any) -> Signature:
    """The first graph, whose inputs and outputs are called as their tensors."""
    graph = file.Subgraphs(0)
    inputs = [_name(graph, graph.Inputs(i)) for i in range(graph.InputsLength())]
    outputs = [_name(graph, graph.Outputs(i)) for i in range(graph.OutputsLength())]
    return Signature(0, [Port(name, name) for name in inputs], [Port(name, name) for name in outputs])


def _name(graph: Any, index: int) -> str:
    return str(graph.Tensors(index).Name().decode())


def _needed(file: Any, graph: int, around: tuple[int, ...] = ()) -> list[int]:
    """The graphs that one calls, and behind them that one."""
    from tf2onnx import tflite_utils

    if graph in around:
        raise UnsupportedError("the graphs of the model call each other in a circle")
    found: list[int] = []
    for called in tflite_utils.get_subgraph_dependencies(file, graph):
        found += [index for index in _needed(file, called, (*around, graph)) if index not in found]
    return [*found, graph]


def _shapes(file: Any, signature: Signature, known: Any) -> dict[str, list[int | None]]:
    """The shapes of the inputs; None for open dimensions."""
    graph = file.Subgraphs(signature.graph)
    found = {}
    for index in range(graph.InputsLength()):
        tensor = graph.Tensors(graph.Inputs(index))
        shape = known.get(_name(graph, graph.Inputs(index))) if signature.graph == 0 else None
        if shape is None:
            shape = tensor.ShapeAsNumpy() if tensor.ShapeSignatureIsNone() else tensor.ShapeSignatureAsNumpy()
        found[_name(graph, graph.Inputs(index))] = [None if size < 0 else int(size) for size in shape]
    return found
