"""Which layers of whole networks the CUDA provider leaves to the CPU, against a recorded H200, and why.

Each is a small model of an architecture of the zoo, as PyTorch's exporter writes it, with dynamic sizes.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cuda import jobs
from tests.cuda.stand_in import Process

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("transformers")
zoo = pytest.importorskip("benchmarks.zoo")
models = pytest.importorskip("benchmarks.zoo_models")

#: The ops that the CPU runs. One that is gone is to be taken out, so that it does not come back unseen.
LEFT: dict[str, list[str]] = {
    "bert": [],
    "clip_text": [],
    "clip_vision": [],
    "convnext_tiny": [],
    "deit": [],
    "densenet121": [],
    "distilbert": [],
    "gpt2": [],
    "llama": [],
    "mae_decoder": [],
    "mae_encoder": [],
    "mobilenetv3": [],
    "resnet50": [],
    "roberta": [],
    "swin_t": [],
    "t5_encoder": [],
    "unet": [],
    "unet3d": [],
    "vit_b_16": [],
    "whisper_encoder": [],
    "yolov8n": [],
}
#: Networks whose kernels are compiled: what most others have in common, in each precision.
COMPILED = [("gpt2", "fp16"), ("mobilenetv3", "fp32"), ("unet", "bf16")]
#: GPUs of each generation that has instructions of its own: 10 x major + minor.
CAPABILITIES = (75, 80, 90, 120)

#: A tensor or a value of floats of 8 bits, which all sources define.
OF_FLOATS = re.compile(rb"typedef float8\w+ [XY]\d|(const|=) float8\w+")
SIZE = re.compile(rb"\b\d+\b")
#: What a kernel is called, behind its bounds.
CALLED = re.compile(rb"__global__ void (?:__\w+__\([^)]*\) )*(\w+)\(")
SYNTAX_ONLY = b"--fdevice-syntax-only"

Network = tuple[Path, jobs.Shapes]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Network]:
    """Gives the file of a network, and two shapes of each of its inputs."""
    folder = tmp_path_factory.mktemp("networks")

    def exported(name: str) -> Network:
        entry: Any = models.ZOO[name].sibling()
        path = folder / f"{name}.onnx"
        if not path.exists():
            zoo.export_entry(entry, entry.build(), False, path, torch)
        return path, {key: [x.at(sizes) for sizes in entry.sizes] for key, x in entry.inputs.items()}

    return exported


@pytest.mark.parametrize("name", LEFT)
def test_the_cpu_runs_what_is_listed_and_nothing_else(
    name: str, network: Callable[[str], Network], process: Process
) -> None:
    found = process.run(jobs.refusals, *network(name))
    assert found == [f"no CUDA kernel runs {op}" for op in LEFT[name]]


def compiler() -> ctypes.CDLL:
    """The real NVRTC, as a package brings it or the system has it."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or () if spec else ())]
    folders += [Path(folder) for folder in os.environ.get("NEURENIX_CUDA_LIBRARIES", "").split(":") if folder]
    paths = [str(path) for folder in folders for path in sorted(folder.rglob("libnvrtc.so.1[23]"))]
    for name in (*paths, "libnvrtc.so.13", "libnvrtc.so.12"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    pytest.skip("there is no NVRTC: pip install nvidia-cuda-nvrtc")


def log_of(nvrtc: ctypes.CDLL, source: bytes, *more: bytes) -> str:
    """What the compiler says against a source, whose first line has the options; empty where it takes it."""
    options = [*source.partition(b"\n")[0].split()[1:], *more]
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None) == 0
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() if status else ""


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_kernels_of_networks_compile(
    capability: int, libraries: Path, network: Callable[[str], Network], tmp_path: Path
) -> None:
    nvrtc = compiler()
    device = {"RECORDED_SET": f"capability={capability}", "RECORDED_SOURCES": str(tmp_path)}
    with Process(libraries, NEURENIX_CACHE="0", **device) as process:
        for name, precision in COMPILED:
            process.run(jobs.refusals, *network(name), precision)
    assert_compile(nvrtc, tmp_path, 20)


@pytest.fixture(scope="module")
def taken() -> set[bytes]:
    """What the compiler took for the GPUs before."""
    return set()


def code_of(source: bytes) -> bytes:
    """A source without its options; with them where it is of floats of 8 bits, which newer GPUs have instructions for.

    A newer GPU runs all other instructions of an older one, and only waits in one more way, as its other kernels do.
    """
    return source if OF_FLOATS.search(source) else source.partition(b"\n")[2]


def without_sizes(source: bytes) -> bytes:
    """A source without the numbers of its kernel, which stands last: how large tiles are, how many a GPU keeps."""
    functions, kernel = parts_of(source)
    return functions + SIZE.sub(b"", kernel)


def sizes(source: bytes) -> list[int]:
    """The numbers of its kernel."""
    return [int(size) for size in SIZE.findall(parts_of(source)[1])]


def parts_of(source: bytes) -> tuple[bytes, bytes]:
    """The functions of a source, and its kernel."""
    functions, kernel, choices = source.rpartition(b'extern "C"')
    return functions, kernel + choices


@pytest.mark.parametrize("capability", [80, 89, 90])
def test_the_kernels_of_8_bits_compile(capability: int, libraries: Path, tmp_path: Path, taken: set[bytes]) -> None:
    nvrtc = compiler()
    device = {"RECORDED_SET": f"capability={capability}", "RECORDED_SOURCES": str(tmp_path)}
    with Process(libraries, NEURENIX_CACHE="0", **device) as process:
        kernels = process.run(jobs.products_of_8_bits)
        kernels_of_fp8, shares = process.run(jobs.calibrated, "fp8")
        of_tokens = process.run(jobs.of_tokens)
        at_once = process.run(jobs.products_of_8_bits_at_once)
        assert "Histogram" in process.run(jobs.histogram)
        assert ("cuda", "MatMulNBits") in process.run(jobs.alone, jobs.packed)
        in_int8 = [process.run(jobs.calibrated, precision)[0] for precision in ("int8", "int8+fp16")]
    behind = "DequantizeLinear+Add+Relu+QuantizeLinear"
    assert {f"int8 Conv+{behind}", f"int8 MatMul+{behind}", "int8 ConvTranspose+QuantizeLinear"} <= set(kernels)
    assert {"DynamicQuantizePerToken", "int8 MatMul+Relu"} <= of_tokens
    quantizing, casting = ("int8 MatMul+Add+QuantizeLinear", "fp8 MatMul+Cast")
    assert at_once == ({"+".join([quantizing] * 3), "+".join([casting] * 3)} if capability == 90 else set())
    # The precision brings a Cast between Dequantize and the mean, or none.
    assert all({"int8 QuantizeLinear+Conv+Relu+QuantizeLinear", "int8 ReduceMean"} <= kernels for kernels in in_int8)
    # Ada and later GPUs multiply floats of 8 bits; a product adds its bias itself.
    has_fp8 = capability >= 89
    assert (
        {f"fp8 Conv+{behind}", f"fp8 MatMul+Add+{behind}", "fp8 Conv+Gelu+QuantizeLinear"} <= set(kernels)
    ) == has_fp8
    assert ({"fp8 QuantizeLinear+Conv+Relu", "fp8 MatMul"} <= kernels_of_fp8) == has_fp8
    assert (shares.get("float8_e4m3fn", 0) > 0.8) == has_fp8
    assert_compile(nvrtc, tmp_path, 50, taken, first_of_a_name())


def test_rows_that_products_bring_together_compile(libraries: Path, tmp_path: Path) -> None:
    nvrtc = compiler()
    with Process(
        libraries, NEURENIX_CACHE="0", RECORDED_SET="capability=90", RECORDED_SOURCES=str(tmp_path)
    ) as process:
        kernels = process.run(jobs.rows_of_products)
    assert {"MatMul+Add+Add+LayerNormalization+Silu", "MatMul+RMSNormalization", "MatMul+Add+ReduceMin"} <= kernels
    # No plan takes them, and test_every_form.py runs them all on a GPU: what the language allows is enough here.
    assert_compile(nvrtc, tmp_path, 50, whole=lambda source: False)


def test_convolutions_by_warpgroups_compile(libraries: Path, tmp_path: Path) -> None:
    nvrtc = compiler()
    with Process(
        libraries, NEURENIX_CACHE="0", RECORDED_SET="capability=90", RECORDED_SOURCES=str(tmp_path)
    ) as process:
        kernels = process.run(jobs.large_convolutions)
    assert {"Conv+Gelu+Mul+Add+Add", "Conv+Silu+Add", "Conv+Add"} <= kernels
    sources = [path.read_text() for path in tmp_path.iterdir()]
    for left in ("LeftRows{&left, 0}", "LeftWindows{&left, windows}"):
        assert any(f"Tail>(result, {left}" in source for source in sources)
    assert_compile(nvrtc, tmp_path, 20)


def first_of_a_name() -> Callable[[bytes], bool]:
    """Whether a kernel is the first of its name that is asked about."""
    names: set[bytes] = set()

    def first(source: bytes) -> bool:
        found = CALLED.search(source)
        assert found, source[-500:]
        known = found[1] in names
        names.add(found[1])
        return not known

    return first


def assert_compile(
    nvrtc: ctypes.CDLL,
    folder: Path,
    least: int,
    taken: set[bytes] | None = None,
    whole: Callable[[bytes], bool] = lambda source: True,
) -> None:
    """The compiler takes every source of a folder, but for those that are `taken` already for an older GPU.

    Of those that differ in sizes alone, that is the smallest one: test_every_form.py runs them all where a GPU is. What
    is not `whole` makes no machine code: the language allows it, which is ten times as fast to see.
    """
    sources = [path.read_bytes() for path in folder.iterdir()]
    assert len(sources) >= least
    if taken is not None:
        sources = [source for source in sources if code_of(source) not in taken]
        taken.update(map(code_of, sources))
    smallest = {without_sizes(source): source for source in sorted(sources, key=sizes, reverse=True)}
    # One after the other: NVRTC lets no two threads compile at once.
    logs = [log_of(nvrtc, source, *(() if whole(source) else (SYNTAX_ONLY,))) for source in smallest.values()]
    assert [log for log in logs if log] == []


def test_no_function_has_parameters_of_any_type() -> None:
    """NVRTC 13.0 takes lambdas whose parameters are `auto` for functions of the processor, which 13.2 does not."""
    lambdas = re.compile(r"\]\s*\([^)]*\bauto\b")
    sources = sorted((Path(__file__).parents[2] / "kernels").iterdir())
    assert [path.name for path in sources if lambdas.search(path.read_text())] == []
