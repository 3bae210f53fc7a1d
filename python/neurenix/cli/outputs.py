"""The files that a command writes, against those that it reads."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from neurenix.errors import InvalidArgumentError
from neurenix.quantization.data import IMAGES

#: Arguments that name what is written.
WRITTEN = (
    "output", "onnx", "json", "html", "plot", "export_times", "export_profile", "save_inputs", "save_outputs"
)  # fmt: skip
#: Those to which the ending .npz is added.
ARRAYS = ("save_inputs", "save_outputs")
#: Arguments that name what is read; one file, or several, perhaps behind the name of an input.
READ = (
    "model", "ckpt", "config", "source", "names", "sample", "load_inputs", "load_outputs", "data", "calibration_data"
)  # fmt: skip
#: Those that may be folders of which every file of arrays or images is read.
FOLDERS = ("data", "calibration_data")


def keep_apart(arguments: argparse.Namespace) -> None:
    """Raises `InvalidArgumentError` where a file that is written is also read, or written a second time."""
    read = list(_read(arguments))
    seen: dict[Path, str] = {}
    for name in WRITTEN:
        given = getattr(arguments, name, None)
        if not isinstance(given, str) or given in ("", "-"):
            continue
        path = Path(given if name not in ARRAYS or given.endswith(".npz") else f"{given}.npz")
        flag = f"--{name.replace('_', '-')}"
        if any(_is_same(path, other) or (deep and _is_inside(path, other)) for other, deep in read):
            raise InvalidArgumentError(
                f"{flag} would replace what is read", got=given, hint=f"give {flag} another name"
            )
        other = seen.setdefault(path.resolve(), flag)
        if other != flag:
            raise InvalidArgumentError(f"{other} and {flag} name one file", got=given, hint=f"give {flag} another name")


def _read(arguments: argparse.Namespace) -> Iterator[tuple[Path, bool]]:
    """What is read, and whether all that is in it is."""
    for name in READ:
        given = getattr(arguments, name, None) or []
        for text in [given] if isinstance(given, str) else given:
            yield Path(text), name in FOLDERS
            if name == "load_inputs" and not Path(text).exists():
                yield Path(re.split("[:=]", text, maxsplit=1)[-1]), False


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _is_inside(path: Path, folder: Path) -> bool:
    read = path.suffix.lower() in (".npy", ".npz", *IMAGES)
    return read and path.exists() and folder.is_dir() and folder.resolve() in path.resolve().parents
