"""Files of Keras' (.keras): looked through, then opened in Keras' safe mode."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from neurenix import files
from neurenix.errors import FileError, FormatError, UnsupportedError
from neurenix.importers.tensorflow.libraries import PACKAGES, QUIET, environment, quiet
from neurenix.packages import is_installed, need

#: Whose classes a file may name.
TRUSTED = ("keras", "keras_hub", "keras_nlp", "keras_cv", "builtins")
#: Layers of Keras' that run what stands in a file.
CODE = {"Lambda": "a function of Python's that stands in the file", "TFSMLayer": "a SavedModel of another folder"}
#: The greatest size of the part of a file that describes the model.
LARGEST = 256 << 20


def load(path: Path, settings: Mapping[str, Any] | None = None) -> Any:
    """The model of a file; none of its code is run. `settings` of keras.config are set before.

    Raises `UnsupportedError` for Lambda layers and for classes that are neither Keras' nor registered in this process,
    by name, `FileError` and `FormatError` for a file that can't be read.
    """
    found = config(path)
    keras = library()
    for setting, value in (settings or {}).items():
        getattr(keras.config, f"set_{setting}")(value)
    for name, reason in refused(found, keras.saving.get_registered_object):
        raise UnsupportedError(
            f"the file is not opened, as {reason}",
            layer=name,
            hint="save the model as a SavedModel (model.export(folder)) where its code is at hand, or import that code "
            "(keras.saving.register_keras_serializable) and give the keras.Model",
        )
    try:
        with quiet():
            return keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise FormatError(
            f"Keras can't open the file: {type(error).__name__}: {lines[0] if lines else ''}", got=str(path)
        ) from error


def library() -> Any:
    """Keras, with PyTorch for its backend where nobody chose one and TensorFlow is not there."""
    chosen = "keras" in sys.modules or "KERAS_BACKEND" in os.environ
    absent = "tensorflow" not in sys.modules and not is_installed("tensorflow")
    by_torch = not chosen and absent and is_installed("torch")
    with environment(QUIET | ({"KERAS_BACKEND": "torch"} if by_torch else {})):
        if absent and not chosen and not by_torch:
            need("tensorflow", "reading a file of Keras'", PACKAGES)
        return need("keras", "reading a file of Keras'", () if by_torch or chosen else PACKAGES)


def config(path: Path) -> Any:
    """How a file describes its model; raises `FileError` and `FormatError`."""
    files.check(path, "the model")
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("config.json").file_size > LARGEST:
                raise FormatError("the description of the model is too large", got=str(path))
            return json.loads(archive.read("config.json"))
    except OSError as error:
        raise FileError(f"the model can't be read: {error}", got=str(path)) from error
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, NotImplementedError) as error:
        old = path.read_bytes()[:8] == b"\x89HDF\r\n\x1a\n"
        raise FormatError(
            f"this is no .keras file: {error}",
            got=str(path),
            hint="it is a file of Keras 2 (HDF5): open it with Keras and save it with model.save('model.keras')"
            if old
            else None,
        ) from error


def refused(config: Any, registered_object: Callable[[str], Any]) -> Iterator[tuple[str | None, str]]:
    """The layers that would run code, or whose class is neither Keras' own nor registered, and why each is refused."""
    for entry in _entries(config):
        name, module = str(entry["class_name"]), str(entry.get("module") or "")
        inner = entry.get("config")
        label = str(inner["name"]) if isinstance(inner, dict) and "name" in inner else None
        registered = entry.get("registered_name")
        if registered_object(str(registered or name)) is not None:
            continue
        if name == "__lambda__":
            yield label, "it has a lambda of Python's in it"
        elif name in CODE and module.partition(".")[0] == "keras":
            yield label, f"its layer {name} runs {CODE[name]}"
        elif module and module.partition(".")[0] not in TRUSTED:
            yield label, f"the class {module}.{name} is not Keras' own"
        elif not module and registered:
            yield label, f"the class {registered} is not Keras' own"


def _entries(config: Any) -> Iterator[dict[str, Any]]:
    """Every object that a description names, but for what training needs alone."""
    todo = [config]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if isinstance(part.get("class_name"), str) and "config" in part:
                yield part
            todo += [value for key, value in part.items() if key != "compile_config"]
        elif isinstance(part, list):
            todo += part
