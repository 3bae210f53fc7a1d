"""Keras models as SavedModels, .keras files and frozen graphs: as TensorFlow computes them, and how fast.

Each model has a process of its own, and its row goes into results/tensorflow.json at once: a run that is started again
goes on where it was. Weights are random, and an output that next to nothing reaches (standard deviation up to 0.1) is
no row.

    python -m benchmarks.bench_tensorflow
    python -m benchmarks.bench_tensorflow --times

A row says how far the outputs are from TensorFlow's (of the greatest element) for each kind of file, and which layers
between two convolutions move data. With `--times`, TensorFlow (XLA) and ONNX Runtime (on what tf2onnx makes of the
model) run beside in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS, in_process, interleaved, parser, summary, write
from benchmarks.tensorflow_models import APPLICATIONS, OTHERS, made

NAME = "tensorflow"
#: What outputs must spread at least.
ALIVE = 0.1


def files(model: Any, folder: Path) -> dict[str, Path]:
    """The model in each kind of file."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    model.save(folder / "model.keras")
    model.export(folder / "saved", verbose=False)
    loaded = tf.saved_model.load(folder / "saved")
    signature = loaded.signatures["serving_default"]
    graph = convert_variables_to_constants_v2(signature, lower_control_flow=False).graph.as_graph_def()
    (folder / "frozen.pb").write_bytes(graph.SerializeToString())
    return {"SavedModel": folder / "saved", ".keras": folder / "model.keras", "GraphDef": folder / "frozen.pb"}


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The greatest difference over the greatest element."""
    return float(np.abs(found.astype("float64") - wanted).max() / np.abs(wanted).max())


def moved(report: Any) -> list[str]:
    """The layers that move data between the first convolution and the last one."""
    kernels = report["kernels"]
    convolutions = [i for i, kernel in enumerate(kernels) if kernel["kernel"].startswith("Conv")]
    if not convolutions:
        return []
    between = kernels[convolutions[0] : convolutions[-1]]
    return [kernel["kernel"] for kernel in between if kernel["kernel"] == "Transpose" and kernel["implementation"]]


def worker(name: str, times: bool, threads: int) -> dict[str, Any]:
    """The row of a model."""
    import tensorflow as tf

    import neurenix as nx

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    model, inputs = made(name)
    given = dict(inputs) if len(inputs) > 1 else next(iter(inputs.values()))
    wanted = _leaves(model(given, training=False))
    spread = min(float(array.std()) for array in wanted)
    if not spread > ALIVE:
        raise ValueError(f"the output spreads {spread:.2e} only")
    row: dict[str, Any] = {"std": round(spread, 3), "error": {}}
    shapes = [array.shape for array in inputs.values()]
    options = {"threads": threads}
    with tempfile.TemporaryDirectory() as folder:
        for kind, path in files(model, Path(folder)).items():
            began = time.perf_counter()
            network = nx.importers.from_tensorflow(path)
            row.setdefault("import_s", {})[kind] = round(time.perf_counter() - began, 1)
            names = [port.name for port in network.inputs]
            feeds = dict(zip(names, inputs.values(), strict=True)) if len(names) == 1 else _by_name(names, inputs)
            engine = nx.optimize(network, {n: feeds[n].shape for n in names}, **options)
            outputs = list(engine(feeds).values())
            row["error"][kind] = max(error(a, b) for a, b in zip(outputs, wanted, strict=True))
            if times:
                row["times"] = _times(path, engine, feeds, threads)
                break
        row["moved"] = moved(engine.report())
        row["shapes"] = shapes
    return row


def _by_name(names: list[str], inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: next(inputs[key] for key in inputs if name == key or name.endswith(key)) for name in names}


def _leaves(outputs: Any) -> list[np.ndarray]:
    if isinstance(outputs, dict):
        return [np.asarray(outputs[key]) for key in sorted(outputs)]
    return [np.asarray(one) for one in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


def _times(path: Path, engine: Any, feeds: dict[str, np.ndarray], threads: int) -> dict[str, Any]:
    import onnxruntime as ort

    from neurenix.importers.tensorflow.peer import onnx_bytes, runner

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    session = ort.InferenceSession(onnx_bytes(path), settings, providers=["CPUExecutionProvider"])
    call, compiled = runner(path, feeds, threads)
    runs = {"neurenix": lambda: engine(feeds), "tensorflow": call, "onnxruntime": lambda: session.run(None, feeds)}
    found = {name: summary(samples) for name, samples in interleaved(runs, 15).items()}
    ours = found["neurenix"]["median_ms"]
    ratios = {name: round(ours / found[name]["median_ms"], 3) for name in ("tensorflow", "onnxruntime")}
    return {**found, "ratio": ratios, "xla": compiled, "load": round(os.getloadavg()[0], 1)}


def row_of(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of a model, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_tensorflow", "--worker", name]
    command += ["--threads", str(arguments.threads), *(["--times"] if arguments.times else [])]
    return in_process(command, arguments.threads, arguments.limit, TF_CPP_MIN_LOG_LEVEL="2")


def told(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the rows come to."""
    right = {key: row for key, row in rows.items() if "error" in row}
    timed = [row["times"]["ratio"] for row in right.values() if "times" in row]
    return {
        "models": len(rows),
        "within 1e-4": sum(max(row["error"].values()) <= 1e-4 for row in right.values()),
        "failed": sorted(key for key, row in rows.items() if "failed" in row),
        "with Transposes between convolutions": sorted(key for key, row in right.items() if row["moved"]),
        "at most 0.7 of TensorFlow's time": f"{sum(one['tensorflow'] <= 0.7 for one in timed)} of {len(timed)}",
        "at most ONNX Runtime's time": f"{sum(one['onnxruntime'] <= 1.0 for one in timed)} of {len(timed)}",
    }


def main() -> int:
    made_parser = parser(__doc__ or "")
    made_parser.add_argument("--times", action="store_true", help="against TensorFlow and ONNX Runtime")
    made_parser.add_argument("--only", nargs="+", default=[*APPLICATIONS, *OTHERS], metavar="NAME")
    made_parser.add_argument("--limit", type=int, default=600, help="seconds for a model")
    made_parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which none is started")
    made_parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = made_parser.parse_args()
    if arguments.worker:
        try:
            print(json.dumps(worker(arguments.worker, arguments.times, arguments.threads)))
        except Exception as failure:
            traceback.print_exc()
            print(json.dumps({"failed": f"{type(failure).__name__}: {str(failure)[:500]}"}))
        return 0
    path, began = RESULTS / f"{NAME}.json", time.monotonic()
    rows = json.loads(path.read_text())["results"]["rows"] if path.exists() else {}
    for name in arguments.only:
        key = f"{'times' if arguments.times else 'accuracy'}/{name}"
        if (key in rows and "failed" not in rows[key]) or time.monotonic() - began > arguments.budget:
            continue
        rows[key] = row_of(name, arguments)
        print(key, json.dumps(rows[key]), flush=True)
        kinds = sorted({each.split("/")[0] for each in rows})
        found = {kind: told({k: r for k, r in rows.items() if k.startswith(kind)}) for kind in kinds}
        write(NAME, {"summary": found, "rows": rows}, {"threads": arguments.threads})
    return 0


if __name__ == "__main__":
    sys.exit(main())
