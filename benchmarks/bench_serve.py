"""What `neurenix serve` adds to a model: latency, requests a second, executions, and memory over many requests.

    python -m benchmarks.bench_serve [--leak 200000]

The server and the clients share the machine's cores. The toy is a perceptron of two layers, which takes microseconds;
the slow model is one with 64 MiB of weights, which the rows of a batch share. Times are those of whole requests, as
clients see them. Results go to benchmarks/results/serve.json.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import measure
from neurenix.cli.measure import measure as cli_measure
from neurenix.hardware import get_backend
from neurenix.serve.load import Load, Target, closed, opened

#: What must hold (milliseconds, requests a second).
LIMITS = {"one_ms": 1.0, "sixteen_qps": 1200.0, "rows_per_execution": 4.0, "light_load": 1.3}


def toy() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A perceptron, and the shape of a request."""
    generator = np.random.default_rng(0)
    given = {"w": generator.standard_normal((16, 32)), "v": generator.standard_normal((32, 4))}
    nodes = [
        helper.make_node("MatMul", ["input", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["output"]),
    ]
    return _model(nodes, given, [16], [4]), (1, 16)


#: Layers of the slow model, and their width: 64 MiB of weights, which each execution reads.
LAYERS, WIDTH = 4, 2048


def network() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A perceptron of some milliseconds, most of which goes into reading weights, and the shape of a request."""
    generator = np.random.default_rng(0)
    names = [f"w{number}" for number in range(LAYERS)]
    given = {name: generator.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH) for name in names}
    nodes, last = [], "input"
    for number, name in enumerate(names):
        made = "output" if number == LAYERS - 1 else f"r{number}"
        nodes += [
            helper.make_node("MatMul", [last, name], [f"m{number}"]),
            helper.make_node("Tanh", [f"m{number}"], [made]),
        ]
        last = made
    return _model(nodes, given, [WIDTH], [WIDTH]), (1, WIDTH)


def _model(nodes: list[Any], given: dict[str, Any], taken: list[int], made: list[int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "model",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", *taken])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", *made])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in given.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@contextlib.contextmanager
def serving(path: Path, threads: int, *words: str) -> Iterator[tuple[int, str, str]]:
    """A server in a process of its own: its number, and its addresses for HTTP and gRPC."""
    command = [sys.executable, "-m", "neurenix.cli", "serve", f"model={path}", "--http-port", "0", "--grpc-port", "0"]
    command += ["--device", "cpu", "--threads", str(threads), *words]
    environment = os.environ | {"NEURENIX_LOG": "info"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if match := re.search(r"at (http://\S+) and gRPC (\S+)", line):
                    yield process.pid, match[1], f"grpc://{match[2]}"
                    return
            raise SystemExit("the server did not start")
        finally:
            process.terminate()
            process.wait(60)


def figures(load: Load) -> dict[str, Any]:
    """The figures of a load, rounded."""
    if load.failures:
        raise SystemExit(f"requests failed: {load.failures}")
    row = load.record((50, 90, 99))
    latency = {name: round(value, 3) for name, value in row["latency_ms"].items()}
    return {
        "requests_per_s": round(row["throughput_qps"], 1), "latency_ms": latency,
        "rows_per_execution": round(row["rows_per_execution"] or 0, 2),
    }  # fmt: skip


def speed(folder: Path, threads: int, seconds: float, turns: int) -> dict[str, Any]:
    """The toy by both protocols, one request at a time and from 16 threads: the turn with the median rate."""
    model, shape = toy()
    onnx.save(model, folder / "toy.onnx")
    array = {"input": np.ones(shape, np.float32)}
    found = {}
    with serving(folder / "toy.onnx", threads) as (_, http, grpc):
        for name, url in (("http", http), ("grpc", grpc)):
            for clients in (1, 16):
                loads = [closed(Target(url, "model", array), clients, seconds) for _ in range(turns)]
                found[f"{name}, {clients} at a time"] = figures(sorted(loads, key=lambda load: load.rate)[turns // 2])
    return found


def batching(folder: Path, threads: int, seconds: float, turns: int) -> dict[str, Any]:
    """16 clients of the slow model, and its latency under 10 % of the load that it can bear, against a server that
    makes no batches under the same load, in turns, and against a client alone."""
    model, shape = network()
    path = folder / "network.onnx"
    onnx.save(model, path)
    array = {"input": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    with serving(path, threads) as (_, http, _), serving(path, threads, "--max-batch-size", "0") as (_, plain, _):
        batched, single = Target(http, "model", array), Target(plain, "model", array)
        alone = closed(batched, 1, seconds)
        sixteen = closed(batched, 16, seconds)
        rate = sixteen.rate / 10
        light = [[opened(target, rate, seconds, 16) for target in (batched, single)] for _ in range(turns)]
        paused = _with_pauses(path, threads, 10 / sixteen.rate, seconds)
    medians = [[statistics.median(load.seconds) for load in turn] for turn in light]
    own, other = ([turn[at] for turn in medians] for at in (0, 1))
    return {
        "1 client": figures(alone), "16 clients": figures(sixteen), "a tenth of that rate": figures(light[-1][0]),
        "median of the light load over that without batching, in each turn": [round(a / b, 3) for a, b in medians],
        "the same, each server against itself": [
            round(late / early, 3) for times in (own, other) for early, late in itertools.pairwise(times)
        ],
        "median of the light load over that of 1 client": round(
            statistics.median(own) / statistics.median(alone.seconds), 3
        ),
        "median ms of the model alone, without pauses and with those of the light load": paused,
    }  # fmt: skip


def _with_pauses(path: Path, threads: int, pause: float, seconds: float) -> list[float]:
    """What pauses cost a model by themselves, without a server: cold caches, and threads that were asleep."""
    model = get_backend("cpu").optimize_model(path, {"input": ((1, WIDTH), (8, WIDTH), (16, WIDTH))}, threads=threads)
    x = {"input": np.ones((1, WIDTH), np.float32)}
    found = []
    for wait in (0.0, pause):
        times = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            time.sleep(wait)
            begin = time.perf_counter()
            model.run(x)
            times.append(1e3 * (time.perf_counter() - begin))
        found.append(round(statistics.median(times), 3))
    return found


def convolutions() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A convolutional network of some milliseconds of computing, and the shape of a request."""
    generator = np.random.default_rng(0)
    given, nodes, last, before = {}, [], "input", 3
    for number, (channels, stride) in enumerate([(32, 1), (64, 2), (128, 2), (128, 1), (128, 1)]):
        given[f"w{number}"] = generator.standard_normal((channels, before, 3, 3)) / np.sqrt(9 * before)
        nodes += [
            helper.make_node("Conv", [last, f"w{number}"], [f"c{number}"], pads=[1] * 4, strides=[stride] * 2),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"]),
        ]
        last, before = f"r{number}", channels
    nodes += [helper.make_node("GlobalAveragePool", [last], ["p"]), helper.make_node("Flatten", ["p"], ["output"])]
    return _model(nodes, given, [3, 112, 112], [before]), (1, 3, 112, 112)


def curve(path: Path, shape: tuple[int, ...], seconds: float) -> dict[int, float]:
    """Milliseconds of an execution on one thread, by its rows: what `neurenix bench` says of each."""
    rest = shape[1:]
    model = get_backend("cpu").optimize_model(path, {"input": ((1, *rest), (8, *rest), (16, *rest))}, threads=1)
    found = {}
    for rows in (1, 2, 4, 8, 16):
        x = {"input": np.ones((rows, *rest), np.float32)}
        times = cli_measure({"neurenix": partial(model.run, x)}, 0.2, seconds / 4, None)["neurenix"]
        found[rows] = round(1e3 * statistics.median(times), 3)
    return found


def replicas(folder: Path, seconds: float) -> dict[str, Any]:
    """Two replicas with a core each, at shares of the rate that the batch curve says they bear, half of it to each.

    `late` counts requests that the load generator, which shares these cores, sent late.
    """
    model, shape = convolutions()
    path = folder / "convolutions.onnx"
    onnx.save(model, path)
    times = curve(path, shape, seconds)
    capacity = max(1e3 * rows / ms for rows, ms in times.items())
    arrays = {"input": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    found: dict[str, Any] = {"ms by rows, 1 thread": times, "rows/s of a replica by the curve": round(capacity, 1)}
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(serving(path, 1))[1] for _ in range(2)]
        for share in (0.3, 0.5, 0.7):
            with ThreadPoolExecutor(2) as pool:
                each = [
                    pool.submit(opened, Target(url, "model", arrays), share * capacity, seconds, 32, True, seed)
                    for seed, url in enumerate(urls)
                ]  # fmt: skip
                loads = [one.result() for one in each]
            both = Load([s for load in loads for s in load.seconds], max(load.walltime_s for load in loads))
            found[f"both at {share:g} of it"] = figures(both) | {
                "asked_per_s": round(2 * share * capacity, 1),
                "late": sum(load.late for load in loads),
                "rows_per_execution": [round(load.rows_per_execution or 0, 2) for load in loads],
            }
    return found


def resident(process: int) -> float:
    """The memory of a process, in MiB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def leak(folder: Path, threads: int, requests: int) -> dict[str, Any]:
    """The server's memory while it answers so many requests, by both protocols in turns."""
    model, shape = toy()
    onnx.save(model, folder / "toy.onnx")
    array = {"input": np.ones(shape, np.float32)}
    memory: list[tuple[int, float]] = []
    with serving(folder / "toy.onnx", threads) as (process, http, grpc):
        sent = 0
        while sent < requests:
            for url in (http, grpc):
                load = closed(Target(url, "model", array), 16, 2.0)
                figures(load)
                sent += len(load.seconds)
            memory.append((sent, resident(process)))
            print(f"{sent} requests: {memory[-1][1]} MiB", flush=True)
    return {"requests": sent, "MiB after so many requests": memory[:: max(1, len(memory) // 12)] + memory[-1:]}


def main() -> None:
    """The command."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--leak", type=int, default=200_000, help="requests of the run for memory; 0: none")
    options: argparse.Namespace = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results: dict[str, Any] = {"limits": LIMITS}
        results["toy"] = speed(folder, options.threads, options.seconds, options.turns)
        print(results["toy"], flush=True)
        results["batching"] = batching(folder, options.threads, options.seconds, options.turns)
        print(results["batching"], flush=True)
        results["two replicas"] = replicas(folder, options.seconds)
        print(results["two replicas"], flush=True)
        if options.leak:
            results["memory"] = leak(folder, options.threads, options.leak)
    results["took_s"] = round(time.perf_counter() - begin)
    measure.write("serve", results, {"threads": options.threads, "seconds": options.seconds, "turns": options.turns})


if __name__ == "__main__":
    main()
