"""The registry of plugins: by name, version and namespace."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from neurenix import _native
from neurenix.errors import Error, InvalidArgumentError, PluginError, UnsupportedError
from neurenix.hardware.tensorrt.build_enums import EngineCapability, ErrorCodeTRT
from neurenix.hardware.tensorrt.plugins import nvidia, simple
from neurenix.hardware.tensorrt.plugins.calling import calling
from neurenix.hardware.tensorrt.plugins.compiled import Identity, LibraryCreator, PluginLibraryHandle
from neurenix.hardware.tensorrt.plugins.fields import PluginFieldCollection, Value, pack
from neurenix.hardware.tensorrt.plugins.interfaces import (
    IPluginCreator,
    IPluginCreatorV3One,
    IPluginV2DynamicExt,
    IPluginV3,
)
from neurenix.hardware.tensorrt.plugins.libraries import load_plugin_library
from neurenix.hardware.tensorrt.plugins.simple import IPluginV2
from neurenix.hardware.tensorrt.strict import Strict
from neurenix.log import LOG


def adapter(plugin: Any, identity: Identity | None = None) -> simple.Simple | nvidia.Second | nvidia.Third:
    """What the native module asks of a plugin, known by this identity or by what it says itself.

    Raises `InvalidArgumentError` for what is no plugin.
    """
    made: simple.Simple | nvidia.Second | nvidia.Third
    if isinstance(plugin, IPluginV2):
        return simple.Simple(plugin, identity or _REGISTRY.identity_of(type(plugin)))
    if isinstance(plugin, IPluginV3):
        made = nvidia.Third(plugin)
    elif isinstance(plugin, IPluginV2DynamicExt):
        made = nvidia.Second(plugin)
    else:
        raise InvalidArgumentError(
            "this is no plugin",
            expected="an instance of a class derived from trt.IPluginV2, IPluginV2DynamicExt or IPluginV3",
            got=type(plugin).__name__,
        )
    made.identity = identity or made.identity
    return made


class ClassCreator:
    """The creator of a class that was registered by itself."""

    def __init__(self, identity: Identity, cls: type[IPluginV2]) -> None:
        self.name, self.plugin_version, self.plugin_namespace = identity
        self.cls = cls
        self.field_names = PluginFieldCollection()

    def create(self, layer: str, fields: dict[str, Value], phase: str) -> simple.Simple:
        """What the native module asks for."""
        made = simple.make(self.cls, fields, phase)
        return simple.Simple(made, (self.name, self.plugin_version, self.plugin_namespace))

    def create_plugin(self, name: str, field_collection: Any, phase: Any = None) -> IPluginV2:
        """A plugin of fields, for scripts that ask the registry."""
        return simple.make(self.cls, {field.name: pack(field.name, field) for field in field_collection}, "build")


class _Foreign:
    """The face of a creator of TensorRT's kind for the native module."""

    def __init__(self, identity: Identity, creator: Any) -> None:
        self._identity = identity
        self._creator = creator

    def create(self, layer: str, fields: dict[str, Value], phase: str) -> Any:
        made = nvidia.make(self._creator, layer, fields, phase)
        if not isinstance(made, (IPluginV2, IPluginV2DynamicExt, IPluginV3)):
            raise PluginError("its creator made no plugin", expected="a plugin", got=type(made).__name__)
        return adapter(made, self._identity)


class IPluginRegistry(Strict):
    """All creators, of Python and of libraries in C++. There is one registry: `get_plugin_registry()`.

    `parent_search_enabled` says in TensorRT whether registries above are asked too: there are none here. An
    `error_recorder` is told what goes wrong by its `report_error(code, text)`.
    """

    parent_search_enabled: bool
    error_recorder: Any

    def __init__(self) -> None:
        self._creators: dict[Identity, Any] = {}
        self._resources: dict[str, tuple[Any, int]] = {}
        self.parent_search_enabled = True
        self.error_recorder = None

    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        """Adds a creator; False, with the reason in the log, where there is one of its name, version and namespace."""
        try:
            self.add(creator, plugin_namespace)
        except Error as error:
            return self._failed(error)
        return True

    def _failed(self, error: Error) -> bool:
        LOG.error("%s", error)
        if self.error_recorder is not None:
            self.error_recorder.report_error(ErrorCodeTRT.INVALID_ARGUMENT, error.message)
        return False

    def load_library(self, plugin_path: str | os.PathLike[str]) -> PluginLibraryHandle | None:
        """Opens a library of plugins built against `neurenix/plugin.h` and registers them; None, with the reason in the
        log, where that fails. `trt.load_plugin_library` raises instead."""
        try:
            path = os.path.abspath(plugin_path)
            return PluginLibraryHandle(path, _native.load_plugin_library(path))
        except Error as error:
            self._failed(error)
            return None

    def deregister_library(self, handle: PluginLibraryHandle) -> None:
        """Takes out the plugins that a library brought. Networks and engines that have some keep them."""
        for identity in handle.plugins:
            _native.deregister_plugin(identity)

    def add(self, creator: Any, plugin_namespace: str = "") -> None:
        """As `register_creator`, but raises `InvalidArgumentError` with the reason."""
        if not isinstance(creator, (IPluginCreator, IPluginCreatorV3One, ClassCreator)):
            raise InvalidArgumentError(
                "this is no creator of plugins",
                expected="an instance of a class derived from trt.IPluginCreator or IPluginCreatorV3One",
                got=type(creator).__name__,
                hint="a class derived from trt.IPluginV2 is registered by trt.register_plugin(name, class)",
            )
        if plugin_namespace and not creator.plugin_namespace:
            creator.plugin_namespace = plugin_namespace
        identity = self._identity(creator)
        face = creator if isinstance(creator, ClassCreator) else _Foreign(identity, creator)
        _native.register_plugin(identity, face)
        self._creators[identity] = creator

    def deregister_creator(self, creator: Any) -> bool:
        """Takes a creator out; says whether it was there. Engines that have plugins of it keep them."""
        identity = self._identity(creator)
        known = self.get_creator(*identity)
        if known is not creator and not (isinstance(known, LibraryCreator) and known == creator):
            return False
        self._creators.pop(identity, None)
        return _native.deregister_plugin(identity)

    @staticmethod
    def _identity(creator: Any) -> Identity:
        return str(creator.name), str(creator.plugin_version), str(creator.plugin_namespace)

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        """The creator of a name, version and namespace; None where there is none."""
        identity = (type, version, plugin_namespace)
        found = self._creators.get(identity)
        if found is None and identity in _native.registered_plugins():
            return LibraryCreator(identity)
        return found

    def get_plugin_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        """As `get_creator`: its name before TensorRT 10."""
        return self.get_creator(type, version, plugin_namespace)

    @property
    def plugin_creator_list(self) -> list[Any]:
        """The creators of plugins of the second generation; those of libraries are."""
        return [creator for creator in self.all_creators if not nvidia.is_third(creator)]

    @property
    def all_creators(self) -> list[Any]:
        """All creators, in the order of their names."""
        found = (self.get_creator(*identity) for identity in _native.registered_plugins())
        return [creator for creator in found if creator is not None]

    @property
    def all_creators_recursive(self) -> list[Any]:
        """All creators: there is one registry, and none above it."""
        return self.all_creators

    def acquire_plugin_resource(self, key: str, resource: Any) -> Any:
        """What the plugins of a process share under a key: a clone (`resource.clone()`) of the one that came first."""
        kept, users = self._resources.get(key, (None, 0))
        if users == 0:
            with calling("clone"):
                kept = resource.clone()
        self._resources[key] = (kept, users + 1)
        return kept

    def release_plugin_resource(self, key: str) -> int:
        """Gives back what was acquired once; behind the last it is released (`resource.release()`). -1: no such."""
        kept, users = self._resources.pop(key, (None, 0))
        if users == 0:
            return -1
        if users > 1:
            self._resources[key] = (kept, users - 1)
            return 0
        with calling("release"):
            kept.release()
        return 0

    def identity_of(self, cls: type[IPluginV2]) -> Identity:
        """What a class is registered as; else its name, version and namespace."""
        for identity, creator in self._creators.items():
            if isinstance(creator, ClassCreator) and creator.cls is cls:
                return identity
        return cls.__name__, str(cls.plugin_version), str(cls.plugin_namespace)


_REGISTRY = IPluginRegistry()


def get_plugin_registry() -> IPluginRegistry:
    """The registry of this process."""
    return _REGISTRY


def get_builder_plugin_registry(capability: EngineCapability) -> IPluginRegistry:
    """The registry of this process; raises `UnsupportedError` for an engine that is not a standard one."""
    if capability is not EngineCapability.STANDARD:
        raise UnsupportedError("there is one runtime, of standard engines", got=str(capability))
    return _REGISTRY


def init_libnvinfer_plugins(logger: Any = None, namespace: str = "") -> bool:
    """True: NVIDIA's own plugins load only inside TensorRT, and scripts that ask for them go on."""
    return True


def register_plugin(
    name: str,
    plugin: type[IPluginV2] | None = None,
    *,
    version: str | None = None,
    namespace: str | None = None,
    replace: bool = False,
) -> Any:
    """Registers a class derived from `IPluginV2` under a name; a decorator where no class is given.

    `version` and `namespace`: the class's own `plugin_version` ("1") and `plugin_namespace` ("") by default. `replace`
    puts it in the place of another class of this identity. Raises `InvalidArgumentError` for what is no such class, and
    where the identity is taken; the same class may be registered again.
    """
    if plugin is None:
        decorate: Callable[[type[IPluginV2]], Any] = lambda cls: register_plugin(  # noqa: E731
            name, cls, version=version, namespace=namespace, replace=replace
        )
        return decorate
    if not (isinstance(plugin, type) and issubclass(plugin, IPluginV2)):
        raise InvalidArgumentError(
            "this is no plugin class",
            expected="a class derived from trt.IPluginV2",
            got=getattr(plugin, "__name__", type(plugin).__name__),
            hint="creators in TensorRT's shape go to trt.get_plugin_registry().register_creator(creator)",
        )
    identity = (
        name,
        str(plugin.plugin_version if version is None else version),
        str(plugin.plugin_namespace if namespace is None else namespace),
    )
    before = _REGISTRY.get_creator(*identity)
    if isinstance(before, ClassCreator) and before.cls is plugin:
        return plugin
    if before is not None and replace:
        _REGISTRY.deregister_creator(before)
    _REGISTRY.add(ClassCreator(identity, plugin))
    return plugin


def register_all(plugins: Iterable[str | tuple[str, type]]) -> None:
    """Registers classes under their names, imports modules, which do so themselves, and loads libraries (`.so`).

    Raises as `register_plugin` and `load_plugin_library`, `InvalidArgumentError` for a module that can't be imported,
    and `PluginError` for one that raises then.
    """
    for plugin in plugins:
        if isinstance(plugin, tuple):
            register_plugin(*plugin)
            continue
        if plugin.endswith(".so"):
            load_plugin_library(plugin)
            continue
        try:
            importlib.import_module(plugin)
        except ImportError as error:
            raise InvalidArgumentError(
                f"the module {plugin!r}, which has plugins, can't be imported: {error}",
                hint=f"name it as an import statement would: {Path(plugin).stem}"
                if plugin.endswith(".py")
                else "name it as an import statement would; its folder must be on sys.path",
            ) from error
        except Error:
            raise
        except Exception as error:
            raise PluginError(
                f"the module {plugin!r}, which has plugins, raised {type(error).__name__} at its import: {error}"
            ) from error


def deregister_plugin(name: str, *, version: str | None = None, namespace: str = "") -> bool:
    """Takes a plugin out of the registry; says whether it was there."""
    identity = _native.resolve_plugin(name, version, namespace)
    creator = _REGISTRY.get_creator(*identity)
    return creator is not None and _REGISTRY.deregister_creator(creator)
