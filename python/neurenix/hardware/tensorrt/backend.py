"""TensorRTBackend: prefers NVIDIA's TensorRT, and runs everywhere."""

from __future__ import annotations

from neurenix.hardware import probe
from neurenix.hardware.backend import Backend


class TensorRTBackend(Backend):
    """Prefers TensorRT, then our own CUDA engine, then the CPU; `report()` and the log say why one was passed over.

    `TensorRTBackend().optimize_model(model, {"input": (8, 3, 224, 224)}, precision="fp16")` gives an OptimizedModel.
    """

    name = "tensorrt"


def is_tensorrt_available() -> bool:
    """Whether a TensorRT library loads here and supports a GPU of this machine. Never raises."""
    return probe.state("tensorrt").available
