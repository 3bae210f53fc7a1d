"""Keras' recurrent layers, which TensorFlow and tf2onnx write as loops, become the recurrent layers that ONNX has.

`cells` recognises GRU, LSTM and simple cells in the bodies of loops, `steps` proves that a loop takes every step,
`masks` moves the steps that a mask leaves to the front, and `layers` puts ONNX's layer into the place of the loop.
"""

from neurenix.importers.tensorflow.recurrent.rewriter import rewrite

__all__ = ["rewrite"]
