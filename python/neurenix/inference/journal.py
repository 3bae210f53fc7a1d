"""What of an output is written, beside it in a file: so that a run that was killed goes on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neurenix import files
from neurenix.errors import FileError, FormatError, InvalidArgumentError

#: What is added to the name of the (first) output.
ENDING = ".progress.json"


class Journal:
    """The layers that are finished, and what the run was asked for; written after each layer.

    Without paths nothing is written. An output that is there already is an error unless the caller says what becomes
    of it: `resume` goes on with it, `overwrite` replaces it.
    """

    def __init__(self, paths: list[Path], asked: Mapping[str, Any], resume: bool, overwrite: bool) -> None:
        self._path = Path(f"{paths[0]}{ENDING}") if paths else None
        # As JSON gives it back.
        self._asked = json.loads(json.dumps(asked))
        self.image, self.layer = 0, 0
        #: Whether it goes on with what another run wrote.
        self.goes_on = False
        there = [path for path in paths if path.exists()]
        if resume and overwrite:
            raise InvalidArgumentError("an output is continued or replaced", expected="resume=True or overwrite=True")
        if resume and self._path is None:
            raise InvalidArgumentError(
                "resume=True needs an output that stays", expected="out= as a path", got="no path"
            )
        if resume and self._path is not None and self._path.exists():
            self._go_on(paths)
        elif there and not overwrite:
            raise FileError(
                "the output is there already" + (", and nothing tells how it was made" if resume else ""),
                got=str(there[0]),
                hint="overwrite=True replaces it" + ("" if resume else ", resume=True goes on with it"),
            )
        else:
            self._clear(there)

    def _clear(self, there: list[Path]) -> None:
        for path in there:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _go_on(self, paths: list[Path]) -> None:
        assert self._path is not None
        try:
            found = json.loads(files.read(self._path, "the progress of the output"))
            image, layer, asked = int(found["image"]), int(found["layer"]), dict(found["asked"])
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(
                "the progress of the output is damaged", got=str(self._path), hint="overwrite=True begins anew"
            ) from error
        differing = [name for name in sorted({*asked, *self._asked}) if asked.get(name) != self._asked.get(name)]
        if differing:
            name = differing[0]
            raise InvalidArgumentError(
                f"the output was begun in another way: {', '.join(differing)}",
                expected=f"{name}: {asked.get(name)}",
                got=f"{name}: {self._asked.get(name)}",
                hint="go on with what it was begun with; overwrite=True begins anew",
            )
        if (image, layer) == (0, 0):
            self._clear([path for path in paths if path.exists()])
            return
        missing = [path for path in paths if not path.exists()]
        if missing:
            raise FileError("a part of the output is gone", got=str(missing[0]), hint="overwrite=True begins anew")
        self.image, self.layer, self.goes_on = image, layer, True

    def save(self, image: int, layer: int) -> None:
        """Notes that everything before a layer of an image is written."""
        self.image, self.layer = image, layer
        if self._path is not None:
            content = {"image": image, "layer": layer, "asked": self._asked}
            files.write(self._path, json.dumps(content, indent=1) + "\n", "the progress of the output")


def identity(model: Any) -> str:
    """What tells a model from another: the path of its file, its size and when it was written, else its class."""
    if isinstance(model, (str, os.PathLike)) and os.path.exists(model):
        found = os.stat(model)
        return f"{os.path.abspath(model)} {found.st_size} {found.st_mtime_ns}"
    return f"{type(model).__module__}.{type(model).__qualname__}"
