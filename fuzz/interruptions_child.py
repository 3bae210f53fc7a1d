"""The processes that `fuzz.interruptions` starts: one job each, and the last line of what they print is JSON."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import parser

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix import nn
from neurenix.hardware import AsyncQueue, OptimizedModel
from neurenix.importers import from_onnx

HEAD = '<ir_version: 10, opset_import: ["" : 21]> m '
BACKEND = trt.TensorRTBackend(threads=2, timing_cache=False)
RNG = np.random.default_rng(0)
Arrays = dict[str, np.ndarray[Any, Any]]


class Doze(trt.IPluginV2):
    """Runs Python for a while: it lets go of the GIL now and then."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds

    def get_output_shape(self, input_shapes: Any) -> Any:
        return input_shapes[0]

    def execute(self, inputs: Any, outputs: Any, stream: Any) -> None:
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            time.sleep(0.0005)
            sum(range(500))
        outputs[0][...] = inputs[0]


def plugin_model(seconds: float) -> OptimizedModel:
    """A model with a plugin that takes so long."""
    trt.register_plugin("Doze", Doze)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1, 8))
    network.mark_output(network.add_plugin_v2([x], "Doze", seconds=seconds))
    return BACKEND.optimize_model(network.to_network(), optimization_level=0)


def loop_model(kind: str = "loop") -> OptimizedModel:
    """A Loop or Scan with as many iterations as it is told."""
    loop = """ (int64 k, float[16,16] x) => (float[16,16] y) { c = Constant<value = bool {1}>()
        y = Loop (k, c, x) <body = b (int64 i, bool go, float[16,16] s) => (bool on, float[16,16] t) {
            on = Identity(go) p = MatMul(s, s) t = Tanh(p) }> }"""
    scan = """ (float[n,16,16] z, float[16,16] x) => (float[16,16] y, float[] a) {
        y, a = Scan <num_scan_inputs = 1, body = b (float[16,16] s, float[16,16] v)
            => (float[16,16] t, float[16,16] o) { p = MatMul(s, v) t = Tanh(p) o = Identity(p) }> (x, z) }"""
    network = from_onnx(parser.parse_model(HEAD + (loop if kind == "loop" else scan)))
    shapes = {"z": nx.Shape((1, 16, 16), (9, 16, 16), (1 << 20, 16, 16)), "x": (16, 16)}
    return BACKEND.optimize_model(network, shapes if kind == "scan" else None, optimization_level=0)


def loop_inputs(kind: str, length: int) -> Arrays:
    x = {"x": np.eye(16, dtype=np.float32)}
    return x | ({"k": np.array(length)} if kind == "loop" else {"z": np.zeros((length, 16, 16), np.float32)})


class Block(nn.Module):
    """Convolutions of many kinds, so that a build times many kernels."""

    def __init__(self) -> None:
        super().__init__()
        channels = [8, 24, 48, 40, 64, 56, 32]
        pairs = enumerate(itertools.pairwise(channels))
        self.convs = nn.Sequential(*(nn.Conv2d(a, b, 3, padding=1 + i % 2, dilation=1 + i % 2) for i, (a, b) in pairs))

    def forward(self, x: Any) -> Any:
        return self.convs(x)


def build() -> None:
    """A build of some seconds."""
    BACKEND.optimize_model(Block(), {"x": (2, 8, 64, 64)}, optimization_level=5)


def _zoo() -> dict[str, tuple[OptimizedModel, Arrays]]:
    """Models of one layer: between them they run each kind of kernel, at level 0 and timed."""
    texts = {
        "conv": "(float[1,300,14,14] x, float[33,300,3,3] w)",
        "deep": "(float[1,512,7,7] x, float[512,512,3,3] w)",
        "dilated": "(float[1,510,14,14] x, float[6,255,3,3] w)",
        "depthwise": "(float[1,64,28,28] x, float[64,1,5,5] w)",
        "transposed": "(float[1,256,14,14] x, float[256,64,3,3] w)",
        "product": "(float[33,2500] x, float[2500,77] w)",
        "row": "(float[1,4096] x, float[4096,1000] w)",
        "lstm": "(float[50,2,64] x, float[1,512,64] w, float[1,512,128] r)",
        "pool": "(float[2,48,40,40] x)",
        "resize": "(float[1,8,40,40] x, float[4] s)",
        "softmax": "(float[64,1000] x)",
        "norm": "(float[64,768] x, float[768] w)",
        "reduce": "(float[64,48,48] x)",
    }
    nodes = {
        "conv": "y = Conv<pads = [1,1,1,1]>(x, w)",
        "deep": "y = Conv<pads = [1,1,1,1]>(x, w)",
        "dilated": "y = Conv<group = 2, dilations = [3,3]>(x, w)",
        "depthwise": "y = Conv<group = 64>(x, w)",
        "transposed": "y = ConvTranspose<strides = [2,2]>(x, w)",
        "product": "y = MatMul(x, w)",
        "row": "y = MatMul(x, w)",
        "lstm": "y, h, c = LSTM<hidden_size = 128>(x, w, r)",
        "pool": "y = MaxPool<kernel_shape = [3,3]>(x)",
        "resize": 'y = Resize<mode = "linear">(x, , s)',
        "softmax": "y = Softmax(x)",
        "norm": "y = LayerNormalization(x, w)",
        "reduce": "y = ReduceMean<keepdims = 0>(x)",
    }
    models = {}
    for name, text in texts.items():
        for level in (0, 3):
            proto = parser.parse_model(f"{HEAD} {text} => (float[] y) {{ {nodes[name]} }}")
            first, *weights = proto.graph.input
            del proto.graph.input[1:]
            for weight in weights:
                shape = [d.dim_value for d in weight.type.tensor_type.shape.dim]
                scales = np.array([1, 1, 2, 2], np.float32)
                array = scales if weight.name == "s" else 0.05 * RNG.standard_normal(shape).astype(np.float32)
                proto.graph.initializer.append(_tensor(array, weight.name))
            shape = tuple(d.dim_value for d in first.type.tensor_type.shape.dim)
            model = BACKEND.optimize_model(from_onnx(proto), optimization_level=level)
            models[f"{name} {level}"] = (model, {"x": RNG.standard_normal(shape).astype(np.float32)})
    return models


def _tensor(array: np.ndarray[Any, Any], name: str) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)


def timers(kind: str, seconds: str) -> dict[str, Any]:
    """Runs each kernel under a timer, and compares with what it gave before."""
    zoo = _zoo()
    want = {name: model(inputs) for name, (model, inputs) in zoo.items()}
    kernels = {time.implementation for model, inputs in zoo.values() for time in model.profile(inputs)}
    count = [0]

    def handler(number: int, frame: Any) -> None:
        count[0] += 1

    number, timer = {
        "real": (signal.SIGALRM, signal.ITIMER_REAL),
        "prof": (signal.SIGPROF, signal.ITIMER_PROF),
    }[kind]
    signal.signal(number, handler)
    signal.setitimer(timer, 0.002, 0.002)
    end, calls, wrong = time.monotonic() + float(seconds), 0, set()
    while time.monotonic() < end:
        for name, (model, inputs) in zoo.items():
            got = model(inputs)
            calls += 1
            # Sums may be shared among threads in another way, but heaps that are written over look different.
            if not all(np.allclose(got[key], want[name][key], rtol=1e-3, atol=1e-4) for key in got):
                wrong.add(name)
    signal.setitimer(timer, 0)
    # Linux may send a last one, which another thread has counted before, after the interpreter restored its default:
    # that would end the process. What is ignored it leaves alone.
    signal.signal(number, signal.SIG_IGN)
    return {"calls": calls, "handlers": count[0], "wrong": sorted(wrong), "kernels": sorted(kernels)}


def interrupts(job: str, count: str, seed: str) -> dict[str, Any]:
    """Sends signals at random moments, and measures how long they take to be seen."""
    rng, seconds = random.Random(int(seed)), []
    # A shell has its jobs in the background ignore the signal, and so do their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if job == "build":
        work, most = build, 2.0
    elif job == "plugin":
        model, x = plugin_model(0.01), {"x": np.ones((1, 8), np.float32)}
        work, most = (lambda: [model.run(x) for _ in range(100)]), 0.5
    else:
        model, x = loop_model(job), loop_inputs(job, 400_000 if job == "loop" else 100_000)
        work, most = (lambda: model.run(x)), 0.5
    for _ in range(int(count)):
        sent: list[float] = []

        def send(sent: list[float] = sent) -> None:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(rng.uniform(0.001, most), send)
        done = False
        try:
            timer.start()
            work()
            done = True
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            if not done:
                seconds.append(time.monotonic() - sent[0])
        timer.join()
    return {"seconds": seconds}


def exits(job: str, seed: str) -> dict[str, Any]:
    """Lets other threads work, and ends at a random moment."""
    rng = random.Random(int(seed))
    x = {"x": np.ones((1, 8), np.float32)}

    def ever(work: Callable[[], Any]) -> None:
        while True:
            work()

    def serve(work: Callable[[], Any]) -> None:
        for _ in range(2):
            threading.Thread(target=ever, args=(work,), daemon=True).start()

    if job == "build":
        serve(build)
    elif job == "loop":
        model = loop_model()
        serve(lambda: model.run(loop_inputs("loop", 400_000)))
    elif job in ("plugin", "stuck_plugin"):
        sleepy = plugin_model(0.003 if job == "plugin" else 1000.0)
        serve(lambda: sleepy.run(x))
    elif job == "calls":
        busy = BACKEND.optimize_model(Block(), {"x": (2, 8, 64, 64)}, optimization_level=0)
        inputs = {"x": np.ones((2, 8, 64, 64), np.float32)}
        serve(lambda: busy.run(inputs))
    else:
        model = plugin_model(0.003) if job == "plugin_queue" else loop_model()
        given = x if job == "plugin_queue" else loop_inputs("loop", 100_000)
        globals()["kept"] = queue = AsyncQueue(model, 2)
        queue.set_callback(lambda outputs, userdata: queue.start_async(given))
        for _ in range(2):
            queue.start_async(given)
    time.sleep(rng.uniform(0.0, 0.6))
    return {"left": time.time()}


def cancels(count: str, seed: str) -> dict[str, Any]:
    """Cancels futures, or waits for them no longer."""
    rng, outcomes = random.Random(int(seed)), collections.Counter[str]()
    model, x = plugin_model(0.001), {"x": np.ones((1, 8), np.float32)}

    def callback(outputs: Any, number: int) -> None:
        outcomes["callbacks"] += 1
        if number % 7 == 0:
            raise SystemExit(1)

    async def some(queue: AsyncQueue, numbers: range) -> None:
        for number in numbers:
            future = await asyncio.to_thread(queue.start_async, x, number)
            match rng.randrange(3):
                case 0:
                    outcomes["cancelled"] += future.cancel()
                case 1:
                    with contextlib.suppress(asyncio.TimeoutError, asyncio.CancelledError):
                        await asyncio.wait_for(asyncio.wrap_future(future), rng.uniform(0.0, 0.003))
                        outcomes["in time"] += 1
                case _:
                    outcomes["left"] += 1

    queue = AsyncQueue(model, 3, callback=callback, ordered=bool(int(seed) % 2))
    asyncio.run(some(queue, range(int(count))))
    with contextlib.suppress(SystemExit):
        queue.wait_all()
    (output,) = queue.start_async(x, 1).result(30).values()
    assert np.array_equal(output, x["x"])
    queue.close()
    return dict(outcomes)


if __name__ == "__main__":
    jobs: dict[str, Callable[..., dict[str, Any]]] = {
        "timers": timers, "interrupts": interrupts, "exits": exits, "cancels": cancels,
    }  # fmt: skip
    print(json.dumps(jobs[sys.argv[1]](*sys.argv[2:])), flush=True)
