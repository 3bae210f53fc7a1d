"""Runs a script in which `import tensorrt` gives this package: `python -m neurenix.hardware.tensorrt SCRIPT ARGS`.

SCRIPT is a path (`script.py`, `$(which polygraphy)`) or the name of a module.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from neurenix.hardware.tensorrt.stand_in import stand_in


def main() -> None:
    """Runs what the command line names, as if Python itself had been asked to."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m neurenix.hardware.tensorrt SCRIPT_OR_MODULE [ARGUMENTS]")
    target = sys.argv[1]
    del sys.argv[0]
    with stand_in():
        if Path(target).is_file():
            sys.path[0] = str(Path(target).resolve().parent)
            runpy.run_path(target, run_name="__main__")
        else:
            runpy.run_module(target, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
