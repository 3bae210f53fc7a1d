"""Runs cases in a child process, so that a crash of one is seen and the others go on."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

#: A case that takes longer than this hangs.
SECONDS_PER_CASE = 60.0
#: So many bytes of addresses may a child use: a case that asks for more finds none, and must say so.
MEMORY = 12 << 30

#: A child that is gone, or goes on and on. Targets keep the model of a case on disk as long as code of ours runs it.
DIED = "bad: the process ended with"
HANGS = "bad: hangs for"

#: Runs one case: its number and the folder for what it finds -> how it went. Words that begin with "bad" are findings.
Run = Callable[[int, Path], str]


def main(module: str, run: Callable[[int], Run], doc: str) -> None:
    """The command line of a target. `run` makes the function that runs a case out of a seed."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=doc)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="at most so many cases")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--out", type=Path, default=Path("fuzz/found"), help="where to put what is found")
    parser.add_argument("--child", action="store_true", help="run the cases here, and say how each went")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.child:
        child(run(options.seed), range(options.first, options.first + options.cases), options.out)
        return
    command = [sys.executable, "-m", module, "--child", "--seed", str(options.seed), "--out", str(options.out)]
    counts: collections.Counter[str] = collections.Counter()
    for number, word in watch(command, options.first, options.cases, options.seconds):
        if word.startswith((DIED, HANGS)) and not any(options.out.glob(f"*-{options.seed}-{number}.*")):
            word = f"fine, but another engine does not: {word}"
        counts[word.partition(":")[0]] += 1
        if word.startswith("bad"):
            print(f"case {number}: {word}", flush=True)
    print(dict(counts.most_common()))
    sys.exit(any(word.startswith("bad") for word in counts))


def child(run: Run, numbers: Iterable[int], out: Path) -> None:
    """Runs cases, and writes a line before and after each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for number in numbers:
        channel.write(json.dumps([number, None]) + "\n")
        try:
            word = run(number, out)
        except Exception as error:
            word = f"bad: the target itself: {type(error).__name__}: {error}"
        channel.write(json.dumps([number, word]) + "\n")


def watch(command: list[str], first: int, cases: int, seconds: float) -> Iterator[tuple[int, str]]:
    """How each case went; a child that dies or hangs is replaced by one that goes on behind the case."""
    end, last = time.monotonic() + seconds, first + cases
    while first < last and time.monotonic() < end:
        arguments = ["--first", str(first), "--cases", str(last - first)]
        with _child([*command, *arguments]) as process:
            for number, word in _lines(process, end):
                first = number + 1
                yield number, word


@contextlib.contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    log = Path(command[command.index("--out") + 1]) / "stderr.txt"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, bufsize=0) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def _lines(process: subprocess.Popen[bytes], end: float) -> Iterator[tuple[int, str]]:
    assert process.stdout is not None
    running: int | None = None
    began, rest = time.monotonic(), b""
    while time.monotonic() < end:
        ready, _, _ = select.select([process.stdout], [], [], 0.5)
        if not ready:
            if running is not None and time.monotonic() - began > SECONDS_PER_CASE:
                yield running, f"{HANGS} {SECONDS_PER_CASE:.0f} s"
                return
            continue
        data = process.stdout.read(1 << 16)
        if not data:
            code = process.wait()
            if running is not None:
                yield running, f"{DIED} {code}"
            elif code:
                raise RuntimeError(f"the child ended with {code} before its first case")
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            number, word = json.loads(line)
            running, began = (number, time.monotonic()) if word is None else (None, began)
            if word is not None:
                yield number, word


def brief(error: Any) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
