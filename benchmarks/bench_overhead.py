"""What a call costs besides its work: ReLU on 1x8, numpy in and numpy out, the median of 10 000 whole calls.

python -m benchmarks.bench_overhead
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

from benchmarks import measure


def relu(path: Path) -> None:
    """Writes the model."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("input", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["input"], ["y"])], "relu", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def microseconds(run: measure.Run, calls: int) -> float:
    """The median of whole calls."""
    for _ in range(200):
        run()
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return round(statistics.median(times) / 1e3, 2)


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args()
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "relu.onnx")
        relu(path)
        peers = {
            "neurenix": measure.neurenix(path, x, options.threads),
            "onnxruntime": measure.onnxruntime(path, x, options.threads),
            "openvino": measure.openvino(path, x, options.threads),
        }
        results = {name: {"median_us": microseconds(run, options.calls)} for name, run in peers.items()}
    for name, result in results.items():
        print(f"{name:12} {result['median_us']:8.2f} us")
    print("written:", measure.write("overhead", results, {"calls": options.calls, "threads": options.threads}))


if __name__ == "__main__":
    main()
