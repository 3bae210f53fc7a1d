"""tf2onnx, and what is made of what it writes and logs."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neurenix._native import Network
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.graph import import_graph
from neurenix.importers.tensorflow import (
    arithmetic,
    colors,
    elementwise,
    handlers,
    images,
    keras_layer_norm,
    lists,
    matrices,
    narrow,
    onnx_names,
    plugin_ops,
    ports,
    quantization,
    recurrent,
    segments,
    threats,
    unshared,
    weights,
)
from neurenix.importers.tensorflow.functions import Frozen
from neurenix.importers.tensorflow.libraries import quiet
from neurenix.importers.tensorflow.ports import Port
from neurenix.importers.tensorflow.request import Request
from neurenix.log import LOG

#: The opset that tf2onnx writes best.
OPSET = 18
#: tf2onnx keeps functions of a model, and dtypes, in globals.
LOCK = threading.Lock()

Arrays = dict[str, "np.ndarray[Any, Any]"]
#: So many nodes of an op are named.
MOST = 3

#: Ops of loops and branches that were taken to pieces.
LOWERED = ("Enter", "Exit", "NextIteration")
UNLOWER = (
    "the loops of the graph were taken to pieces when it was frozen: freeze it with "
    "convert_variables_to_constants_v2(function, lower_control_flow=False), or give the SavedModel"
)

#: What we convert ourselves.
HANDLERS: dict[str, tuple[plugin_ops.Handler, list[Any]]] = {
    "AdjustSaturation": (colors.adjust_saturation, []),
    "Bitcast": (elementwise.sign_bits, []),
    "Bucketize": (elementwise.bucketize, []),
    "Erfc": (handlers.erfc, []),
    "EuclideanNorm": (elementwise.euclidean_norm, []),
    "Expm1": (elementwise.expm1, []),
    "L2Loss": (elementwise.l2_loss, []),
    "Log1p": (elementwise.log1p, []),
    "MatrixDiag": (matrices.diagonal, []),
    "MatrixDiagV2": (matrices.diagonal, []),
    "MatrixDiagV3": (matrices.diagonal, []),
    "MatrixSetDiag": (matrices.set_diagonal, []),
    "MatrixSetDiagV2": (matrices.set_diagonal, []),
    "MatrixSetDiagV3": (matrices.set_diagonal, []),
    "NonMaxSuppressionV5": (images.suppress, []),
    "OneHot": (handlers.one_hot, []),
    "FloorDiv": (arithmetic.floor_div, []),
    "FloorMod": (arithmetic.floor_mod, []),
    "TruncateDiv": (arithmetic.truncate_div, []),
    "TruncateMod": (arithmetic.truncate_mod, []),
    "ReverseV2": (handlers.reverse, []),
    "ScatterNd": (handlers.scatter_nd, []),
    "Select": (handlers.select, []),
    "SelectV2": (handlers.select, []),
    "XlaDynamicUpdateSlice": (matrices.update_slice, []),
    "CropAndResize": (images.crop_and_resize, []),
    "ResizeArea": (images.resize_area, []),
    **{op: (elementwise.absorbing, []) for op in elementwise.ABSORBING},
    **{op: (quantization.fake_quant, []) for op in quantization.OPS},
    **{op: (images.resize, []) for op in images.MODES},
    **{op: (segments.sorted_segments, []) for op in segments.SORTED},
    **{op: (segments.unsorted_segments, []) for op in segments.UNSORTED},
}

HINT = (
    "write that part of the model in other ops of TensorFlow's, or leave it out and compute it outside: tf2onnx, which "
    "does the conversion, lists the ops that it knows (support_status.md)"
)


def import_frozen(frozen: Frozen, request: Request) -> Network:
    """The network of a frozen graph, whose large weights are taken out of it.

    Raises `UnsupportedError` with the ops that nothing converts, and as `from_onnx`.
    """
    model, shapes, large = _onnx_model(frozen, request)
    return imported(model, frozen.inputs, frozen.outputs, shapes, large)


def _onnx_model(frozen: Frozen, request: Request) -> tuple[Any, dict[str, list[int | str]], Arrays]:
    """The ONNX model of a graph, the shapes of its inputs, and of those that are large weights their elements."""
    threats.check_graph(frozen.graph)
    _check_dtypes(frozen)
    _without_xla(frozen.graph)
    shapes = ports.dims(frozen.inputs, frozen.shape, request)
    _write_shapes(frozen.graph, shapes)
    large = weights.detached(frozen.graph)
    with LOCK, narrow.bfloat16_kept():
        try:
            return to_onnx(lambda: _from_graph(frozen, list(large))), shapes, large
        except UnsupportedError as error:
            if any(node.op in LOWERED for node in frozen.graph.node):
                error.hint = UNLOWER
            raise


def imported(
    model: Any,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    shapes: Mapping[str, Sequence[int | str]],
    values: Arrays | None = None,
) -> Network:
    """The network of what tf2onnx wrote, under the names that the user knows; `values` of inputs that are weights."""
    names = {port.tensor: port.name for port in (*inputs, *outputs)}
    there = {port.name for port in model.graph.input}
    given = {name: array for name, array in (values or {}).items() if name in there}
    known = {name: shape for name, shape in shapes.items() if name in there}
    graph = import_graph(model, None, known, names, given)
    plugin_ops.check_dtypes(model, graph)
    return graph.network


def export(frozen: Frozen, request: Request) -> Any:
    """The ONNX model of a frozen graph with the names that the user knows. Raises as `import_frozen`."""
    model, shapes, large = _onnx_model(frozen, request)
    weights.attached(model, large)
    onnx_names.name_dims(model.graph, shapes)
    names = {port.tensor: port.name for port in (*frozen.inputs, *frozen.outputs)}
    onnx_names.rename(model.graph, names)
    return model


def to_onnx(convert: Callable[[], Any], plugins: bool = True) -> Any:
    """The ONNX model that a call of tf2onnx gives, if it is whole. `plugins`: whether ops may be plugins.

    Raises `UnsupportedError` with every op that tf2onnx could not convert, though it goes on then, and for a model that
    breaks ONNX's rules.
    """
    import onnx

    failure: Exception | None = None
    model: Any = None
    with quiet() as logged:
        try:
            model = convert()
        except Exception as error:
            failure = error
    if isinstance(failure, UnsupportedError):
        raise failure
    unknown, failed = _unknown(logged.records), _failed(logged.records)
    if refused := {**unknown, **failed}:
        raise UnsupportedError(
            f"tf2onnx can't convert {', '.join(_ops(refused))}",
            layer=next(iter(refused)),
            hint="; ".join([HINT, *([plugin_ops.hint(sorted(set(unknown.values())))] if unknown and plugins else [])]),
        ) from failure
    if failure is not None or logged.records:
        text = _line(failure) if failure else logged.records[0].getMessage()
        raise UnsupportedError(f"tf2onnx can't convert the model: {text.partition(chr(10))[0]}", hint=HINT) from failure
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        LOG.debug("tf2onnx wrote an invalid model", exc_info=error)
        raise UnsupportedError(
            "what tf2onnx wrote breaks ONNX's rules: " + " ".join(str(error).split())[:300], hint=HINT
        ) from error
    return model


def _from_graph(frozen: Frozen, weights_too: list[str]) -> Any:
    import tensorflow as tf
    from tf2onnx import optimizer, tf_loader

    inputs = [port.tensor for port in frozen.inputs] + weights_too
    outputs = [port.tensor for port in frozen.outputs]
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        folded = tf_loader.tf_optimize(inputs, outputs, frozen.graph)
    # Einsum is an op of ours, and what becomes of it is shorter than what tf2onnx makes of it.
    wanted = {name: one for name, one in optimizer._get_optimizers().items() if name != "einsum_optimizer"}
    return finished(lambda: _processed(folded, inputs, outputs), frozen.name, wanted)


def _processed(graph: Any, inputs: list[str], outputs: list[str]) -> Any:
    import tensorflow as tf
    from tf2onnx import tfonnx

    unshared.unshare(graph)
    passed, rewriter = plugin_ops.handlers(graph, OPSET), lists.Rewriter(graph)
    with tf.Graph().as_default() as whole:
        tf.import_graph_def(graph, name="")
        made = tfonnx.process_tf_graph(
            whole, continue_on_error=True, opset=OPSET, input_names=inputs, output_names=outputs,
            custom_op_handlers={**HANDLERS, **passed}, extra_opset=plugin_ops.opsets(passed),
            custom_rewriter=[recurrent.rewrite, rewriter, keras_layer_norm.rewrite],
        )  # fmt: skip
    rewriter.check()
    return made


def finished(make: Callable[[], Any], name: str, optimizers: Mapping[str, Any] | None = None) -> Any:
    """The model of a graph of tf2onnx's, behind its optimizers if these do not fail."""
    from tf2onnx import optimizer

    graph = make()
    try:
        # Told to go on behind an optimizer that fails, it would copy all weights before each of them.
        return optimizer.optimize_graph(graph, False, optimizers=optimizers).make_model(name)
    except Exception as error:
        LOG.debug("tf2onnx's optimizers failed", exc_info=error)
        return optimizer.optimize_graph(make(), True, optimizers={}).make_model(name)


def _without_xla(graph: Any) -> None:
    """Lets TensorFlow inline what is to be compiled by XLA, as Keras' grouped convolutions are."""
    parts = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    for part in (*parts, *graph.library.function):
        part.attr.pop("_XlaMustCompile", None)
        part.attr.pop("_noinline", None)


def _check_dtypes(frozen: Frozen) -> None:
    """Raises `UnsupportedError` for inputs of texts and the like, before an op that reads them is blamed."""
    from tensorflow import dtypes

    nodes = {node.name: node for node in frozen.graph.node}
    for port in frozen.inputs:
        node = nodes.get(port.tensor.partition(":")[0])
        kind = dtypes.as_dtype(node.attr["dtype"].type) if node is not None and "dtype" in node.attr else None
        if kind is not None and not (kind.is_floating or kind.is_integer or kind.is_bool or kind.is_complex):
            raise UnsupportedError(
                f"an input is of {kind.name}",
                tensor=port.name,
                expected="numbers or booleans",
                hint="give the signature or function behind the part that reads texts, which stays in TensorFlow",
            )


def _write_shapes(graph: Any, shapes: Mapping[str, Sequence[int | str]]) -> None:
    """Tells the graph what is known of its inputs: TensorFlow's own shape inference knows more then."""
    nodes = {f"{node.name}:0": node for node in graph.node}
    for tensor, dims in shapes.items():
        node = nodes.get(tensor)
        if node is not None and node.op.startswith("Placeholder"):
            node.attr.pop("_output_shapes", None)
            shape = node.attr["shape"].shape
            shape.Clear()
            for dim in dims:
                shape.dim.add(size=dim if isinstance(dim, int) else -1)


def _unknown(records: Sequence[logging.LogRecord]) -> dict[str, str]:
    """The ops that tf2onnx does not know, by the names of their nodes."""
    found: dict[str, str] = {}
    for record in records:
        args = record.args if isinstance(record.args, tuple) else ()
        if str(record.msg).startswith("Tensorflow op [") and len(args) == 2:
            found[str(args[0])] = str(args[1])
    return found


def _failed(records: Sequence[logging.LogRecord]) -> dict[str, str]:
    """The ops that tf2onnx knows and could not convert, with the reasons, by the names of their nodes."""
    found: dict[str, str] = {}
    for record in records:
        args = record.args if isinstance(record.args, tuple) else ()
        if str(record.msg).startswith("Failed to convert node") and args:
            reason = record.exc_info[1] if record.exc_info else None
            found[str(args[0])] = f"{_type(args)} ({_line(reason)})" if reason else _type(args)
    return found


def _type(args: tuple[Any, ...]) -> str:
    """The op of a node, out of the summary that tf2onnx makes of it: "OP NODENAME=..."."""
    for word in str(args[-1]).split():
        if word.startswith("OP="):
            return word.removeprefix("OP=")
    return "an op"


def _ops(refused: Mapping[str, str]) -> list[str]:
    counts = Counter(refused.values())
    texts = []
    for op, count in sorted(counts.items()):
        nodes = [repr(name) for name, other in refused.items() if other == op][:MOST]
        more = f" and {count - MOST} more" if count > MOST else ""
        texts.append(f"{op} (at {', '.join(nodes)}{more})")
    return texts


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
