"""Layers of plugins in a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neurenix import _native
from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, ITensor, Scope
from neurenix.hardware.tensorrt.plugins.compiled import Identity, LibraryPlugin
from neurenix.hardware.tensorrt.plugins.composed import add_registered, compose, is_composed
from neurenix.hardware.tensorrt.plugins.fields import Value, pack_all
from neurenix.hardware.tensorrt.plugins.interfaces import IPluginV3
from neurenix.hardware.tensorrt.plugins.registry import adapter

Build = Callable[[Scope, "list[Tensor]"], "list[Tensor]"]


class PluginLayers(Definition):
    """The functions that add layers of plugins."""

    def add_plugin_v2(
        self,
        inputs: Sequence[Any],
        plugin: Any,
        *,
        plugin_version: str | None = None,
        plugin_namespace: str = "",
        **fields: Any,
    ) -> ILayer:
        """A plugin: one of the registry by its name, made of `fields`, or an object.

        Without a version it is "1", or the only one that there is. Raises `UnsupportedError` for a name that is not
        registered, and whatever the plugin refuses, with its name.
        """
        if not isinstance(plugin, str):
            if fields or plugin_version is not None or plugin_namespace:
                raise InvalidArgumentError(
                    "fields make a plugin of the registry, by its name; an object has its own", got=", ".join(fields)
                )
            if isinstance(plugin, LibraryPlugin):
                return self._add_registered(inputs, plugin, lambda: plugin.identity, plugin.fields)
            if isinstance(plugin, IPluginV3):
                raise InvalidArgumentError("an IPluginV3 is added by add_plugin_v3(inputs, shape_inputs, plugin)")
            return self._add_object("PluginV2", inputs, [], plugin)
        return self._add_registered(
            inputs,
            plugin,
            lambda: _native.resolve_plugin(plugin, plugin_version, plugin_namespace),
            pack_all(fields),
        )

    def _add_registered(
        self, inputs: Sequence[Any], plugin: Any, identity: Callable[[], Identity], fields: dict[str, Value]
    ) -> ILayer:
        def build(scope: Scope, tensors: list[Tensor]) -> list[Tensor]:
            return add_registered(scope, tensors, identity(), fields)

        return self._add_plugin("PluginV2", inputs, plugin, build)

    def add_plugin_v3(self, inputs: Sequence[Any], shape_inputs: Sequence[Any], plugin: Any) -> ILayer:
        """A plugin that is an object. Only the rule for its shapes sees the elements of `shape_inputs`."""
        return self._add_object("PluginV3", inputs, shape_inputs, plugin)

    def add_plugin(self, inputs: Sequence[Any], shape_inputs: Sequence[Any], plugin: Any) -> ILayer:
        """As `add_plugin_v3`."""
        return self.add_plugin_v3(inputs, shape_inputs, plugin)

    def _add_object(self, kind: str, inputs: Sequence[Any], shape_inputs: Sequence[Any], plugin: Any) -> ILayer:
        face = None if is_composed(plugin) else adapter(plugin)

        def build(scope: Scope, tensors: list[Tensor]) -> list[Tensor]:
            if face is None:
                return compose(plugin, scope, tensors)
            return scope.network.add_plugin(tensors, face, len(shape_inputs), scope.name)

        return self._add_plugin(kind, [*inputs, *shape_inputs], plugin, build)

    def _add_plugin(self, kind: str, inputs: Sequence[Any], plugin: Any, build: Build) -> ILayer:
        if not inputs:
            raise InvalidArgumentError("a plugin layer reads at least one tensor")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            outputs = build(scope, [scope[index] for index in range(len(layer._inputs))])
            _settle(layer, len(outputs))
            return outputs

        return self._append(kind, list(inputs), {"plugin": plugin}, emit, outputs=0)


def _settle(layer: ILayer, count: int) -> None:
    """Gives a layer as many outputs as its plugin has, which shows when it is first added."""
    if not layer._outputs:
        names = (f"{layer.name}_output{index or ''}" for index in range(count))
        layer._outputs.extend(ITensor(layer._network, layer, index, name) for index, name in enumerate(names))
    elif len(layer._outputs) != count:
        raise ShapeError(
            "the plugin gives another number of outputs than before", expected=str(len(layer._outputs)), got=str(count)
        )
