"""bfloat16, which tf2onnx would make float16 of: large numbers become infinite there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes


@contextmanager
def bfloat16_kept() -> Iterator[None]:
    """Meanwhile, bfloat16 is a dtype of its own in tf2onnx's tables, which are global."""
    from onnx import TensorProto
    from tensorflow.core.framework import types_pb2
    from tf2onnx import tf_utils, utils

    entries: list[tuple[dict[Any, Any], Any, Any]] = [
        (tf_utils.TF_TO_ONNX_DTYPE, types_pb2.DT_BFLOAT16, TensorProto.BFLOAT16),
        (utils.ONNX_TO_NUMPY_DTYPE, TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (utils.ONNX_DTYPE_NAMES, TensorProto.BFLOAT16, "bfloat16"),
    ]
    before = [(table, key, table.get(key)) for table, key, _ in entries]
    for table, key, value in entries:
        table[key] = value
    try:
        yield
    finally:
        for table, key, value in before:
            if value is None:
                del table[key]
            else:
                table[key] = value
