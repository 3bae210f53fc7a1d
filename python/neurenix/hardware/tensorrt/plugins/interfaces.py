"""TensorRT's own plugin classes in shape: what scripts written for it derive from.

Their kernels get addresses. Unless the class says otherwise in `devices`, they are taken to be addresses of a GPU.
"""

from __future__ import annotations

import copy
from typing import Any

from neurenix.hardware.tensorrt.plugins.describe import PluginCapabilityType, PluginTensorDesc, TensorRTPhase
from neurenix.hardware.tensorrt.plugins.fields import PluginFieldCollection
from neurenix.hardware.tensorrt.versioned import IVersionedInterface


class IPluginV2DynamicExt:
    """A plugin of the second generation, for dynamic shapes.

    To be defined: `get_output_datatype(index, input_types)`,
    `get_output_dimensions(output_index, inputs, expr_builder)`,
    `enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)`, `serialize()`, and the attributes
    `plugin_type`, `plugin_version`, `num_outputs`.
    """

    devices: tuple[str, ...] = ("cuda",)
    capturable = False
    num_outputs = 1
    plugin_type = ""
    plugin_version = "1"
    plugin_namespace = ""

    def supports_format_combination(self, pos: int, in_out: list[PluginTensorDesc], num_inputs: int) -> bool:
        """Whether it takes the type and the format of `in_out[pos]`, given those before."""
        return True

    def configure_plugin(self, inp: list[Any], out: list[Any]) -> None:
        """Told the shapes of inputs and outputs before it runs at them."""

    def get_workspace_size(self, input_desc: list[Any], output_desc: list[Any]) -> int:
        """Bytes of scratch memory."""
        return 0

    def initialize(self) -> int:
        """Told before the first run."""
        return 0

    def terminate(self) -> None:
        """Told after the last run."""

    def destroy(self) -> None:
        """Told when it is not needed any more."""

    def clone(self) -> Any:
        """Another one like it, for one context."""
        return copy.copy(self)


class IPluginCreator(IVersionedInterface):
    """Makes plugins of the second generation: `name`, `plugin_version`, `field_names`, `create_plugin(name, fc)`,
    `deserialize_plugin(name, data)`."""

    _KIND = "PLUGIN CREATOR_V1"

    name = ""
    plugin_version = "1"
    plugin_namespace = ""
    field_names: PluginFieldCollection | None = None


class IPluginCreatorV3One(IVersionedInterface):
    """Makes plugins of the third generation: `name`, `plugin_version`, `field_names`,
    `create_plugin(name, fc, phase)`."""

    _KIND = "PLUGIN CREATOR_V3ONE"

    name = ""
    plugin_version = "1"
    plugin_namespace = ""
    field_names: PluginFieldCollection | None = None

    def create_plugin(self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase) -> Any:
        """Makes one."""
        raise NotImplementedError(f"{type(self).__name__} defines no create_plugin")


class IPluginCapability(IVersionedInterface):
    """A part of a plugin of the third generation."""


class IPluginResource(IVersionedInterface):
    """What plugins of a process share, by `IPluginRegistry.acquire_plugin_resource`: derive, and have the methods."""

    _KIND = "IPluginResource"

    def clone(self) -> Any:
        """The one that is shared."""
        raise NotImplementedError(f"{type(self).__name__} must have clone()")

    def release(self) -> None:
        """Told when nobody needs it any more."""
        raise NotImplementedError(f"{type(self).__name__} must have release()")


class IPluginV3(IVersionedInterface):
    """A plugin of the third generation, of three parts."""

    _KIND = "PLUGIN"

    devices: tuple[str, ...] = ("cuda",)
    capturable = False

    def get_capability_interface(self, type: PluginCapabilityType) -> Any:
        """The part of a kind; the plugin itself where it is all of them."""
        return self

    def clone(self) -> Any:
        """Another one like it."""
        return copy.copy(self)

    def destroy(self) -> None:
        """Told when it is not needed any more."""


class IPluginV3OneCore(IPluginCapability):
    """What a plugin is called."""

    _KIND = "PLUGIN_V3ONE_CORE"

    plugin_name = ""
    plugin_version = "1"
    plugin_namespace = ""


class IPluginV3OneBuild(IPluginCapability):
    """What a build asks: `get_output_data_types(input_types)`, `get_output_shapes(inputs, shape_inputs, expr_builder)`,
    and the attribute `num_outputs`."""

    _KIND = "PLUGIN_V3ONE_BUILD"

    num_outputs = 1

    def supports_format_combination(self, pos: int, in_out: list[Any], num_inputs: int) -> bool:
        """Whether it takes the type and the format of `in_out[pos].desc`, given those before."""
        return True

    def configure_plugin(self, inp: list[Any], out: list[Any]) -> None:
        """Told the shapes of inputs and outputs."""

    def get_workspace_size(self, inputs: list[Any], outputs: list[Any]) -> int:
        """Bytes of scratch memory."""
        return 0

    def get_valid_tactics(self) -> list[int]:
        """The numbers of its ways to work, the preferred one first."""
        return []


class IPluginV3OneRuntime(IPluginCapability):
    """What runs: `enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)`."""

    _KIND = "PLUGIN_V3ONE_RUNTIME"

    def on_shape_change(self, inp: list[Any], out: list[Any]) -> None:
        """Told the shapes of inputs and outputs before it runs at them."""

    def set_tactic(self, tactic: int) -> None:
        """Told which of its ways to work was chosen."""

    def attach_to_context(self, context: Any) -> Any:
        """Another one like it, for one context; itself by default cloned."""
        clone = getattr(self, "clone", None)
        return clone() if clone is not None else copy.copy(self)

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """The fields out of which its creator makes it again."""
        return PluginFieldCollection()
