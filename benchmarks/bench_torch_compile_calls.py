"""What a compiled call costs beside its engines, and how soon a second process answers.

Overhead: a call of a function of N partitions less what the engines take called alone, and less a call of the same
function by a backend of AOT autograd that computes nothing (with as many parameters); of one partition. Second process:
the first answer of ResNet-50 from engines that another process has kept, beside that of `aot_eager`.

    python -m benchmarks.bench_torch_compile_calls --threads 1
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import parser, write

PARTITIONS = (1, 4, 16)
CALLS = 3000

FIRST = """
import json, os, sys, time, torch, torchvision
torch.set_num_threads(int(sys.argv[2]))
torch.manual_seed(0)
model, x = torchvision.models.resnet50().eval(), torch.randn(1, 3, 224, 224)
with torch.no_grad():
    began = time.perf_counter()
    found = torch.compile(model, backend=sys.argv[1])(x)
    print(json.dumps(time.perf_counter() - began))
"""


def microseconds(function: Callable[[], Any]) -> float:
    """The median of many calls."""
    for _ in range(CALLS // 10):
        function()
    times = []
    for _ in range(CALLS):
        began = time.perf_counter_ns()
        function()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1e3


def engine_alone() -> float:
    """What the engine of one layer takes, called as partitions call theirs."""
    import torch

    from neurenix.hardware import get_backend
    from neurenix.torch.calls import EngineCall

    options: dict[str, Any] = {"threads": 1, "optimization_level": 0, "timing_cache": False, "refittable": True}
    model = get_backend("cpu").optimize_model(torch.nn.Linear(16, 16), (4, 16), **options)
    call, x = EngineCall(model, torch.device("cpu")), torch.randn(4, 16)
    return microseconds(lambda: call.run([x]))


def overhead(partitions: int) -> dict[str, float]:
    """Of a function of so many partitions, with an operator between them that torch runs."""
    import torch
    from torch._dynamo.backends.common import aot_autograd

    from neurenix.torch import reports
    from neurenix.torch.dynamo import neurenix

    layers = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(partitions)])

    def chain(x: Any) -> Any:
        for place, layer in enumerate(layers):
            x = layer(x) if place == 0 else layer(torch.nanmedian(x) + x)
        return x

    def nothing(module: Any, inputs: Any) -> Any:
        from functorch.compile import make_boxed_func

        results = module(*inputs)
        return make_boxed_func(lambda *args: results)

    x = torch.randn(4, 16)
    with torch.no_grad():
        torch._dynamo.reset()
        options = {"threads": 1, "optimization_level": 0, "timing_cache": False, "cache": False}
        function = torch.compile(chain, backend=neurenix, options=options)
        function(x)
        report = reports()[-1]
        found = sum(part.runs == "engine" for part in report.partitions)
        whole = microseconds(lambda: function(x))
        inside = engine_alone() * found
        torch._dynamo.reset()
        empty = torch.compile(chain, backend=aot_autograd(fw_compiler=nothing, inference_compiler=nothing))
        empty(x)
        alone = microseconds(lambda: empty(x))
        between = microseconds(lambda: torch.nanmedian(x) + x) * (partitions - 1)
    return {
        "partitions": found,
        "call_us": round(whole, 1),
        "in_engines_us": round(inside, 1),
        "empty_backend_us": round(alone, 1),
        "in_torch_us": round(between, 1),
        "overhead_us_per_partition": round((whole - inside - alone - between) / max(found, 1), 1),
    }


def first_answers(threads: int) -> dict[str, float]:
    """Seconds to the first answer of ResNet-50: the process that builds, one after it, and aot_eager's."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NEURENIX_CACHE_DIR": folder}
        found = {}
        for name, backend in (("builds", "neurenix"), ("aot_eager", "aot_eager"), ("from_cache", "neurenix")):
            command = [sys.executable, "-c", "import neurenix.torch\n" + FIRST, backend, str(threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            found[name] = round(json.loads(done.stdout.strip().splitlines()[-1]), 2)
    return {**found, "over_aot_eager": round(found["from_cache"] - found["aot_eager"], 2)}


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    import torch

    torch.set_num_threads(arguments.threads)
    results = {
        "overhead": [overhead(count) for count in PARTITIONS],
        "resnet50_first_answer_s": first_answers(arguments.threads),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(results, indent=1))
    write("torch_compile_calls", results, {"threads": arguments.threads, "calls": CALLS})
    return 0


if __name__ == "__main__":
    sys.exit(main())
