"""Plugin: one that reverses rows, on the processor and in a kernel of its own."""

from __future__ import annotations

from typing import Any

import neurenix.hardware.tensorrt as trt
from tests.conformance.case import ANY, Array, case, normal

OP = "Plugin"
CODE = """
extern "C" __global__ void turn(const {word}* x, {word}* y, long long count, int width) {{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = x[at / width * width + width - 1 - at % width];
}}
"""
WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


class Turned(trt.IPluginV2):
    """The last axis backwards."""

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        return input_shapes[0]

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        outputs[0][...] = inputs[0][..., ::-1]

    def cuda_source(self, inputs: list[trt.PluginTensorDesc], outputs: list[trt.PluginTensorDesc]) -> trt.CudaSource:
        count, width = trt.volume(inputs[0].dims), inputs[0].dims[-1]
        code = CODE.format(word=WORDS[inputs[0].dtype.itemsize])
        return trt.CudaSource(code, "turn", (count + 127) // 128, 128, arguments=(count, width))


# The importer looks for a plugin of the name of the node.
trt.register_plugin(OP, Turned)


def reference(x: Array) -> Array:
    """numpy."""
    return x[..., ::-1]


CASES = [
    case("row", normal(7), dtypes=ANY, reference=reference),
    case("rows", normal(3, 5, 130), dtypes=ANY, reference=reference),
    case("empty", normal(0, 4), reference=reference),
]
