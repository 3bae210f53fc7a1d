"""Other people's packages, imported when something needs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from neurenix.errors import MissingPackageError


def need(package: str, extra: str, purpose: str) -> ModuleType:
    """Imports `package`.

    Raises `MissingPackageError`, which names the extra that brings it, if it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package.partition(".")[0]:
            raise
        raise MissingPackageError(
            f"{purpose} needs the package {error.name!r}, which is not installed",
            hint=f'pip install "neurenix[{extra}]"',
        ) from None
