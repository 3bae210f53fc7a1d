"""From an ONNX classifier to an engine file, and to class scores: `resnet_onnx.py MODEL IMAGE.npy SCORES.npy`.

Written for NVIDIA's package; pointers are those of arrays in the processor's memory.
"""

import os
import sys

import numpy as np
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.WARNING)


class HostDeviceMem:
    """An input or output: an array, and where it lies."""

    def __init__(self, engine: trt.ICudaEngine, name: str) -> None:
        self.name = name
        self.shape = engine.get_tensor_shape(name)
        self.array = np.empty(trt.volume(self.shape), dtype=np.dtype(trt.nptype(engine.get_tensor_dtype(name))))

    @property
    def pointer(self) -> int:
        return self.array.ctypes.data

    def __repr__(self) -> str:
        return f"{self.name}: {tuple(self.shape)}"


def build_engine(onnx_path: str) -> bytes:
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, TRT_LOGGER)
    with open(onnx_path, "rb") as model:
        if not parser.parse(model.read()):
            for error in range(parser.num_errors):
                print(parser.get_error(error), file=sys.stderr)
            raise SystemExit(1)
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)
    config.builder_optimization_level = 0
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise SystemExit("the build failed")
    return plan


def allocate_buffers(engine: trt.ICudaEngine) -> tuple[list[HostDeviceMem], list[HostDeviceMem]]:
    inputs, outputs = [], []
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
        (inputs if is_input else outputs).append(HostDeviceMem(engine, name))
    return inputs, outputs


def main(onnx_path: str, image_path: str, scores_path: str) -> None:
    engine_path = os.path.splitext(onnx_path)[0] + ".engine"
    if not os.path.exists(engine_path):
        with open(engine_path, "wb") as f:
            f.write(build_engine(onnx_path))
    with open(engine_path, "rb") as f, trt.Runtime(TRT_LOGGER) as runtime:
        engine = runtime.deserialize_cuda_engine(f.read())
    with engine.create_execution_context() as context:
        inputs, outputs = allocate_buffers(engine)
        np.copyto(inputs[0].array, np.load(image_path).ravel())
        for buffer in inputs + outputs:
            context.set_tensor_address(buffer.name, buffer.pointer)
        if not context.execute_async_v3(stream_handle=0):
            raise SystemExit("the call failed")
    np.save(scores_path, outputs[0].array.reshape(outputs[0].shape))


if __name__ == "__main__":
    main(*sys.argv[1:])
