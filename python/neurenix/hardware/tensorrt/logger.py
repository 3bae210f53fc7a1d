"""Logger and ILogger, and what happens to errors where TensorRT gives False or None in their place."""

from __future__ import annotations

import logging
import threading
from typing import Any

from neurenix.errors import Error, InternalError, InvalidArgumentError
from neurenix.hardware.tensorrt.build_enums import ErrorCodeTRT
from neurenix.hardware.tensorrt.enums import Word
from neurenix.hardware.tensorrt.scoped import Scoped
from neurenix.log import LOG


class Severity(Word):
    """How severe a message is; less is worse."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


#: In classes that have the words too.
_Severity = Severity


class ILogger(Scoped):
    """What a user derives a logger of his own from: `log(severity, msg)` takes every message."""

    Severity = Severity
    INTERNAL_ERROR = Severity.INTERNAL_ERROR
    ERROR = Severity.ERROR
    WARNING = Severity.WARNING
    INFO = Severity.INFO
    VERBOSE = Severity.VERBOSE

    def log(self, severity: _Severity, msg: str) -> None:
        """Takes a message."""
        raise NotImplementedError(f"{type(self).__name__} must have log(severity, msg)")


class Logger(ILogger):
    """TensorRT's logger: messages up to a severity go to Python's logging, logger "neurenix"."""

    min_severity: _Severity
    _LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

    def __init__(self, min_severity: _Severity = Severity.WARNING) -> None:
        self.min_severity = min_severity

    def log(self, severity: _Severity, msg: str) -> None:
        """Takes a message."""
        if severity <= self.min_severity:
            LOG.log(self._LEVELS[severity], "%s", msg)


_STATE = threading.local()


def last_error() -> Error | None:
    """The last error of this thread for which a call gave False or None; None where there was none."""
    found: Error | None = getattr(_STATE, "error", None)
    return found


def clear_last_error() -> None:
    """Forgets the last error of this thread."""
    _STATE.error = None


def checked(logger: Any) -> Any:
    """A logger, or the default one for None; raises `InvalidArgumentError` for what has no `log`."""
    if logger is None:
        return Logger()
    if not callable(getattr(logger, "log", None)):
        raise InvalidArgumentError(
            "this is no logger", expected="trt.Logger(), or an object with log(severity, msg)", got=repr(logger)
        )
    return logger


_CODES = {
    "invalid_argument": ErrorCodeTRT.INVALID_ARGUMENT,
    "shape": ErrorCodeTRT.INVALID_ARGUMENT,
    "type": ErrorCodeTRT.INVALID_ARGUMENT,
    "unsupported": ErrorCodeTRT.UNSUPPORTED_STATE,
    "memory": ErrorCodeTRT.FAILED_ALLOCATION,
    "device": ErrorCodeTRT.FAILED_EXECUTION,
    "internal": ErrorCodeTRT.INTERNAL_ERROR,
}


def report(logger: Any, error: Exception, recorder: Any = None) -> Error:
    """Logs the whole of an error and keeps it for `last_error()`; `recorder` is the user's IErrorRecorder."""
    ours = error if isinstance(error, Error) else InternalError(f"{type(error).__name__}: {error}")
    if ours is not error:
        ours.__cause__ = error
    _STATE.error = ours
    logger.log(Severity.ERROR, str(ours))
    if recorder is not None:
        recorder.report_error(_CODES.get(ours.kind, ErrorCodeTRT.UNSPECIFIED_ERROR), str(ours))
    return ours
