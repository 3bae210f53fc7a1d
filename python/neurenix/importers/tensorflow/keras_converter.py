"""Converts a saved Keras model to ONNX, in a process of its own: `keras_process` starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from neurenix.errors import Error
from neurenix.importers.tensorflow import keras_files, keras_models, keras_process
from neurenix.importers.tensorflow.request import Request


def main(name: str) -> int:
    """Converts the model of a folder; the exit status is 1 where that is an error, which is written beside it."""
    folder = Path(name)
    try:
        (folder / keras_process.ONNX).write_bytes(_converted(folder).SerializeToString())
    except Error as error:
        (folder / keras_process.ERROR).write_text(json.dumps(keras_process.described(error)))
        return 1
    return 0


def _converted(folder: Path) -> Any:
    order = json.loads((folder / keras_process.ORDER).read_text())
    model = keras_files.load(folder / keras_process.MODEL, order["settings"])
    request = Request(shapes=order["shapes"], names=order["names"])
    if keras_models.backend_of(model) == "torch":
        from neurenix.importers.tensorflow import keras_torch

        return keras_torch.onnx_model(model, request)
    frozen = keras_models.frozen(model, request)
    from neurenix.importers.tensorflow import convert

    return convert.export(frozen, request)
