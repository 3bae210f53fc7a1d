"""What tests run in a process that sees the recorded device (`stand_in.py`)."""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

import neurenix as nx
from neurenix import _native
from neurenix.hardware import get_backend
from neurenix.quantization import MinMaxCalibrator
from tests.conformance.chains import CHAINS
from tests.conformance.chains import large_convolutions as convolutions_of_tiles
from tests.conformance.quantized_chains import FLOATS_OF_8_BITS, QUANTIZED, TILED
from tests.cuda.stand_in import Recorded, warm_up

#: What must be gone when engines are. Machine code and cuDNN's plans are kept for the process.
KINDS = ("stream", "graph", "instance", "event", "product", "matrix", "preference", "program")
GAUGES = ("live_bytes", "allocations", "host_allocations", "unfinished", *(f"live {kind}" for kind in KINDS))
#: What puts a kernel into a stream.
LAUNCHES = ("cuLaunchKernelEx", "cublasLtMatmul", "cudnnBackendExecute")

Row = tuple[str, str]
#: Two shapes of each input.
Shapes = dict[str, list[tuple[int, ...]]]
Given = ParamSpec("Given")
Found = TypeVar("Found")


def classifier(channels: int = 8) -> nx.Network:
    """A convolution, an activation, a mean, a product and a softmax, at any batch."""
    made = nx.Network("classifier")
    x = made.add_input("x", "float32", ["batch", 3, 16, 16])
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((channels, 3, 3, 3)).astype(np.float32)
    y = made.add_layer("Conv", [x, made.add_constant("w", weights)], {"pads": [1, 1, 1, 1]})[0]
    y = made.add_layer("Relu", [y])[0]
    y = made.add_layer("ReduceMean", [y], {"axes": [2, 3], "keepdims": 0})[0]
    matrix = rng.standard_normal((channels, 8)).astype(np.float32)
    y = made.add_layer("MatMul", [y, made.add_constant("m", matrix)])[0]
    y = made.add_layer("Softmax", [y], {"axis": -1})[0]
    made.mark_output(y, "y")
    return made


def stopover() -> nx.Network:
    """Two kernels of the GPU with one between them that `optimized` keeps from it."""
    made = nx.Network("stopover")
    x = made.add_input("x", "float32", ["batch", 5])
    y = made.add_layer("Relu", [x], name="before")[0]
    y = made.add_layer("CumSum", [y, made.add_constant("axis", np.int64(1))], name="between")[0]
    y = made.add_layer("Sigmoid", [y], name="behind")[0]
    made.mark_output(y, "y")
    return made


def packed() -> nx.Network:
    """Weights of 4 bits, and an LSTM of 8, for which a GPU has no kernel."""
    made = nx.Network("packed")
    x = made.add_input("x", "float32", ["batch", 3, 64])
    held = {"b": np.zeros((32, 2, 16), np.uint8), "scales": np.ones((32, 2), np.float32)}
    attrs = {"K": 64, "N": 32, "block_size": 32}
    y = made.add_layer("MatMulNBits", [x, *(made.add_constant(*pair) for pair in held.items())], attrs)[0]
    weights = [made.add_constant(f"w{i}", np.zeros((1, 32, 128), np.int8)) for i in range(2)]
    scale, zero = made.add_constant("scale", np.ones(1, np.float32)), made.add_constant("zero", np.zeros(1, np.int8))
    y = made.add_layer("DynamicQuantizeLSTM", [y, *weights, scale, zero, scale, zero], {})[0]
    made.mark_output(y, "y")
    return made


def expansion(batch: int | str = 128) -> nx.Network:
    """A product with a bias and a Gelu by erf, which no epilogue of cuBLASLt knows."""
    made = nx.Network("expansion")
    x = made.add_input("x", "float16", [batch, 256])
    matrix = np.zeros((256, 512), np.float16)
    y = made.add_layer("MatMul", [x, made.add_constant("w", matrix)])[0]
    y = made.add_layer("Add", [y, made.add_constant("b", np.arange(512).astype(np.float16))])[0]
    y = made.add_layer("Gelu", [y])[0]
    made.mark_output(y, "y")
    return made


def projections() -> nx.Network:
    """Three products of one input with a bias each."""
    made = nx.Network("projections")
    x = made.add_input("x", "float16", ["batch", 64, 256])
    rng = np.random.default_rng(0)
    for name in "qkv":
        matrix, bias = (rng.standard_normal(shape).astype(np.float16) for shape in ((256, 128), (128,)))
        y = made.add_layer("MatMul", [x, made.add_constant(f"w{name}", matrix)])[0]
        y = made.add_layer("Add", [y, made.add_constant(f"b{name}", bias)])[0]
        made.mark_output(y, name)
    return made


def products() -> nx.Network:
    """A convolution, a product and an LSTM of float32, and a product of integers."""
    made = nx.Network("products")
    rng = np.random.default_rng(0)

    def held(name: str, *shape: int) -> str:
        return made.add_constant(name, rng.standard_normal(shape).astype(np.float32))

    x = made.add_input("x", "float32", ["batch", 16, 8, 32])
    y = made.add_layer("Conv", [x, held("w", 16, 16, 3, 3)], {"pads": [1, 1, 1, 1]}, name="conv")[0]
    y = made.add_layer("ReduceMean", [y], {"axes": [2], "keepdims": 0})[0]
    y = made.add_layer("MatMul", [y, held("m", 32, 32)], name="product")[0]
    y = made.add_layer("LSTM", [y, held("wl", 1, 64, 32), held("rl", 1, 64, 16)], {"layout": 1}, name="lstm")[0]
    made.mark_output(y, "y")
    a = made.add_input("a", "int8", ["batch", 64])
    b = made.add_constant("b", rng.integers(-128, 128, (64, 8), np.int8))
    made.mark_output(made.add_layer("MatMulInteger", [a, b], name="integers")[0], "z")
    return made


def optimized(network: nx.Network, batch: int = 2, **options: Any) -> Any:
    """A network made ready for the recorded device."""
    given: dict[str, Any] = {"timing_cache": False, "threads": 2, "exclude": {"cuda": ["between"]}} | options
    shapes = {t.name: (batch, *(d for d in t.shape[1:] if isinstance(d, int))) for t in network.inputs}
    fixed = all(isinstance(t.shape[0], int) for t in network.inputs)
    least, most = (batch, batch) if fixed else (1, max(64, batch))
    profile = {name: nx.Shape((least, *s[1:]), s, (most, *s[1:])) for name, s in shapes.items()}
    return get_backend("cuda", fallback=given.pop("fallback", True)).optimize_model(network, profile, **given)


def gate_weights() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Those of the convolution of `gated`."""
    return np.random.default_rng(0).standard_normal((3, 3, 3, 3)).astype(np.float32) / 5


def gated() -> nx.Network:
    """A convolution, an activation that is given by smaller ops, a sum with what came in, at any batch."""
    made = nx.Network("gated")
    x = made.add_input("x", "float32", ["batch", 3, 16, 16])
    y = made.add_layer("Conv", [x, made.add_constant("w", gate_weights())], {"pads": [1, 1, 1, 1]})[0]
    y = made.add_layer("Silu", [y])[0]
    y = made.add_layer("Add", [y, x])[0]
    made.mark_output(made.add_layer("Softmax", [y], {"axis": -1})[0], "y")
    return made


def call(model: Any, batch: int = 2) -> None:
    """Runs it on zeros, and sees that shapes and dtypes are right: the numbers are not."""
    inputs = {p.name: np.zeros((batch, *p.shape[1:]), p.dtype) for p in model.inputs}
    for port, y in zip(model.outputs, model(inputs).values(), strict=True):
        assert y.dtype == port.dtype and y.shape[0] == batch, (port, y.shape)


def kernels(model: Any) -> list[Row]:
    """Provider and kernel of all that computes."""
    return [(row["provider"], row["kernel"]) for row in model.report()["kernels"] if row["layers"]]


def launched(model: Any) -> list[str]:
    """What a call launches, but for copies between both memories."""
    call(model)
    rows = [row for row in model.report()["kernels"] if row["kernel"] != "transfer"]
    return [row["kernel"] for row in rows if row["implementation"]]


def leaves_nothing(job: Callable[Given, Found]) -> Callable[Given, Found]:
    """A job behind which nothing was misused, and nothing of what it made is left."""

    @wraps(job)
    def watched(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        recorded = Recorded()
        before = _gauges(recorded)
        found = job(*args, **kwargs)
        after = _gauges(recorded)
        left = {name: (before[name], after[name]) for name in GAUGES if before[name] != after[name]}
        misuse = sorted(set(recorded.lines("misuse")))
        recorded.forget("misuse")
        assert not left and not misuse, (left, misuse)
        return found

    return watched


@leaves_nothing
def saved(path: Path, precision: str) -> None:
    """Builds an engine for the recorded device, without looking at its numbers, and saves it."""
    optimized(gated(), precision=precision, verify=False).save(path)


@leaves_nothing
def opened(path: Path) -> list[Row]:
    """The kernels of an engine file on the recorded device."""
    return kernels(get_backend("cuda").load(path, timing_cache=False))


def _gauges(recorded: Recorded) -> dict[str, int]:
    gc.collect()
    return {gauge: recorded.count(gauge) for gauge in GAUGES}


def lacking(declared: dict[str, list[str]]) -> list[str]:
    """Which of the functions that the wrappers declare, by library, the stand-ins lack."""
    folder = Path(os.environ["NEURENIX_CUDA_LIBRARIES"])
    libraries = {library: ctypes.CDLL(str(folder / library)) for library in declared}
    return [name for library, names in declared.items() for name in names if not hasattr(libraries[library], name)]


def misuses() -> list[str]:
    """What the stand-ins write down of calls that a real driver refuses, or that end in what nobody sees."""
    driver = ctypes.CDLL(str(Path(os.environ["NEURENIX_CUDA_LIBRARIES"]) / "libcuda.so.1"))
    context, stream, graph, address = (ctypes.c_void_p() for _ in range(4))
    data, bytes_ = (ctypes.c_char * 64)(), ctypes.c_size_t(64)
    assert driver.cuMemAlloc_v2(ctypes.byref(address), bytes_) == 201
    assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(address), bytes_) == 0
    assert driver.cuMemcpyAsync(address, data, bytes_, stream) == 0
    assert driver.cuMemcpyAsync(address, data, ctypes.c_size_t(65), stream) == 1
    assert driver.cuStreamBeginCapture_v2(stream, 1) == 0
    assert driver.cuStreamSynchronize(stream) == 900
    assert driver.cuMemFree_v2(address) == 900
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 901
    assert driver.cuMemFree_v2(address) == 0
    assert driver.cuMemsetD8Async(address, 0, bytes_, stream) == 1
    assert driver.cuMemFree_v2(address) == 1
    assert driver.cuStreamDestroy_v2(stream) == 0
    assert driver.cuStreamSynchronize(stream) == 400
    return Recorded().lines("misuse")


@leaves_nothing
def cover() -> tuple[list[Row], list[Row], list[dict[str, str]]]:
    """Who runs what of both networks, and why not."""
    whole, part = optimized(classifier()), optimized(stopover())
    call(whole)
    call(part)
    assert whole.report()["refusals"] == []
    return kernels(whole), kernels(part), part.report()["refusals"]


@leaves_nothing
def graphs(batch: int | str) -> list[str]:
    """What cuDNN was given to run while a product with what follows was timed."""
    recorded = Recorded()
    recorded.forget("launches")
    model = optimized(expansion(batch), 128)
    call(model, 128)
    assert kernels(model) == [("cuda", "MatMul+Add+Gelu")]
    return sorted({line for line in recorded.lines("launches") if line.startswith("cudnnBackendExecute")})


@leaves_nothing
def clamped(activation: str) -> list[str]:
    """What cuDNN runs in a call of a convolution with an activation."""
    recorded, made = Recorded(), nx.Network("clamped")
    x = made.add_input("x", "float16", ["batch", 16, 8, 8])
    weights = np.ones((16, 16, 3, 3), np.float16)
    y = made.add_layer("Conv", [x, made.add_constant("w", weights)], {"pads": [1, 1, 1, 1]})[0]
    made.mark_output(made.add_layer(activation, [y])[0], "y")
    model = optimized(made, optimization_level=0)
    recorded.forget("launches")
    call(model)
    return [line for line in recorded.lines("launches") if line.startswith("cudnn")]


@leaves_nothing
def channel_attention(extent: int) -> list[str]:
    """All kernels of a convolution over the means of the channels of square images, channels and pixels by turns."""
    made = nx.Network("channel attention")
    x = made.add_input("x", "float16", ["batch", 64, extent, extent])
    pads: dict[str, Any] = {"pads": [1, 1]}
    weights = made.add_constant("w", np.ones((1, 1, 3), np.float16))
    y = made.add_layer("ReduceMean", [x], {"axes": [2, 3], "keepdims": 0})[0]
    y = made.add_layer("Reshape", [y, made.add_constant("row", np.asarray([-1, 1, 64]))])[0]
    y = made.add_layer("Sigmoid", made.add_layer("Conv", [y, weights], pads))[0]
    y = made.add_layer("Reshape", [y, made.add_constant("column", np.asarray([-1, 64, 1, 1]))])[0]
    made.mark_output(made.add_layer("Mul", [x, y])[0], "y")
    return launched(optimized(made, optimization_level=0))


@leaves_nothing
def talking_heads() -> list[str]:
    """All kernels of a softmax whose scores are mixed over heads, which a product does behind a Transpose."""
    made = nx.Network("talking heads")
    x = made.add_input("x", "float16", ["batch", 4, 16, 16])
    y = made.add_layer("Transpose", [x], {"perm": [0, 2, 3, 1]})[0]
    y = made.add_layer("MatMul", [y, made.add_constant("w", np.eye(4, dtype=np.float16) + np.float16(1))])[0]
    y = made.add_layer("Add", [y, made.add_constant("b", np.arange(4, dtype=np.float16))])[0]
    y = made.add_layer("Transpose", [y], {"perm": [0, 3, 1, 2]})[0]
    made.mark_output(made.add_layer("Softmax", [y], {"axis": -1})[0], "y")
    return launched(optimized(made))


@leaves_nothing
def shortcut(front: str, late: bool) -> list[str]:
    """What a call launches where a convolution adds what the layer in front of it, of some op, gives or read."""
    recorded, made = Recorded(), nx.Network("shortcut")
    x = made.add_input("x", "float16", ["batch", 16, 8, 8])
    weights = made.add_constant("w", np.ones((16, 16, 3, 3), np.float16))
    pads: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    first = made.add_layer("Conv", [x, weights], pads, name="first")[0]
    given = ([first, weights], pads) if front == "Conv" else ([first], pads | {"kernel_shape": [3, 3]})
    between = made.add_layer(front, *given, name="front")[0]
    read, added = (first, between) if late else (between, first)
    others = made.add_constant("v", np.zeros((16, 16, 3, 3), np.float16))
    last = made.add_layer("Conv", [read, others], pads, name="last")[0]
    made.mark_output(made.add_layer("Add", [last, added], name="sum")[0], "y")
    model = optimized(made, optimization_level=0)
    recorded.forget("launches")
    call(model)
    return [line for line in recorded.lines("launches") if not line.startswith("cuMemcpy")]


@leaves_nothing
def times_kept(precisions: list[str]) -> list[int]:
    """How many times are known after a build in each precision."""
    file = Path(os.environ["NEURENIX_CUDA_LIBRARIES"]) / "precisions.cache"
    counts = []
    for precision in precisions:
        optimized(products(), precision=precision, optimization_level=3, timing_cache=file)
        counts.append(len(file.read_text().splitlines()))
    return counts


@leaves_nothing
def warmed(refuse: bool) -> list[list[int]]:
    """How often handles were asked for after two warm-ups and a build; the first one of cuDNN may be refused."""
    recorded = Recorded()

    def asked() -> list[int]:
        return [recorded.count(name) for name in ("cublasLtCreate", "cudnnCreate")]

    if refuse:
        recorded.fail("cudnnCreate", 0, 4003)
    counts = []
    for _ in range(2):
        warm_up(["cuda", "cpu", "none"], 0)
        counts.append(asked())
    call(optimized(classifier()))
    return [*counts, asked()]


def error_of(job: Callable[[], Any]) -> nx.Error | None:
    """The error of ours that a job ends in, without the frames that it came through."""
    try:
        job()
    except nx.Error as error:
        raised: BaseException | None = error
        while raised is not None:
            # Frames keep what they worked on, those of what an error came from too.
            raised.__traceback__ = None
            raised = raised.__cause__ or raised.__context__
        return error
    return None


@leaves_nothing
def astray() -> nx.Error | None:
    """What a call says of an address that is none of the GPU's; the next call works."""
    model = optimized(classifier(), optimization_level=0)
    x, y = np.zeros((2, 3, 16, 16), np.float32), np.zeros((2, 8), np.float32)
    places = [[(array.ctypes.data, 0)] for array in (x, y)]
    error = error_of(lambda: model._engine.run_at(places[0], [list(x.shape)], places[1], None, False))
    call(model)
    return error


@leaves_nothing
def rounded(precision: str) -> tuple[list[str], dict[str, tuple[bool, str]], list[dict[str, Any]]]:
    """What libraries ran in a call of products; which layers may round to tf32, and on what they run; what the report
    says of the precision, also that of the engine that was saved and opened again.
    """
    recorded, found = Recorded(), []
    model = optimized(products(), optimization_level=0, precision=precision)
    recorded.forget("launches")
    call(model)
    launches = [line for line in recorded.lines("launches") if line.startswith(("cudnn", "cublasLt"))]
    file = Path(os.environ["NEURENIX_CUDA_LIBRARIES"]) / f"{precision}.engine"
    model.save(file)
    for each in (model, get_backend("cuda").load(file, timing_cache=False, optimization_level=0)):
        report = each.report()
        found.append({"precision": report["precision"], "dtypes": sorted(report["layers_per_dtype"])})
    rows = {
        row["layers"][0]: (row["tf32"], row["implementation"]) for row in model.report()["kernels"] if row["layers"]
    }
    return launches, rows, found


@leaves_nothing
def together(level: int, batch: int) -> tuple[list[Row], int]:
    """Who runs three products, and how many launches they are at a batch."""
    recorded = Recorded()
    model = optimized(projections(), optimization_level=level)
    before = sum(recorded.count(name) for name in LAUNCHES)
    call(model, batch)
    return kernels(model), sum(recorded.count(name) for name in LAUNCHES) - before


@leaves_nothing
def alone(network: Callable[[], nx.Network]) -> list[Row]:
    """Who runs what where nobody else may."""
    model = optimized(network(), fallback=False)
    call(model)
    return kernels(model)


@leaves_nothing
def replays(level: int) -> list[dict[str, int]]:
    """How often each call, of three shapes by turns, launched what."""
    recorded, found = Recorded(), []
    model = optimized(classifier(), optimization_level=level)
    names = (*LAUNCHES, "cuGraphLaunch", "cuMemAlloc_v2", "cuModuleLoadData", "cuStreamSynchronize")
    for _ in range(4):
        for batch in (2, 1, 7):
            before = {name: recorded.count(name) for name in names}
            call(model, batch)
            found.append({name: recorded.count(name) - before[name] for name in names})
            assert recorded.count("unfinished") == 0
    return found


@leaves_nothing
def timed(batch: int, calls: int) -> tuple[int, dict[str, int]]:
    """Nanoseconds of calls on arrays that stay on the device, and how often something was launched or copied there."""
    recorded, names = Recorded(), (*LAUNCHES, "cuGraphLaunch")
    model = optimized(classifier())
    before = {name: recorded.count(name) for name in names}
    taken = model._engine.time_on_device({"x": np.zeros((batch, 3, 16, 16), np.float32)}, calls)
    assert recorded.count("unfinished") == 0
    return taken, {name: recorded.count(name) - before[name] for name in names}


def branches(channels: int = 8) -> nx.Network:
    """Two convolutions whose results lie in slices of one tensor, at any batch."""
    made = nx.Network("branches")
    x = made.add_input("x", "float32", ["batch", 8, 16, 16])
    weights = np.random.default_rng(0).standard_normal((channels, 8, 3, 3)).astype(np.float32)
    w = made.add_constant("w", weights)
    both = [made.add_layer("Conv", [x, w], {"pads": pads})[0] for pads in ([1, 1, 1, 1], [0, 2, 2, 0])]
    y = made.add_layer("Concat", both, {"axis": 1})[0]
    made.mark_output(y, "y")
    return made


@leaves_nothing
def sliced(level: int) -> list[str]:
    """What cuDNN runs in a call of convolutions into slices."""
    recorded = Recorded()
    model = optimized(branches(), optimization_level=level, precision="fp16")
    recorded.forget("launches")
    call(model)
    call(model, 5)
    return [line for line in recorded.lines("launches") if line.startswith("cudnn")]


@leaves_nothing
def flat(calls: int, shapes: int) -> list[dict[str, int]]:
    """What is there after a few rounds of all shapes, and after so many calls."""
    recorded, found = Recorded(), []
    model = optimized(classifier(), optimization_level=0)
    for wanted in (3 * shapes, calls):
        for number in range(wanted):
            call(model, 1 + number % shapes)
        found.append(_gauges(recorded))
    return found


@leaves_nothing
def threads(count: int) -> int:
    """Calls out of many threads, through the pool and in contexts of their own; how many there were."""
    model = optimized(stopover(), optimization_level=0)
    start = threading.Barrier(count)

    def work(number: int) -> int:
        context = model._engine.create_context()
        start.wait()
        for turn in range(12):
            batch = 1 + (number + turn) % 3
            call(model, batch)
            assert context.run({"x": np.zeros((batch, 5), np.float32)})["y"].shape == (batch, 5)
        return 24

    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(work, range(count)))


@leaves_nothing
def built_together(count: int) -> dict[str, int]:
    """How often modules are compiled and loaded where the same network is built in many threads at once."""
    recorded = Recorded()
    with ThreadPoolExecutor(count) as pool:
        for model in pool.map(lambda _: optimized(classifier(), optimization_level=0), range(count)):
            call(model)
    return {name: recorded.count(name) for name in ("nvrtcCompileProgram", "cuModuleLoadData")}


@leaves_nothing
def refusals(path: Path, shapes: Shapes, precision: str = "fp32") -> list[str]:
    """The reasons why layers of a network in a file run on the CPU; it is called, four times at each of two shapes."""
    profile = {
        name: nx.Shape(tuple(map(min, *sizes)), sizes[0], tuple(map(max, *sizes))) for name, sizes in shapes.items()
    }
    backend = get_backend("cuda", timing_cache=False, threads=2, optimization_level=0, verify=False)
    model = backend.optimize_model(path, profile, precision=precision)
    for at in (0, 1):
        given = {port.name: np.zeros(shapes[port.name][at], port.dtype) for port in model.inputs}
        for _ in range(4):
            error = error_of(partial(model, given))
            # Kernels did not run, so indices that the GPU gives to the CPU are anything.
            assert error is None or error.message == "an index is out of range", error
    return sorted({row["reason"] for row in model.report()["refusals"] if row["provider"] == "cuda"})


@leaves_nothing
def products_of_8_bits() -> list[str]:
    """The kernels for conformance networks of 8 bits, all of whose forms were compiled to be timed."""
    found = set()
    ends = ("uint8z121_residual_Relu_quantize", "e4m3fnz0_residual_Relu_quantize", "e4m3fnz0_Gelu_quantize")
    ends += ("transposed2x2_large_uint8z121_quantize",)
    for chain in (chain for chain in QUANTIZED + TILED + FLOATS_OF_8_BITS if chain.name.endswith(ends)):
        backend = get_backend("cuda", timing_cache=False, threads=2, optimization_level=3, verify=False)
        model = backend.optimize_model(chain.network("float32"), {})
        found |= {str(row["kernel"]) for row in model.report()["kernels"] if row["provider"] == "cuda"}
    return sorted(found)


@leaves_nothing
def large_convolutions() -> set[str]:
    """The kernels for some conformance networks, all of whose forms were compiled to be timed."""
    found = set()
    for chain, dtype in zip(convolutions_of_tiles()[1::2], ("float16", "bfloat16", "float16", "bfloat16"), strict=True):
        backend = get_backend("cuda", timing_cache=False, threads=2, optimization_level=3, verify=False)
        model = backend.optimize_model(chain.network(dtype), {})
        found |= {str(row["kernel"]) for row in model.report()["kernels"] if row["provider"] == "cuda"}
    return found


@leaves_nothing
def products_of_8_bits_at_once() -> set[str]:
    """The kernels that multiply one tensor of 8 bits with several matrices, in every form."""
    found = set()
    ends = ("projections_uint8z121_quantize", "projections_float8_e4m3fnz0_16")
    for chain in (chain for chain in QUANTIZED + FLOATS_OF_8_BITS if chain.name.endswith(ends)):
        outcomes = _native.run_every_form(chain.network("float32"), "cuda", chain.feeds("float32"))
        found |= {str(outcome["kernel"]) for outcome in outcomes if "at once" in (outcome["implementation"] or "")}
    return found


@leaves_nothing
def product_of_vectors() -> list[str]:
    """The kernels that give a tensor without axes."""
    network = nx.Network("vectors")
    x, y = (network.add_input(name, "float16", [7]) for name in "xy")
    network.mark_output(network.add_layer("MatMul", [x, y])[0], "z")
    ones = np.ones(7, np.float16)
    return [str(outcome["kernel"]) for outcome in _native.run_every_form(network, "cuda", {"x": ones, "y": ones})]


@leaves_nothing
def of_tokens() -> set[str]:
    """The kernels for two products of rows with a scale for each."""
    rng = np.random.default_rng(0)
    network = nx.Network("tokens")
    y = network.add_input("x", "float32", ["n", 64])
    for _ in range(2):
        w = network.add_constant("w", rng.standard_normal((64, 64)).astype(np.float32))
        y = network.add_layer("Relu", network.add_layer("MatMul", [y, w]))[0]
    network.mark_output(y, "y")
    backend = get_backend("cuda", timing_cache=False, threads=2, optimization_level=0, verify=False)
    model = backend.optimize_model(network, {"x": (8, 64)}, precision="int8", accuracy="per_token")
    return {str(row["kernel"]) for row in model.report()["kernels"]}


@leaves_nothing
def rows_of_products() -> set[str]:
    """The kernels of products that bring their rows together, in every form, over one block and over several."""
    found = set()
    for chain in (chain for chain in CHAINS if chain.name.startswith(("matmul_rows_odd", "matmul_rows_of_several"))):
        outcomes = _native.run_every_form(chain.network("float16"), "cuda", chain.feeds("float16"))
        found |= {str(outcome["kernel"]) for outcome in outcomes if "rows of" in (outcome["implementation"] or "")}
    return found


@leaves_nothing
def histogram() -> set[str]:
    """The kernels of what counts while a GPU calibrates."""
    made = nx.Network("histogram")
    x = made.add_input("x", "float32", [4, 3, 33, 17])
    for output, name in zip(made.add_layer("Histogram", [x]), ("counts", "exponent", "ends"), strict=True):
        made.mark_output(output, name)
    model = get_backend("cuda", timing_cache=False, threads=2).optimize_model(made, None, verify=False)
    return {str(row["kernel"]) for row in model.report()["kernels"]}


def calibrated(precision: str) -> tuple[set[str], dict[str, float]]:
    """The kernels for a small network in a precision that is calibrated, and what its products are of."""
    batch = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    settings = {"timing_cache": False, "threads": 2, "optimization_level": 0, "verify": False}
    with tempfile.TemporaryDirectory() as folder:
        # The recorded device counts nothing.
        ranges = MinMaxCalibrator([batch], cache_file=Path(folder, "ranges.cache"))
        for device, of in (("cpu", "int8"), ("cuda", precision)):
            backend = get_backend(device, **settings)
            model = backend.optimize_model(classifier(16), {"x": batch.shape}, precision=of, calibration=ranges)
    report = model.report()
    return {str(row["kernel"]) for row in report["kernels"]}, report["arithmetic_per_dtype"]
