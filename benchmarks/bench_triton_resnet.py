"""ResNet-50 on the processor in Triton: our backend, and python backends around ONNX Runtime and OpenVINO.

    python tools/triton.py environment FOLDER && FOLDER/bin/pip install onnxruntime openvino
    python tools/triton.py backend BACKENDS --environment FOLDER
    python -m benchmarks.bench_triton_resnet --environment FOLDER --backends BACKENDS

All three in one server with the same dynamic batching (up to 16 rows), one instance and the same threads, asked one
after another by 1 to 16 clients of one image each, ours twice in each round. Prints images a second and writes
benchmarks/results/triton_resnet.json, or triton_resnet_shared.json where server and clients take each other's cores:
`--threads 1 --server-cores 0 --client-cores 1` keeps them apart on a machine of two.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, networks
from tests.triton.server import Server

#: Who is asked in a round. Ours stands there twice: how far the two are apart is how much a ratio is worth.
SIDES = {"neurenix": "ours", "onnxruntime": "onnxruntime", "openvino": "openvino", "neurenix again": "ours"}
CLIENTS = (1, 2, 4, 8, 16)
SETTINGS = ("threads", "rounds", "seconds", "delay", "server_cores", "client_cores")

CONFIG = """
max_batch_size: 16
input {{ name: "input" data_type: TYPE_FP32 dims: [3, 224, 224] }}
output {{ name: "output" data_type: TYPE_FP32 dims: 1000 }}
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{ max_queue_delay_microseconds: {delay} }}
parameters {{ key: "threads" value {{ string_value: "{threads}" }} }}
"""

#: Runs in Triton's environment. For each line, a model, clients and seconds, prints images a second and the rows of
#: an execution. With `check`, what a model makes of an array instead.
CLIENT = """
import json, sys, threading, time
import numpy as np
import tritonclient.http as module
url, path = sys.argv[1:]
x = np.load(path)
def prepared(rows):
    given = module.InferInput("input", rows.shape, "FP32")
    given.set_data_from_numpy(rows)
    return [given]
def counts(client, model):
    (found,) = client.get_inference_statistics(model)["model_stats"]
    return found["inference_count"], found["execution_count"]
asker = module.InferenceServerClient(url, network_timeout=100, connection_timeout=100)
for line in sys.stdin:
    model, clients, seconds = json.loads(line)
    if clients == 0:
        print(json.dumps(asker.infer(model, prepared(x)).as_numpy("output").tolist()), flush=True)
        continue
    done = [0] * clients
    begun = time.perf_counter()
    def work(number):
        client, given = module.InferenceServerClient(url), prepared(x[number % len(x)][None])
        while time.perf_counter() < begun + 1:
            client.infer(model, given)
        while time.perf_counter() < begun + 1 + seconds:
            client.infer(model, given)
            done[number] += 1
    before = counts(asker, model)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    took = time.perf_counter() - begun - 1
    rows, executions = (b - a for a, b in zip(before, counts(asker, model)))
    print(json.dumps({"images_per_second": sum(done) / took, "rows": rows / executions}), flush=True)
"""


def export(folder: Path) -> Path:
    """ResNet-50 with any number of rows."""
    import torch

    path = folder / "model.onnx"
    torch.onnx.export(
        networks.make("resnet50"), (torch.randn(2, 3, 224, 224),), path, dynamo=False, opset_version=17,
        input_names=["input"], output_names=["output"], dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
    )  # fmt: skip
    return path


def repository(folder: Path, path: Path, threads: int, delay: int) -> None:
    """The three models."""
    import neurenix as nx

    config = CONFIG.format(threads=threads, delay=delay)
    image = (3, 224, 224)
    (folder / "ours" / "1").mkdir(parents=True)
    # As users of TensorRT do it: a profile for who comes alone, and one for batches.
    profiles = [{"input": (1, *image)}, {"input": nx.Shape((2, *image), (8, *image), (16, *image))}]
    model = nx.hardware.get_backend("cpu").optimize_model(path, profiles, threads=threads)
    model.save(folder / "ours" / "1" / "model.engine")
    (folder / "ours" / "config.pbtxt").write_text(f'backend: "neurenix"\n{config}')
    for peer in ("onnxruntime", "openvino"):
        version = folder / peer / "1"
        version.mkdir(parents=True)
        shutil.copy(path, version)
        shutil.copy(Path(__file__).with_name("triton_peer.py"), version / "model.py")
        named = f'parameters {{ key: "peer" value {{ string_value: "{peer}" }} }}\n'
        (folder / peer / "config.pbtxt").write_text(f'backend: "python"\n{config}{named}')


def backends(folder: Path, ours: Path, environment: Path) -> dict[str, str]:
    """Ours and Triton's python backend in one folder; gives the variables that the latter needs."""
    packages = next(environment.glob("lib/python3*/site-packages"))
    triton = packages / "pytriton" / "tritonserver"
    version = packages.parent.name.removeprefix("python")
    shutil.copytree(ours / "neurenix", folder / "neurenix")
    shutil.copytree(triton / "backends" / "python", folder / "python")
    shutil.copy(triton / "python_backend_stubs" / version / "triton_python_backend_stub", folder / "python")
    # The stub takes the packages of the first Python in PATH, and its library from this one, of the same version.
    libraries = f"{packages / 'nvidia_pytriton.libs'}:{sysconfig.get_config_var('LIBDIR')}"
    return {"LD_LIBRARY_PATH": libraries, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}


@contextlib.contextmanager
def on_cores(cores: list[int] | None) -> Iterator[None]:
    """Processes that are started meanwhile stay on these cores; on all of them for None."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Asker:
    """The process of the clients."""

    def __init__(self, python: Path, url: str, given: Path) -> None:
        command = [str(python), "-c", CLIENT, url, str(given)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, model: str, clients: int, seconds: float = 0) -> Any:
        """What the process prints for this."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([model, clients, seconds]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the clients ended; what they said stands above")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def measured(asker: Asker, clients: tuple[int, ...], rounds: int, seconds: float) -> dict[str, Any]:
    """For each number of clients and side, images a second in each round, and rows an execution."""
    found: dict[str, Any] = {str(n): {side: {"rounds": [], "rows": []} for side in SIDES} for n in clients}
    for turn in range(rounds):
        for number in clients:
            for side, model in SIDES.items():
                one = asker.ask(model, number, seconds)
                found[str(number)][side]["rounds"].append(round(one["images_per_second"], 2))
                found[str(number)][side]["rows"].append(round(one["rows"], 2))
        print(f"round {turn + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
    for sides in found.values():
        ratios = {"onnxruntime": [], "openvino": [], "neurenix again": []}
        for name, list_of in ratios.items():
            pairs = zip(sides["neurenix"]["rounds"], sides[name]["rounds"], strict=True)
            list_of.extend(a / b for a, b in pairs)
            sides[f"neurenix / {name}"] = round(statistics.median(list_of), 3)
        better = [max(a, b) for a, b in zip(sides["onnxruntime"]["rounds"], sides["openvino"]["rounds"], strict=True)]
        each = [a / b for a, b in zip(sides["neurenix"]["rounds"], better, strict=True)]
        sides["neurenix / the better"] = round(statistics.median(each), 3)
        sides["of one with itself"] = [round(min(ratios["neurenix again"]), 3), round(max(ratios["neurenix again"]), 3)]
    return found


def main() -> None:
    """The command."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--environment", type=Path, required=True)
    parser.add_argument("--backends", type=Path, required=True)
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--delay", type=int, default=2000, help="max_queue_delay_microseconds")
    parser.add_argument("--server-cores", type=int, nargs="+", help="cores of the server; all of them unless given")
    parser.add_argument("--client-cores", type=int, nargs="+", help="cores of the clients; all of them unless given")
    parser.add_argument("--log", type=Path, help="where Triton's log is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="neurenix-triton-") as name:
        results = in_folder(Path(name), options)
    settings = {
        "server": "Triton 2.51 of nvidia-pytriton 0.7.0",
        "client": "tritonclient by HTTP in Python, on the same machine",
        **{key: getattr(options, key) for key in SETTINGS},
    }
    name = "triton_resnet" if options.server_cores else "triton_resnet_shared"
    print(measure.write(name, results, settings))


def in_folder(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Writes everything into a folder, serves it, checks what it answers and measures."""
    path = export(folder)
    repository(folder / "models", path, options.threads, options.delay)
    variables = backends(folder / "backends", options.backends, options.environment)
    x = np.random.default_rng(0).standard_normal((4, 3, 224, 224)).astype(np.float32)
    np.save(folder / "x.npy", x)
    variables["OMP_NUM_THREADS"] = str(options.threads)
    log = options.log or folder / "log"
    with on_cores(options.server_cores):
        server = Server(options.environment, folder / "backends", folder / "models", log, variables)
    with on_cores(options.client_cores):
        asker = Asker(options.environment / "bin" / "python", server.http, folder / "x.npy")
    try:
        wanted = measure.onnxruntime(path, x, options.threads)()[0]
        for model in dict.fromkeys(SIDES.values()):
            furthest = np.abs(np.asarray(asker.ask(model, 0)) - wanted).max() / np.abs(wanted).max()
            print(f"{model}: {furthest:.1e} of the greatest score away from ONNX Runtime's", flush=True)
            assert furthest < 1e-3, model
        results = measured(asker, tuple(options.clients), options.rounds, options.seconds)
    finally:
        asker.close()
        server.stop()
    for clients, sides in results.items():
        words = [f"{side} {statistics.median(sides[side]['rounds']):.1f}" for side in SIDES]
        print(f"{clients} clients, images/s: {', '.join(words)}; by the better {sides['neurenix / the better']}")
    return results


if __name__ == "__main__":
    main()
