"""A network in the making: a draft answers for shapes and refuses bad arguments early, a copy of it is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from neurenix._native import Network, Tensor
from neurenix.errors import Error, InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware.tensorrt.enums import as_dtype
from neurenix.hardware.tensorrt.layer import Emit, ILayer, ITensor, Scope
from neurenix.hardware.tensorrt.layer_classes import CLASSES
from neurenix.hardware.tensorrt.scoped import Scoped

Dtype = np.dtype[Any]


class Port:
    """An input: `outside` is the dtype in which the caller gives it, where that is another one."""

    def __init__(self, tensor: ITensor, dtype: Dtype, shape: Sequence[int | str]) -> None:
        self.tensor = tensor
        self.dtype = dtype
        self.outside: Dtype | None = None
        self.set_shape(shape)

    def set_shape(self, shape: Sequence[int | str]) -> None:
        """Other extents; -1 or a name for a dynamic one. Raises `ShapeError` for others below 0."""
        name = self.tensor.name
        if any(not isinstance(d, str) and d < -1 for d in shape):
            raise ShapeError(
                "a dimension is negative", tensor=name, expected="an extent, -1 or a name", got=str(list(shape))
            )
        self.dims: tuple[int | str, ...] = tuple(
            d if isinstance(d, str) or d >= 0 else f"'{name}.{axis}'" for axis, d in enumerate(shape)
        )

    def add(self, network: Network) -> Tensor:
        """Adds the input to a network; gives what the layers read."""
        tensor = network.add_input(self.tensor.name, self.outside or self.dtype, self.dims)
        if self.outside in (None, self.dtype):
            return tensor
        return network.add_layer("Cast", [tensor], {"to": self.dtype}, f"{self.tensor.name}_cast")[0]


class Definition(Scoped):
    """A network in the making, without the functions that add layers."""

    def __init__(self, name: str = "network") -> None:
        self._name = name
        self._inputs: list[Port] = []
        self._layers: list[ILayer] = []
        #: The layers, each behind those that it reads.
        self._order: list[ILayer] = []
        self._outputs: list[ITensor] = []
        #: The ranges that were set for int8.
        self._ranges: dict[ITensor, tuple[float, float]] = {}
        self._output_dtypes: dict[int, Dtype] = {}
        #: Constants that no layer gives: they came with a model.
        self._constants: list[tuple[ITensor, Tensor]] = []
        # What has been added to a network so far. A layer that changes is added to it anew, with all that follow; what
        # was added before is then stale, and the build starts from an empty one.
        self._draft = Network(name)
        self._tensors: dict[int, Tensor] = {}
        self._ready = 0
        self._stale = False
        self._inputs_stale = False

    @property
    def name(self) -> str:
        """The name of the network."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = self._draft.name = str(name)

    def add_input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> ITensor:
        """Adds an input; -1 or a name for a dynamic dimension."""
        tensor = ITensor(self, None, 0, name)
        port = Port(tensor, as_dtype(dtype), shape)
        self._tensors[id(tensor)] = port.add(self._draft)
        self._inputs.append(port)
        return tensor

    def mark_output(self, tensor: Any) -> None:
        """Makes a tensor a result, under its name."""
        found = self._resolve(tensor)
        if not any(output is found for output in self._outputs):
            self._outputs.append(found)

    def unmark_output(self, tensor: Any) -> None:
        """Takes that back."""
        found = self._resolve(tensor)
        if not found.is_network_output:
            raise InvalidArgumentError("the tensor is no output", tensor=found.name)
        self._outputs = [output for output in self._outputs if output is not found]
        self._output_dtypes.pop(id(found), None)

    #: Here shapes are results like all others.
    mark_output_for_shapes = mark_output
    unmark_output_for_shapes = unmark_output

    def remove_tensor(self, tensor: Any) -> None:
        """Takes a tensor out that no layer reads: an input, or a result.

        Raises `InvalidArgumentError` for one that is read.
        """
        found = self._resolve(tensor)
        reader = next((layer for layer in self._layers if any(t is found for t in layer._inputs)), None)
        if reader is not None:
            raise InvalidArgumentError("a layer reads the tensor", tensor=found.name, layer=reader.name)
        if found.is_network_output:
            self.unmark_output(found)
        if found.is_network_input:
            self._inputs = [port for port in self._inputs if port.tensor is not found]
            self._inputs_changed()

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

    def get_input(self, index: int) -> ITensor | None:
        """An input; None where there is none of this number."""
        return self._inputs[index].tensor if 0 <= index < len(self._inputs) else None

    def get_output(self, index: int) -> ITensor | None:
        """A result; None where there is none of this number."""
        return self._outputs[index] if 0 <= index < len(self._outputs) else None

    def get_layer(self, index: int) -> ILayer | None:
        """A layer; None where there is none of this number."""
        return self._layers[index]._view() if 0 <= index < len(self._layers) else None

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: int) -> ILayer:
        return self._layers[index]._view()

    def __iter__(self) -> Iterator[ILayer]:
        return (layer._view() for layer in self._layers)

    def to_network(self) -> Network:
        """The Network that the layers make."""
        if self._stale:
            self._inputs_stale = True
        self._sync(len(self._order))
        names: set[str] = set()
        for output in self._outputs:
            if output.name in names:
                raise InvalidArgumentError("two outputs have the same name", tensor=output.name)
            names.add(output.name)
        network, tensors = self._finished()
        for output, tensor in zip(self._outputs, tensors, strict=True):
            dtype = self._output_dtypes.get(id(output))
            if dtype not in (None, tensor.dtype):
                tensor = network.add_layer("Cast", [tensor], {"to": dtype}, f"{output.name}_cast")[0]
            network.mark_output(tensor, output.name)
        return network

    def _finished(self) -> tuple[Network, list[Tensor]]:
        """A network to build, and the results in it, not yet marked."""
        return self._draft.copy([self._tensors[id(output)] for output in self._outputs])

    def _append(
        self,
        kind: str,
        inputs: Sequence[Any],
        properties: dict[str, Any],
        emit: Emit,
        outputs: int = 1,
        late: bool = False,
        takes: int | None = None,
    ) -> ILayer:
        """Adds a layer; bad arguments raise here, or (`late`) once properties and inputs can have been set.

        `takes`: how many inputs it reads at most, where that is not the number of those given.
        """
        number = sum(layer._kind == kind for layer in self._layers)
        resolved = [None if t is None else self._resolve(t) for t in inputs]
        most, made = len(inputs) if takes is None else takes, CLASSES.get(kind, ILayer)
        layer = made(self, kind, f"{kind}_{number}", resolved, properties, emit, outputs, most, late)
        late = late or not self._complete()
        if not late:
            self._add(layer)
        self._layers.append(layer)
        self._order.append(layer)
        self._ready += not late
        return layer

    def _complete(self) -> bool:
        """Adds what is not added yet; whether all could be: one that is late may lack an input that is to come."""
        try:
            self._sync(len(self._order))
        except Error:
            # An input, where no layer is left to be added.
            if self._ready == len(self._order) or not self._order[self._ready]._late:
                raise
        return self._ready == len(self._order)

    def _add(self, layer: ILayer) -> None:
        inputs = [None if t is None else self._tensors[id(t)] for t in layer._inputs]
        scope = Scope(self._draft, layer.name, inputs, layer._weight_names)
        try:
            made = layer._made(scope)
        except Error:
            # Parts of it may be in the draft.
            self._stale = True
            raise
        for tensor, output in zip(layer._outputs, made, strict=True):
            self._tensors[id(tensor)] = output

    def _changed(self, layer: ILayer) -> None:
        if layer in self._order:
            self._ready = min(self._ready, self._order.index(layer))
            self._stale = True

    def _rewired(self, layer: ILayer) -> None:
        """A layer reads something else, perhaps what was added behind it: it moves to the end, with all that follow."""
        following = {layer}
        for other in self._order:
            if any(t is not None and t._layer in following for t in other._inputs):
                following.add(other)
        if any(t is not None and t._layer in following for t in layer._inputs):
            raise InvalidArgumentError("the layer reads itself, through others", layer=layer.name)
        self._changed(layer)
        rest = [other for other in self._order if other not in following]
        moved = [other for other in self._order if other in following and other != layer]
        self._order = [*rest, layer, *moved]
        self._ready = min(self._ready, len(rest))

    def _inputs_changed(self) -> None:
        self._inputs_stale = True

    def _sync(self, upto: int) -> None:
        if self._inputs_stale:
            self._restart()
        while self._ready < upto:
            self._add(self._order[self._ready])
            self._ready += 1

    def _restart(self) -> None:
        """Begins the draft anew."""
        self._draft, self._tensors = self._begun()
        self._ready, self._stale, self._inputs_stale = 0, False, False

    def _begun(self) -> tuple[Network, dict[int, Tensor]]:
        """A network with the inputs and the constants alone, and what stands for which tensor in it."""
        network = Network(self._name)
        tensors = {id(port.tensor): port.add(network) for port in self._inputs}
        for tensor, native in self._constants:
            tensors[id(tensor)] = network.add_constant(tensor.name, constant_of(native), copy=False)
        return network, tensors

    def _tensor(self, tensor: ITensor) -> Tensor:
        upto = 0 if tensor._layer is None else self._order.index(tensor._layer) + 1
        self._sync(upto)
        return self._tensors[id(tensor)]

    def _input(self, tensor: ITensor, what: str) -> Port:
        port = next((port for port in self._inputs if port.tensor is tensor), None)
        if port is None:
            raise InvalidArgumentError(f"the tensor is no input: only then {what}", tensor=tensor.name)
        return port

    def _outside(self, tensor: ITensor) -> Dtype | None:
        """The dtype in which callers meet an input or output, where that is not the network's own."""
        port = next((port for port in self._inputs if port.tensor is tensor), None)
        return self._output_dtypes.get(id(tensor)) if port is None else port.outside

    def _set_outside(self, tensor: ITensor, dtype: Dtype) -> None:
        if tensor.is_network_output:
            self._output_dtypes[id(tensor)] = dtype
        else:
            self._input(tensor, "(or an output) its dtype can be set").outside = dtype
            self._inputs_changed()

    def _resolve(self, tensor: Any) -> ITensor:
        """A tensor, for itself or for the layer whose first output it is."""
        if isinstance(tensor, ILayer):
            tensor = tensor._outputs[0]
        if not isinstance(tensor, ITensor):
            raise InvalidArgumentError(
                "a tensor is expected",
                expected="an ITensor, or a layer for its first output",
                got=type(tensor).__name__,
            )
        if tensor._network is not self:
            raise InvalidArgumentError(
                "the tensor belongs to another network",
                tensor=tensor.name,
                hint="add the layer with the network that has the tensor",
            )
        return tensor


def constant_of(tensor: Tensor) -> Any:
    """The elements of a tensor that no layer gives.

    Raises `UnsupportedError` for one that only the shapes of a call tell.
    """
    array = tensor.numpy()
    if array is None:
        array = tensor.known()
    if array is None:
        raise UnsupportedError(
            "a model that computes with shapes of its own can't be changed here after it was read",
            tensor=tensor.name,
            hint="change the ONNX model, or what follows its outputs",
        )
    return array
