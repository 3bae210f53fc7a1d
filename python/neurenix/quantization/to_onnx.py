"""Writes a quantized network as ONNX, with its Quantize and Dequantize layers, for other runtimes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from graphlib import TopologicalSorter
from typing import Any

import numpy as np

from neurenix import packages
from neurenix._native import Layer, Network, Tensor
from neurenix.arrays import Array
from neurenix.errors import FileError, InvalidArgumentError, UnsupportedError
from neurenix.quantization.cache import check_writable

#: The opset that is written.
OPSET = 17
#: Ops that ONNX has under the same name, with the same inputs and with these attributes.
SAME: dict[str, tuple[str, ...]] = {
    "Abs": (), "Add": (), "AveragePool":
    ("kernel_shape", "strides", "pads", "auto_pad", "ceil_mode", "count_include_pad"),
    "Clip": (), "Concat": ("axis",), "Conv": ("group", "strides", "dilations", "pads", "auto_pad"),
    "ConvTranspose": ("group", "strides", "dilations", "pads", "auto_pad", "output_padding", "output_shape"),
    "Div": (), "Elu": ("alpha",), "Erf": (), "Exp": (), "Gather": ("axis",), "GlobalAveragePool": (),
    "HardSigmoid": ("alpha", "beta"), "HardSwish": (), "Identity": (), "LayerNormalization": ("axis", "epsilon"),
    "LeakyRelu": ("alpha",), "MaxPool": ("kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode"),
    "Mul": (), "Neg": (), "Pow": (), "ReduceMean": ("axes", "keepdims"), "Relu": (), "Sigmoid": (), "Softmax":
    ("axis",), "Sqrt": (), "Sub": (), "Tanh": (), "Transpose": ("perm",),
}  # fmt: skip


class Writer:
    """A network on its way to ONNX."""

    def __init__(self, network: Network) -> None:
        self.onnx: Any = packages.need("onnx", "to write ONNX")
        self.network = network
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        # Inputs keep their names, and so do constants; of several outputs that are one tensor the first one names it.
        fixed = {tensor for tensor in network.outputs.values() if tensor.numpy() is not None} | set(network.inputs)
        named = {tensor: name for name, tensor in reversed(network.outputs.items())}
        self.outputs = {tensor: name for tensor, name in named.items() if tensor not in fixed}

    def model(self) -> Any:
        """The model. Raises `UnsupportedError`, with the layer, for an op that is not written."""
        for layer in _in_order(self.network.layers):
            self._layer(layer)
        for name, tensor in self.network.outputs.items():
            if self.outputs.get(tensor) != name:
                self.node("Identity", [self.name(tensor)], name)
        helper = self.onnx.helper
        # Rules write some constants in another form.
        read = {name for node in self.nodes for name in node.input}
        graph = helper.make_graph(
            self.nodes,
            self.network.name or "network",
            [self._port(tensor.name, tensor) for tensor in self.network.inputs],
            [self._port(name, tensor) for name, tensor in self.network.outputs.items()],
            [weight for name, weight in self.initializers.items() if name in read],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="neurenix")
        model.ir_version = 8
        self.onnx.checker.check_model(model)
        return model

    def _port(self, name: str, tensor: Tensor) -> Any:
        shape = [dim.strip("'") if isinstance(dim, str) else dim for dim in tensor.shape]
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def name(self, tensor: Tensor) -> str:
        """The name of a tensor, which is written first where it is a constant."""
        array = tensor.numpy()
        if array is not None:
            return self.constant(tensor.name, np.asarray(array))
        return self.outputs.get(tensor, tensor.name)

    def constant(self, name: str, array: Array) -> str:
        """An initializer."""
        if name not in self.initializers:
            self.initializers[name] = self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def node(self, op: str, inputs: list[str], output: str, **attrs: Any) -> str:
        """A node of one output, whose name it gives."""
        made = self.onnx.helper.make_node(op, inputs, [output], f"{output}/{op}", **attrs)
        self.nodes.append(made)
        return output

    def _layer(self, layer: Layer) -> None:
        inputs = ["" if tensor is None else self.name(tensor) for tensor in layer.inputs]
        output = self.name(layer.outputs[0])
        if layer.op == "AveragePool" and any(extent != 1 for extent in layer.attrs.get("dilations") or ()):
            raise UnsupportedError(
                "AveragePool with dilations can't be written in this opset of ONNX", layer=layer.name
            )
        if layer.op in SAME and len(layer.outputs) == 1:
            given = {name: layer.attrs[name] for name in SAME[layer.op] if name in layer.attrs}
            self.node(layer.op, inputs, output, **{n: v for n, v in given.items() if v is not None and v != []})
            return
        rule = RULES.get(layer.op)
        if rule is None:
            raise UnsupportedError(
                "an op can't be written as ONNX",
                layer=layer.name,
                got=layer.op,
                hint="keep the network, and optimise it: get_backend().optimize_model(network)",
            )
        rule(self, layer, inputs, output)


def _in_order(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Each layer behind those whose results it reads, as ONNX wants its nodes."""
    producers = {tensor: at for at, layer in enumerate(layers) for tensor in layer.outputs}
    reads = {at: [producers[t] for t in layer.inputs if t in producers] for at, layer in enumerate(layers)}
    return (layers[at] for at in TopologicalSorter(reads).static_order())


def _matmul(writer: Writer, layer: Layer, inputs: list[str], output: str) -> None:
    for at, flag in enumerate(("transA", "transB")):
        tensor = layer.inputs[at]
        if layer.attrs.get(flag) and tensor is not None:
            axes = list(range(len(tensor.shape)))
            axes[-2:] = axes[:-3:-1]
            inputs[at] = writer.node("Transpose", [inputs[at]], f"{output}/{flag}", perm=axes)
    writer.node("MatMul", inputs, output)


def _quantization(writer: Writer, layer: Layer, inputs: list[str], output: str) -> None:
    """The scale of a tensor, or, as a vector, those along an axis."""
    x, scale = layer.inputs[0], layer.inputs[1]
    assert x is not None and scale is not None
    array = scale.numpy()
    if array is None and layer.op == "DequantizeLinear" and len(layer.inputs) < 3:
        # ONNX's own has no scales that broadcast.
        number = writer.node("Cast", [inputs[0]], f"{output}/number", to=writer.onnx.TensorProto.FLOAT)
        writer.node("Mul", [number, inputs[1]], output)
        return
    if array is None:
        raise UnsupportedError("a scale that a call computes can't be written as ONNX", layer=layer.name)
    axes = [at + len(x.shape) - array.ndim for at, extent in enumerate(array.shape) if extent != 1]
    if len(axes) > 1:
        raise UnsupportedError("scales of blocks can't be written in this opset of ONNX", layer=layer.name)
    integers = x.dtype if layer.op == "DequantizeLinear" else layer.outputs[0].dtype
    if np.dtype(integers).name not in ("int8", "uint8", "int32"):
        raise UnsupportedError(
            "quantization to this dtype can't be written in this opset of ONNX", layer=layer.name, got=str(integers)
        )
    zero = layer.inputs[2].numpy() if len(layer.inputs) > 2 and layer.inputs[2] is not None else None
    flat = np.asarray(array, np.float32).reshape(-1 if axes else ())
    zeros = np.zeros(flat.shape, integers) if zero is None else np.broadcast_to(np.asarray(zero).reshape(-1), flat.size)
    parts = [writer.constant(f"{scale.name}/{flat.ndim}", flat)]
    if np.dtype(integers) != np.int32:
        parts.append(writer.constant(f"{output}/zero_point", np.asarray(zeros, integers).reshape(flat.shape)))
    writer.node(layer.op, [inputs[0], *parts], output, **({"axis": axes[0]} if axes else {}))


def _reshape(writer: Writer, layer: Layer, inputs: list[str], output: str) -> None:
    target = layer.inputs[1]
    value = None if target is None else target.value
    if value is None:
        raise UnsupportedError("a shape that depends on data can't be written as ONNX", layer=layer.name)
    x = layer.inputs[0]
    assert x is not None
    # 0 keeps an extent of the input, and one may stay open.
    kept = [0 if not isinstance(d, int) and at < len(x.shape) and x.shape[at] == d else d for at, d in enumerate(value)]
    wanted = [d if isinstance(d, int) else -1 for d in kept]
    if wanted.count(-1) > 1:
        raise UnsupportedError("a shape with several symbols can't be written as ONNX", layer=layer.name)
    writer.node("Reshape", [inputs[0], writer.constant(f"{output}/shape", np.array(wanted, np.int64))], output)


def _silu(writer: Writer, layer: Layer, inputs: list[str], output: str) -> None:
    gate = writer.node("Sigmoid", inputs, f"{output}/gate")
    writer.node("Mul", [inputs[0], gate], output)


def _gelu(writer: Writer, layer: Layer, inputs: list[str], output: str) -> None:
    if layer.attrs.get("approximate") == "tanh":
        raise UnsupportedError("Gelu by tanh can't be written in this opset of ONNX", layer=layer.name)
    number = {value: writer.constant(f"{output}/{value}", np.array(value, np.float32)) for value in (2**0.5, 1.0, 0.5)}
    inner = writer.node("Div", [inputs[0], number[2**0.5]], f"{output}/scaled")
    inner = writer.node("Erf", [inner], f"{output}/erf")
    inner = writer.node("Add", [inner, number[1.0]], f"{output}/shifted")
    inner = writer.node("Mul", [inputs[0], inner], f"{output}/product")
    writer.node("Mul", [inner, number[0.5]], output)


def _per_token(writer: Writer, layer: Layer, inputs: list[str], output: str) -> None:
    """As `src/network/ops/dynamic_quantize_per_token.rs` decomposes it."""
    x, scale = inputs[0], writer.name(layer.outputs[1])

    def number(value: float) -> str:
        return writer.constant(f"{output}/{value}", np.array(value, np.float32))

    def node(op: str, given: list[str], **attrs: Any) -> str:
        return writer.node(op, given, f"{output}/{op}{len(writer.nodes)}", **attrs)

    most = node("ReduceMax", [node("Abs", [x])], axes=[-1], keepdims=1)
    least = node("Max", [node("Mul", [most, number(1 / 127)]), number(float(np.finfo(np.float32).tiny))])
    # NaN where a number is not finite, which a maximum may pass over.
    last = writer.constant(f"{output}/last", np.array([-1], np.int64))
    nothing = node("ReduceSum", [node("Mul", [x, number(0.0)]), last], keepdims=1)
    writer.node("Add", [least, nothing], scale)
    whole = node("Round", [node("Mul", [x, node("Reciprocal", [scale])])])
    held = node("Clip", [whole, number(-127.0), number(127.0)])
    found = node("Where", [node("IsNaN", [scale]), number(0.0), held])
    writer.node("Cast", [found], output, to=writer.onnx.TensorProto.INT8)


RULES: dict[str, Callable[[Writer, Layer, list[str], str], None]] = {
    "DequantizeLinear": _quantization,
    "DynamicQuantizePerToken": _per_token,
    "Gelu": _gelu,
    "MatMul": _matmul,
    "QuantizeLinear": _quantization,
    "Reshape": _reshape,
    "Silu": _silu,
}


def to_onnx(network: Network, path: str | os.PathLike[str] | None = None) -> Any:
    """A network as `onnx.ModelProto` of opset 17, which ONNX Runtime and OpenVINO open; written to `path` where one
    is given.

    For networks of `calibrate` and `quantize_weights`. Raises `UnsupportedError`, with the layer, for ops other than
    those of common convolutional networks and perceptrons, `InvalidArgumentError` for what is no network, `FileError`
    where the file can't be written, `MissingPackageError` without onnx.
    """
    if not isinstance(network, Network):
        raise InvalidArgumentError(
            "a network is written as ONNX",
            expected="a Network",
            got=type(network).__name__,
            hint="nx.quantization.calibrate(module, batches) gives one of a module or a model",
        )
    if path is not None:
        check_writable(path, "the model")
    model = Writer(network).model()
    if path is not None:
        import onnx

        try:
            onnx.save(model, os.fspath(path))
        except OSError as error:
            raise FileError("the model can't be written", got=str(error)) from error
    return model
