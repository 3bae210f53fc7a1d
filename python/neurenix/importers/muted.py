"""Libraries that print while they convert."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator, Sequence

from neurenix.log import LOG


@contextlib.contextmanager
def muted(loggers: Sequence[str], library: str) -> Iterator[None]:
    """Keeps a library and these loggers from printing; what it writes is told at the level of debugging."""
    text = io.StringIO()
    found = [logging.getLogger(name) for name in loggers]
    levels = [logger.level for logger in found]
    try:
        for logger in found:
            logger.setLevel(logging.CRITICAL)
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            yield
    finally:
        for logger, level in zip(found, levels, strict=True):
            logger.setLevel(level)
        if text.getvalue():
            LOG.debug("%s wrote: %s", library, text.getvalue())
