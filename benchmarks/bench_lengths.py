"""One engine of BERT for 1 to 512 tokens: the first call at each new length beside the later ones.

    python -m benchmarks.bench_lengths

Milliseconds of whole calls, arrays on the device, in an order of lengths that no two runs of a fixed seed change.
Results go to benchmarks/results/lengths.json.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np

import neurenix as nx
from benchmarks import measure
from benchmarks.bench_cuda import entry_of
from benchmarks.zoo import export_entry

NAME = "lengths"
LONGEST = 512


def main() -> None:
    """The command."""
    import tempfile
    from pathlib import Path

    import torch

    parser = measure.parser(__doc__ or "")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--lengths", type=int, default=64, help="how many lengths")
    options = parser.parse_args()
    entry = entry_of("bert")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bert.onnx"
        export_entry(entry, entry.build(), False, path, torch)
        shapes = {name: nx.Shape((1, 1), (1, 128), (1, LONGEST)) for name in entry.inputs}
        backend = nx.hardware.get_backend(options.device, fallback=False)
        model = backend.optimize_model(path, shapes, precision="fp16")
    lengths = random.Random(0).sample(range(1, LONGEST + 1), options.lengths)

    def call(given: dict[str, Any]) -> float:
        start = time.perf_counter()
        model.run(given)
        if options.device == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    first, steady = {}, {}
    for length in [128, *lengths]:
        given = {n: x.to(options.device) for n, x in entry.fill({"batch": 1, "sequence": length}, 0).items()}
        first[length] = call(given)
        steady[length] = float(np.median([call(given) for _ in range(10)][3:]))
    excess = sorted((first[length] - steady[length], length) for length in lengths)
    found = {
        "first_of_all_ms": round(first[128], 2),
        "first_median_ms": round(float(np.median([first[length] for length in lengths])), 2),
        "steady_ms": [round(min(steady.values()), 3), round(max(steady.values()), 3)],
        "excess_median_ms": round(excess[len(excess) // 2][0], 2),
        "excess_worst_ms": {str(length): round(ms, 2) for ms, length in excess[-4:]},
        "within_50_ms": excess[-1][0] <= 50,
    }
    print(json.dumps(found))
    measure.write(NAME, found, {"lengths": options.lengths, "precision": "fp16", "device": options.device})


if __name__ == "__main__":
    main()
