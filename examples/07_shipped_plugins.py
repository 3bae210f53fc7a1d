"""A detector's last layers as TensorRT's users write them: deformable convolution, bicubic sampling, EfficientNMS.

pip install . && python examples/07_shipped_plugins.py
"""

import numpy as np

import neurenix.hardware.tensorrt as trt

BATCH, PLACES, CLASSES = 2, 400, 3


def deformed(random: np.random.Generator) -> None:
    """Two plugins that are made of layers: nothing of them is left in the engine but those."""
    builder = trt.Builder()
    network = builder.create_network()
    x = network.add_input("x", trt.float32, ("batch", 8, 20, 20))
    offset = network.add_input("offset", trt.float32, ("batch", 18, 20, 20))
    mask = network.add_input("mask", trt.float32, ("batch", 9, 20, 20))
    grid = network.add_input("grid", trt.float32, ("batch", 10, 10, 2))
    weights = network.add_constant((16, 8, 3, 3), random.standard_normal((16, 8, 3, 3)).astype(np.float32))
    y = network.add_plugin_v2([x, offset, mask, weights], "ModulatedDeformConv2d", padding=[1, 1])
    # 2: bicubic; 1: the border.
    network.mark_output(network.add_plugin_v2([y, grid], "grid_sampler", interpolation_mode=2, padding_mode=1))
    context = builder.build_engine(network).create_execution_context()
    shapes = ((BATCH, 8, 20, 20), (BATCH, 18, 20, 20), (BATCH, 9, 20, 20), (BATCH, 10, 10, 2))
    found = context.execute(*(random.standard_normal(shape).astype(np.float32) for shape in shapes))
    print(f"deformed and sampled: {found.shape}")


def detected(random: np.random.Generator) -> None:
    """A plugin with code of its own: numpy on the processor, a CUDA kernel on GPUs."""
    builder = trt.Builder()
    network = builder.create_network()
    boxes = network.add_input("boxes", trt.float32, ("batch", PLACES, 4))
    scores = network.add_input("scores", trt.float32, ("batch", PLACES, CLASSES))
    layer = network.add_plugin_v2(
        [boxes, scores], "EfficientNMS_TRT", score_threshold=0.9, iou_threshold=0.5, max_output_boxes=20
    )
    for index in range(layer.num_outputs):
        network.mark_output(layer.get_output(index))
    context = builder.build_engine(network).create_execution_context()
    middle = random.uniform(0.2, 0.8, (BATCH, PLACES, 2))
    given = np.concatenate([middle - 0.1, middle + 0.1], axis=-1).astype(np.float32)
    count, _, found, classes = context.execute(given, random.random((BATCH, PLACES, CLASSES), np.float32))
    for image in range(BATCH):
        kept = int(count[image, 0])
        is_sorted = bool((np.diff(found[image, :kept]) <= 0).all())
        print(f"image {image}: {kept} boxes of {set(classes[image, :kept].tolist())}, the best first: {is_sorted}")


if __name__ == "__main__":
    deformed(np.random.default_rng(0))
    detected(np.random.default_rng(1))
