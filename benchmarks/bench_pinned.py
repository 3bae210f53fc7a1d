"""ResNet-50 of 32 images out of pinned memory of the processor, from several threads: copies beside kernels.

    python -m benchmarks.bench_pinned

`device_only` is the rate of calls with arrays on the GPU, one after another; `pinned` that of calls with arrays in
pinned memory from so many threads, `pageable` with numpy's own. Results go to benchmarks/results/pinned.json.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import neurenix as nx
from benchmarks import measure
from benchmarks.bench_cuda import OPSET, entry_of, timed

BATCH = 32
CALLS = 240
THREADS = (1, 2, 3, 4)


def rate(call: Callable[[], Any], threads: int) -> float:
    """Images a second of calls from so many threads."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: call(), range(8 * threads)))
        start = time.perf_counter()
        list(pool.map(lambda _: call(), range(CALLS)))
        return BATCH * CALLS / (time.perf_counter() - start)


def main() -> None:
    """The command."""
    import torch

    torch.manual_seed(0)
    file = io.BytesIO()
    x = torch.randn(BATCH, 3, 224, 224)
    torch.onnx.export(entry_of("resnet50").build().eval(), (x,), file, dynamo=False, opset_version=OPSET)
    backend = nx.hardware.get_backend("cuda", fallback=False)
    model = backend.optimize_model(file.getvalue(), precision="fp16", io_dtype="fp16")
    half = x.half()
    on_device, pinned, pageable = half.cuda(), half.pin_memory(), half.numpy()
    device_only = BATCH / timed(lambda: model(on_device), 200)["stream_ms"] * 1e3
    found = {
        "device": torch.cuda.get_device_name(),
        "device_only": device_only,
        "pinned": {threads: rate(lambda: model(pinned), threads) for threads in THREADS},
        "pageable": {threads: rate(lambda: model(pageable), threads) for threads in THREADS},
    }
    found["share"] = max(found["pinned"].values()) / device_only
    print(json.dumps(found))
    (measure.RESULTS / "pinned.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
