"""Models that ONNX Runtime's quantizer wrote: Neurenix, OpenVINO and ONNX Runtime on the same file, on a processor.

    python -m benchmarks.bench_int8 --models resnet50 mobilenetv3 --forms qdq qoperator

Models are those of `benchmarks.networks` and of `benchmarks.zoo`. Prints medians and, against ONNX Runtime without its
optimisations, the share of outputs' elements that differ; writes benchmarks/results/int8.json. Needs onnxruntime,
openvino, torch and torchvision.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_models import export

Arrays = dict[str, np.ndarray]

#: Batches that ranges are calibrated on.
BATCHES = 4


def floating(name: str, batch: int, folder: Path) -> tuple[Arrays, Path]:
    """Inputs of a model in float32 and its file: a network of `networks`, or an entry of the zoo at its first sizes."""
    from benchmarks import networks

    if name in networks.NETWORKS:
        _, x, path = export(name, batch, folder)
        return {"input": x}, path
    import torch

    from benchmarks.bench_cuda import entry_of
    from benchmarks.zoo import export_entry

    entry, path = entry_of(name), folder / f"{name}.onnx"
    export_entry(entry, entry.build(), False, path, torch)
    given = entry.fill(entry.sizes[0] | {"batch": batch}, 0)
    return {key: value.numpy() for key, value in given.items()}, path


def like(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other numbers of the same kind: normal ones, or the integers in another order."""
    if np.issubdtype(x.dtype, np.floating):
        return rng.normal(size=x.shape).astype(x.dtype)
    return rng.permuted(x, axis=-1)


def quantized(source: Path, form: str, given: Arrays) -> Path:
    """A file in 8 bits: "qdq" and "qoperator" per channel and calibrated, or "dynamic"."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quant_pre_process,
        quantize_dynamic,
        quantize_static,
    )

    class Random(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            rng = np.random.default_rng(1)
            self.batches = iter([{k: like(x, rng) for k, x in given.items()} for _ in range(BATCHES)])

        def get_next(self) -> Any:
            return next(self.batches, None)

    path = source.with_name(f"{source.stem}_{form}.onnx")
    ready = source.with_name(f"{source.stem}_ready.onnx")
    quant_pre_process(source, ready, skip_symbolic_shape=True)
    if form == "dynamic":
        quantize_dynamic(ready, path, weight_type=QuantType.QInt8)
        return path
    quant = QuantFormat.QDQ if form == "qdq" else QuantFormat.QOperator
    types = {"weight_type": QuantType.QInt8, "activation_type": QuantType.QUInt8}
    quantize_static(ready, path, Random(), quant_format=quant, per_channel=True, **types)
    return path


def plain(path: Path, given: Arrays) -> np.ndarray:
    """What ONNX Runtime gives without optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, given)[0])


def one(name: str, form: str, batch: int, threads: int, rounds: int) -> dict[str, Any]:
    """All peers on one file."""
    from neurenix.hardware import get_backend

    with tempfile.TemporaryDirectory() as folder:
        given, path = floating(name, batch, Path(folder))
        path = quantized(path, form, given)
        shapes = {key: x.shape for key, x in given.items()}
        ours = get_backend("cpu").optimize_model(path, shapes, threads=threads)
        want, got = plain(path, given), np.asarray(next(iter(ours(given).values())))
        runs = {
            "neurenix": lambda: ours(given),
            "openvino": measure.openvino(path, given, threads),
            "onnxruntime": measure.onnxruntime(path, given, threads),
        }
        times = measure.interleaved(runs, rounds)
    results: dict[str, Any] = {peer: measure.summary(each) for peer, each in times.items()}
    noise = float(np.mean((got - want) ** 2))
    results["SQNR against onnxruntime, dB"] = round(10 * np.log10(float(np.mean(want**2)) / max(noise, 1e-30)), 1)
    for peer in ("openvino", "onnxruntime"):
        for figure in ("median_ms", "min_ms"):
            ratio = results["neurenix"][figure] / results[peer][figure]
            results[f"neurenix / {peer}, {figure}"] = round(ratio, 3)
    results["arithmetic"] = ours.report()["arithmetic_per_dtype"]
    return results


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=["resnet50", "mobilenetv3"])
    parser.add_argument("--forms", nargs="+", default=["qdq", "qoperator"], choices=["qdq", "qoperator", "dynamic"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    results = {}
    for name in options.models:
        for form in options.forms:
            key = f"{name} {form}"
            results[key] = one(name, form, options.batch, options.threads, options.rounds)
            print(f"{key}, batch {options.batch}, {options.threads} threads")
            for what, value in results[key].items():
                shown = f"{value['median_ms']:.2f} ms" if isinstance(value, dict) and "median_ms" in value else value
                print(f"  {what:32} {shown}")
    settings = {"batch": options.batch, "threads": options.threads, "rounds": options.rounds}
    print(measure.write("int8", results, settings))


if __name__ == "__main__":
    main()
