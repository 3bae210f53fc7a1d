"""How the engine calls plugins that are written in TensorRT's own classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, PluginError, ShapeError
from neurenix.hardware.tensorrt.enums import as_data_type, as_dtype
from neurenix.hardware.tensorrt.plugins.calling import calling
from neurenix.hardware.tensorrt.plugins.describe import (
    DynamicPluginTensorDesc,
    PluginCapabilityType,
    Shaped,
    TensorRTPhase,
    Typed,
    describe,
)
from neurenix.hardware.tensorrt.plugins.dims import IExprBuilder, expressions, extent
from neurenix.hardware.tensorrt.plugins.fields import SERIALIZED, Value, collection, pack, pack_all
from neurenix.hardware.tensorrt.plugins.interfaces import IPluginV2DynamicExt, IPluginV3
from neurenix.hardware.tensorrt.plugins.simple import kinds_of, workspace
from neurenix.hardware.tensorrt.plugins.written import Watch


class Ready:
    """An `enqueue` at concrete shapes, of one context."""

    def __init__(
        self,
        runtime: Any,
        ordinal: int | None,
        capturable: bool,
        inputs: Sequence[Shaped],
        outputs: Sequence[Shaped],
        size: int,
    ) -> None:
        self.workspace = size
        self.capturable = capturable
        self._enqueue = runtime.enqueue
        self._inputs = describe(inputs)
        self._outputs = describe(outputs)
        self._watch = Watch(ordinal, outputs)

    def run(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        """Runs it on the arrays at these addresses."""
        if self._watch.over:
            self._run(inputs, outputs, workspace, stream)
            return
        way = "write to the addresses in its argument `outputs`"
        self._watch.run(lambda: self._run(inputs, outputs, workspace, stream), outputs, "enqueue", way)

    def _run(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        with calling("enqueue"):
            status = self._enqueue(self._inputs, self._outputs, list(inputs), list(outputs), workspace, stream)
        if isinstance(status, int) and status != 0:
            raise PluginError("enqueue failed", expected="0", got=str(status))


class Second:
    """What the native module asks of an `IPluginV2DynamicExt`."""

    has_source = False
    checks_types = True

    def __init__(self, plugin: IPluginV2DynamicExt) -> None:
        self.plugin = plugin
        self.identity = named(plugin, "plugin_type")
        self.devices = kinds_of(plugin)

    def fields(self) -> dict[str, Value]:
        """What a file keeps."""
        serialize = getattr(self.plugin, "serialize", None)
        with calling("serialize"):
            given = b"" if serialize is None else serialize()
            return pack_all({SERIALIZED: given.encode() if isinstance(given, str) else bytes(given or b"")})

    def infer(self, inputs: Sequence[Typed], shape_inputs: int) -> list[tuple[Any, list[Any]]]:
        """dtype and shape of each output."""
        outputs, builder, plugin = [], IExprBuilder(), self.plugin
        types = [as_data_type(np.dtype(dtype)) for dtype, _, _ in inputs]
        for index in range(plugin.num_outputs):
            shapes = [expressions(shape) for _, shape, _ in inputs]
            with calling("get_output_dimensions"):
                given = plugin.get_output_dimensions(index, shapes, builder)  # type: ignore[attr-defined]
                shape = [extent(value) for value in given]
            with calling("get_output_datatype"):
                dtype = as_dtype(plugin.get_output_datatype(index, types))  # type: ignore[attr-defined]
            outputs.append((dtype, shape))
        return outputs

    def supports(self, at: int, types: Sequence[Typed], inputs: int) -> bool:
        """Whether it takes a type."""
        with calling("supports_format_combination"):
            return bool(self.plugin.supports_format_combination(at, describe(types), inputs))

    def prepare(self, ordinal: int | None, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> Ready:
        """What runs at these shapes."""
        with calling("clone"):
            plugin = self.plugin.clone()
        with calling("configure_plugin"):
            plugin.configure_plugin(_ranges(inputs), _ranges(outputs))
        with calling("initialize"):
            plugin.initialize()
        with calling("get_workspace_size"):
            size = workspace(plugin.get_workspace_size(describe(inputs), describe(outputs)))
        return Ready(plugin, ordinal, bool(self.plugin.capturable), inputs, outputs, size)


class Third:
    """What the native module asks of an `IPluginV3`."""

    has_source = False
    checks_types = True

    def __init__(self, plugin: IPluginV3) -> None:
        self.plugin = plugin
        with calling("get_capability_interface"):
            parts = [plugin.get_capability_interface(part) for part in PluginCapabilityType]
        if any(part is None for part in parts):
            raise InvalidArgumentError(
                f"{type(plugin).__name__} lacks a part",
                expected=", ".join(part.name for part in PluginCapabilityType),
                hint="get_capability_interface(type) gives the part of each type",
            )
        self._core, self._build, self._runtime = parts
        self.identity = named(self._core, "plugin_name")
        self.devices = kinds_of(plugin)

    def fields(self) -> dict[str, Value]:
        """What a file keeps."""
        with calling("get_fields_to_serialize"):
            return {field.name: pack(field.name, field) for field in self._runtime.get_fields_to_serialize() or []}

    def infer(self, inputs: Sequence[Typed], shape_inputs: int) -> list[tuple[Any, list[Any]]]:
        """dtype and shape of each output."""
        read = len(inputs) - shape_inputs
        shapes = [expressions(shape) for _, shape, _ in inputs[:read]]
        values = [expressions(value or ()) for _, _, value in inputs[read:]]
        with calling("get_output_shapes"):
            given = self._build.get_output_shapes(shapes, values, IExprBuilder())
            found = [[extent(value) for value in shape] for shape in given]
        with calling("get_output_data_types"):
            types = [as_data_type(np.dtype(dtype)) for dtype, _, _ in inputs[:read]]
            dtypes = [as_dtype(dtype) for dtype in self._build.get_output_data_types(types)]
        count = self._build.num_outputs
        if not len(found) == len(dtypes) == count:
            raise ShapeError(
                "get_output_shapes and get_output_data_types give another number of outputs than num_outputs says",
                expected=str(count),
                got=f"{len(found)} shapes, {len(dtypes)} types",
            )
        return list(zip(dtypes, found, strict=True))

    def supports(self, at: int, types: Sequence[Typed], inputs: int) -> bool:
        """Whether it takes a type."""
        described = [DynamicPluginTensorDesc(desc) for desc in describe(types)]
        with calling("supports_format_combination"):
            return bool(self._build.supports_format_combination(at, described, inputs))

    def prepare(self, ordinal: int | None, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> Ready:
        """What runs at these shapes."""
        with calling("attach_to_context"):
            plugin = self._runtime.attach_to_context(None)
            if plugin is None:
                raise PluginError("it gave no plugin")
            parts = PluginCapabilityType
            is_whole = hasattr(plugin, "get_capability_interface")
            build = plugin.get_capability_interface(parts.BUILD) if is_whole else self._build
            runtime = plugin.get_capability_interface(parts.RUNTIME) if is_whole else plugin
        with calling("configure_plugin"):
            build.configure_plugin(_ranges(inputs), _ranges(outputs))
        with calling("get_valid_tactics"):
            tactics = list(build.get_valid_tactics() or [])
        if tactics:
            with calling("set_tactic"):
                runtime.set_tactic(tactics[0])
        with calling("on_shape_change"):
            runtime.on_shape_change(describe(inputs), describe(outputs))
        with calling("get_workspace_size"):
            size = workspace(build.get_workspace_size(_ranges(inputs), _ranges(outputs)))
        return Ready(runtime, ordinal, bool(self.plugin.capturable), inputs, outputs, size)


def _ranges(tensors: Sequence[Shaped]) -> list[DynamicPluginTensorDesc]:
    return [DynamicPluginTensorDesc(desc) for desc in describe(tensors)]


def named(plugin: Any, name: str) -> tuple[str, str, str]:
    """What a plugin is known by."""
    found = str(getattr(plugin, name, "") or "")
    if not found:
        raise InvalidArgumentError(f"{type(plugin).__name__} has no {name}", hint=f"set self.{name} in __init__")
    return found, str(plugin.plugin_version), str(plugin.plugin_namespace)


def make(creator: Any, layer: str, fields: dict[str, Value], phase: str) -> Any:
    """A plugin that a creator of TensorRT's kind makes of fields: for a new layer, or out of a file."""
    declared = list(getattr(creator, "field_names", None) or [])
    if set(fields) == {SERIALIZED}:
        with calling("deserialize_plugin"):
            return creator.deserialize_plugin(layer, fields[SERIALIZED][2])
    given = collection(fields, declared)
    with calling("create_plugin"):
        if is_third(creator):
            return creator.create_plugin(layer, given, TensorRTPhase[phase.upper()])
        return creator.create_plugin(layer, given)


def is_third(creator: Any) -> bool:
    """Whether a creator makes plugins of the third generation."""
    from neurenix.hardware.tensorrt.plugins.interfaces import IPluginCreatorV3One

    return isinstance(creator, IPluginCreatorV3One)
