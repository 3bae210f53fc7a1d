"""The command line: `neurenix COMMAND ...`. One file per command. Only results go to stdout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from neurenix import __version__
from neurenix.cli import bench, debug, export, info, inspect, run, selftest
from neurenix.cli.common import write_json
from neurenix.errors import Error

#: Every command, in the order in which `--help` lists them.
COMMANDS = (info, export, run, bench, inspect, debug, selftest)


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
        return int(arguments.run(arguments))
    except Error as error:
        print(f"neurenix {arguments.command}: {error}", file=sys.stderr)
        parts = ("message", "layer", "tensor", "expected", "got", "hint")
        told = {name: getattr(error, name) for name in parts if getattr(error, name) is not None}
        if getattr(arguments, "json", None) == "-":
            write_json("-", {"passed": False, "error": {"kind": error.kind} | told})
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
