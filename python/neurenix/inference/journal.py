"""What of an output is written, beside it in a file: so that a run that was killed goes on."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neurenix import arrays, files
from neurenix.errors import FileError, FormatError, InvalidArgumentError
from neurenix.inference.stores import check_replaceable

#: What is added to the name of the (first) output.
ENDING = ".progress.json"


class Journal:
    """The layers that are finished, and what the run was asked for; written after each layer.

    Without paths nothing is written. An output that is there already is an error unless the caller says what becomes
    of it: `resume` goes on with it, `overwrite` replaces it.
    """

    def __init__(
        self,
        paths: list[Path],
        asked: Mapping[str, Any],
        size: tuple[int, int],
        resume: bool,
        overwrite: bool,
        image: Any,
    ) -> None:
        """`image`: what is read, which no output may replace."""
        self._path = Path(f"{paths[0]}{ENDING}") if paths else None
        # As JSON gives it back.
        self._asked = json.loads(json.dumps(asked, default=_plain))
        #: How many images there are, and layers in each.
        self._size = size
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
            for path in there:
                check_replaceable(path, image)
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
            image, layer, asked = found["image"], found["layer"], dict(found["asked"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._damaged() from error
        # As text: a NaN is what it was.
        differing = [n for n in sorted({*asked, *self._asked}) if repr(asked.get(n)) != repr(self._asked.get(n))]
        if differing:
            name = differing[0]
            raise InvalidArgumentError(
                f"the output was begun in another way: {', '.join(differing)}",
                expected=f"{name}: {asked.get(name)}",
                got=f"{name}: {self._asked.get(name)}",
                hint="go on with what it was begun with; overwrite=True begins anew",
            )
        if type(image) is not int or type(layer) is not int or not self._is_place(image, layer):
            raise self._damaged()
        if (image, layer) == (0, 0):
            self._clear([path for path in paths if path.exists()])
            return
        missing = [path for path in paths if not path.exists()]
        if missing:
            raise FileError("a part of the output is gone", got=str(missing[0]), hint="overwrite=True begins anew")
        self.image, self.layer, self.goes_on = image, layer, True

    def _is_place(self, image: int, layer: int) -> bool:
        images, layers = self._size
        return (0 <= image < images and 0 <= layer < layers) or (image, layer) == (images, 0)

    def _damaged(self) -> FormatError:
        return FormatError(
            "the progress of the output is damaged", got=str(self._path), hint="overwrite=True begins anew"
        )

    def save(self, image: int, layer: int) -> None:
        """Notes that everything before a layer of an image is written."""
        self.image, self.layer = image, layer
        if self._path is not None:
            content = {"image": image, "layer": layer, "asked": self._asked}
            files.write(self._path, json.dumps(content, indent=1) + "\n", "the progress of the output")


def identity(model: Any) -> str:
    """What tells a model from another: the path of its file, its size and when it was written, else its class, and of
    a module of PyTorch a checksum of its weights.
    """
    if isinstance(model, (str, os.PathLike)) and os.path.exists(model):
        found = os.stat(model)
        return f"{os.path.abspath(model)} {found.st_size} {found.st_mtime_ns}"
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return f"{name} {_checksum(model.state_dict())}"
    return name


def checksum(array: Any) -> str:
    """Of the elements of an array."""
    return f"{zlib.crc32(np.ascontiguousarray(arrays.to_numpy(array)).view(np.uint8).data):08x}"


def _checksum(state: Mapping[str, Any]) -> str:
    texts = (f"{name} {checksum(value)}" for name, value in state.items() if arrays.is_torch(value))
    return f"{zlib.crc32(' '.join(texts).encode()):08x}"


def _plain(value: Any) -> Any:
    """What JSON has no notation for: numbers and arrays of numpy, and enumerations."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)
