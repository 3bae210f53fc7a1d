"""A zarr of 6 GB through sliding windows in a process that stays below 1 GB: whole, and killed twice and resumed.

python -m benchmarks.bench_sliding_large FOLDER
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

#: The volume, and its windows.
SIZE, ROI = (1536, 1024, 1024), (64, 128, 128)


def _write_large(path: Path) -> None:
    import zarr

    image = zarr.create_array(str(path), shape=SIZE, chunks=(64, 256, 256), dtype="float32", compressors=None)
    rng = np.random.default_rng(0)
    for row in range(0, SIZE[0], 64):
        image[row : row + 64] = rng.standard_normal((64, *SIZE[1:]), np.float32)


def _build(path: Path) -> None:
    """Writes the engine, in a process whose memory is not looked at."""
    import torch

    from neurenix.hardware.tensorrt import TensorRTBackend

    torch.manual_seed(0)
    module = torch.nn.Conv3d(1, 1, 3, padding=1).eval()
    TensorRTBackend().optimize_model(module, {"input": (1, 1, *ROI)}).save(path)


def _run_large(engine: str, source: str, out: str, kill_at: float) -> None:
    import zarr

    from neurenix.inference import InferenceEngine

    def stop(done: int, count: int) -> None:
        if done > kill_at * count:
            os.kill(os.getpid(), signal.SIGKILL)

    image = zarr.open_array(source, mode="r")
    InferenceEngine(engine).sliding_window_inference(
        image, ROI, 0.25, 1, out=out, resume=True, progress=stop, max_memory=1 << 27
    )
    # Not `ru_maxrss`, which begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text()
    print(int(status.partition("VmHWM:")[2].split()[0]) * 1024)


def _digest(path: Path) -> str:
    import zarr

    array, found = zarr.open_array(str(path), mode="r"), hashlib.sha256()
    for row in range(0, SIZE[0], 64):
        found.update(array[row : row + 64].tobytes())
    return found.hexdigest()


def large(folder: Path) -> dict[str, Any]:
    """A volume of 6 GB: whole, and killed twice and resumed; the peak of the memory of each process."""
    source = folder / "image.zarr"
    if not source.exists():
        _write_large(source)
    _build(folder / "conv.engine")
    found: dict[str, Any] = {"digests": [], "peak_bytes": [], "seconds": []}
    for name, kills in (("whole", [2.0]), ("resumed", [0.3, 0.7, 2.0])):
        out = folder / f"{name}.zarr"
        for kill_at in kills:
            begin = time.perf_counter()
            command = [
                sys.executable,
                "-m",
                "benchmarks.bench_sliding_large",
                "--run",
                str(folder / "conv.engine"),
                str(source),
                str(out),
                str(kill_at),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == (0 if kill_at > 1 else -9), done.stderr
            found["seconds"].append(round(time.perf_counter() - begin, 1))
            if kill_at > 1:
                found["peak_bytes"].append(int(done.stdout.split()[-1]))
        found["digests"].append(_digest(out))
    found["equal_bits"] = len(set(found["digests"])) == 1
    print(found)
    return found


def main() -> None:
    if sys.argv[1] == "--run":
        engine, source, out, kill_at = sys.argv[2:]
        _run_large(engine, source, out, float(kill_at))
        return
    from benchmarks import measure

    print("written:", measure.write("sliding_large", large(Path(sys.argv[1])), {"shape": SIZE, "roi": ROI}))


if __name__ == "__main__":
    main()
