"""A layer of one's own, WaveNet's gate tanh(a) * sigmoid(b): numpy on the processor, a CUDA kernel on GPUs, in a file.

pip install . && python examples/06_plugin.py
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import neurenix.hardware.tensorrt as trt

Tensors = Sequence[trt.PluginTensorDesc]
KERNEL = """
extern "C" __global__ void gate(const float* x, float* y, int count, int width, float warmth) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    const float* row = x + (long long)(at / width) * 2 * width + at % width;
    y[at] = tanhf(warmth * row[0]) / (1.0f + expf(-row[width]));
}
"""


class Gate(trt.IPluginV2):
    """Reads [..., 2 * width] of float32 and gives [..., width]."""

    def __init__(self, warmth: float = 1.0):
        super().__init__()
        self.warmth = warmth

    def get_output_shape(self, input_shapes: Sequence[Any]) -> Any:
        # Sizes that only a call tells calculate like ints.
        *rows, columns = input_shapes[0]
        return (*rows, columns // 2)

    def supports_format_combination(self, pos: int, in_out: Tensors, num_inputs: int) -> bool:
        return in_out[pos].type == trt.float32

    def execute(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> None:
        a, b = np.split(inputs[0], 2, axis=-1)
        np.divide(np.tanh(np.float32(self.warmth) * a), 1 + np.exp(-b), out=outputs[0])

    def cuda_source(self, inputs: Tensors, outputs: Tensors) -> trt.CudaSource:
        count, width = trt.volume(outputs[0].dims), outputs[0].dims[-1]
        return trt.CudaSource(KERNEL, "gate", (count + 255) // 256, 256, arguments=(count, width, self.warmth))


def main() -> None:
    trt.register_plugin("Gate", Gate)
    builder = trt.Builder()
    network = builder.create_network()
    x = network.add_input("x", trt.float32, ("batch", 64))
    gate = network.add_plugin_v2([x], "Gate", warmth=0.5)
    network.mark_output(network.add_activation(gate, trt.ActivationType.TANH))
    engine = builder.build_engine(network)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gate.engine")
        engine.save(path)
        opened = trt.Runtime().deserialize_cuda_engine(path.read_bytes())
    assert opened is not None
    first, second = engine.create_execution_context(), opened.create_execution_context()
    for batch in (1, 7):
        given = np.random.default_rng(batch).standard_normal((batch, 64)).astype(np.float32)
        a, b = np.split(given.astype(np.float64), 2, axis=1)
        want = np.tanh(np.tanh(0.5 * a) / (1 + np.exp(-b)))
        got = first.execute(given)
        same = np.array_equal(got, second.execute(given))
        print(f"{got.shape}: greatest error {np.abs(got - want).max():.1e}; the same from the file: {same}")


if __name__ == "__main__":
    main()
