"""One engine for many shapes, with a timing cache, looked into and given other weights.

`dynamic_refit.py MODEL.onnx FOLDER`: reads FOLDER/inputs.npz and FOLDER/weights.npz, writes FOLDER/outputs.npz,
FOLDER/timing.cache and FOLDER/layers.json. Written for NVIDIA's package.
"""

import json
import os
import sys

import numpy as np
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.INFO)


class Monitor(trt.IProgressMonitor):
    def __init__(self):
        trt.IProgressMonitor.__init__(self)
        self.steps = 0

    def phase_start(self, phase_name, parent_phase, num_steps):
        TRT_LOGGER.log(trt.Logger.INFO, f"{phase_name}: {num_steps} steps")

    def step_complete(self, phase_name, step):
        self.steps += 1
        return True

    def phase_finish(self, phase_name):
        TRT_LOGGER.log(trt.Logger.INFO, f"{phase_name}: done")


class Times(trt.IProfiler):
    def __init__(self):
        trt.IProfiler.__init__(self)
        self.layers = {}

    def report_layer_time(self, layer_name, ms):
        self.layers[layer_name] = ms


def build(onnx_path, cache_path):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, TRT_LOGGER)
    if not parser.parse_from_file(onnx_path):
        sys.exit("\n".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    config = builder.create_builder_config()
    name = network.get_input(0).name
    for least, opt, most in (
        ((1, 3, 16, 16), (1, 3, 16, 16), (1, 3, 32, 32)),
        ((2, 3, 32, 32), (4, 3, 32, 32), (8, 3, 64, 64)),
    ):
        profile = builder.create_optimization_profile()
        profile.set_shape(name, least, opt, most)
        config.add_optimization_profile(profile)
    data = b""
    if os.path.exists(cache_path):
        with open(cache_path, "rb") as f:
            data = f.read()
    cache = config.create_timing_cache(data)
    config.set_timing_cache(cache, ignore_mismatch=False)
    config.set_flag(trt.BuilderFlag.REFIT)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.progress_monitor = Monitor()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        sys.exit("the build failed")
    with open(cache_path, "wb") as f:
        f.write(memoryview(config.get_timing_cache().serialize()))
    assert config.progress_monitor.steps > 0
    return plan


def infer(engine, context, profile, array):
    if not context.set_optimization_profile_async(profile, 0):
        sys.exit("there is no such profile")
    x, y = (engine.get_tensor_name(i) for i in range(engine.num_io_tensors))
    if not context.set_input_shape(x, array.shape):
        sys.exit("the shape does not fit the profile")
    assert context.infer_shapes() == []
    result = np.empty(tuple(context.get_tensor_shape(y)), trt.nptype(engine.get_tensor_dtype(y)))
    context.set_tensor_address(x, array.ctypes.data)
    context.set_tensor_address(y, result.ctypes.data)
    if not context.execute_async_v3(0):
        sys.exit("the call failed")
    return result


def main(onnx_path, folder):
    plan = build(onnx_path, os.path.join(folder, "timing.cache"))
    runtime = trt.Runtime(TRT_LOGGER)
    engine = runtime.deserialize_cuda_engine(plan)
    inspector = engine.create_engine_inspector()
    layers = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    context = engine.create_execution_context()
    context.profiler = Times()
    outputs = {}
    with np.load(os.path.join(folder, "inputs.npz")) as inputs:
        small, large = inputs["small"], inputs["large"]
    outputs["small"] = infer(engine, context, 0, small)
    outputs["large"] = infer(engine, context, 1, large)
    layers["times"] = context.profiler.layers
    context.profiler = None

    refitter = trt.Refitter(engine, TRT_LOGGER)
    with np.load(os.path.join(folder, "weights.npz")) as weights:
        for name in weights.files:
            if not refitter.set_named_weights(name, trt.Weights(weights[name])):
                sys.exit(f"{name} was not taken")
    assert refitter.get_missing_weights() == []
    if not refitter.refit_cuda_engine():
        sys.exit("the refit failed")
    outputs["refitted"] = infer(engine, context, 0, small)
    np.savez(os.path.join(folder, "outputs.npz"), **outputs)
    with open(os.path.join(folder, "layers.json"), "w") as f:
        json.dump(layers, f)


if __name__ == "__main__":
    main(*sys.argv[1:])
