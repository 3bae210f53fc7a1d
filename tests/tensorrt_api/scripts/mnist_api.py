"""A digit classifier put together layer by layer from weights: `mnist_api.py WEIGHTS.npz DIGITS.npy SCORES.npy`.

Written for NVIDIA's package; pointers are those of arrays in the processor's memory.
"""

import sys

import numpy as np
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.WARNING)


class ModelData:
    INPUT_NAME = "data"
    INPUT_SHAPE = (4, 1, 28, 28)
    OUTPUT_NAME = "prob"
    OUTPUT_SIZE = 10
    DTYPE = trt.float32


def add_matmul_as_fc(net, input, outputs, w, b):
    assert len(input.shape) >= 3
    m = int(np.prod(input.shape[1:]))
    reshape = net.add_shuffle(input)
    reshape.reshape_dims = trt.Dims2(input.shape[0], m)
    filter_const = net.add_constant(trt.Dims2(outputs, m), w.reshape((outputs, m)))
    mm = net.add_matrix_multiply(
        reshape.get_output(0), trt.MatrixOperation.NONE, filter_const.get_output(0), trt.MatrixOperation.TRANSPOSE
    )
    bias_const = net.add_constant(trt.Dims2(1, outputs), b)
    return net.add_elementwise(mm.get_output(0), bias_const.get_output(0), trt.ElementWiseOperation.SUM)


def populate_network(network, weights):
    input_tensor = network.add_input(name=ModelData.INPUT_NAME, dtype=ModelData.DTYPE, shape=ModelData.INPUT_SHAPE)

    conv1 = network.add_convolution_nd(
        input=input_tensor,
        num_output_maps=20,
        kernel_shape=(5, 5),
        kernel=trt.Weights(weights["conv1.weight"]),
        bias=trt.Weights(weights["conv1.bias"]),
    )
    conv1.stride_nd = (1, 1)
    pool1 = network.add_pooling_nd(input=conv1.get_output(0), type=trt.PoolingType.MAX, window_size=(2, 2))
    pool1.stride_nd = trt.Dims2(2, 2)

    conv2 = network.add_convolution_nd(pool1.get_output(0), 50, (5, 5), weights["conv2.weight"], weights["conv2.bias"])
    conv2.stride_nd = (1, 1)
    pool2 = network.add_pooling_nd(conv2.get_output(0), trt.PoolingType.MAX, (2, 2))
    pool2.stride_nd = trt.Dims2(2, 2)

    fc1 = add_matmul_as_fc(network, pool2.get_output(0), 500, weights["fc1.weight"], weights["fc1.bias"])
    relu1 = network.add_activation(input=fc1.get_output(0), type=trt.ActivationType.RELU)
    shape = network.add_shuffle(relu1.get_output(0))
    shape.reshape_dims = trt.Dims3(ModelData.INPUT_SHAPE[0], 500, 1)
    fc2 = add_matmul_as_fc(
        network, shape.get_output(0), ModelData.OUTPUT_SIZE, weights["fc2.weight"], weights["fc2.bias"]
    )
    prob = network.add_softmax(fc2.get_output(0))
    prob.axes = 1 << 1
    prob.get_output(0).name = ModelData.OUTPUT_NAME
    network.mark_output(tensor=prob.get_output(0))


def build_engine(weights):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(0)
    config = builder.create_builder_config()
    runtime = trt.Runtime(TRT_LOGGER)
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 20)
    if builder.platform_has_fast_fp16:
        config.set_flag(trt.BuilderFlag.FP16)
    populate_network(network, weights)
    plan = builder.build_serialized_network(network, config)
    return runtime.deserialize_cuda_engine(plan)


def main(weights_path, digits_path, scores_path):
    with np.load(weights_path) as weights:
        engine = build_engine(weights)
    digits = np.ascontiguousarray(np.load(digits_path), dtype=trt.nptype(ModelData.DTYPE))
    scores = np.empty((len(digits), ModelData.OUTPUT_SIZE), np.float32)
    context = engine.create_execution_context()
    bindings = [digits.ctypes.data, scores.ctypes.data]
    if not context.execute_v2(bindings):
        sys.exit("the call failed")
    np.save(scores_path, scores)


if __name__ == "__main__":
    main(*sys.argv[1:])
