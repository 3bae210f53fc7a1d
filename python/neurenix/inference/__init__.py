"""Inference on what people have: lists of images, images and volumes larger than memory, cameras, ensembles."""

from neurenix.inference.batches import BatchError
from neurenix.inference.detections import Boxes, Results
from neurenix.inference.engine import InferenceEngine, TensorRTInferenceEngine
from neurenix.inference.ensemble import Ensemble
from neurenix.inference.exporting import export_to_tensorrt
from neurenix.inference.streaming import Stats, Stream, StreamResult
from neurenix.inference.video import Frame, Video, VideoWriter

__all__ = [
    "BatchError",
    "Boxes",
    "Ensemble",
    "Frame",
    "InferenceEngine",
    "Results",
    "Stats",
    "Stream",
    "StreamResult",
    "TensorRTInferenceEngine",
    "Video",
    "VideoWriter",
    "export_to_tensorrt",
]
