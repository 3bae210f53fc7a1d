"""Where models come from: plain files, and folders in the shape of a Triton model repository."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurenix import files as reading
from neurenix.errors import FileError, FormatError, InvalidArgumentError
from neurenix.serve import config as configs
from neurenix.serve.config import ModelOptions, ServeOptions
from neurenix.serve.served import WEIGHTS, Files, stamp
from neurenix.serve.spec import listed
from neurenix.serve.status import Refused, Status

#: Names of model files in a version's folder, the one to take first in front.
MODEL_FILES = ("model.engine", "model.plan", "model.onnx", "model.pt2", "model.ts")

#: A config.pbtxt is no longer than this.
_MOST_CONFIG = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,127}")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


def check_name(name: str) -> str:
    """The name of a model; raises `Refused` for what could be a path, or is no name."""
    if not _NAME.fullmatch(name):
        raise Refused(
            Status.INVALID, "this is no name of a model",
            expected="letters, digits, '_', '-' and '.', not '.' first, at most 128", got=repr(name[:200]),
        )  # fmt: skip
    return name


@dataclass(frozen=True)
class Plan:
    """What to serve of a model: the files of each version, and how."""

    versions: dict[int, Files]
    options: ModelOptions


class PlainFile:
    """A model of one file, or of package.module:factory, as version 1. `FILE.weights.safetensors` replaces weights."""

    def __init__(self, path: str) -> None:
        self.path = path

    def plan(self, options: ServeOptions, override: str | None = None) -> Plan:
        """What to serve; `override` is a config in JSON. Raises `FileError` where the file is gone."""
        if ":" not in self.path or Path(self.path).exists():
            reading.check(self.path, "the model")
        beside = f"{self.path}.{WEIGHTS}"
        config = configs.parse_json(override) if override else None
        files = Files(self.path, beside if stamp(beside) else None)
        return Plan({1: files}, ModelOptions.of(options, config))


class ModelFolder:
    """A model's folder: config.pbtxt, which may be missing, and a folder for each version."""

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name

    def plan(self, options: ServeOptions, override: str | None = None) -> Plan:
        """What to serve; `override` is a config in JSON in place of config.pbtxt.

        Raises `FileError` and `FormatError` for files that are missing or can't be read, and as `ModelOptions.of`.
        """
        config = configs.parse_json(override) if override else self._config()
        chosen = ModelOptions.of(options, config)
        found = [int(name) for name in _folders(self.path) if _VERSION.fullmatch(name)]
        versions = chosen.versions(found)
        if not versions:
            raise FileError(
                "the model has no version to serve", expected=f"a folder such as {os.path.join(self.path, '1')}",
                got=", ".join(map(str, sorted(found))) or "no folders with a number for a name",
            )  # fmt: skip
        return Plan({version: self._files(version, config) for version in versions}, chosen)

    def _config(self) -> Any:
        path = os.path.join(self.path, "config.pbtxt")
        if stamp(path) is None:
            return None
        data = reading.read(path, "config.pbtxt")
        if len(data) > _MOST_CONFIG:
            raise FormatError("config.pbtxt is too long", expected=f"at most {_MOST_CONFIG} bytes", got=str(len(data)))
        config = configs.parse(data.decode("utf-8", "replace"))
        if config.name not in ("", self.name, os.path.basename(self.path)):
            raise FormatError("config.pbtxt is that of another model", expected=self.name, got=config.name)
        return config

    def _files(self, version: int, config: Any) -> Files:
        folder = os.path.join(self.path, str(version))
        named = config.default_model_filename if config is not None else ""
        if named and (os.path.basename(named) != named or named in (".", "..") or "\0" in named):
            raise InvalidArgumentError("default_model_filename is no name of a file", got=repr(named))
        names = (named,) if named else MODEL_FILES
        model = next((path for name in names if stamp(path := os.path.join(folder, name))), None)
        if model is None:
            raise FileError("the version has no model file", expected=" or ".join(names), got=folder)
        weights = os.path.join(folder, WEIGHTS)
        return Files(model, weights if stamp(weights) else None)


Source = PlainFile | ModelFolder


class Repository:
    """The models that may be loaded, by name."""

    def __init__(self, models: list[str]) -> None:
        """`models`: paths of files, NAME=PATH, package.module:factory, or folders of models.

        Raises `InvalidArgumentError` for a name that is taken or none, and `FileError` for a path where nothing is.
        """
        self._files: dict[str, Source] = {}
        self._roots: list[str] = []
        for given in models:
            self._add(given)

    def _add(self, given: str) -> None:
        name, equals, path = given.partition("=")
        if not equals:
            name, path = "", given
        if os.path.isdir(path):
            if name or _is_model(path):
                folder = os.path.abspath(path)
                name = name or os.path.basename(folder)
                self._put(name, ModelFolder(folder, name))
            else:
                self._roots.append(os.path.abspath(path))
            return
        is_factory = ":" in path and not os.path.exists(path)
        if not is_factory and not os.path.exists(path):
            raise FileError("there is no such model", expected="a file, or a folder of models", got=path)
        default = path.rpartition(":")[2] if is_factory else Path(path).stem
        self._put(name or default, PlainFile(path))

    def _put(self, name: str, source: Source) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError(
                "this is no name of a model", expected="letters, digits, '_', '-' and '.'", got=repr(name),
                hint="give it another one: NAME=PATH",
            )  # fmt: skip
        if name in self._files:
            raise InvalidArgumentError("two models have one name", got=name, hint="give one another: NAME=PATH")
        self._files[name] = source

    def names(self) -> list[str]:
        """The models that are there now."""
        found = list(self._files)
        for root in self._roots:
            found += [name for name in _folders(root) if _NAME.fullmatch(name) and name not in found]
        return found

    def source(self, name: str) -> Source:
        """Where a model comes from; raises `Refused` for one that is not there."""
        check_name(name)
        if name in self._files:
            return self._files[name]
        for root in self._roots:
            path = os.path.join(root, name)
            if os.path.isdir(path):
                return ModelFolder(path, name)
        raise Refused(Status.NOT_FOUND, "there is no such model", got=repr(name), expected=listed(self.names()))


def _is_model(path: str) -> bool:
    """Whether a folder is one model's, and not one of several."""
    return stamp(os.path.join(path, "config.pbtxt")) is not None or any(map(_VERSION.fullmatch, _folders(path)))


def _folders(path: str) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    except OSError as error:
        raise FileError(f"the folder can't be read: {error.strerror}", got=path) from error
