"""Plugins that come with Neurenix: layers that models name and ONNX lacks. They are registered when it is imported.

Each file is an example of its kind. `deform_conv` and `grid_sampler` are made of layers that there are already
(`compose`); `efficient_nms` brings its own code, numpy for the processor and a kernel in CUDA C++ for GPUs;
`efficient_nms_onnx` is for the processor alone.
"""

from neurenix.hardware.tensorrt.plugins import IPluginV2, register_plugin
from neurenix.plugins.deform_conv import DeformConv2d, ModulatedDeformConv2d
from neurenix.plugins.efficient_nms import EfficientNMS
from neurenix.plugins.efficient_nms_onnx import EfficientNMSONNX
from neurenix.plugins.grid_sampler import GridSampler

__all__ = [
    "SHIPPED",
    "DeformConv2d",
    "EfficientNMS",
    "EfficientNMSONNX",
    "GridSampler",
    "ModulatedDeformConv2d",
    "register",
]

#: Names and versions, as TensorRT's own plugins and mmdeploy's have them, and the class of each.
SHIPPED: dict[tuple[str, str], type[IPluginV2]] = {
    ("ModulatedDeformConv2d", "1"): ModulatedDeformConv2d,
    ("ModulatedDeformConv2d", "2"): ModulatedDeformConv2d,
    ("MMCVModulatedDeformConv2d", "1"): ModulatedDeformConv2d,
    ("MMCVDeformConv2d", "1"): DeformConv2d,
    ("EfficientNMS_TRT", "1"): EfficientNMS,
    ("EfficientNMS_ONNX_TRT", "1"): EfficientNMSONNX,
    ("grid_sampler", "1"): GridSampler,
    ("GridSampler", "1"): GridSampler,
}


def register() -> None:
    """Registers all of them, as importing Neurenix does; those that are there stay.

    Raises `InvalidArgumentError` where another plugin has taken a name, version and no namespace.
    """
    for (name, version), plugin in SHIPPED.items():
        register_plugin(name, plugin, version=version)


register()
