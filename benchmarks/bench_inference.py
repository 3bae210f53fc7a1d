"""The inference engine: three microscopy models, an ensemble of four, streams of pictures of 1080p.

    python -m benchmarks.bench_inference --case labelfree2d segmentation3d mae3d ensemble pictures video
    python -m benchmarks.bench_inference --device cpu --case pictures video

Models run in eager PyTorch (float32 as PyTorch sets it up: TF32 in convolutions), and in our fp32, fp16 and int8, by
turns, on tensors on the GPU; `error` is the root mean square against PyTorch in double precision, as a share. The
ensemble is four ResNet-50 with weights of their own, beside the sum of the times of its members alone. Pictures are
uint8 arrays in the processor's memory; YOLOv5s puts them into its box itself. `video` decodes a film of H.264 besides.
On a processor streams alone are measured, in float32; their rate stands beside that of calls on one array. Each case
has a process of its own; rows join those in benchmarks/results/inference_cuda.json (inference_cpu.json).
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks import measure
from benchmarks.bench_cuda import rms, timed
from benchmarks.zoo_models import ZOO
from neurenix.hardware import get_backend
from neurenix.inference import Ensemble, InferenceEngine, VideoWriter

ROUNDS = 3
CALLS = 40
#: Pictures of a stream, after some that don't count.
FRAMES, WARM = {"cuda": 600, "cpu": 90}, {"cuda": 60, "cpu": 10}
SIDES = (1080, 1920)


class MaskedAutoencoder(nn.Module):
    """MAE of 64 x 64 x 64 voxels in patches of 8: an encoder of the quarter that is seen, a decoder of all patches."""

    def __init__(self, width: int = 384, heads: int = 6, encoder: int = 12, decoder: int = 4) -> None:
        super().__init__()
        count = 8**3
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        self.register_buffer("seen", order[: count // 4])
        self.register_buffer("back", torch.argsort(order))
        self.patches = nn.Conv3d(1, width, 8, 8)
        self.places = nn.Parameter(torch.randn(1, count, width) * 0.02)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)

        def stack(layers: int) -> nn.Module:
            layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0, "gelu", batch_first=True, norm_first=True)
            return nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)

        self.encoder, self.decoder = stack(encoder), stack(decoder)
        self.voxels = nn.Linear(width, 8**3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 1, 64, 64, 64] -> patches [batch, 512, 512]."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        seen = self.encoder(tokens[:, self.seen])
        hidden = self.token.expand(x.shape[0], self.back.numel() - self.seen.numel(), -1)
        whole = torch.cat([seen, hidden], 1)[:, self.back] + self.places
        return self.voxels(self.decoder(whole))


#: A module, and the shape of its input.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "labelfree2d": (ZOO["unet"].build, (1, 1, 256, 256)),
    "segmentation3d": (ZOO["unet3d"].build, (1, 1, 64, 64, 64)),
    "mae3d": (MaskedAutoencoder, (1, 1, 64, 64, 64)),
}


def model(name: str, _: str) -> dict[str, Any]:
    """Eager PyTorch beside ours in three precisions, by turns."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    module = make().eval()
    generator = np.random.default_rng(0)
    calibration = [generator.standard_normal(shape, np.float32) for _ in range(4)]
    backend, found, runs = get_backend("cuda"), dict[str, Any](), dict[str, Callable[..., Any]]()
    for precision in ("fp32", "fp16", "int8+fp16"):
        given: dict[str, Any] = {"calibration": calibration} if "int8" in precision else {}
        io_dtype = "fp32" if precision == "fp32" else "fp16"
        start = time.perf_counter()
        runs[precision] = backend.optimize_model(module, shape, precision=precision, io_dtype=io_dtype, **given)
        found[precision] = {"build_s": round(time.perf_counter() - start, 1)}
    on_gpu, half = copy.deepcopy(module).cuda(), copy.deepcopy(module).half().cuda()
    runs |= {"eager fp32": on_gpu, "eager fp16": half}
    x = torch.from_numpy(generator.standard_normal(shape, np.float32)).cuda()
    times: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        # On the processor: PyTorch's fused encoder is off by 2e-4 in float64 on a GPU.
        want = copy.deepcopy(module).double()(x.cpu().double()).cuda()
        for _ in range(ROUNDS):
            for each, run in runs.items():
                given = x.half() if "fp16" in each else x
                times[each].append(timed(lambda run=run, given=given: run(given), CALLS)["median_ms"])
        for each, run in runs.items():
            row = found.setdefault(each, {})
            row["median_ms"] = min(times[each])
            row["error"] = rms(run(x.half() if "fp16" in each else x), want)
    for precision in ("fp32", "fp16", "int8+fp16"):
        found[f"eager fp32 / {precision}"] = round(found["eager fp32"]["median_ms"] / found[precision]["median_ms"], 2)
    return found


def ensemble(_: str, __: str) -> dict[str, Any]:
    """Four members in streams of their own beside each of them alone."""
    members = []
    for seed in range(4):
        module = ZOO["resnet50"].build(seed).eval()
        members.append(InferenceEngine(module, (1, 3, 224, 224), device="cuda", precision="fp16", io_dtype="fp16"))
    together = Ensemble(members)
    x = torch.randn(1, 3, 224, 224, device="cuda", dtype=torch.float16)
    alone = [min(timed(lambda one=one: one(x), CALLS)["median_ms"] for _ in range(ROUNDS)) for one in members]
    whole = min(timed(lambda: together(x), CALLS)["median_ms"] for _ in range(ROUNDS))
    apart = torch.stack([one(x).float() for one in members]).mean(0)
    return {
        "members_ms": alone,
        "ensemble_ms": whole,
        "of_the_sum": round(whole / sum(alone), 3),
        "error": rms(together(x), apart.double()),
    }


def frames(count: int) -> Iterator[np.ndarray[Any, Any]]:
    """Pictures that a camera might give, of a few that are kept."""
    generator = np.random.default_rng(0)
    kept = [generator.integers(0, 256, (*SIDES, 3), np.uint8) for _ in range(8)]
    for number in range(count):
        yield kept[number % len(kept)]


def streamed(source: Any, device: str) -> dict[str, Any]:
    """How many pictures a second go through YOLOv5s, and how many calls of its engine alone."""
    box = {"dtype": "u8", "layout": "NHWC", "letterbox": (640, 640)}
    module = ZOO["yolov5s"].build().eval()
    precision = "fp16" if device == "cuda" else "fp32"
    engine = InferenceEngine(module, (1, *SIDES, 3), device=device, preprocess=box, precision=precision, warmup=5)
    times = []
    with engine.stream(source) as stream:
        for _ in stream:
            times.append(time.perf_counter())
    gaps = np.diff(times[WARM[device] :])
    one = next(frames(1))
    begin = time.perf_counter()
    for _ in range(CALLS):
        engine(one)
    call = (time.perf_counter() - begin) / CALLS
    if device == "cuda":
        on_gpu = torch.from_numpy(one).cuda()[None]
        alone = {"on_gpu_ms": timed(lambda: engine(on_gpu), CALLS)["median_ms"]}
    else:
        alone = {"of_the_calls_rate": round(len(gaps) / float(gaps.sum()) * call, 3)}
    return {
        "frames": len(times),
        "frames_a_second": round(len(gaps) / float(gaps.sum()), 1),
        "median_gap_ms": round(1e3 * statistics.median(gaps), 3),
        "calls_a_second": round(1 / call, 1),
        **alone,
        "outputs": [list(one.shape) for one in engine.outputs],
    }


def pictures(_: str, device: str) -> dict[str, Any]:
    """Arrays, without a film to decode."""
    return streamed(frames(FRAMES[device]), device)


def video(_: str, device: str) -> dict[str, Any]:
    """A film of H.264 that is rendered here."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "film.mp4")
        with VideoWriter(path, SIDES, Fraction(25)) as writer:
            for number in range(FRAMES[device]):
                picture = np.full((*SIDES, 3), 40, np.uint8)
                left = 8 * (number % 200)
                picture[200:500, left : left + 300] = (240, 200, 220)
                writer.write(picture)
        return streamed(path, device)


CASES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    **dict.fromkeys(MODELS, model), "ensemble": ensemble, "pictures": pictures, "video": video
}  # fmt: skip


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--case", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--timeout", type=float, default=150, help="seconds for each case")
    parser.add_argument("--alone", choices=list(CASES), help="runs one case in this process, and prints JSON")
    parser.add_argument("--device", default="cuda", choices=list(FRAMES))
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(CASES[options.alone](options.alone, options.device)))
        return
    name = f"inference_{options.device}"
    file = measure.RESULTS / f"{name}.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}
    for case in options.case:
        command = [sys.executable, "-m", "benchmarks.bench_inference", "--device", options.device, "--alone", case]
        results[case] = measure.in_process(command, options.threads, options.timeout)
        print(case, json.dumps(results[case]), flush=True)
        gpu = torch.cuda.get_device_name() if options.device == "cuda" else None
        measure.write(name, results, {"gpu": gpu, "rounds": ROUNDS, "calls": CALLS, "threads": options.threads})


if __name__ == "__main__":
    main()
