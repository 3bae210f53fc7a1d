"""Models of ONNX Runtime's `quantize_dynamic`: Neurenix and ONNX Runtime on the same file and threads.

    python -m benchmarks.bench_dynamic --models lstm_tagger lstm_512 bert

Models are those of `benchmarks.networks` and `benchmarks.zoo`, `lstm_512` (one layer in both directions, 512 inputs
and states, 40 steps, as text recognition has it), or files, whose open dimensions are --open. Each is run in several
processes, each of which times both peers in turns, and ours twice for the band of A against A; `--clock` is that of
`bench_weights`. Writes benchmarks/results/dynamic.json.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_int8 import Arrays, floating, plain, quantized


def lstm(folder: Path) -> tuple[Arrays, Path]:
    """A layer of LSTM in both directions."""
    import torch

    torch.manual_seed(0)
    module = torch.nn.LSTM(512, 512, bidirectional=True).eval()
    x, path = torch.randn(40, 1, 512), folder / "lstm.onnx"
    torch.onnx.export(module, (x,), path, dynamo=False, opset_version=17, input_names=["x"])
    return {"x": x.numpy()}, path


def given_to(path: Path, extent: int) -> Arrays:
    """Random inputs of a file."""
    import onnx

    rng, given = np.random.default_rng(0), {}
    for value in onnx.load(path).graph.input:
        shape = [d.dim_value or extent for d in value.type.tensor_type.shape.dim]
        given[value.name] = rng.random(shape, np.float32)
    return given


def once(name: str, options: Any) -> dict[str, Any]:
    """Both peers on one file, in this process."""
    from neurenix.hardware.tensorrt import TensorRTBackend

    threads = options.threads
    with tempfile.TemporaryDirectory() as folder:
        if name.endswith(".onnx"):
            path, given = Path(name), given_to(Path(name), options.open)
        else:
            given, path = lstm(Path(folder)) if name == "lstm_512" else floating(name, 1, Path(folder))
            path = quantized(path, "dynamic", given)
        shapes = {key: x.shape for key, x in given.items()}
        models = [TensorRTBackend().optimize_model(path, shapes, threads=threads) for _ in range(2)]
        want = plain(path, given)
        answer = models[0](given)
        got = np.asarray(next(iter(answer.values())) if isinstance(answer, dict) else answer)
        runs = {
            "neurenix": lambda: models[0](given),
            "onnxruntime": measure.onnxruntime(path, given, threads),
            "neurenix again": lambda: models[1](given),
        }
        times = measure.CLOCKS[options.clock](runs, options.rounds)
    middle = {peer: statistics.median(each) for peer, each in times.items()}
    noise = max(float(np.mean((got - want) ** 2)), 1e-30)
    return {
        **{f"{peer}, ms": round(each, 3) for peer, each in middle.items()},
        **{f"{peer}, least ms": round(min(each), 3) for peer, each in times.items()},
        "neurenix / onnxruntime": round(middle["neurenix"] / middle["onnxruntime"], 3),
        "A / A": round(middle["neurenix again"] / middle["neurenix"], 3),
        "SQNR against onnxruntime, dB": round(10 * float(np.log10(float(np.mean(want**2)) / noise)), 1),
        "arithmetic": models[0].report()["arithmetic_per_dtype"],
    }


def together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of several processes, and the ratios of each."""
    numbers = [name for name, value in rows[0].items() if isinstance(value, float)]
    merged: dict[str, Any] = {name: round(statistics.median(row[name] for row in rows), 4) for name in numbers}
    for name in ("neurenix / onnxruntime", "A / A"):
        merged[f"{name}, each process"] = [row[name] for row in rows]
    return merged | {"arithmetic": rows[0]["arithmetic"]}


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=["lstm_tagger", "lstm_512", "bert"])
    parser.add_argument("--open", type=int, default=160, help="extent of open dimensions of files")
    parser.add_argument("--rounds", type=int, default=15)
    measure.add_processes(parser)
    options = parser.parse_args()
    if options.clock == "processor":
        options.threads = 1
    if options.alone:
        print(json.dumps(once(options.alone, options)))
        return
    results = {}
    for name in options.models:
        results[Path(name).name] = together(measure.in_processes("benchmarks.bench_dynamic", name, options, ["open"]))
        print(name, json.dumps(results[Path(name).name], indent=2))
    print(measure.write("dynamic", results, {key: value for key, value in vars(options).items() if key != "alone"}))


if __name__ == "__main__":
    main()
