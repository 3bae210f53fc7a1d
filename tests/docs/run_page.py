"""Runs the code of a page in a folder, in a process of its own: `python -m tests.docs.run_page PAGE FOLDER`.

Blocks of Python share one namespace. A block whose first line names a file becomes that file. In console blocks
`neurenix` runs in this process, and every other program in one of its own. What stands there as output, and in a text
block behind a block of Python, must be what came: `...` stands for anything, and a measured number for any number. A
last line "[exit status 1]" says that the command fails.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from neurenix.cli import main as neurenix
from tests.docs.blocks import ROOT, Block, blocks
from tests.docs.given import GIVEN

#: Programs that change the machine, or that only a terminal makes sense of.
NOT_RUN = ("git", "pip", "python3")

#: A number that another machine may give otherwise: with a point, with an exponent, or of a unit.
_MEASURED = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+|\d+(?=%|\s?(?:ms|s|us|qps|images|[KMG]iB)\b)")
_NUMBER = r"\d+(?:\.\d+)?(?:e[-+]?\d+)?"


class Departs(AssertionError):
    """The page says something else than what came."""


def fits(shown: str, came: str) -> bool:
    """Whether an output is the one that a page shows."""
    literal = (".*".join(map(re.escape, part.split("..."))) for part in _MEASURED.split(" ".join(shown.split())))
    return re.fullmatch(_NUMBER.join(literal).replace(r"\ ", " ?"), " ".join(came.split()), re.DOTALL) is not None


def compare(where: str, shown: str, came: str) -> None:
    if not fits(shown, came):
        raise Departs(f"{where}: the page shows\n{shown}\nand this came:\n{came}")


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        yield text


def run_command(command: str) -> tuple[int, str]:
    """The exit status of a command, and what it printed on both streams."""
    program, *arguments = shlex.split(command)
    if program != "neurenix":
        # What a page calls by name (python, mkdocs) is this environment's, whether or not it was activated.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout + done.stderr
    with captured() as text:
        try:
            status = neurenix(arguments)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    return status, text.getvalue()


def run_console(block: Block, where: str) -> None:
    for command, shown in block.commands():
        if shlex.split(command)[0] in NOT_RUN:
            continue
        fails = re.search(r"\[exit status (\d+)\]\n*\Z", shown)
        status, came = run_command(command)
        if status != (int(fails[1]) if fails else 0):
            raise Departs(f"{where}: `{command}` ended with status {status}:\n{came}")
        shown = shown[: fails.start()] if fails else shown
        if shown.strip():
            compare(f"{where}: {command}", shown, came)


def run(page: Path) -> None:
    """Runs a page; raises what its code raises, and `Departs`."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.reason is not None:
            printed = ""
        elif block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            with captured() as text:
                exec(compile("\n" * block.line + block.text, page, "exec"), namespace)
            printed = text.getvalue()
        elif block.language == "console":
            run_console(block, where)
        elif block.language == "text":
            compare(where, block.text, printed)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    os.chdir(sys.argv[2])
    # The page's own files are importable, as for a user who works in this folder; the repository's are not.
    sys.path[:] = [os.getcwd(), *(path for path in sys.path if path not in ("", str(ROOT)))]
    for make in GIVEN.get(str(page.relative_to(ROOT)), ()):
        make()
    run(page)
