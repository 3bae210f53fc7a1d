"""The export script of training projects: `python scripts/export_to_tensorrt.py --config C.yaml --ckpt F --output E`.

It is `neurenix export`, which says more with `--help`; copy it into a project whose script is to stay as it is.
"""

from __future__ import annotations

import sys

from neurenix.cli import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]]))
