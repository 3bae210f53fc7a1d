"""ITensor and ILayer: what a network in the making consists of, as scripts read and change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix import names
from neurenix._native import Network, Tensor
from neurenix.errors import Error, InvalidArgumentError, UnsupportedError
from neurenix.hardware.tensorrt.build_enums import TensorLocation
from neurenix.hardware.tensorrt.enums import DataType, Dims, as_data_type, as_dtype
from neurenix.hardware.tensorrt.layer_enums import LayerType
from neurenix.hardware.tensorrt.strict import Strict

if TYPE_CHECKING:
    from neurenix.hardware.tensorrt.graph import Definition

#: Adds a layer to a network and gives its outputs.
Emit = Callable[["ILayer", "Scope"], "list[Tensor]"]

_KINDS = {kind.op: kind for kind in LayerType}


class ITensor(Strict):
    """A tensor of a network in the making."""

    #: Formats are row-major here: the bit of TensorFormat.LINEAR.
    _LINEAR = 1

    def __init__(self, network: Definition, layer: ILayer | None, index: int, name: str) -> None:
        self._network = network
        self._layer = layer
        self._index = index
        self._name = name

    def _native(self) -> Tensor:
        return self._network._tensor(self)

    @property
    def name(self) -> str:
        """Its name; an input or output is known to callers by it."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = str(name)
        if self.is_network_input:
            self._network._inputs_changed()

    @property
    def shape(self) -> Dims:
        """The extent of each dimension, -1 where it is dynamic. Those of an input may be set, to -1 or names too."""
        return Dims(self._native().shape)

    @shape.setter
    def shape(self, shape: Sequence[int | str]) -> None:
        self._network._input(self, "its shape can be set").set_shape(shape)
        self._network._inputs_changed()

    @property
    def symbolic_shape(self) -> tuple[int | str, ...]:
        """The extent of each dimension, its expression where it is dynamic."""
        return self._native().shape

    @property
    def dtype(self) -> DataType | np.dtype[Any]:
        """The element type. That of an input or output may be set: the network then converts it."""
        return as_data_type(self._network._outside(self) or self._native().dtype)

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self._network._set_outside(self, as_dtype(dtype))

    @property
    def location(self) -> TensorLocation:
        """Where it lies."""
        return TensorLocation.DEVICE

    @property
    def allowed_formats(self) -> int:
        """The formats that an input or output may have, as bits: row-major alone."""
        return self._LINEAR

    @allowed_formats.setter
    def allowed_formats(self, formats: int) -> None:
        if not int(formats) & self._LINEAR:
            raise UnsupportedError(
                "inputs and outputs are row-major", tensor=self.name, expected="TensorFormat.LINEAR among the bits",
                got=bin(formats),
            )  # fmt: skip

    @property
    def is_network_input(self) -> bool:
        """Whether the caller gives it."""
        return any(port.tensor is self for port in self._network._inputs)

    @property
    def is_network_output(self) -> bool:
        """Whether it is a result."""
        return any(output is self for output in self._network._outputs)

    @property
    def is_shape_tensor(self) -> bool:
        """Whether its elements alone tell shapes: TensorRT's own distinction, which is not made here."""
        return False

    @property
    def is_execution_tensor(self) -> bool:
        """The other side of that: every tensor is computed."""
        return True

    @property
    def broadcast_across_batch(self) -> bool:
        """TensorRT before 10 had implicit batches; there is none."""
        return False

    @property
    def dynamic_range(self) -> tuple[float, float] | None:
        """The range for builds with BuilderFlag.INT8 and without a calibrator; None where none was set."""
        return self._network._ranges.get(self)

    @dynamic_range.setter
    def dynamic_range(self, ends: tuple[float, float]) -> None:
        self.set_dynamic_range(*ends)

    def set_dynamic_range(self, min: float, max: float) -> bool:
        """Sets the range, of which the greater magnitude counts: scales are symmetric."""
        if not (np.isfinite(min) and np.isfinite(max) and min <= max) or min == max == 0:
            raise InvalidArgumentError(
                "this is no range", tensor=self.name, expected="two numbers in order, not both 0", got=f"{min} to {max}"
            )
        self._network._ranges[self] = (float(min), float(max))
        return True

    def reset_dynamic_range(self) -> None:
        """Forgets the range."""
        self._network._ranges.pop(self, None)

    def set_dimension_name(self, index: int, name: str) -> None:
        """Names a dynamic dimension of an input; dimensions of one name are equal."""
        port = self._network._input(self, "its dimensions can be named")
        dims = list(port.dims)
        dims[index] = name
        port.dims = tuple(dims)
        self._network._inputs_changed()

    def get_dimension_name(self, index: int) -> str | None:
        """The name of a dynamic dimension, as the network has it; None for an extent that is known."""
        dim = self._native().shape[index]
        return dim.strip("'") if isinstance(dim, str) else None

    def __repr__(self) -> str:
        return f"ITensor({self.name}: {list(self.symbolic_shape)})"


class Scope:
    """Where a layer is added: the network, and the name of the layer."""

    def __init__(
        self, network: Network, name: str, inputs: list[Tensor | None], names: Mapping[str, str] | None = None
    ) -> None:
        self.network = network
        self.name = name
        self.inputs = inputs
        #: What weights of the layer are called, where the user named them.
        self.names = names or {}

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
        """Adds a constant; `what` it is to the layer names it."""
        array = value if dtype is None and isinstance(value, np.ndarray) else np.asarray(value, dtype)
        name = self.names.get(what) or (f"{self.name}.{what}" if what else self.name)
        return self.network.add_constant(name, array)

    def integers(self, index: int, given: Sequence[int] | None) -> Tensor | None:
        """A list of integers: from an input where there is one, else these."""
        tensor = self.get(index)
        if tensor is not None:
            return self.add("Cast", tensor, to=np.dtype(np.int64))
        return None if given is None else self.constant([int(value) for value in given], np.int64)


class ILayer:
    """A layer: its properties are those of TensorRT's layer of the kind, and may change until the build.

    It stands for its first output wherever a tensor is expected.
    """

    #: What can be set of every layer, besides its properties.
    _COMMON = ("name", "metadata", "precision")

    def __init__(
        self,
        network: Definition,
        kind: str,
        name: str,
        inputs: list[ITensor | None],
        properties: dict[str, Any],
        emit: Emit,
        outputs: int = 1,
        takes: int | None = None,
        late: bool = False,
    ) -> None:
        """`takes`: how many inputs it reads at most, those that may be left out among them; None: as its op does.
        `late`: it may lack something until the network is built.
        """
        tensors = [ITensor(network, self, i, f"{name}_output{i or ''}") for i in range(outputs)]
        self.__dict__.update(
            _network=network,
            _inputs=inputs,
            _properties=dict(properties),
            _emit=emit,
            _kind=kind,
            _name=name,
            _outputs=tensors,
            _takes=takes,
            _late=late,
            _output_types={},
            _weight_names={},
            metadata="",
            _precision=None,
        )

    _network: Definition
    _inputs: list[ITensor | None]
    _properties: dict[str, Any]
    _emit: Emit
    _outputs: list[ITensor]
    _takes: int | None
    _late: bool
    _output_types: dict[int, np.dtype[Any]]
    _weight_names: dict[str, str]
    _name: str
    _precision: DataType | None
    _kind: str
    #: A text of the user's.
    metadata: str

    def _view(self) -> ILayer:
        """The same layer, as `network[i]` gives it: without the properties of its kind until its class is set."""
        view = ILayer.__new__(ILayer)
        object.__setattr__(view, "__dict__", self.__dict__)
        return view

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ILayer) and other.__dict__ is self.__dict__

    def __hash__(self) -> int:
        return id(self.__dict__)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def kind(self) -> Any:
        """The kind of layer: "Convolution", "Pooling", ...; of a trip limit or a loop's output its own kind."""
        return self._kind

    @property
    def type(self) -> Any:
        """The kind of layer: a `LayerType`; PLUGIN_V3 for ops that TensorRT has no layer of.

        Of an activation or a pooling, as its `add_*` gives it, the kind of activation or pooling.
        """
        return _KINDS.get(self._kind, LayerType.PLUGIN_V3)

    @property
    def num_inputs(self) -> int:
        """How many inputs it has."""
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        """How many outputs it has."""
        return len(self._outputs)

    def get_input(self, index: int) -> ITensor | None:
        """An input; None where it is left out, or there is none of this number."""
        return self._inputs[index] if 0 <= index < len(self._inputs) else None

    def get_output(self, index: int) -> ITensor | None:
        """An output; None where there is none of this number."""
        return self._outputs[index] if 0 <= index < len(self._outputs) else None

    def set_input(self, index: int, tensor: Any) -> None:
        """Replaces an input, or adds one that may be left out.

        Raises `InvalidArgumentError` for a number that the layer has no input of, and where it would read itself.
        """
        if index < 0 or (self._takes is not None and index >= self._takes):
            raise InvalidArgumentError(
                f"{self._kind} has no input of this number",
                layer=self.name,
                expected="none" if not self._takes else f"0 to {self._takes - 1}",
                got=str(index),
            )
        self._inputs.extend([None] * (index + 1 - len(self._inputs)))
        before = self._inputs[index]
        self._inputs[index] = self._network._resolve(tensor)
        try:
            self._network._rewired(self)
        except InvalidArgumentError:
            self._inputs[index] = before
            raise

    @property
    def precision(self) -> DataType:
        """The precision that a script asked for; layers compute in what the network and the flags of a build say."""
        return self._precision or DataType.FLOAT

    @property
    def precision_is_set(self) -> bool:
        """Whether a script asked for one."""
        return self._precision is not None

    def reset_precision(self) -> None:
        """Takes that back."""
        self.__dict__["_precision"] = None

    def set_output_type(self, index: int, dtype: Any) -> None:
        """Converts an output."""
        self._output_types[index] = as_dtype(dtype)
        self._network._changed(self)

    def get_output_type(self, index: int) -> DataType | np.dtype[Any]:
        """The element type of an output."""
        return self._outputs[index].dtype

    def output_type_is_set(self, index: int) -> bool:
        """Whether an output is converted."""
        return index in self._output_types

    def reset_output_type(self, index: int) -> None:
        """Takes that back."""
        self._output_types.pop(index, None)
        self._network._changed(self)

    def _made(self, scope: Scope) -> list[Tensor]:
        """Adds it where the scope says, and gives its outputs, converted as `set_output_type` asked for.

        What goes wrong is an error that names the layer.
        """
        try:
            outputs = self._emit(self, scope)
            for index, dtype in self._output_types.items():
                outputs[index] = scope.add("Cast", outputs[index], to=dtype)
        except Error as error:
            error.layer = error.layer or self.name
            raise
        return outputs

    def __getattr__(self, name: str) -> Any:
        properties = self.__dict__.get("_properties", {})
        if name in properties:
            return properties[name]
        raise AttributeError(f"{self._kind} has no property {name!r}; it has {', '.join(properties) or 'none'}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            object.__setattr__(self, name, value)
            return
        if name in self._properties:
            self._properties[name] = value
        elif name in self._COMMON:
            self._set_common(name, value)
        else:
            raise InvalidArgumentError(
                f"{self._kind} has no property {name!r}",
                layer=self.name,
                expected=", ".join(self._properties) or "none",
                hint=names.hint(name, self._properties),
            )
        self._network._changed(self)

    def _set_common(self, name: str, value: Any) -> None:
        if name == "precision":
            as_dtype(value)
            self.__dict__["_precision"] = value
        else:
            self.__dict__["_name" if name == "name" else name] = str(value)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *self._properties})

    def __repr__(self) -> str:
        return f"ILayer({self.name}: {self._kind})"
