"""Runs a case in a process of its own: torch's compiler keeps state, and a crash must be a failure of one case."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

#: Imported once, in the process that the others are forked from.
PRELOADED = ("tests.torch_compile.preloaded",)


def run(case: Callable[..., None], *args: Any, seconds: float = 240) -> str:
    """What a case wrote to the log; it fails where the case raises, or its process ends."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, case, args))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise AssertionError(f"{case.__name__} takes longer than {seconds} s")
        failure, written = ours.recv()
    except EOFError:
        process.join()
        raise AssertionError(f"the process of {case.__name__} ended with {process.exitcode}") from None
    finally:
        process.kill() if process.is_alive() and not ours.poll(0) else None
        process.join()
    assert failure is None, f"{failure}\n{written}"
    return str(written)


def _work(pipe: Connection, case: Callable[..., None], args: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    text = io.StringIO()
    failure = None
    with contextlib.redirect_stderr(text):
        try:
            torch.manual_seed(0)
            case(*args)
        except BaseException:
            failure = traceback.format_exc()
    pipe.send((failure, text.getvalue()))
    pipe.close()
