"""Folders of zarr arrays: which of them an image reads, and what a folder is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neurenix.errors import FileError


def _folders_of(image: Any) -> list[Path]:
    """The folders of the zarr arrays that an image of zarr or Dask reads; none of another kind, or of another store."""
    found = []
    for array in _arrays(image):
        store = array.store
        # Version 3 of the package, and before.
        root = getattr(store, "root", None) or getattr(store, "path", None)
        if isinstance(root, (str, Path)) and Path(root).is_dir():
            found.append((Path(root) / array.path).resolve())
    return found


def _arrays(image: Any) -> Iterator[Any]:
    package = type(image).__module__.partition(".")[0]
    if package == "zarr":
        yield image
    elif package == "dask":
        for task in dict(image.__dask_graph__()).values():
            for one in (task, *getattr(task, "args", ()), *(task if isinstance(task, tuple) else ())):
                if type(one).__module__.partition(".")[0] == "zarr" and hasattr(one, "store"):
                    yield one


def check_replaceable(path: Path, image: Any) -> None:
    """Raises `FileError` for an output that can't be replaced: what the image reads, or a folder that is no array."""
    if not path.is_dir():
        return
    place = path.resolve()
    if any(place == folder or place in folder.parents for folder in _folders_of(image)):
        raise FileError("the output would replace the image", got=str(path), hint="give out= another name")
    if not _is_array(path):
        raise FileError(
            "the output is a folder that is no zarr array, and would go with all that is in it",
            got=str(path),
            hint="give out= another name, or remove the folder",
        )


def _is_array(folder: Path) -> bool:
    if (folder / ".zarray").is_file():
        return True
    try:
        return bool(json.loads((folder / "zarr.json").read_text(encoding="utf-8"))["node_type"] == "array")
    except (OSError, ValueError, KeyError, TypeError):
        return False
