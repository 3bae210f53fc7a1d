"""What the tests of regions do in a process whose TensorRT is the double, and whose GPU the recorded one."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx
from neurenix import _native
from neurenix.cli import main
from neurenix.hardware import get_backend
from tests.cuda.stand_in import Recorded
from tests.tensorrt.doubled import double

Array = np.ndarray[Any, Any]
#: A GPU that TensorRT-RTX runs on.
CAPABILITY = 86


def begin() -> None:
    """Makes the recorded device one that TensorRT-RTX takes; packages of the machine are nothing to tests."""
    Recorded().set("capability", CAPABILITY)
    _native.look_in([])


def cache_at(folder: str) -> None:
    """Lets what is kept be kept there."""
    os.environ["NEURENIX_CACHE_DIR"] = folder


def optimized(model: Any, shapes: Any, **options: Any) -> Any:
    """A model on TensorRT and our CPU engine: kernels do not run on the recorded device."""
    given: dict[str, Any] = {"providers": ["tensorrt", "cpu"], "timing_cache": False, "threads": 1} | options
    return get_backend("tensorrt").optimize_model(model, shapes, **given)


def summary(model: Any) -> dict[str, Any]:
    """What a report says of who runs what."""
    report = model.report()
    # Copies of inputs and outputs are no regions.
    ours = [k for k in report["kernels"] if k["provider"] == "tensorrt" and k["layers"]]
    return {
        "regions": [kernel["layers"] for kernel in ours],
        "providers": dict(report["providers"]),
        "reasons": {r["layer"]: r["reason"] for r in report["refusals"] if r["provider"] == "tensorrt"},
        "notes": report["notes"],
        "inside": [layer for kernel in ours for layer in (kernel["details"] or {}).get("Layers", [])],
        "text": str(report),
    }


def left() -> dict[str, Any]:
    """What is alive and what was misused when everything is over."""
    gc.collect()
    recorded = Recorded()
    kinds = ("engine", "context", "runtime")
    alive = {kind: double().count(f"live {kind}") - double().count(f"dead {kind}") for kind in kinds}
    misuse = sorted(set(recorded.lines("misuse")))
    recorded.forget("misuse")
    return {"misuse": misuse, "alive": alive}


def outputs(
    model: bytes, shapes: Any, calls: Sequence[Mapping[str, Array]], **options: Any
) -> tuple[list[dict[str, Array]], dict[str, Any]]:
    """The outputs of an ONNX model for each call, which comes four times so that it is recorded; and the summary."""
    import onnx

    ready = optimized(onnx.load_from_string(model), shapes, **options)
    found = []
    for feeds in calls:
        results = [ready(dict(feeds)) for _ in range(4)]
        for again in results[1:]:
            for name, array in results[0].items():
                np.testing.assert_array_equal(again[name], array)
        found.append(results[-1])
    return found, summary(ready)


def chain(*ops: str, shape: Sequence[int] = (5,)) -> nx.Network:
    """Layers of these ops one behind another, named after them and their place."""
    made = nx.Network("chain")
    y = made.add_input("x", "float32", ["batch", *shape])
    for place, op in enumerate(ops):
        y = made.add_layer(op, [y], name=f"{op} {place}")[0]
    made.mark_output(y, "y")
    return made


RANGE = {"x": ((1, 5), (2, 5), (8, 5))}
NUMPY = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Exp": np.exp,
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, 0),
}


def is_right(model: Any, ops: Sequence[str], batches: Sequence[int] = (1, 2, 8)) -> bool:
    """Whether a chain gives numpy's numbers."""
    for batch in batches:
        x = np.random.default_rng(batch).standard_normal((batch, 5)).astype(np.float32)
        want = x.astype(np.float64)
        for op in ops:
            want = NUMPY[op](want)
        for _ in range(3):
            if not np.allclose(model({"x": x})["y"], want, rtol=1e-5, atol=1e-6):
                return False
    return True


OPS = ("Sigmoid", "Tanh", "Exp", "Neg")


def failing(settings: Mapping[str, int], **options: Any) -> tuple[dict[str, Any], bool]:
    """What an engine of a chain is where TensorRT does this wrong, and whether it is right all the same."""
    with double().doing(**settings):
        model = optimized(chain(*OPS), RANGE, **options)
        return summary(model), is_right(model, OPS)


def built_twice() -> tuple[int, int, int, bool, list[list[str]]]:
    """Plans that were built by a first and a second build, how many are kept, whether the second engine is right."""
    counts = [double().count("build")]
    for _ in range(2):
        model = optimized(chain(*OPS), RANGE)
        counts.append(double().count("build"))
        right, regions = is_right(model, OPS), summary(model)["regions"]
        del model
        gc.collect()
    kept = plans()
    assert (kept[0].stat().st_mode & 0o777, kept[0].parent.stat().st_mode & 0o777) == (0o600, 0o700)
    return counts[1] - counts[0], counts[2] - counts[1], len(kept), right, regions


def plans() -> list[Path]:
    """The plans that are kept."""
    return sorted(Path(os.environ["NEURENIX_CACHE_DIR"], "plans").glob("*"))


def spoilt(how: str) -> tuple[list[str], int, bool]:
    """The notes, the builds and whether it is right when the kept plan was changed behind our back."""
    optimized(chain(*OPS), RANGE)
    gc.collect()
    (path,) = plans()
    if how == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    elif how == "torn":
        path.write_bytes(path.read_bytes()[:40])
    elif how == "open to others":
        path.chmod(0o666)
    elif how == "another's":
        aside = path.with_name("aside")
        path.rename(aside)
        path.symlink_to(aside)
    before = double().count("build")
    opened = double().count("deserialize")
    model = optimized(chain(*OPS), RANGE)
    assert double().count("deserialize") - opened == 1
    return summary(model)["notes"], double().count("build") - before, is_right(model, OPS)


def misfit() -> tuple[list[str], int, bool]:
    """The same when the library does not take the kept plan any more."""
    optimized(chain(*OPS), RANGE)
    gc.collect()
    before = double().count("build")
    with double().doing(deserialize=1):
        model = optimized(chain(*OPS), RANGE)
    return summary(model)["notes"], double().count("build") - before, is_right(model, OPS)


def saved(folder: str, forgotten: bool) -> tuple[list[str], int, bool, list[list[str]]]:
    """An engine that is saved and opened, with or without its plan in the cache: notes, builds, right, regions."""
    path = Path(folder) / "model.engine"
    optimized(chain(*OPS), RANGE).save(path)
    gc.collect()
    # What stands there is no code.
    (kept,) = plans()
    assert kept.read_bytes()[100:300] not in path.read_bytes() and path.stat().st_size < kept.stat().st_size
    if forgotten:
        for plan in plans():
            plan.unlink()
    before = double().count("build")
    backend = get_backend("tensorrt")
    model = backend.load(path, providers=["tensorrt", "cpu"], timing_cache=False, threads=1)
    found = summary(model)
    return found["notes"], double().count("build") - before, is_right(model, OPS), found["regions"]


def excluded(**options: Any) -> tuple[dict[str, Any], bool]:
    """A chain with a layer that the caller keeps from TensorRT in its middle."""
    ops = ("Sigmoid", "Tanh", "Exp", "Neg", "Sigmoid", "Tanh", "Exp")
    model = optimized(chain(*ops), RANGE, exclude={"tensorrt": ["Neg"]}, **options)
    return summary(model), is_right(model, ops)


def beyond() -> tuple[bool, bool, list[list[str]]]:
    """Whether shapes in and outside of the profiles are right, and the regions."""
    profiles = [{"x": ((1, 5), (2, 5), (3, 5))}, {"x": ((1, 5), (8, 5), (9, 5))}]
    model = optimized(chain(*OPS), profiles)
    return is_right(model, OPS, (1, 3, 8, 9)), is_right(model, OPS, (20,)), summary(model)["regions"]


def cancelled() -> tuple[str, int]:
    """The error of a build that its watcher ends within TensorRT's, and how often he was told of that."""
    told: list[str] = []

    def progress(phase: str, done: int, steps: int) -> bool:
        if phase in ("Simplifying the network", "Tuning kernels"):
            return True
        told.append(phase)
        return False

    try:
        optimized(chain("Relu", "Tanh", "Exp", "Neg"), RANGE, progress=progress)
    except nx.errors.Error as error:
        return str(error), len(told)
    return "", len(told)


def beside_cuda(level: int) -> tuple[dict[str, Any], list[int], list[str]]:
    """TensorRT and the recorded device's own kernels in one engine: launches of graphs for each of some calls."""
    ops = ("Sigmoid", "Tanh", "Exp", "Neg", "Sigmoid", "Tanh", "Exp")
    options: dict[str, Any] = {"optimization_level": level, "verify": False, "exclude": {"tensorrt": ["Neg"]}}
    model = optimized(chain(*ops), RANGE, providers=["tensorrt", "cuda", "cpu"], **options)
    x = np.zeros((2, 5), np.float32)
    launches, recorded = [], Recorded()
    for _ in range(5):
        before = recorded.count("cuGraphLaunch")
        model({"x": x})
        launches.append(recorded.count("cuGraphLaunch") - before)
    kernels = [kernel["provider"] for kernel in model.report()["kernels"] if kernel["layers"]]
    return summary(model), launches, kernels


def unaligned() -> list[str]:
    """A region whose results would lie at odd places of a concatenation that somebody else does."""
    made = nx.Network("unaligned")
    x = made.add_input("x", "float32", [1, 3, 5])
    parts = []
    for start in ("Sigmoid", "Tanh"):
        y = x
        for op in (start, "Exp", "Neg"):
            y = made.add_layer(op, [y], name=f"{start} {op}")[0]
        parts.append(y)
    joined = made.add_layer("Concat", parts, {"axis": 1}, name="joined")[0]
    made.mark_output(joined, "y")
    options: dict[str, Any] = {"verify": False, "optimization_level": 0, "exclude": {"tensorrt": ["joined"]}}
    model = optimized(made, None, providers=["tensorrt", "cuda", "cpu"], **options)
    model({"x": np.zeros((1, 3, 5), np.float32)})
    return [kernel["provider"] for kernel in model.report()["kernels"] if kernel["layers"]]


def selftest(*arguments: str) -> int:
    """The exit status of `neurenix selftest tensorrt`."""
    return main(["selftest", "tensorrt", "--iterations", "3", *arguments])


def available() -> tuple[bool, str | None, bool]:
    """What the backend says of TensorRT, and whether it is what it uses."""
    from neurenix.hardware.tensorrt import TensorRTBackend, is_tensorrt_available

    alone = TensorRTBackend(fallback=False)
    info = alone.get_device_info(0)
    assert info.supports_tensorrt == is_tensorrt_available()
    model = alone.optimize_model(chain(*OPS), RANGE, timing_cache=False)
    return info.supports_tensorrt, info.reason, summary(model)["providers"]["tensorrt"] == len(OPS)


def recorded_by_the_caller() -> list[bool]:
    """Whether calls are right that a caller records twice and launches with other numbers, after ordinary ones."""
    driver = ctypes.CDLL(str(Path(os.environ["NEURENIX_CUDA_LIBRARIES"]) / "libcuda.so.1"))
    engines = [optimized(chain(*OPS), RANGE)._engine]
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    x, y = ctypes.c_uint64(), ctypes.c_uint64()
    size = 2 * 5 * 4
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(x), ctypes.c_size_t(size)) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(y), ctypes.c_size_t(size)) == 0

    def call() -> None:
        engines[0].run_at([(x.value, 0)], [[2, 5]], [(y.value, 0)], (0, stream.value or 0))

    def copy(to: int, source: int) -> None:
        assert driver.cuMemcpyAsync(ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), stream) == 0
        assert driver.cuStreamSynchronize(stream) == 0

    def is_right_with(launch: Callable[[], Any], seed: int) -> bool:
        given = np.random.default_rng(seed).standard_normal((2, 5)).astype(np.float32)
        found, want = np.zeros_like(given), given.astype(np.float64)
        copy(x.value, given.ctypes.data)
        launch()
        copy(found.ctypes.data, y.value)
        for op in OPS:
            want = NUMPY[op](want)
        return np.allclose(found, want, rtol=1e-5, atol=1e-6)

    right = [is_right_with(call, seed) for seed in range(3)]
    graph, launchable = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuStreamBeginCapture_v2(stream, 1) == 0
    call()
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(launchable), graph, ctypes.c_uint64(0)) == 0
    right += [is_right_with(lambda: driver.cuGraphLaunch(launchable, stream), seed) for seed in range(3, 6)]
    driver.cuGraphExecDestroy(launchable)
    driver.cuGraphDestroy(graph)
    engines.pop().synchronize()
    gc.collect()
    driver.cuMemFree_v2(x)
    driver.cuMemFree_v2(y)
    driver.cuStreamDestroy_v2(stream)
    driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    return right
