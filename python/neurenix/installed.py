"""Looks whether the files of this package are ours alone.

The registry has another project of the name `neurenix`, whose files go into the same folder as ours. Whatever of ours
is imported comes through here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

#: What pip calls us.
DISTRIBUTION = "neurenix-engine"


def others(folder: str) -> Iterator[str]:
    """Name and version of each distribution called `neurenix` that claims files of the package in this folder."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        identity, extension = os.path.splitext(name)
        if extension == ".dist-info" and name.lower().startswith("neurenix-") and _claims(os.path.join(folder, name)):
            yield identity.replace("-", " ", 1)


def _claims(record: str) -> bool:
    try:
        with open(os.path.join(record, "RECORD"), encoding="utf-8") as lines:
            return any(line.startswith("neurenix/") for line in lines)
    except (OSError, UnicodeDecodeError):
        return False


def _check() -> None:
    """Raises `ImportError` where the package is no longer ours, and warns where another one lies under it."""
    package = sys.modules["neurenix"]
    ours = getattr(package, "__distribution__", None) == DISTRIBUTION
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = " and ".join(others(folder))
    if ours and not found:
        return
    message = (
        f"another project's package is mixed with {DISTRIBUTION}: "
        f"{found or 'a distribution that left no record'} has files in {os.path.join(folder, 'neurenix')}\n"
        f"  hint: pip uninstall neurenix {DISTRIBUTION}, and install {DISTRIBUTION} again as before "
        "(from its checkout: pip install .)"
    )
    if not ours:
        raise ImportError(message, name="neurenix", path=getattr(package, "__file__", None))
    from neurenix.log import LOG

    LOG.warning("%s", message)


_check()


def main() -> int:
    """The command `neurenix`."""
    from neurenix.cli import main as run

    return run()
