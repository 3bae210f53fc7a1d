"""Kinds of files, which of them hold engines, and the way out of those that are no models here."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

from neurenix import checkpoint
from neurenix.errors import InvalidArgumentError, UnsupportedError

#: What engine files are called.
ENGINES = (".engine", ".plan", ".trt")
#: What torch's files are called, but for programs.
TORCH = (".pt", ".pth", ".ts", ".jit", ".ckpt", ".bin", ".safetensors")
#: What files of TensorFlow's and Keras' models are called.
TENSORFLOW = (".keras", ".pb", ".tflite")
#: What Keras 2 called its files.
KERAS_2 = (".h5", ".hdf5")
#: What torch calls files that may have engines in them.
WITH_ENGINES = (".ts", ".pt2")
#: What files of models and weights are called, none of which an engine file should be taken for.
MODELS = (".onnx", ".pt2", *TORCH, *TENSORFLOW, *KERAS_2)
#: No more of a file is searched for our operator: graphs are smaller.
_MOST_TEXT = 64 << 20
#: How torch writes the operator, in the code of TorchScript and in the graph of a program.
_CALLS = (b"ops.neurenix.run", b"neurenix.run.default")


def has_engine(path: str | os.PathLike[str]) -> bool:
    """Whether a file of torch's calls an engine of ours; nothing of it is executed. False for what is no such file."""
    # A device has no end, of which zipfile would look for one.
    if not os.path.isfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [one for one in archive.infolist() if "/code/" in one.filename or one.filename.endswith(".json")]
            texts = (archive.read(one) for one in entries if one.file_size <= _MOST_TEXT and one.filename[-3:] != "pkl")
            return any(call in text for text in texts for call in _CALLS)
    except (OSError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        # Encrypted entries are a RuntimeError, unknown compressions a NotImplementedError.
        return False


def refuse_folder(path: Path, expected: str) -> UnsupportedError:
    """The error for a folder in place of a model."""
    return UnsupportedError("the model is a folder that nothing here knows", expected=expected, got=str(path))


def refuse_keras_2(path: Path, expected: str) -> UnsupportedError:
    """The error for a file in which Keras 2 kept a model, or Keras the weights of one."""
    if path.name.lower().endswith(".weights.h5"):
        return UnsupportedError(
            "the file holds weights of Keras', not a model",
            expected=expected,
            got=str(path),
            hint="make the model and load them (model.load_weights(path)), and give it, or save it as a whole: "
            "model.save('model.keras')",
        )
    return UnsupportedError(
        "a file in Keras 2's format (HDF5) can't be opened",
        expected=expected,
        got=str(path),
        hint="open it with Keras (keras.saving.load_model) and save it anew: model.save('model.keras')",
    )


def refuse_torch(path: Path, expected: str, script: str, weights: str) -> UnsupportedError:
    """The error for a file of torch's; `script` and `weights` say how to give the module that it was made of."""
    if checkpoint.is_torchscript(path) if path.exists() else path.suffix in (".ts", ".jit"):
        return UnsupportedError(
            "TorchScript is not imported: it is a program, which torch itself does not develop any further",
            expected=expected,
            got=str(path),
            hint=script,
        )
    return UnsupportedError("the file holds weights, not a model", expected=expected, got=str(path), hint=weights)


def check_engine_name(path: Path) -> None:
    """Raises `InvalidArgumentError` where an engine file would bear the ending of a model.

    Files of torch's may have engines in them: .ts and .pt2.
    """
    if path.suffix.lower() in MODELS and path.suffix not in WITH_ENGINES:
        raise InvalidArgumentError(
            f"an engine file is no {path.suffix} file, and would be taken for one",
            expected="another ending, as in model.engine",
            got=str(path),
            hint=f"call it {path.with_suffix('.engine').name!r}",
        )
