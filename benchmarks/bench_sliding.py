"""Sliding windows: our driver and MONAI's over the same engine, beside the time of the engine's own calls.

python -m benchmarks.bench_sliding [--device cuda] [--case 3d-512 ...]
"""

from __future__ import annotations

import statistics
from typing import Any

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


def medians(runs: dict[str, Any], device: str, rounds: int) -> dict[str, float]:
    """The medians in seconds of runs that take turns."""

    def whole(run: Any) -> Any:
        def timed() -> None:
            run()
            if device != "cpu":
                torch.cuda.synchronize()

        return timed

    found = measure.interleaved({name: whole(run) for name, run in runs.items()}, rounds)
    return {name: statistics.median(times) / 1e3 for name, times in found.items()}


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

    ours()
    windows = told[-1]
    measured = -(-windows // BATCH)
    runs = {"ours_s": ours, "monai_s": monai, "engine_s": lambda: calls(measured), "again_s": ours}
    found = medians(runs, device, repeats)
    found["engine_s"] *= windows / (measured * BATCH)
    found |= {"windows": windows, "over_engine": found["ours_s"] / found["engine_s"]}
    found["over_monai"] = found["ours_s"] / found["monai_s"]
    found["over_itself"] = found["ours_s"] / found.pop("again_s")
    with torch.inference_mode():
        expected = sliding_window_inference(x, roi, BATCH, module.to(device), 0.25, "gaussian")
    found["error"] = float((ours() - expected).abs().max() / expected.abs().max())
    print(case, {name: round(value, 7) for name, value in found.items()}, flush=True)
    return found


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--case", nargs="+", default=["2d-4096", "3d-128"], choices=list(CASES))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    # What ours is compared with is float32 in full.
    torch.backends.cudnn.allow_tf32 = False
    results = {case: compare(case, options.device, options.repeats) for case in options.case}
    name = "sliding" if options.device == "cpu" else f"sliding_{options.device.partition(':')[0]}"
    print("written:", measure.write(name, results, {"batch": BATCH, "threads": options.threads}))


if __name__ == "__main__":
    main()
