"""Neurenix's logger. Nothing else in the package writes anywhere, but for the command line."""

from __future__ import annotations

import logging
import sys

from neurenix import _native
from neurenix.errors import Error

LOG = logging.getLogger("neurenix")

#: The words of NEURENIX_LOG.
LEVELS = {
    "off": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


class _Stderr(logging.Handler):
    """Writes to stderr as long as nobody else takes the messages, as `logging` itself does from warnings on."""

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a message."""
        if logging.getLogger().handlers or LOG.handlers != [self]:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
        except (OSError, ValueError):
            self.handleError(record)


def obey_knob() -> None:
    """Sets the level that NEURENIX_LOG asks for; without it the level is the program's to set."""
    try:
        word = _native.knob("NEURENIX_LOG")
    except Error as error:
        LOG.warning("%s", error)
        return
    if word is None:
        return
    LOG.setLevel(LEVELS[word.strip().lower()])
    LOG.addHandler(_Stderr())


obey_knob()
