"""Plugins in C++: shared libraries that are built against the header `neurenix/plugin.h`."""

from __future__ import annotations

import os
from pathlib import Path

import neurenix
from neurenix import _native
from neurenix.errors import UnsupportedError


def load_plugin_library(path: str | os.PathLike[str]) -> list[str]:
    """Opens a shared library of plugins, registers them, and gives their names.

    What the library does when it is opened runs in this process, so load only what you trust. Loading it again is
    harmless: it registers what was deregistered meanwhile. A library stays open: one that was built again is
    read by the next process.

    Raises `FileError` for a file that is not there or can't be opened, `UnsupportedError` for one that exports no
    plugins, or was built for another version of the ABI, `PluginError` for what a creator in it throws, and
    `InvalidArgumentError` where a plugin's name, version and namespace are taken; nothing is registered then.
    """
    return [name for name, _, _ in _native.load_plugin_library(os.path.abspath(path))]


def plugin_include_dir() -> str:
    """The folder in which compilers find `neurenix/plugin.h`.

    Raises `UnsupportedError` for an installation that lacks it.
    """
    folder = Path(neurenix.__file__).parent / "_include"
    if not (folder / "neurenix" / "plugin.h").is_file():
        raise UnsupportedError(
            "this installation lacks the header for plugins in C++", expected=str(folder), hint="install Neurenix again"
        )
    return str(folder)
