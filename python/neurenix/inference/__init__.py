"""Inference on what people have: lists of images, images and volumes larger than memory, cameras, ensembles."""

from neurenix.inference.batches import BatchError
from neurenix.inference.engine import InferenceEngine, TensorRTInferenceEngine
from neurenix.inference.ensemble import Ensemble

__all__ = ["BatchError", "Ensemble", "InferenceEngine", "TensorRTInferenceEngine"]
