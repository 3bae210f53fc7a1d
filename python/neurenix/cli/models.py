"""What MODEL may be on the command line, and how it is opened. Files are never executed."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from neurenix import checkpoint, nn
from neurenix.errors import FileError, FormatError, InvalidArgumentError, UnsupportedError
from neurenix.files import check as check_file
from neurenix.files import read as read_file
from neurenix.importers import from_onnx
from neurenix.packages import need

#: What engine files are called.
ENGINES = (".engine", ".plan", ".trt")
#: What torch's files are called.
TORCH = (".pt", ".pth", ".ts", ".jit", ".ckpt", ".bin", ".safetensors")
#: Parts of a .pt2 archive that are code, or that only unpickling opens.
CODE = ("/aotinductor/", "/custom_obj", "/opaque_obj", "/torchbind")

KINDS = "a .onnx or .pt2 file, an .engine file, or package.module:factory"


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL, and what belongs to a factory."""
    parser.add_argument(
        "model",
        help="a .onnx or .pt2 file, an .engine file, or package.module:factory, which gives a torch or neurenix module",
    )
    parser.add_argument(
        "--ckpt", metavar="FILE", help="weights of a factory's module: safetensors, or a state dict that torch saved"
    )
    parser.add_argument("--config", metavar="FILE", help="keyword arguments of the factory: .json or .toml")


def is_engine(text: str) -> bool:
    """Whether this is the path of an engine file."""
    return Path(text).suffix in ENGINES


def load_model(text: str, ckpt: str | None = None, config: str | None = None) -> Any:
    """What `optimize_model` takes: a path of an ONNX file, a torch.export program, or what a factory gives.

    Raises `UnsupportedError` for kinds of files that can't be imported, with the way out, `InvalidArgumentError` when
    there is no such factory or it fails, and as `checkpoint.load` for its weights.
    """
    path = Path(text)
    if path.exists() or ":" not in text:
        if ckpt or config:
            raise InvalidArgumentError(
                "--ckpt and --config belong to a factory", expected="package.module:factory", got=text
            )
        return _file(path)
    module = _made(text, _config(config) if config else {})
    if ckpt:
        load_weights(module, ckpt)
    return module


def _file(path: Path) -> Any:
    if path.is_dir():
        saved = (path / "saved_model.pb").exists() or (path / "saved_model.pbtxt").exists()
        raise UnsupportedError(
            "a SavedModel can't be opened: there is no importer for TensorFlow yet"
            if saved
            else "the model is a folder that nothing here knows",
            expected=KINDS,
            got=str(path),
            hint=f"python -m tf2onnx.convert --saved-model {path} --output {path.name}.onnx" if saved else None,
        )
    if path.suffix == ".pt2":
        return _program(path)
    if path.suffix in TORCH:
        raise _refused(path)
    if path.suffix not in ("", ".onnx", *ENGINES):
        if not path.exists():
            raise FileError("there is no such file", expected=KINDS, got=str(path))
        raise UnsupportedError("files of this kind are not models", expected=KINDS, got=str(path))
    return str(path)


def _refused(path: Path) -> UnsupportedError:
    if checkpoint.is_torchscript(path) if path.exists() else path.suffix in (".ts", ".jit"):
        return UnsupportedError(
            "TorchScript is not imported: it is a program, which torch itself does not develop any further",
            expected=KINDS,
            got=str(path),
            hint="give the module that it was scripted from as package.module:factory with --ckpt, "
            "or save it with torch.export.save (.pt2) or torch.onnx.export (.onnx)",
        )
    return UnsupportedError(
        "the file holds weights, not a model",
        expected=KINDS,
        got=str(path),
        hint=f"name what makes the module: package.module:factory --ckpt {path}",
    )


def _program(path: Path) -> Any:
    """A torch.export program, of which nothing is unpickled but tensors."""
    torch = need("torch", "reading a .pt2 file")
    check_file(path, "the model")
    try:
        with zipfile.ZipFile(path) as archive:
            code = [name for name in archive.namelist() if any(part in name for part in CODE)]
    except (OSError, zipfile.BadZipFile) as error:
        kind = FileError if isinstance(error, OSError) else FormatError
        raise kind(f"the model can't be read: {error}", got=str(path)) from error
    if code:
        raise FormatError(
            "the .pt2 file holds code or pickled objects",
            got=code[0],
            hint="export the module without custom objects, and without compiling it ahead of time",
        )
    try:
        with _weights_only(torch):
            return torch.export.load(path)
    except Exception as error:
        text = str(error).splitlines()
        raise FormatError("this is no torch.export program", got=f"{path}: {text[0] if text else ''}") from error


@contextmanager
def _weights_only(torch: Any) -> Iterator[None]:
    """torch.export.load reads tensors in its archives with torch.load, which would execute what they say."""
    given = torch.load
    torch.load = lambda *args, **kwargs: given(*args, **(kwargs | {"weights_only": True}))
    try:
        yield
    finally:
        torch.load = given


def _made(text: str, keywords: Mapping[str, Any]) -> Any:
    name, _, attribute = text.rpartition(":")
    look_here()
    try:
        factory = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"there is no factory {text!r}: {error}") from error
    try:
        return factory(**keywords)
    except TypeError as error:
        raise InvalidArgumentError(
            f"the factory {text!r} does not take what --config says: {error}", got=", ".join(keywords) or "no config"
        ) from error


def look_here() -> None:
    """Modules of the folder at hand can be imported."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _config(path: str) -> Mapping[str, Any]:
    data = read_file(path, "the config")
    try:
        if Path(path).suffix == ".toml":
            content = _toml().loads(data.decode())
        else:
            content = json.loads(data)
    except ValueError as error:
        raise FormatError(f"the config can't be read: {error}", expected=".json or .toml", got=path) from error
    if not isinstance(content, dict):
        raise FormatError("the config is no object of keyword arguments", got=type(content).__name__)
    return content


def _toml() -> ModuleType:
    try:
        return importlib.import_module("tomllib")
    except ModuleNotFoundError:
        raise UnsupportedError(
            "a .toml config needs Python 3.11 or later",
            got=f"Python {platform.python_version()}",
            hint="write the config as .json",
        ) from None


def load_weights(module: Any, path: str) -> None:
    """Gives a module the weights of a file.

    Raises `InvalidArgumentError` when they do not fit, and as `checkpoint.load`.
    """
    state = checkpoint.load(path)
    if isinstance(module, nn.Module):
        module.load_state_dict(state)
        return
    torch = need("torch", "loading a checkpoint")
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgumentError(
            "--ckpt needs a factory that gives a module", expected="a torch or neurenix module", got=repr(type(module))
        )
    tensors = {name.removeprefix("module."): _tensor(torch, value) for name, value in state.items()}
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise InvalidArgumentError(f"the weights do not fit the module: {error}", got=path) from error


def _tensor(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    # numpy knows no bfloat16.
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view("int16").copy()).view(torch.bfloat16)
    return torch.from_numpy(value.copy())


def input_ports(model: Any) -> dict[str, list[Any]]:
    """The shapes that an ONNX file or a torch.export program gives its inputs; nothing for other models."""
    if isinstance(model, str):
        return {tensor.name: list(tensor.shape) for tensor in from_onnx(model).inputs}
    if type(model).__name__ == "ExportedProgram":
        from neurenix.importers.torch.program import shapes_of

        return shapes_of(model)
    return {}
