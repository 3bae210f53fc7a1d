"""What MODEL may be on the command line, and how it is opened. Files are never executed."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import platform
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from neurenix import checkpoint, nn
from neurenix.errors import Error, FileError, FormatError, InvalidArgumentError, UnsupportedError
from neurenix.files import check as check_file
from neurenix.files import read as read_file
from neurenix.importers import files, from_onnx, from_tensorflow
from neurenix.importers.tensorflow import kinds, network_of
from neurenix.log import LOG
from neurenix.packages import need

#: Parts of a .pt2 archive that are code, or that only unpickling opens.
CODE = ("/aotinductor/", "/custom_obj", "/opaque_obj", "/torchbind")

KINDS = "a .onnx, .pt2, .keras, .tflite or .pb file, a SavedModel folder, an .engine file, or package.module:factory"


def add_model(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """MODEL, which may be `optional`, and what belongs to a factory."""
    parser.add_argument(
        "model",
        nargs="?" if optional else None,
        help="a .onnx or .pt2 file, a model of TensorFlow's (.keras, .tflite, a frozen .pb, a SavedModel folder), an "
        ".engine file, or package.module:factory, which gives a torch, Keras or neurenix model",
    )
    parser.add_argument(
        "--ckpt", metavar="FILE", help="weights of a factory's module: safetensors, or a state dict that torch saved"
    )
    parser.add_argument("--config", metavar="FILE", help="keyword arguments of the factory: .json or .toml")
    parser.add_argument("--signature", metavar="NAME", help="which one of a SavedModel or a .tflite file with several")


def load_given(arguments: argparse.Namespace) -> Any:
    """The model that the arguments of `add_model` say, as `load_model` gives it."""
    return load_model(arguments.model, arguments.ckpt, arguments.config, arguments.signature)


def is_engine(text: str) -> bool:
    """Whether this is the path of an engine file, or of one of torch's with an engine in it."""
    suffix = Path(text).suffix
    return suffix in files.ENGINES or (suffix in files.WITH_ENGINES and files.has_engine(text))


def no_original(path: str | os.PathLike[str]) -> InvalidArgumentError:
    """The error where a model is needed and an engine file is given."""
    return InvalidArgumentError(
        "an engine file has no original to compare with",
        expected="the model it was made of",
        got=os.fspath(path),
        hint="give that model; an engine is compared with outputs of the model that were kept: neurenix run MODEL "
        "--save-inputs I.npz --save-outputs O.npz, neurenix run ENGINE --load-inputs I.npz --load-outputs O.npz",
    )


def load_model(text: str, ckpt: str | None = None, config: str | None = None, signature: str | None = None) -> Any:
    """What `optimize_model` takes: the path of a model, a torch.export program, a signature of a model of
    TensorFlow's, or what a factory gives.

    Raises `UnsupportedError` for kinds of files that can't be imported, with the way out, `InvalidArgumentError` when
    there is no such factory or it fails, and as `checkpoint.load` for its weights.
    """
    path = Path(text)
    if path.exists() or ":" not in text:
        if ckpt or config:
            raise InvalidArgumentError(
                "--ckpt and --config belong to a factory", expected="package.module:factory", got=text
            )
        return _signature(path, signature) if signature else _file(path)
    if signature:
        raise _no_signatures(text)
    module = _made(text, _config(config) if config else {})
    if ckpt:
        load_weights(module, ckpt)
    return module


def _signature(path: Path, name: str) -> Any:
    if not kinds.has_signatures(path):
        raise _no_signatures(str(path))
    return from_tensorflow(str(path), signature=name)


def _no_signatures(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "--signature belongs to models of TensorFlow's", expected="a SavedModel folder or a .tflite file", got=text
    )


def _file(path: Path) -> Any:
    if kinds.is_path(path):
        return str(path)
    if path.is_dir():
        raise files.refuse_folder(path, KINDS)
    if is_engine(text := str(path)):
        return text
    if path.suffix == ".pt2":
        return load_program(path)
    if path.suffix in files.TORCH:
        raise files.refuse_torch(
            path,
            KINDS,
            "give the module that it was scripted from as package.module:factory with --ckpt, "
            "or save it with torch.export.save (.pt2) or torch.onnx.export (.onnx)",
            f"name what makes the module: package.module:factory --ckpt {path}",
        )
    if path.suffix in files.KERAS_2 and path.exists():
        raise files.refuse_keras_2(path, KINDS)
    if path.suffix not in ("", ".onnx"):
        if not path.exists():
            raise FileError("there is no such file", expected=KINDS, got=str(path))
        raise UnsupportedError("files of this kind are not models", expected=KINDS, got=str(path))
    return str(path)


def load_program(path: Path, extra_files: dict[str, str] | None = None) -> Any:
    """A torch.export program, of which nothing is unpickled but tensors.

    Raises `FileError` when the file can't be read, `FormatError` when it is none, or holds code.
    """
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
            return torch.export.load(path, extra_files=extra_files)
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
    factory = _factory(text)
    try:
        inspect.signature(factory).bind(**keywords)
    except TypeError as error:
        raise InvalidArgumentError(
            f"the factory {text!r} does not take what --config says: {error}", got=", ".join(keywords) or "no config"
        ) from error
    except ValueError:
        # What is written in C may not say what it takes.
        pass
    try:
        return factory(**keywords)
    except Error:
        raise
    except Exception as error:
        raise _raised(f"the factory {text!r}", error) from error


def _factory(text: str) -> Callable[..., Any]:
    name, _, attribute = text.rpartition(":")
    look_here()
    try:
        found = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"there is no factory {text!r}: {error}") from error
    except Error:
        raise
    except Exception as error:
        raise _raised(f"the module {name!r}", error) from error
    if not callable(found):
        raise InvalidArgumentError(
            f"{text!r} is no factory", expected="a class or a function that gives a module", got=repr(found)
        )
    return cast(Callable[..., Any], found)


def _raised(what: str, error: Exception) -> InvalidArgumentError:
    """The error for code of the user's that raises; the last place in it is where he looks first."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return InvalidArgumentError(f"{what} raised {type(error).__name__}: {error} ({last.filename}, line {last.lineno})")


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
    tensors = {name: _tensor(torch, value) for name, value in _own(state, module.state_dict()).items()}
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise InvalidArgumentError(f"the weights do not fit the module: {error}", got=path) from error


def _own(state: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Of a state dict what belongs to a module: all of it, or what stands under the prefix that training gave it.

    What torch.compile and data parallel training put into names is left out. Whether it fits is for the module to say.
    """
    named = {name.replace("_orig_mod.", "").removeprefix("module."): value for name, value in state.items()}
    first = next(iter(wanted), "")
    prefixes = sorted({name.removesuffix(first) for name in named if name.endswith(f".{first}")}, key=len)
    found = (
        next((p for p in prefixes if all(p + name in named for name in wanted)), None) if first not in named else None
    )
    if found is None:
        return named
    LOG.info("of the weights those under %r are taken", found)
    return {name.removeprefix(found): value for name, value in named.items() if name.startswith(found)}


def _tensor(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    # numpy knows no bfloat16.
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view("int16").copy()).view(torch.bfloat16)
    return torch.from_numpy(value.copy())


def input_ports(model: Any) -> dict[str, list[Any]]:
    """The shapes that a file or a torch.export program gives its inputs; nothing for other models."""
    if kinds.is_source(model):
        return {tensor.name: list(tensor.shape) for tensor in network_of(model).inputs}
    if isinstance(model, str):
        return {tensor.name: list(tensor.shape) for tensor in from_onnx(model).inputs}
    if type(model).__name__ == "ExportedProgram":
        from neurenix.importers.torch.program import shapes_of

        return shapes_of(model)
    return {}
