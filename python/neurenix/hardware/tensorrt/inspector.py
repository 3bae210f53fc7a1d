"""EngineInspector: what runs in an engine, as text or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.build_enums import (
    LayerInformationFormat,
    ProfilingVerbosity,
    TensorIOMode,
)
from neurenix.hardware.tensorrt.enums import Dims, as_data_type
from neurenix.hardware.tensorrt.interfaces import IErrorRecorder
from neurenix.hardware.tensorrt.strict import Strict

if TYPE_CHECKING:
    from neurenix.hardware.tensorrt.context import IExecutionContext
    from neurenix.hardware.tensorrt.engine import ICudaEngine
    from neurenix.hardware.tensorrt.ports import Port


class EngineInspector(Strict):
    """Tells of the kernels of an engine: their layers, their nodes in the model, what runs them, how long that took."""

    #: The context whose shapes count; kernels are the same for all.
    execution_context: IExecutionContext | None
    error_recorder: IErrorRecorder | None

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self.execution_context = None
        self.error_recorder = None

    def get_layer_information(self, layer_index: int, format: LayerInformationFormat) -> str:
        """One kernel: a JSON object, or a line. Raises `InvalidArgumentError` where there is none of this number."""
        layers = self._layers()
        if not 0 <= layer_index < len(layers):
            raise InvalidArgumentError(
                "there is no layer of this number", expected=f"0 to {len(layers) - 1}", got=str(layer_index)
            )
        return _write(layers[layer_index], format)

    def get_engine_information(self, format: LayerInformationFormat) -> str:
        """All kernels, and the inputs and outputs: a JSON object, or a line each."""
        layers = self._layers()
        if format is LayerInformationFormat.JSON:
            ports = self._engine._ports.values()
            whole = {
                "Layers": layers,
                "Bindings": [port.name for port in ports],
                "I/O Tensors": [self._port(port) for port in ports],
            }
            return json.dumps(whole, indent=2)
        return "\n".join(_write(layer, format) for layer in layers)

    def _layers(self) -> list[Any]:
        if self._engine.profiling_verbosity is ProfilingVerbosity.NONE:
            return []
        kernels = self._engine._report()["kernels"]
        if self._engine.profiling_verbosity is ProfilingVerbosity.LAYER_NAMES_ONLY:
            return [_name(kernel) for kernel in kernels]
        return [_layer(kernel) for kernel in kernels]

    def _port(self, port: Port) -> dict[str, Any]:
        shapes = []
        if port.mode is TensorIOMode.INPUT:
            for number in range(self._engine.num_optimization_profiles):
                low, opt, high = (list(shape) for shape in port.profile_shapes(self._engine._profile(number)))
                shapes.append({"Profile": number, "Min": low, "Opt": opt, "Max": high})
        dtype = as_data_type(port.dtype)
        return {
            "Name": port.name,
            "IOMode": port.mode.name,
            "DataType": getattr(dtype, "name", str(dtype)),
            "Dimensions": list(Dims(port.shape)),
            "Location": self._engine.get_tensor_location(port.name).name,
            "IsShapeInferenceIO": False,
            "ProfileInfo": shapes,
        }


def _name(kernel: dict[str, Any]) -> str:
    return " + ".join(kernel["layers"]) or str(kernel["kernel"])


def _layer(kernel: dict[str, Any]) -> dict[str, Any]:
    return {
        "Name": _name(kernel),
        "LayerType": kernel["kernel"],
        "Provider": kernel["provider"],
        "TacticName": kernel["implementation"],
        "Format": kernel["form"],
        "Layers": kernel["layers"],
        "Metadata": ", ".join(kernel["sources"]),
        "TimeMs": kernel["tuned_nanoseconds"] / 1e6,
    }


def _write(layer: Any, format: LayerInformationFormat) -> str:
    if format is LayerInformationFormat.JSON:
        return json.dumps(layer, indent=2)
    if isinstance(layer, str):
        return layer
    return f"{layer['Name']} ({layer['LayerType']}): {layer['Provider']} {layer['TacticName'] or 'in place'}"
