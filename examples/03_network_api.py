"""Builds a network layer by layer, as in NVIDIA's `tensorrt` package, and runs it.

pip install . && python examples/03_network_api.py
"""

import numpy as np

import neurenix.hardware.tensorrt as trt


def main() -> None:
    builder = trt.Builder()
    network = builder.create_network()
    x = network.add_input("input", trt.float32, (1, 3, 224, 224))
    rng = np.random.default_rng(0)
    kernel = (0.1 * rng.standard_normal((64, 3, 3, 3))).astype(np.float32)
    conv = network.add_convolution(x, 64, (3, 3), kernel=kernel, bias=np.zeros(64, np.float32))
    relu = network.add_activation(conv, trt.ActivationType.RELU)
    pool = network.add_pooling(relu, trt.PoolingType.MAX, (2, 2))
    pool.stride_nd = (2, 2)
    network.mark_output(pool)

    config = builder.create_builder_config()
    config.max_workspace_size = 1 << 30
    engine = builder.build_engine(network, config)
    context = engine.create_execution_context()
    y = context.execute(rng.standard_normal((1, 3, 224, 224)).astype(np.float32))
    print(f"{y.dtype}{list(y.shape)}, from {y.min():.3f} to {y.max():.3f}")


if __name__ == "__main__":
    main()
