"""Layers and tensors of a network in the making: read and changed as in TensorRT, a Network when it is needed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neurenix import _native, arrays
from neurenix._native import Network, Tensor
from neurenix.errors import Error, InvalidArgumentError
from neurenix.hardware.tensorrt.enums import DataType, Dims, as_data_type, as_dtype

LOG = logging.getLogger("neurenix")

#: Adds a layer to a network and gives its outputs.
Emit = Callable[["ILayer", "Scope"], "list[Tensor]"]


class ITensor:
    """A tensor of a network in the making."""

    def __init__(self, network: Definition, layer: ILayer | None, index: int, name: str) -> None:
        self._network = network
        self._layer = layer
        self._index = index
        self.name = name

    def _native(self) -> Tensor:
        return self._network._tensor(self)

    @property
    def shape(self) -> Dims:
        """The extent of each dimension, -1 where it is dynamic."""
        return Dims(self._native().shape)

    @property
    def symbolic_shape(self) -> tuple[int | str, ...]:
        """The extent of each dimension, its expression where it is dynamic."""
        return self._native().shape

    @property
    def dtype(self) -> DataType | np.dtype[Any]:
        """The element type."""
        return as_data_type(self._native().dtype)

    @property
    def is_network_input(self) -> bool:
        """Whether the caller gives it."""
        return self._layer is None

    @property
    def is_network_output(self) -> bool:
        """Whether it is a result."""
        return any(self._network._resolve(output) is self for output in self._network._outputs)

    def __repr__(self) -> str:
        return f"ITensor({self.name}: {list(self.symbolic_shape)})"


class Scope:
    """Where a layer is added: the network, and the name of the layer."""

    def __init__(self, network: Network, name: str, inputs: list[Tensor | None]) -> None:
        self.network = network
        self.name = name
        self.inputs = inputs

    def __getitem__(self, index: int) -> Tensor:
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise InvalidArgumentError(f"input {index} of the layer is missing", layer=self.name)
        return tensor

    def get(self, index: int) -> Tensor | None:
        """An input that may be left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def add(self, op: str, *inputs: Tensor | None, **attrs: Any) -> Tensor:
        """Adds a layer with one output."""
        return self.add_all(op, inputs, **attrs)[0]

    def add_all(self, op: str, inputs: Sequence[Tensor | None], **attrs: Any) -> list[Tensor]:
        """Adds a layer and gives all its outputs."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        return self.network.add_layer(op, given, attrs, self.name)

    def constant(self, value: Any, dtype: Any = None, what: str = "") -> Tensor:
        """Adds a constant."""
        array = value if dtype is None and isinstance(value, np.ndarray) else np.asarray(value, dtype)
        return self.network.add_constant(f"{self.name}.{what}" if what else self.name, array)


class ILayer:
    """A layer: its properties are those of TensorRT's layer of the kind, and may change until the build.

    It stands for its first output wherever a tensor is expected.
    """

    def __init__(
        self,
        network: Definition,
        kind: str,
        name: str,
        inputs: list[ITensor | None],
        properties: dict[str, Any],
        emit: Emit,
        outputs: int = 1,
    ) -> None:
        object.__setattr__(self, "_network", network)
        object.__setattr__(self, "_inputs", inputs)
        object.__setattr__(self, "_properties", dict(properties))
        object.__setattr__(self, "_emit", emit)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "_name", name)
        tensors = [ITensor(network, self, i, f"{name}_output{i or ''}") for i in range(outputs)]
        object.__setattr__(self, "_outputs", tensors)

    _network: Definition
    _inputs: list[ITensor | None]
    _properties: dict[str, Any]
    _emit: Emit
    _outputs: list[ITensor]
    _name: str
    #: The kind of layer: "Convolution", "Pooling", ...
    kind: str

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def num_inputs(self) -> int:
        """How many inputs it has."""
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        """How many outputs it has."""
        return len(self._outputs)

    def get_input(self, index: int) -> ITensor | None:
        """An input."""
        return self._inputs[index] if index < len(self._inputs) else None

    def get_output(self, index: int) -> ITensor | None:
        """An output."""
        return self._outputs[index] if index < len(self._outputs) else None

    def set_input(self, index: int, tensor: Any) -> None:
        """Replaces an input, or adds one that may be left out."""
        self._inputs.extend([None] * (index + 1 - len(self._inputs)))
        self._inputs[index] = self._network._resolve(tensor)
        self._network._changed(self)

    def __getattr__(self, name: str) -> Any:
        properties = self.__dict__.get("_properties", {})
        if name in properties:
            return properties[name]
        if name == "type":
            return self.kind
        raise AttributeError(f"{self.kind} has no property {name!r}; it has {', '.join(properties) or 'none'}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "name":
            object.__setattr__(self, "_name", str(value))
        elif name in self._properties:
            self._properties[name] = value
        else:
            near = _native.nearest(name, list(self._properties))
            raise InvalidArgumentError(
                f"{self.kind} has no property {name!r}",
                layer=self.name,
                expected=", ".join(self._properties) or "none",
                hint=f"the nearest name is {near!r}" if near else None,
            )
        self._network._changed(self)

    def __repr__(self) -> str:
        return f"ILayer({self.name}: {self.kind})"


class Definition:
    """A network in the making, without the functions that add layers."""

    def __init__(self, name: str = "network") -> None:
        self.name = name
        self._inputs: list[tuple[ITensor, np.dtype[Any], tuple[int | str, ...]]] = []
        self._layers: list[ILayer] = []
        self._outputs: list[ITensor] = []
        # What has been added to a network so far, to answer for shapes and to refuse bad arguments early. A layer that
        # changes is added to it anew, with all that follow; the build starts from an empty one.
        self._draft = Network(name)
        self._tensors: dict[int, Tensor] = {}
        self._ready = 0

    def add_input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> ITensor:
        """Adds an input; -1 or a name for a dynamic dimension."""
        dims = tuple(d if isinstance(d, str) or d >= 0 else f"'{name}.{axis}'" for axis, d in enumerate(shape))
        tensor = ITensor(self, None, 0, name)
        self._tensors[id(tensor)] = self._draft.add_input(name, as_dtype(dtype), dims)
        self._inputs.append((tensor, as_dtype(dtype), dims))
        return tensor

    def mark_output(self, tensor: Any) -> None:
        """Makes a tensor a result, under its name."""
        self._outputs.append(self._resolve(tensor))

    def unmark_output(self, tensor: Any) -> None:
        """Takes that back."""
        self._outputs.remove(self._resolve(tensor))

    @property
    def num_inputs(self) -> int:
        """How many inputs there are."""
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        """How many results there are."""
        return len(self._outputs)

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self._layers)

    def get_input(self, index: int) -> ITensor:
        """An input."""
        return self._inputs[index][0]

    def get_output(self, index: int) -> ITensor:
        """A result."""
        return self._outputs[index]

    def get_layer(self, index: int) -> ILayer:
        """A layer."""
        return self._layers[index]

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: int) -> ILayer:
        return self._layers[index]

    def to_network(self) -> Network:
        """The Network that the layers make."""
        network, tensors = Network(self.name), {}
        for tensor, dtype, dims in self._inputs:
            tensors[id(tensor)] = network.add_input(tensor.name, dtype, dims)
        for layer in self._layers:
            self._add(layer, network, tensors)
        names: set[str] = set()
        for output in self._outputs:
            if output.name in names:
                raise InvalidArgumentError("two outputs have the same name", tensor=output.name)
            names.add(output.name)
            network.mark_output(tensors[id(output)], output.name)
        return network

    def _append(
        self,
        kind: str,
        inputs: Sequence[Any],
        properties: dict[str, Any],
        emit: Emit,
        outputs: int = 1,
    ) -> ILayer:
        """Adds a layer; bad arguments raise here."""
        number = sum(layer.kind == kind for layer in self._layers)
        resolved = [None if t is None else self._resolve(t) for t in inputs]
        layer = ILayer(self, kind, f"{kind}_{number}", resolved, properties, emit, outputs)
        self._sync(len(self._layers))
        self._add(layer, self._draft, self._tensors)
        self._layers.append(layer)
        self._ready = len(self._layers)
        return layer

    def _add(self, layer: ILayer, network: Network, tensors: dict[int, Tensor]) -> None:
        inputs = [None if t is None else tensors[id(t)] for t in layer._inputs]
        try:
            outputs = layer._emit(layer, Scope(network, layer.name, inputs))
        except Error as error:
            error.layer = error.layer or layer.name
            raise
        for tensor, output in zip(layer._outputs, outputs, strict=True):
            tensors[id(tensor)] = output

    def _changed(self, layer: ILayer) -> None:
        if layer in self._layers:
            self._ready = min(self._ready, self._layers.index(layer))

    def _sync(self, upto: int) -> None:
        while self._ready < upto:
            self._add(self._layers[self._ready], self._draft, self._tensors)
            self._ready += 1

    def _tensor(self, tensor: ITensor) -> Tensor:
        if tensor._layer is not None:
            self._sync(self._layers.index(tensor._layer) + 1)
        return self._tensors[id(tensor)]

    def _resolve(self, tensor: Any) -> ITensor:
        """A tensor, for itself or for the layer whose first output it is."""
        if isinstance(tensor, ILayer):
            tensor = tensor._outputs[0]
        if not isinstance(tensor, ITensor):
            raise InvalidArgumentError("a tensor is expected", got=type(tensor).__name__)
        if tensor._network is not self:
            raise InvalidArgumentError("the tensor belongs to another network", tensor=tensor.name)
        return tensor


class Weights:
    """An array of weights, as TensorRT's scripts make them."""

    def __init__(self, array: Any) -> None:
        self.array = array if isinstance(array, np.ndarray) else arrays.to_numpy(array)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The array."""
        return self.array

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.array.size)


def weights(value: Any, shape: Sequence[int] | None, dtype: np.dtype[Any], what: str) -> np.ndarray[Any, Any] | None:
    """An array of this shape and dtype from what a user gives for weights; an empty one is none.

    Raises `InvalidArgumentError` when the number of elements differs.
    """
    if value is None:
        return None
    array = value.array if isinstance(value, Weights) else arrays.to_numpy(value)
    if array.size == 0 and (shape is None or 0 not in shape):
        return None
    array = arrays.floating(array, dtype, what) if dtype.kind in "fV" else array
    if shape is None:
        return np.ascontiguousarray(array)
    if array.size != int(np.prod(shape)):
        raise InvalidArgumentError(
            f"{what} has another number of elements than the layer needs",
            expected=str(list(shape)),
            got=str(list(array.shape)),
        )
    return np.ascontiguousarray(array).reshape(tuple(shape))
