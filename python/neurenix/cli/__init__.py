"""The command line: `neurenix COMMAND ...`. One file per command. Only results go to stdout."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from neurenix import __version__
from neurenix.cli import bench, calibrate, debug, export, info, inspect, run, selftest, serve, video
from neurenix.cli.common import write_json
from neurenix.cli.outputs import keep_apart
from neurenix.errors import Error

#: Every command, in the order in which `--help` lists them.
COMMANDS = (info, export, run, bench, inspect, calibrate, debug, serve, video, selftest)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and gives its exit code: 0 only if what was asked for was done, 1 if not, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="neurenix", description="Fast and correct inference on the machine at hand.")
    parser.add_argument("--version", action="version", version=f"neurenix {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        summary = (command.__doc__ or "").splitlines()[0]
        child = commands.add_parser(name, help=summary, description=command.__doc__)
        command.add_arguments(child)
        child.set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    try:
        keep_apart(arguments)
        status = int(arguments.run(arguments))
        # What stdout still holds is part of the work: a full disk shows here.
        sys.stdout.flush()
        return status
    except Error as error:
        print(f"neurenix {arguments.command}: {error}", file=sys.stderr)
        parts = ("message", "layer", "tensor", "expected", "got", "hint")
        fields = {name: getattr(error, name) for name in parts if getattr(error, name) is not None}
        if getattr(arguments, "json", None) == "-":
            write_json("-", {"passed": False, "error": {"kind": error.kind} | fields})
        return 1
    except BrokenPipeError:
        _give_up_stdout()
        return 1
    except MemoryError as error:
        print(f"neurenix {arguments.command}: there is not enough memory: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        place = f"\n  got: {error.filename}" if error.filename else ""
        print(f"neurenix {arguments.command}: {error.strerror or error}{place}", file=sys.stderr)
        _give_up_stdout()
        return 1
    except KeyboardInterrupt:
        return 130


def _give_up_stdout() -> None:
    """Drops what stdout could not take, which Python would otherwise try to write again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
