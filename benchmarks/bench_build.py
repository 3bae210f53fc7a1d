"""How long builds take: each in a process of its own, with empty caches and with those that the one before it left.

    python -m benchmarks.bench_build --models resnet50:1 bert:1 --levels 0 3

Seconds of `optimize_model` in fp16 alone, not of imports or of reading the file. `cold`: neither compiled kernels nor
times are known; `warm`: both are. Results join those in benchmarks/results/build.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import neurenix as nx
from benchmarks import measure
from benchmarks.accuracy_cuda import exported
from benchmarks.bench_cuda import entry_of, inputs_of

NAME = "build"
#: What a process that builds prints its seconds behind.
MARK = "SECONDS "


def alone(path: str, device: str, level: int) -> None:
    """Builds in this process."""
    import onnx  # noqa: F401  (what reads the file, before the clock starts)

    backend = nx.hardware.get_backend(device, fallback=False)
    backend.initialize()
    start = time.perf_counter()
    backend.optimize_model(path, precision="fp16", optimization_level=level)
    print(f"{MARK}{time.perf_counter() - start:.2f}")


def seconds(path: Path, device: str, level: int, cache: str) -> float:
    """What a build in a new process takes."""
    command = [sys.executable, "-m", "benchmarks.bench_build", "--alone", str(path), "--levels", str(level)]
    around = os.environ | {"NEURENIX_CACHE_DIR": cache}
    done = subprocess.run(
        [*command, "--device", device], env=around, capture_output=True, text=True, check=False, timeout=300
    )
    said = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not said:
        raise RuntimeError(f"the build ended with {done.returncode}: {done.stderr[-1000:]}")
    return float(said[0][len(MARK) :])


def main() -> None:
    """The command."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=["resnet50:1"], help="name:batch")
    parser.add_argument("--levels", nargs="+", type=int, default=[0, 3])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--alone", help="builds this file in this process")
    options = parser.parse_args()
    if options.alone:
        alone(options.alone, options.device, options.levels[0])
        return
    import torch

    results = {}
    for model in options.models:
        name, _, batch = model.partition(":")
        given = {key: torch.from_numpy(x) for key, x in inputs_of(entry_of(name), name, int(batch or 1), 0).items()}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(exported(entry_of(name).build().eval(), given))
            for level in options.levels:
                with tempfile.TemporaryDirectory() as cache:
                    found = {state: seconds(path, options.device, level, cache) for state in ("cold", "warm")}
                results[f"{model} level {level}"] = found
                print(f"{model:14} level {level}  cold {found['cold']:6.2f} s  warm {found['warm']:6.2f} s", flush=True)
    file = measure.RESULTS / f"{NAME}.json"
    before = json.loads(file.read_text())["results"] if file.exists() else {}
    measure.write(NAME, before | results, {"precision": "fp16", "device": options.device})


if __name__ == "__main__":
    main()
