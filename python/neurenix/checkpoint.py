"""Weights from files, by name. Nothing in a file is executed: safetensors, and torch's files with weights alone."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neurenix import files, safetensors
from neurenix.errors import FileError, FormatError
from neurenix.packages import need

#: Last parts of names in PyTorch's state dicts that mean nothing in inference.
COUNTERS = frozenset({"num_batches_tracked"})

#: Where training programs put the weights beside other things.
PLACES = ("state_dict", "model_state_dict", "model")


def load(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The weights of a safetensors file, or of a state dict that torch saved (then as torch tensors).

    A state dict may stand under "state_dict", "model_state_dict" or "model" beside other things.

    Raises `FileError` when it can't be read, `FormatError` for what is no state dict or holds more than weights, and
    `MissingPackageError` where torch is needed and not there.
    """
    files.check(path, "the file of the weights")
    if Path(path).suffix == ".safetensors":
        return safetensors.load(path)
    torch = need("torch", f"reading {os.fspath(path)}")
    if is_torchscript(path):
        raise FormatError(
            "the file is a TorchScript program, not weights",
            got=os.fspath(path),
            hint="save the weights with torch.save(module.state_dict(), path)",
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise FileError(f"the weights can't be read: {error.strerror}", got=os.fspath(path)) from error
    except (pickle.UnpicklingError, EOFError, RuntimeError, ValueError) as error:
        raise FormatError(
            "the file is damaged, or holds more than weights, which could execute code",
            got=os.fspath(path),
            hint="save the weights alone: torch.save(module.state_dict(), path), or as safetensors",
        ) from error
    for place in PLACES:
        if isinstance(state, Mapping) and isinstance(state.get(place), Mapping):
            state = state[place]
    if not isinstance(state, Mapping):
        raise FormatError("the file holds no state dict", got=type(state).__name__)
    return state


def is_torchscript(path: str | os.PathLike[str]) -> bool:
    """Whether a file is what torch.jit.save writes."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") or "/code/" in name for name in archive.namelist())
