"""`IPluginV2`: a plugin as a class with two methods, and how the engine calls it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from neurenix import arrays
from neurenix._native import Dim
from neurenix.errors import DTypeError, InvalidArgumentError, PluginError, ShapeError
from neurenix.hardware.tensorrt.enums import as_dtype
from neurenix.hardware.tensorrt.plugins.calling import calling
from neurenix.hardware.tensorrt.plugins.describe import PluginTensorDesc, Shaped, Typed, describe
from neurenix.hardware.tensorrt.plugins.dims import extent
from neurenix.hardware.tensorrt.plugins.fields import SERIALIZED, Value, pack_all, unpack
from neurenix.hardware.tensorrt.plugins.memory import Loan, Views
from neurenix.hardware.tensorrt.plugins.written import Watch

DEVICES = ("cpu", "cuda")


@dataclasses.dataclass(frozen=True)
class CudaSource:
    """A kernel in CUDA C++ and its launch at some shapes.

    `code` is compiled by NVRTC and declares `entry` as `extern "C" __global__`. The parameters of the kernel are
    pointers to the inputs, to the outputs, to the workspace where `get_workspace_size` is above 0, and then `arguments`
    by value: ints for integers of any width, floats for `float`, `numpy.float64` for `double`. `include_paths` are the
    folders of headers that the code includes; none are there otherwise.
    """

    code: str
    entry: str
    grid: int | Sequence[int]
    block: int | Sequence[int]
    shared_bytes: int = 0
    arguments: Sequence[Any] = ()
    include_paths: Sequence[str] = ()
    workspace: int = 0


class IPluginV2:
    """A layer of one's own. `docs/plugins.md` has the whole story.

    To be defined: `get_output_shape(input_shapes)`, a shape or a list of shapes; and
    `execute(inputs, outputs, stream)`, which fills the arrays in `outputs`, or `cuda_source(inputs, outputs)`, or both.
    Sizes that only a call tells are `Dim`s in `input_shapes`, which calculate as ints do. Or `compose(layers, inputs)`
    alone, which makes it of layers that there are.
    """

    #: The kinds of devices that it runs on.
    devices: tuple[str, ...] = DEVICES
    #: Whether `execute` only puts work into its stream, so that a CUDA graph may record it and leave Python out.
    capturable = False
    #: What it is known by beside its name.
    plugin_version = "1"
    plugin_namespace = ""

    _given: inspect.BoundArguments | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Notes the arguments: they are its fields."""
        made = super().__new__(cls)
        # Arguments that do not fit are refused by __init__ in Python's own words.
        with contextlib.suppress(TypeError):
            made._given = constructor(cls).bind(*args, **kwargs)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # object.__init__ refuses arguments only where a class below it has an __init__, and beside a __new__ takes any.
        super().__init__(*args, **kwargs)

    def compose(self, layers: Any, inputs: list[Any]) -> Any:
        """Adds layers that there are (`layers.add(op, *inputs, **attributes)`), and gives the outputs of the plugin."""
        raise NotImplementedError(f"{type(self).__name__} defines no compose")

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        """The shape of the output, or a list with the shapes of several."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_output_shape")

    def get_output_dtypes(self, input_dtypes: list[np.dtype[Any]]) -> Sequence[Any] | None:
        """The element type of each output; that of the first input by default."""
        return None

    def supports_format_combination(self, pos: int, in_out: list[PluginTensorDesc], num_inputs: int) -> bool:
        """Whether it takes the type of `in_out[pos]`, given those before; inputs come first."""
        return True

    def get_workspace_size(self, inputs: list[PluginTensorDesc], outputs: list[PluginTensorDesc]) -> int:
        """Bytes of scratch memory, which an `execute(..., workspace)` is given as an array of uint8."""
        return 0

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> Any:
        """Fills the outputs."""
        raise NotImplementedError(f"{type(self).__name__} defines no execute")

    def cuda_source(self, inputs: list[PluginTensorDesc], outputs: list[PluginTensorDesc]) -> CudaSource:
        """The kernel for GPUs at these shapes."""
        raise NotImplementedError(f"{type(self).__name__} defines no cuda_source")

    def serialize(self) -> Any:
        """What an engine file keeps: bytes, or values by name; by default the arguments that it was made with."""
        if self._given is None:
            return {}
        fields: dict[str, Any] = {}
        parameters = constructor(type(self)).parameters
        for name, value in self._given.arguments.items():
            kind = parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                fields |= value
            elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
                raise InvalidArgumentError(
                    f"the argument {name!r} can't be given by name",
                    hint="define `serialize` and `deserialize`, or name the arguments of __init__",
                )
            else:
                fields[name] = value
        return fields

    @classmethod
    def deserialize(cls, data: Any) -> Any:
        """The plugin of what `serialize` gave."""
        if isinstance(data, bytes):
            raise InvalidArgumentError(f"{cls.__name__} defines no deserialize for the bytes that it serialised")
        return cls(**data)


def constructor(cls: type[IPluginV2]) -> inspect.Signature:
    """What a plugin of this class is made with: the arguments of the `__init__` or `__new__` nearest in its MRO.

    `inspect.signature(cls)` takes `IPluginV2.__new__` for an inherited `__init__` before Python 3.11.5.
    """
    for base in cls.__mro__[:-1]:
        for name in ("__init__", "__new__"):
            if base is not IPluginV2 and name in vars(base):
                return inspect.signature(types.MethodType(getattr(base, name), cls))
    return inspect.Signature()


def defines(cls: type, method: str) -> bool:
    """Whether a class has a method of its own."""
    return getattr(cls, method) is not getattr(IPluginV2, method)


def make(cls: type[IPluginV2], fields: dict[str, Value], phase: str) -> IPluginV2:
    """A plugin of fields: for a new layer, or out of a file."""
    values = {name: unpack(value) for name, value in fields.items()}
    if set(values) == {SERIALIZED}:
        with calling("deserialize"):
            made = cls.deserialize(values[SERIALIZED])
    elif phase == "runtime" and defines(cls, "serialize"):
        with calling("deserialize"):
            made = cls.deserialize(values)
    else:
        try:
            constructor(cls).bind(**values)
        except TypeError as error:
            raise InvalidArgumentError(
                f"{cls.__name__} does not take these fields: {error}",
                expected=", ".join(constructor(cls).parameters) or "none",
                got=", ".join(values) or "none",
            ) from error
        with calling("__init__"):
            made = cls(**values)
    if not isinstance(made, IPluginV2):
        raise PluginError(f"{cls.__name__} made no plugin", expected="an IPluginV2", got=type(made).__name__)
    return made


def kinds_of(plugin: Any) -> list[str]:
    """The kinds of devices that a plugin says it runs on. Raises `InvalidArgumentError` for what names none."""
    said = plugin.devices
    given = [said] if isinstance(said, str) else said
    if isinstance(given, Collection) and given and all(kind in DEVICES for kind in given):
        return list(given)
    raise InvalidArgumentError(
        "`devices` of a plugin names what is no kind of device",
        expected=" and ".join(DEVICES),
        got=str(given),
        hint='devices = ("cpu",) runs on the processor alone, and data on GPUs are brought there',
    )


class Simple:
    """What the native module asks of an `IPluginV2`."""

    def __init__(self, plugin: IPluginV2, identity: tuple[str, str, str]) -> None:
        cls = type(plugin)
        self.plugin = plugin
        self.identity = identity
        self.has_source = defines(cls, "cuda_source")
        self.checks_types = defines(cls, "supports_format_combination")
        self._has_code = defines(cls, "execute")
        self.devices = self._places()
        self._takes_workspace = "workspace" in inspect.signature(plugin.execute).parameters

    def _places(self) -> list[str]:
        given = kinds_of(self.plugin)
        able = {"cpu": self._has_code, "cuda": self._has_code or self.has_source}
        found = [device for device in given if able[device]]
        if not found:
            raise InvalidArgumentError(
                f"{type(self.plugin).__name__} has nothing that runs on {' or '.join(given)}",
                hint="define execute(inputs, outputs, stream), or cuda_source(inputs, outputs) for GPUs",
            )
        return found

    def fields(self) -> dict[str, Value]:
        """What a file keeps."""
        with calling("serialize"):
            given = self.plugin.serialize()
            return pack_all({SERIALIZED: given} if isinstance(given, (bytes, bytearray)) else dict(given))

    def infer(self, inputs: Sequence[Typed], shape_inputs: int) -> list[tuple[Any, list[Any]]]:
        """dtype and shape of each output."""
        with calling("get_output_shape"):
            shapes = _shapes(self.plugin.get_output_shape([tuple(shape) for _, shape, _ in inputs]))
        with calling("get_output_dtypes"):
            dtypes = self.plugin.get_output_dtypes([np.dtype(dtype) for dtype, _, _ in inputs])
            dtypes = [inputs[0][0]] * len(shapes) if dtypes is None else [as_dtype(dtype) for dtype in dtypes]
        if len(dtypes) != len(shapes):
            raise ShapeError(
                "get_output_shape and get_output_dtypes give different numbers of outputs",
                expected=f"{len(shapes)} dtypes",
                got=str(len(dtypes)),
            )
        return list(zip(dtypes, shapes, strict=True))

    def supports(self, at: int, types: Sequence[Typed], inputs: int) -> bool:
        """Whether it takes a type."""
        with calling("supports_format_combination"):
            return bool(self.plugin.supports_format_combination(at, describe(types), inputs))

    def _workspace(self, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> int:
        with calling("get_workspace_size"):
            return workspace(self.plugin.get_workspace_size(describe(inputs), describe(outputs)))

    def source(self, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> CudaSource:
        """The kernel for GPUs at these shapes."""
        with calling("cuda_source"):
            given = self.plugin.cuda_source(describe(inputs), describe(outputs))
            if not isinstance(given, CudaSource):
                raise PluginError("it gave no kernel", expected="trt.CudaSource", got=type(given).__name__)
            return dataclasses.replace(
                given,
                grid=_three(given.grid),
                block=_three(given.block),
                arguments=list(given.arguments),
                include_paths=[str(path) for path in given.include_paths],
                workspace=self._workspace(inputs, outputs),
            )

    def prepare(self, ordinal: int | None, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> Ready:
        """What runs at these shapes on a GPU, or on the processor."""
        size = self._workspace(inputs, outputs)
        return Ready(self.plugin, ordinal, inputs, outputs, size, self._takes_workspace)


class Ready:
    """A plugin at concrete shapes, of one context."""

    def __init__(
        self,
        plugin: IPluginV2,
        ordinal: int | None,
        inputs: Sequence[Shaped],
        outputs: Sequence[Shaped],
        workspace: int,
        takes_workspace: bool,
    ) -> None:
        self.workspace = workspace
        self.capturable = bool(plugin.capturable)
        self._execute = plugin.execute
        self._ordinal = ordinal
        self._inputs = Views(ordinal, inputs, False)
        self._outputs = Views(ordinal, outputs, True)
        scratch = [(np.dtype(np.uint8), (workspace,))] if takes_workspace else []
        self._scratch = Views(ordinal, scratch, True)
        self._takes_workspace = takes_workspace
        self._loan = Loan("execute", inputs=self._inputs, outputs=self._outputs, workspace=self._scratch)
        self._streams: dict[int, Any] = {}
        self._watch = Watch(ordinal, outputs)

    def run(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        """Runs it on the arrays at these addresses."""
        # The names of arrays end with the inner call.
        with self._loan:
            if self._watch.over:
                self._run(inputs, outputs, workspace, stream)
                return
            way = "write into the arrays that it is given (outputs[0][...] = result), or return the result"
            self._watch.run(lambda: self._run(inputs, outputs, workspace, stream), outputs, "execute", way)

    def _run(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        own = self._outputs.at(outputs)
        given = list(own)
        scratch = self._scratch.at((workspace,)) if self._takes_workspace else []
        options = {"workspace": scratch[0]} if scratch else {}
        with calling("execute"), self._stream(stream):
            result = self._execute(self._inputs.at(inputs), given, stream, **options)
            if result is not None and result is not given:
                result = list(result) if isinstance(result, (list, tuple)) else [result]
                self._adopt(result, own, "returned")
            elif len(given) != len(own) or any(a is not b for a, b in zip(given, own, strict=False)):
                self._adopt(given, own, "left in `outputs`")

    def _stream(self, stream: int) -> Any:
        """torch's current stream is the engine's while the plugin works on a GPU."""
        if self._ordinal is None or not _torch_has_cuda():
            return contextlib.nullcontext()
        torch = sys.modules["torch"]
        if stream not in self._streams:
            # To torch a stream of number 0 would be a new one.
            made = (
                torch.cuda.ExternalStream(stream, self._ordinal) if stream else torch.cuda.default_stream(self._ordinal)
            )
            self._streams = {stream: made}
        return torch.cuda.stream(self._streams[stream])

    def _adopt(self, found: list[Any], own: list[Any], how: str) -> None:
        """Takes arrays that the plugin made instead of filling those that it was given."""
        if len(found) != len(own):
            raise ShapeError(f"the number of arrays that it {how} differs", expected=str(len(own)), got=str(len(found)))
        for number, (value, target) in enumerate(zip(found, own, strict=True)):
            if value is target:
                continue
            if self._ordinal is not None:
                raise PluginError(
                    f"it {how} another array for output {number}",
                    hint="write into outputs[i], on the GPU: torch.from_dlpack(outputs[i]).copy_(result)",
                )
            array = arrays.to_numpy(value)
            if array.shape != target.shape:
                raise ShapeError(
                    f"the array that it {how} for output {number} has the wrong shape",
                    expected=str(list(target.shape)),
                    got=str(list(array.shape)),
                )
            if array.dtype != target.dtype:
                raise DTypeError(
                    f"the array that it {how} for output {number} has the wrong dtype",
                    expected=target.dtype.name,
                    got=array.dtype.name,
                )
            np.copyto(target, array)


def _torch_has_cuda() -> bool:
    """Whether torch is loaded and works on GPUs; it is not imported to find out."""
    # While it is being imported, parts are missing.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and _is_available(cuda.is_available)


@functools.cache
def _is_available(ask: Callable[[], bool]) -> bool:
    return ask()


def workspace(given: Any) -> int:
    """The bytes that get_workspace_size gave."""
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 0:
        raise PluginError("it gave no number of bytes", expected="0 or more", got=repr(given))
    return int(given)


def _three(given: Any) -> list[int]:
    """Blocks or threads along x, y and z."""
    values = [int(value) for value in ([given] if isinstance(given, (int, np.integer)) else given)]
    if not 1 <= len(values) <= 3 or not all(0 < value < 1 << 32 for value in values):
        raise PluginError("a grid or a block has one to three extents above 0", got=str(given))
    return values + [1] * (3 - len(values))


def _shapes(given: Any) -> list[list[Any]]:
    """The shapes of the outputs: what was given is one shape, or a list of shapes."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise ShapeError("it gave no shape", expected="a tuple of extents, or a list of such", got=repr(given))
    nested = [isinstance(item, Sequence) and not isinstance(item, (str, bytes)) for item in given]
    # An empty tuple is the shape of a single number, an empty list has no shapes.
    several = all(nested) if nested else isinstance(given, list)
    shapes = list(given) if several else [given]
    return [[_extent(value) for value in shape] for shape in shapes]


def _extent(value: Any) -> int | Dim:
    return Dim(value) if isinstance(value, str) else extent(value)
