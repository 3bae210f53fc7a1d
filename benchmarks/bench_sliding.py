"""Sliding windows: our driver and MONAI's over the same engine, beside the time of the engine's own calls.

python -m benchmarks.bench_sliding [--device cuda] [--case 3d-512 ...]
python -m benchmarks.bench_sliding --large FOLDER   # a zarr of 6 GB in a process that may take 1 GB, killed and resumed
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks import measure
from neurenix.inference import InferenceEngine

BATCH = 4
#: The image and the window of each case, and the channels of its network.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "2d-4096": ((4096, 4096), (256, 256), 16),
    "3d-128": ((128, 128, 128), (64, 64, 64), 8),
    "3d-512": ((512, 512, 512), (64, 64, 64), 8),
}
#: The volume of 6 GB, and its windows.
LARGE, LARGE_ROI = (1536, 1024, 1024), (64, 256, 256)


def network(axes: int, width: int) -> nn.Module:
    """An encoder and a decoder of one level with a shortcut around them."""
    conv, up, pool = (getattr(nn, f"{name}{axes}d") for name in ("Conv", "ConvTranspose", "MaxPool"))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(conv(1, width, 3, padding=1), nn.ReLU())
            self.low = nn.Sequential(
                pool(2), conv(width, 2 * width, 3, padding=1), nn.ReLU(), up(2 * width, width, 2, 2)
            )
            self.last = conv(width, 2, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return self.last(x + self.low(x))

    torch.manual_seed(0)
    return Net().eval()


def seconds(run: Any, device: str, repeats: int) -> float:
    """The median of some runs after one."""
    times = []
    for number in range(repeats + 1):
        begin = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        if number:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def compare(case: str, device: str, repeats: int) -> dict[str, float]:
    """Our driver, MONAI's over the same engine, the engine's calls alone, and MONAI's over torch for the error."""
    from monai.inferers import sliding_window_inference

    size, roi, width = CASES[case]
    module = network(len(size), width)
    engine = InferenceEngine(module, (BATCH, 1, *roi), device=device)
    x = torch.randn(1, 1, *size, device=device)
    one = x[(slice(None), slice(None), *(slice(0, r) for r in roi))].expand(BATCH, *[-1] * (len(roi) + 1)).contiguous()
    told: list[int] = []

    def ours() -> Any:
        return engine.sliding_window_inference(x, roi, 0.25, BATCH, progress=lambda done, count: told.append(count))

    def monai() -> Any:
        return sliding_window_inference(x, roi, BATCH, engine, 0.25, "gaussian")

    def calls(count: int) -> Any:
        for _ in range(count):
            engine(one)

    found = {"ours_s": seconds(ours, device, repeats), "monai_s": seconds(monai, device, repeats)}
    windows = told[-1]
    measured = min(-(-windows // BATCH), 40)
    found["engine_s"] = seconds(lambda: calls(measured), device, repeats) / (measured * BATCH) * windows
    found |= {"windows": windows, "over_engine": found["ours_s"] / found["engine_s"]}
    found["over_monai"] = found["ours_s"] / found["monai_s"]
    with torch.inference_mode():
        expected = sliding_window_inference(x, roi, BATCH, module.to(device), 0.25, "gaussian")
    found["error"] = float((ours() - expected).abs().max() / expected.abs().max())
    print(case, {name: round(value, 7) for name, value in found.items()}, flush=True)
    return found


def _write_large(path: Path) -> None:
    import zarr

    image = zarr.create_array(str(path), shape=LARGE, chunks=(64, 256, 256), dtype="float32", compressors=None)
    rng = np.random.default_rng(0)
    for row in range(0, LARGE[0], 64):
        image[row : row + 64] = rng.standard_normal((64, *LARGE[1:]), np.float32)


def _run_large(source: str, out: str, kill_at: float) -> None:
    import zarr

    def stop(done: int, count: int) -> None:
        if done > kill_at * count:
            os.kill(os.getpid(), signal.SIGKILL)

    torch.manual_seed(0)
    module = nn.Conv3d(1, 1, 3, padding=1).eval()
    engine = InferenceEngine(module, (1, 1, *LARGE_ROI))
    image = zarr.open_array(source, mode="r")
    engine.sliding_window_inference(image, LARGE_ROI, 0.25, 1, out=out, resume=True, progress=stop, max_memory=1 << 27)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _digest(path: Path) -> str:
    import zarr

    array, found = zarr.open_array(str(path), mode="r"), hashlib.sha256()
    for row in range(0, LARGE[0], 64):
        found.update(array[row : row + 64].tobytes())
    return found.hexdigest()


def large(folder: Path) -> dict[str, Any]:
    """A volume of 6 GB: whole, and killed twice and resumed; the peak of the memory of each process."""
    source = folder / "image.zarr"
    if not source.exists():
        _write_large(source)
    found: dict[str, Any] = {"digests": [], "peak_bytes": [], "seconds": []}
    for name, kills in (("whole", [2.0]), ("resumed", [0.3, 0.7, 2.0])):
        out = folder / f"{name}.zarr"
        for kill_at in kills:
            begin = time.perf_counter()
            command = [sys.executable, "-m", "benchmarks.bench_sliding", "--run", str(source), str(out), str(kill_at)]
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
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", nargs="+", default=["2d-4096", "3d-128"], choices=list(CASES))
    parser.add_argument("--large", type=Path)
    parser.add_argument("--run", nargs=3)
    options = parser.parse_args()
    if options.run:
        _run_large(options.run[0], options.run[1], float(options.run[2]))
        return
    if options.large:
        print("written:", measure.write("sliding_large", large(options.large), {"shape": LARGE, "roi": LARGE_ROI}))
        return
    torch.set_num_threads(options.threads)
    results = {case: compare(case, options.device, options.repeats) for case in options.case}
    name = "sliding" if options.device == "cpu" else f"sliding_{options.device.partition(':')[0]}"
    print("written:", measure.write(name, results, {"batch": BATCH, "threads": options.threads}))


if __name__ == "__main__":
    main()
