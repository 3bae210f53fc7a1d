"""The whole API under `mypy --strict`: backend, options, nn, network API, plugin, queue.

pip install . && mypy --strict examples/11_typed.py && python examples/11_typed.py
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix import nn
from neurenix.hardware import AsyncQueue, DeviceInfo, DryRun, OptimizedModel

Floats = NDArray[np.float32]


class Double(trt.IPluginV2):
    """Twice its input."""

    devices = ("cpu",)

    def get_output_shape(self, input_shapes: Sequence[Any]) -> Any:
        return input_shapes[0]

    def execute(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> None:
        np.multiply(inputs[0], 2, out=outputs[0])


def by_hand() -> trt.ICudaEngine:
    """A network of TensorRT's API with a profile and the plugin."""
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 8))
    relu = network.add_activation(x, trt.ActivationType.RELU)
    network.mark_output(network.add_plugin_v2([relu], Double()).get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 8), (4, 8), (16, 8))
    config.add_optimization_profile(profile)
    return builder.build_engine(network, config)


def by_module(backend: trt.TensorRTBackend) -> OptimizedModel:
    """A module, planned and then built."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    shape = nx.Shape(min=(1, 8), opt=(4, 8), max=(16, 8))
    plan: DryRun = backend.dry_run(model, {"input": shape}, optimization_level=0)
    print(len(plan), "layers:", ", ".join(row.op for row in plan))
    return backend.optimize_model(model, {"input": shape}, precision="fp32", verify=False, threads=1)


def main() -> None:
    x: Floats = nx.random.randn(4, 8)
    twice = by_hand().create_execution_context().execute(x)
    print("twice:", np.array_equal(twice, 2 * np.maximum(x, 0)))
    backend = trt.TensorRTBackend(optimization_level=1)
    device: DeviceInfo = backend.get_device_info(0)
    print(device.name != "", backend.initialize())
    model = by_module(backend)
    with AsyncQueue(model, jobs=2) as queue:
        answers = [future.result()["output"] for future in [queue.start_async(x) for _ in range(4)]]
    print(model.outputs[0].name, answers[0].shape, model.memory_required({"input": (16, 8)}).total > 0)
    try:
        model({"input": x[:, :7]})
    except nx.ShapeError as error:
        print("refused:", error.tensor, error.got)


if __name__ == "__main__":
    main()
