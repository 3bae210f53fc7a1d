"""Kinds of files that are no models here, and the way out of each."""

from __future__ import annotations

from pathlib import Path

from neurenix import checkpoint
from neurenix.errors import InvalidArgumentError, UnsupportedError

#: What engine files are called.
ENGINES = (".engine", ".plan", ".trt")
#: What torch's files are called, but for programs.
TORCH = (".pt", ".pth", ".ts", ".jit", ".ckpt", ".bin", ".safetensors")
#: What TensorFlow's files are called, and how tf2onnx is told of each.
TENSORFLOW = {".pb": "graphdef", ".h5": "keras", ".keras": "keras", ".tflite": "tflite"}
#: What torch calls files that may have engines in them.
WITH_ENGINES = (".ts", ".pt2")
#: What files of models and weights are called, none of which an engine file should be taken for.
MODELS = (".onnx", ".pt2", *TORCH, *TENSORFLOW)


def refuse_folder(path: Path, expected: str) -> UnsupportedError:
    """The error for a folder in place of a model."""
    if any((path / name).exists() for name in ("saved_model.pb", "saved_model.pbtxt")):
        return _tensorflow("a SavedModel can't be opened", "saved-model", path, expected)
    return UnsupportedError("the model is a folder that nothing here knows", expected=expected, got=str(path))


def refuse_tensorflow(path: Path, expected: str) -> UnsupportedError:
    """The error for a file of TensorFlow's."""
    return _tensorflow("a file of TensorFlow's can't be opened", TENSORFLOW[path.suffix], path, expected)


def _tensorflow(message: str, flag: str, path: Path, expected: str) -> UnsupportedError:
    return UnsupportedError(
        f"{message}: there is no importer for TensorFlow yet",
        expected=expected,
        got=str(path),
        hint=f"export it to ONNX: python -m tf2onnx.convert --{flag} {path} --output {path.stem}.onnx",
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
