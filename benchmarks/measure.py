"""What the benchmarks share: the peers with the settings of a fair comparison, the machine, and where results go."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "torch", "torchvision", "onnx", "onnxruntime", "openvino")

#: Runs a model once.
Run = Callable[[], Any]
#: The input of a model that has one, or all by name.
Inputs = np.ndarray | Mapping[str, np.ndarray]


def neurenix(path: Path, x: np.ndarray, threads: int, precision: str = "fp32") -> Run:
    """Ours; as many threads as the peers."""
    from neurenix.hardware.tensorrt import TensorRTBackend

    model = TensorRTBackend().optimize_model(path, {"input": x.shape}, precision=precision, threads=threads)
    return lambda: model(x)


def openvino(path: Path, x: Inputs, threads: int, precision: str = "f32") -> Run:
    """OpenVINO for latency, in the precision that is asked for: left alone it takes bf16 where the processor has it."""
    import openvino

    core = openvino.Core()
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
    }
    model = core.read_model(path)
    given = dict(x) if isinstance(x, Mapping) else {model.input(0).any_name: x}
    model.reshape({name: list(array.shape) for name, array in given.items()})
    request = core.compile_model(model, "CPU", options).create_infer_request()
    return lambda: request.infer(given, share_inputs=True)


def limits_for_bf16() -> dict[str, str]:
    """What OpenVINO's bf16 needs in the environment here.

    Some hypervisors announce AMX and hide its tiles; OpenVINO then dies of an illegal instruction unless it is told to
    leave AMX alone.
    """
    limit = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    code = """if True:
        import numpy, openvino
        from openvino import opset13 as ops
        x = ops.parameter([64, 256], numpy.float32)
        product = ops.matmul(x, ops.constant(numpy.ones((256, 256), numpy.float32)), False, False)
        options = {"INFERENCE_PRECISION_HINT": "bf16"}
        model = openvino.Core().compile_model(openvino.Model([product], [x]), "CPU", options)
        model([numpy.ones((64, 256), numpy.float32)])
    """
    return limit if subprocess.run([sys.executable, "-c", code], check=False).returncode < 0 else {}


def onnxruntime(path: Path, x: Inputs, threads: int) -> Run:
    """ONNX Runtime with all its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = dict(x) if isinstance(x, Mapping) else {session.get_inputs()[0].name: x}
    return lambda: session.run(None, given)


def torch(module: Any, x: np.ndarray, threads: int) -> Run:
    """PyTorch as it is, without its compiler."""
    import torch

    torch.set_num_threads(threads)
    tensor = torch.from_numpy(x)

    def run() -> Any:
        with torch.inference_mode():
            return module(tensor)

    return run


def milliseconds(run: Run) -> float:
    """How long one run takes."""
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def interleaved(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """The times of all, one after another in each round, so that a change of the machine's speed meets them all.

    Before each time that counts stands a run that does not, after a pause in which the threads of the one before have
    gone to sleep: ONNX Runtime's spin for 45 ms.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(0.1)
            run()
            times[name].append(milliseconds(run))
    return times


def processor_time(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of the processor, of all in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time_ns()
            run()
            times[name].append((time.process_time_ns() - start) / 1e6)
    return times


#: How times are taken, by the option --clock.
CLOCKS = {"wall": interleaved, "processor": processor_time}


def machine() -> dict[str, Any]:
    """The processor and the versions of everything that takes part."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    import neurenix

    versions = {"neurenix": neurenix.__version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def write(name: str, results: Any, settings: dict[str, Any]) -> Path:
    """Writes a JSON file into `results/`, whole or not at all."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    record = {"when": when, "machine": machine(), "settings": settings, "results": results}
    # A run that is ended while it writes leaves the file as it was.
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.replace(path)
    return path


def in_process(command: list[str], threads: int, limit: float, **environment: str) -> dict[str, Any]:
    """The JSON in the last line that a process prints within `limit` seconds; `failed` and why, where there is none."""
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads), **environment}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=variables, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"takes longer than {limit:g} s"}
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if last.startswith("{"):
        return dict(json.loads(last))
    reason = (done.stderr.strip().splitlines() or [""])[-1][:300]
    return {"failed": f"the process ended with {done.returncode}: {reason}"}


def add_processes(parser: argparse.ArgumentParser) -> None:
    """The options of a benchmark that runs each case in several processes."""
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--alone", help="runs one case in this process, and prints JSON")


def in_processes(module: str, case: str, options: argparse.Namespace, shared: Sequence[str]) -> list[dict[str, Any]]:
    """What `module --alone CASE` prints last, in each of several processes that get the `shared` options too."""
    given = [f"--{name}={getattr(options, name)}" for name in (*shared, "rounds", "threads", "clock")]
    command = [sys.executable, "-m", module, "--alone", case, *given]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(options.processes)]
    return [json.loads(run.stdout.splitlines()[-1]) for run in runs]


def summary(times: list[float]) -> dict[str, float]:
    """Median and spread of some times."""
    ordered = sorted(times)
    return {
        "median_ms": round(statistics.median(ordered), 3),
        "min_ms": round(ordered[0], 3),
        "p90_ms": round(ordered[int(0.9 * (len(ordered) - 1))], 3),
        "runs": len(ordered),
    }


def parser(doc: str) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads for everybody")
    return made
