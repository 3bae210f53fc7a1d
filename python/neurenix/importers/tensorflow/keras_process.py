"""The process that converts a saved Keras model: how it is started, and what becomes of its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from neurenix import errors
from neurenix.errors import DeviceError, UnsupportedError
from neurenix.importers.tensorflow.libraries import QUIET
from neurenix.log import LOG

#: The files of a conversion, all in one folder: the model, what is said of it, and what came out.
MODEL, ORDER, ONNX, ERROR = "model.keras", "order.json", "model.onnx", "error.json"
#: Settings of Keras' that the process takes over, as keras.config has them.
SETTINGS = ("floatx", "epsilon", "image_data_format")
#: The first thing that the process does is to take over where packages lie: its own list has the working directory.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from neurenix.importers.tensorflow.keras_converter import main; sys.exit(main(sys.argv[1]))"
)


def run(folder: Path, backend: str) -> None:
    """Converts the model of a folder with this backend of Keras, and waits; an interrupt ends the process, too.

    Raises the error that the conversion ended with, `DeviceError` where the process itself failed, and
    `UnsupportedError` where Python does not know its own program.
    """
    if not sys.executable:
        raise UnsupportedError(
            "the model is converted by another process of Python, and this one does not know its program",
            hint="set sys.executable to the path of Python",
        )
    command = [sys.executable, "-c", PROGRAM, str(folder), *(entry for entry in sys.path if isinstance(entry, str))]
    # Converting needs no GPU, and this process may hold all of its memory.
    environment = QUIET | os.environ | {"KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": "-1"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            check=False,
        )
    except OSError as error:
        raise DeviceError(f"the process that converts the model can't be started: {error}") from error
    if done.stdout or done.stderr:
        LOG.debug("the process that converts wrote: %s%s", done.stdout, done.stderr)
    if (folder / ERROR).exists():
        raise _error(json.loads((folder / ERROR).read_text()))
    if done.returncode or not (folder / ONNX).exists():
        raise DeviceError(
            "the process that converts the model failed",
            expected="exit status 0",
            got=_ended(done.returncode, done.stderr),
            hint="a signal may mean that memory was full; NEURENIX_LOG=debug shows all that the process wrote",
        )


def _ended(status: int, text: str) -> str:
    if status < 0:
        return f"signal {-status}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"exit status {status}: {lines[-1] if lines else 'it wrote nothing'}"


def described(error: errors.Error) -> dict[str, str | None]:
    """An error as the parent process reads it."""
    parts = ("message", "layer", "tensor", "expected", "got", "hint")
    return {"class": type(error).__name__, **{part: getattr(error, part) for part in parts}}


def _error(found: dict[str, str | None]) -> errors.Error:
    kind: type[errors.Error] = getattr(errors, str(found.pop("class")))
    return kind(str(found.pop("message")), **found)
