"""Code of two manuals for Torch-TensorRT and TensorRT, as users have it, but for the lines that import."""

TORCH_COMPILE = """
import torch

model = MyModel().cuda().eval()

# Use TensorRT backend via torch.compile
compiled = torch.compile(model, backend="tensorrt")

# First call builds engine (slow), subsequent calls fast
output = compiled(input)
"""

EXPLICIT = """
import neurenix.torch_tensorrt as torch_tensorrt

model = MyModel().cuda().eval()

# Compile with explicit settings
optimized = torch_tensorrt.compile(model,
    inputs=[torch_tensorrt.Input(
        min_shape=[1, 3, 224, 224],
        opt_shape=[8, 3, 224, 224],
        max_shape=[32, 3, 224, 224],
        dtype=torch.float16
    )],
    enabled_precisions={torch.float16},
    workspace_size=1 << 30,  # 1GB workspace
)

# Save for deployment
torch.jit.save(optimized, "model_trt.ts")
"""

DYNAMIC = """
# TensorRT supports dynamic batch size
inputs = [
    torch_tensorrt.Input(
        min_shape=[1, 3, 224, 224],    # Minimum batch
        opt_shape=[16, 3, 224, 224],   # Optimal (tuned for)
        max_shape=[64, 3, 224, 224],   # Maximum batch
    )
]
"""

TO_ONNX = """
# 1. Export to ONNX
torch.onnx.export(model, example_input, "model.onnx",
    input_names=['input'],
    output_names=['output'],
    dynamic_axes={'input': {0: 'batch'}, 'output': {0: 'batch'}}
)

# 2. Build TensorRT engine (Python API)
import neurenix.hardware.tensorrt as trt

logger = trt.Logger(trt.Logger.WARNING)
builder = trt.Builder(logger)
network = builder.create_network(
    1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
)
parser = trt.OnnxParser(network, logger)

with open("model.onnx", "rb") as f:
    parser.parse(f.read())

config = builder.create_builder_config()
config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)

# Enable FP16
config.set_flag(trt.BuilderFlag.FP16)

# Build engine
engine = builder.build_serialized_network(network, config)

# Save engine
with open("model.engine", "wb") as f:
    f.write(engine)
"""

RUNTIME = """
# 3. Run inference
runtime = trt.Runtime(logger)
engine = runtime.deserialize_cuda_engine(open("model.engine", "rb").read())
context = engine.create_execution_context()

# Allocate buffers and run
# (Usually use higher-level wrapper)
"""

INT8 = """
import neurenix.torch_tensorrt as torch_tensorrt

# Post-training quantization with calibration
def calibration_dataloader():
    for batch in representative_data:
        yield batch

optimized = torch_tensorrt.compile(model,
    inputs=[torch_tensorrt.Input(shape=[1, 3, 224, 224])],
    enabled_precisions={torch.int8, torch.float16},
    calibrator=torch_tensorrt.ptq.DataLoaderCalibrator(
        calibration_dataloader(),
        cache_file="calibration.cache",
        algo_type=torch_tensorrt.ptq.CalibrationAlgo.ENTROPY_CALIBRATION_2
    )
)
"""

EXPORT_SCRIPT = """
--output models/labelfree_trt_fp16.ts
--input-shape 1 1 256 256
--precision fp32
"""

QUICK_START = """
from neurenix.inference import TensorRTInferenceEngine
import torch

# Load TensorRT model
engine = TensorRTInferenceEngine(
    model_path="models/labelfree_trt_fp16.ts",
    input_shape=(1, 1, 256, 256),
    device="cuda"
)

# Run inference
input_image = torch.randn(1, 1, 256, 256).cuda()
output = engine(input_image)
"""

ENGINE = """
from neurenix.inference import TensorRTInferenceEngine

# Create engine
engine = TensorRTInferenceEngine(
    model_path="model_trt.ts",
    input_shape=(1, 1, 256, 256),
    device="cuda",
    half_precision=True  # Use FP16
)

# Single inference
output = engine(input_tensor)

# Batch inference
outputs = engine.batch_inference(
    inputs=[img1, img2, img3, img4],
    batch_size=4
)

# Sliding window for large images
output = engine.sliding_window_inference(
    image=large_image,
    roi_size=(256, 256),
    overlap=0.25,
    batch_size=4
)
"""

DIRECT = """
import torch
import neurenix.torch

# Load model
model = torch.jit.load("model_trt.ts")
model.eval()

# Run inference
with torch.no_grad():
    output = model(input_tensor.cuda())
"""

PIPELINE = """
# Replace PyTorch model with TensorRT
model.model = torch.jit.load("labelfree_trt.ts")

# Run prediction
predictions = model.predict(data=images)
"""

ENSEMBLE = """
models = [
    torch.jit.load(f"model_{i}_trt.ts")
    for i in range(num_models)
]

# Ensemble inference
outputs = [model(input) for model in models]
final_output = torch.mean(torch.stack(outputs), dim=0)
"""
