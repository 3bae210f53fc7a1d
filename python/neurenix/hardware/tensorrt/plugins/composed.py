"""Plugins made of layers that there are: they leave no plugin in a network, and run wherever those layers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neurenix._native import Tensor
from neurenix.errors import Error, PluginError
from neurenix.hardware.tensorrt.layer import Scope
from neurenix.hardware.tensorrt.plugins.calling import calling
from neurenix.hardware.tensorrt.plugins.compiled import Identity
from neurenix.hardware.tensorrt.plugins.fields import Value
from neurenix.hardware.tensorrt.plugins.registry import ClassCreator, get_plugin_registry
from neurenix.hardware.tensorrt.plugins.simple import IPluginV2, defines, make


def is_composed(plugin: Any) -> bool:
    """Whether a plugin is made of layers."""
    return isinstance(plugin, IPluginV2) and defines(type(plugin), "compose")


def compose(
    plugin: IPluginV2, scope: Scope, inputs: Sequence[Tensor], identity: Identity | None = None
) -> list[Tensor]:
    """Adds the layers of a plugin to a network, and gives its outputs.

    Raises what `compose` of the plugin raises, and `PluginError` where it gives no tensors; both name it.
    """
    name, version, _ = identity or get_plugin_registry().identity_of(type(plugin))
    try:
        with calling("compose"):
            given = plugin.compose(scope, list(inputs))
            outputs = [given] if isinstance(given, Tensor) else list(given)
        if not outputs or not all(isinstance(output, Tensor) for output in outputs):
            raise PluginError("compose gave no tensors", expected="the tensors that layers.add gave", got=repr(given))
    except Error as error:
        error.message = f"plugin {name} version {version}: {error.message}"
        raise
    return outputs


def add_registered(
    scope: Scope, inputs: Sequence[Tensor], identity: Identity, fields: dict[str, Value]
) -> list[Tensor]:
    """Adds a plugin of the registry, made of fields, to a network, and gives its outputs."""
    creator = get_plugin_registry().get_creator(*identity)
    if isinstance(creator, ClassCreator) and defines(creator.cls, "compose"):
        return compose(make(creator.cls, fields, "build"), scope, inputs, identity)
    return scope.network.add_registered_plugin(inputs, identity, fields, 0, scope.name)
