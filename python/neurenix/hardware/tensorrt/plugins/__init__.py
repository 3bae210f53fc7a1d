"""Plugins: layers that a user's own code runs. `docs/plugins.md` tells how."""

from neurenix.hardware.tensorrt.plugins.compiled import PluginLibraryHandle
from neurenix.hardware.tensorrt.plugins.describe import (
    DynamicPluginTensorDesc,
    PluginCapabilityType,
    PluginTensorDesc,
    TensorFormat,
    TensorRTPhase,
)
from neurenix.hardware.tensorrt.plugins.dims import DimensionOperation, DimsExprs, IDimensionExpr, IExprBuilder
from neurenix.hardware.tensorrt.plugins.fields import (
    PluginField,
    PluginFieldCollection,
    PluginFieldType,
)
from neurenix.hardware.tensorrt.plugins.interfaces import (
    IPluginCapability,
    IPluginCreator,
    IPluginCreatorV3One,
    IPluginResource,
    IPluginV2DynamicExt,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
)
from neurenix.hardware.tensorrt.plugins.libraries import load_plugin_library, plugin_include_dir
from neurenix.hardware.tensorrt.plugins.registry import (
    IPluginRegistry,
    deregister_plugin,
    get_builder_plugin_registry,
    get_plugin_registry,
    init_libnvinfer_plugins,
    register_plugin,
)
from neurenix.hardware.tensorrt.plugins.simple import CudaSource, IPluginV2

#: What TensorRT calls the collection that a creator gets.
PluginFieldCollection_ = PluginFieldCollection

__all__ = [
    "CudaSource",
    "DimensionOperation",
    "DimsExprs",
    "DynamicPluginTensorDesc",
    "IDimensionExpr",
    "IExprBuilder",
    "IPluginCapability",
    "IPluginCreator",
    "IPluginCreatorV3One",
    "IPluginRegistry",
    "IPluginResource",
    "IPluginV2",
    "IPluginV2DynamicExt",
    "IPluginV3",
    "IPluginV3OneBuild",
    "IPluginV3OneCore",
    "IPluginV3OneRuntime",
    "PluginCapabilityType",
    "PluginField",
    "PluginFieldCollection",
    "PluginFieldCollection_",
    "PluginFieldType",
    "PluginLibraryHandle",
    "PluginTensorDesc",
    "TensorFormat",
    "TensorRTPhase",
    "deregister_plugin",
    "get_builder_plugin_registry",
    "get_plugin_registry",
    "init_libnvinfer_plugins",
    "load_plugin_library",
    "plugin_include_dir",
    "register_plugin",
]
