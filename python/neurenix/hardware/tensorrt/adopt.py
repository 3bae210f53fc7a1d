"""Makes the layers of a model that an importer read those of a network in the making."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neurenix._native import Layer, Network, Tensor
from neurenix.errors import UnsupportedError
from neurenix.hardware.tensorrt import layer_enums as e
from neurenix.hardware.tensorrt.enums import Word
from neurenix.hardware.tensorrt.graph import Definition, Port
from neurenix.hardware.tensorrt.layer import Emit, ILayer, ITensor, Scope
from neurenix.hardware.tensorrt.layer_classes import CLASSES

#: Ops that are one of several operations of a kind of layer.
_FAMILIES: dict[str, type[Word]] = {
    "Activation": e.ActivationType,
    "Pooling": e.PoolingType,
    "ElementWise": e.ElementWiseOperation,
    "Unary": e.UnaryOperation,
    "Reduce": e.ReduceOperation,
    "Gather": e.GatherMode,
    "Scatter": e.ScatterMode,
    "Cumulative": e.CumulativeOperation,
}
_WORDS = {word.op: (kind, word) for kind, words in _FAMILIES.items() for word in words}

#: Ops that are a kind of layer each.
_KINDS = {
    "Attention": "Attention",
    "BatchNormalization": "Scale",
    "Cast": "Cast",
    "Concat": "Concatenation",
    "Conv": "Convolution",
    "ConvTranspose": "Deconvolution",
    "DequantizeLinear": "Dequantize",
    "Einsum": "Einsum",
    "Expand": "Slice",
    "Flatten": "Shuffle",
    "GlobalAveragePool": "Reduce",
    "GridSample": "GridSample",
    "GroupNormalization": "Normalization",
    "Identity": "Identity",
    "InstanceNormalization": "Normalization",
    "LRN": "LRN",
    "LayerNormalization": "Normalization",
    "MatMul": "MatrixMultiply",
    "NonMaxSuppression": "NMS",
    "NonZero": "NonZero",
    "OneHot": "OneHot",
    "PRelu": "ParametricReLU",
    "Pad": "Padding",
    "QuantizeLinear": "Quantize",
    "Reshape": "Shuffle",
    "Resize": "Resize",
    "ReverseSequence": "ReverseSequence",
    "Shape": "Shape",
    "Slice": "Slice",
    "Softmax": "SoftMax",
    "Squeeze": "Squeeze",
    "TopK": "TopK",
    "Transpose": "Shuffle",
    "Unsqueeze": "Unsqueeze",
    "Where": "Select",
}

#: Layers that hold networks or objects, which can't be added a second time.
_ONCE = ("If", "Loop", "Scan", "Plugin")


def adopt(definition: Definition, network: Network, names: Mapping[Tensor, str]) -> None:
    """Takes over an imported network: its layers become layers of the definition, which must be empty.

    `names` says what the model calls tensors. Properties of layers are the attributes of our ops, under the names of
    `ops()`.
    """
    definition._draft = network
    definition._name = network.name
    tensors: dict[Tensor, ITensor] = {}

    def known(native: Tensor, tensor: ITensor) -> ITensor:
        tensors[native] = tensor
        definition._tensors[id(tensor)] = native
        return tensor

    def read(native: Tensor) -> ITensor:
        if native not in tensors:
            tensor = known(native, ITensor(definition, None, 0, native.name))
            definition._constants.append((tensor, native))
        return tensors[native]

    for native in network.inputs:
        tensor = known(native, ITensor(definition, None, 0, native.name))
        definition._inputs.append(Port(tensor, native.dtype, native.shape))
    for given in network.layers:
        layer = _layer(definition, given, [None if t is None else read(t) for t in given.inputs])
        for tensor, native in zip(layer._outputs, given.outputs, strict=True):
            tensor._name = names.get(native, native.name)
            known(native, tensor)
        definition._layers.append(layer)
    definition._order = list(definition._layers)
    definition._ready = len(definition._layers)
    for name, native in network.outputs.items():
        _mark(definition, name, read(native))


def _layer(definition: Definition, given: Layer, inputs: list[ITensor | None]) -> ILayer:
    kind, word = _WORDS.get(given.op, (_KINDS.get(given.op, given.op), None))
    extra: dict[str, Any] = {}
    if word is not None:
        extra["type" if kind in ("Activation", "Pooling") else "mode" if "Mode" in type(word).__name__ else "op"] = word
    attrs = {name: value for name, value in given.attrs.items() if name not in extra}
    made = CLASSES.get(kind, ILayer)
    emit = _emit(given.op, tuple(attrs))
    return made(definition, kind, given.name, inputs, attrs | extra, emit, len(given.outputs))


def _emit(op: str, attrs: tuple[str, ...]) -> Emit:
    def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
        if op in _ONCE:
            raise UnsupportedError(
                f"a model with {op} can't be changed before it, nor get loops or conditionals, after it was read",
                layer=layer.name,
                hint="change the ONNX model, or what follows its outputs",
            )
        given = {name: layer._properties[name] for name in attrs if layer._properties[name] is not None}
        return scope.add_all(op, scope.inputs, **given)

    return emit


def _mark(definition: Definition, name: str, tensor: ITensor) -> None:
    """A result; one that has a second name, or is an input too, goes through a layer of its own."""
    if tensor.is_network_output or tensor.is_network_input:
        layer = definition._append("Identity", [tensor], {}, lambda layer, scope: [scope.add("Identity", scope[0])])
        tensor = layer._outputs[0]
    tensor._name = name
    definition._outputs.append(tensor)
