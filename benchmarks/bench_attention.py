"""Attention alone on a GPU, in float16: an engine of one layer beside PyTorch's own function, in turns.

    python -m benchmarks.bench_attention

Milliseconds of one of many calls that follow one another in a stream, on arrays that lie there; below some 0.03 it is
the processor that takes them. An error is the root mean square over the first batches against double precision, as a
share. Results join those in benchmarks/results/attention_cuda.json. `--device cpu` is a look without a GPU, in float32,
and writes nothing.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from benchmarks.bench_cuda import rms, timed
from benchmarks.measure import RESULTS, milliseconds, parser, write

NAME = "attention_cuda"
#: Batch, heads, queries, keys and size of a head, and whether it is causal.
SHAPES = [
    (32, 12, 128, 128, 64, False),
    (8, 12, 1024, 1024, 64, False),
    (2, 8, 4096, 4096, 64, False),
    (200, 4, 196, 196, 96, False),
    (2048, 2, 64, 64, 96, False),
    (8, 4, 4096, 4096, 96, False),
    (8, 16, 512, 512, 128, False),
    (2, 32, 4096, 4096, 128, False),
    (4, 32, 1024, 1024, 128, True),
    (1, 16, 8192, 8192, 128, True),
    (1, 8, 2048, 2048, 256, True),
]
SMALL = [(2, 3, 40, 50, 64, False), (1, 2, 64, 64, 96, True)]
#: Turns of each side, and calls in each.
TURNS, CALLS = 5, 30


def module(causal: bool) -> Any:
    """PyTorch's own function."""
    import torch

    class Attention(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return Attention().eval()


def row(shape: tuple[int, int, int, int, int, bool], device: str) -> dict[str, Any]:
    """Times and errors of both."""
    import torch

    import neurenix as nx

    batch, heads, queries, keys, size, causal = shape
    torch.manual_seed(0)
    dtype = torch.float16 if device == "cuda" else torch.float32
    lengths = {"q": queries, "k": keys, "v": keys}
    given = {
        name: torch.randn(batch, heads, length, size, device=device, dtype=dtype) for name, length in lengths.items()
    }
    theirs = module(causal)
    options: dict[str, Any] = {"precision": "fp16", "io_dtype": "fp16"} if device == "cuda" else {}
    model = nx.hardware.get_backend(device).optimize_model(
        theirs, {name: tuple(one.shape) for name, one in given.items()}, **options
    )
    runs = {"neurenix": lambda: model.run(given), "torch": lambda: theirs(*given.values())}
    with torch.no_grad():
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(TURNS):
            for name, run in runs.items():
                times[name].append(timed(run, CALLS)["stream_ms"] if device == "cuda" else milliseconds(run))
        want = theirs(*(one[:4].double() for one in given.values()))
        found = {"neurenix": next(iter(model.run(given).values())), "torch": theirs(*given.values())}
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return {
        **{f"{name}_ms": round(taken, 4) for name, taken in medians.items()},
        "ratio": round(medians["neurenix"] / medians["torch"], 3),
        "errors": {name: float(f"{rms(torch.as_tensor(one)[:4], want):.3g}") for name, one in found.items()},
        "kernel": next(each["implementation"] for each in model.report()["kernels"] if "Attention" in each["kernel"]),
    }


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    device = made.parse_args().device
    path = RESULTS / f"{NAME}.json"
    rows = json.loads(path.read_text())["results"] if path.exists() and device == "cuda" else {}
    for shape in SHAPES if device == "cuda" else SMALL:
        name = " ".join(map(str, shape[:5])) + (" causal" if shape[5] else "")
        rows[name] = row(shape, device)
        print(name, json.dumps(rows[name]), flush=True)
    if device == "cuda":
        import torch

        write(NAME, rows, {"gpu": torch.cuda.get_device_name()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
