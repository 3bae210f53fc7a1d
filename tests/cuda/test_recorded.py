"""The CUDA provider against a recorded H200, on machines without a GPU: what runs where, when, and what is left.

Kernels do not run there (`recorded/recorded.h`), so no number is right; `test_cuda.py` compares those on a GPU.
"""

from __future__ import annotations

import ctypes.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import neurenix as nx
from tests.cuda import failure_jobs, jobs, stand_in
from tests.cuda.stand_in import OUT_OF_MEMORY, Process

SOURCES = Path(__file__).parents[2] / "src/providers/cuda/library"
WRAPPERS = {
    "libcuda.so.1": "driver.rs",
    "libnvrtc.so.13": "nvrtc.rs",
    "libcublasLt.so.13": "cublaslt/mod.rs",
    "libcudnn.so.9": "cudnn/mod.rs",
}
#: Names by which the system could have a library that the stand-ins leave out.
OTHERS = {
    "libcuda.so.1": ("libcuda.so.1",),
    "libnvrtc.so.13": ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"),
    "libcublasLt.so.13": ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"),
    "libcudnn.so.9": ("libcudnn.so.9",),
}


@pytest.fixture
def fresh(libraries: Path) -> Iterator[Process]:
    """A process of one test, without machine code that others compiled: what breaks there is nobody else's."""
    with Process(libraries, NEURENIX_CACHE="0") as process:
        yield process


def test_the_stand_ins_have_every_function_that_is_declared(process: Process) -> None:
    blocks = {
        library: (SOURCES / file).read_text().partition("\nlibrary! {\n")[2].partition("\n}\n")[0]
        for library, file in WRAPPERS.items()
    }
    declared = {library: re.findall(r"^ *fn (\w+)\(", block, re.MULTILINE) for library, block in blocks.items()}
    assert all(declared.values())
    assert process.run(jobs.lacking, declared) == []


def test_calls_are_timed_on_arrays_that_stay_on_the_device(process: Process) -> None:
    (taken, few), (_, many) = (process.run(jobs.timed, 2, calls) for calls in (5, 25))
    assert taken >= 0 and many["cuGraphLaunch"] - few["cuGraphLaunch"] == 20
    assert {name: count for name, count in many.items() if name != "cuGraphLaunch"} == {
        name: count for name, count in few.items() if name != "cuGraphLaunch"
    }


def test_the_stand_ins_see_what_is_wrong(fresh: Process) -> None:
    expected = (
        "cuMemAlloc_v2 without a current context",
        "a copy of 65 bytes",
        "cuStreamSynchronize of a stream that is captured",
        "cuMemFree_v2 while the thread captures",
        "a fill is given 64 bytes",
        "which is no live allocation",
        "cuStreamSynchronize is given a dead stream",
    )
    found = fresh.run(jobs.misuses)
    assert len(found) == len(expected)
    assert all(part in line for part, line in zip(expected, found, strict=True)), found


def test_what_the_gpu_runs_and_what_not_with_the_reason(process: Process) -> None:
    whole, part, refusals = process.run(jobs.cover)
    assert whole == [("cuda", name) for name in ("Conv+Relu", "ReduceMean", "MatMul", "Softmax")]
    assert [provider for provider, _ in part] == ["cuda", "cpu", "cuda"]
    assert [(r["provider"], r["layer"]) for r in refusals] == [("cuda", "between")]
    assert refusals[0]["reason"] == "excluded by the caller"


def test_what_moves_dimensions_of_one_is_no_kernel(process: Process) -> None:
    assert process.run(jobs.channel_attention, 160) == ["ReduceMean", "Conv+Sigmoid", "Mul"]


def test_squeeze_and_excitation_of_small_images_is_one_launch(process: Process) -> None:
    whole = "ReduceMean+Reshape+Conv+Sigmoid+Reshape+Mul"
    # Images come and go channel by channel.
    around = ["reorder plain -> channels_last", "reorder channels_last -> plain"]
    assert process.run(jobs.channel_attention, 8) == [around[0], whole, around[1]]


def test_talking_heads_are_mixed_where_they_lie(process: Process) -> None:
    assert process.run(jobs.talking_heads) == ["Conv", "Softmax"]


def test_without_fallback_each_layer_runs_on_the_gpu_or_is_named(process: Process) -> None:
    assert {provider for provider, _ in process.run(jobs.alone, jobs.classifier)} == {"cuda"}
    with pytest.raises(nx.UnsupportedError, match="excluded by the caller") as raised:
        process.run(jobs.alone, jobs.stopover)
    assert raised.value.layer == "between"


def test_packed_weights_stay_so_and_what_has_no_kernel_is_written_in_smaller_ops(process: Process) -> None:
    assert process.run(jobs.alone, jobs.packed) == [("cuda", "MatMulNBits"), ("cuda", "LSTM")]


def test_the_product_of_two_vectors_has_kernels(process: Process) -> None:
    assert set(process.run(jobs.product_of_vectors)) == {"MatMul"}


def test_products_of_one_shape_are_graphs_too(process: Process) -> None:
    # The second engine that is proposed finds that it can't; a shape that may change has none.
    assert process.run(jobs.graphs, 128) == [f"cudnnBackendExecute 3 operations, engine {n}" for n in (0, 3)]
    assert process.run(jobs.graphs, "batch") == []


def test_a_relu_behind_a_convolution_keeps_a_nan_where_an_engine_can(process: Process) -> None:
    assert process.run(jobs.clamped, "Relu") == ["cudnnBackendExecute 2 operations, engine 0, NaNs kept"]
    assert process.run(jobs.clamped, "Sigmoid") == ["cudnnBackendExecute 2 operations, engine 0"]
    # No engine is proposed that keeps it with a slope: one that may lose it is better than none.
    assert process.run(jobs.clamped, "LeakyRelu") == ["cudnnBackendExecute 2 operations, engine 0"]


def test_float32_is_rounded_where_that_was_asked_for(process: Process) -> None:
    launches, rows, found = process.run(jobs.rounded, "tf32")
    # The first engine that is proposed rounds. Products of integers are float32 too, and exact.
    assert launches == [
        "cudnnBackendExecute 1 operations, engine 0",
        "cublasLtMatmul 2 8 1 epilogue 1",
        "cublasLtMatmul 32 32 1 epilogue 1 in tf32",
        "cublasLtMatmul 32 64 1 epilogue 1 in tf32",
    ]
    assert sorted(name for name, (leave, _) in rows.items() if leave) == ["conv", "lstm", "product"]
    assert all(("in tf32" in implementation) == leave for leave, implementation in rows.values()), rows
    # What was saved does the same when it is opened without a word on precision.
    assert found == [{"precision": "tf32", "dtypes": ["float32", "int32", "tf32"]}] * 2
    launches, rows, found = process.run(jobs.rounded, "fp32")
    assert launches[0] == "cudnnBackendExecute 1 operations, engine 3"
    assert not any("tf32" in line for line in launches) and not any(leave for leave, _ in rows.values())
    assert found == [{"precision": "fp32", "dtypes": ["float32", "int32"]}] * 2


@pytest.mark.parametrize("front", ["MaxPool", "Conv"])
def test_a_residual_that_may_still_be_written_is_waited_for(process: Process, front: str) -> None:
    def parted(late: bool) -> int:
        return sum(line.startswith("nothing") for line in process.run(jobs.shortcut, front, late))

    assert (parted(True), parted(False)) == (1, 0)


@pytest.mark.parametrize("refuse", [False, True])
def test_libraries_are_asked_once_before_they_are_needed(fresh: Process, refuse: bool) -> None:
    first, second, built = fresh.run(jobs.warmed, refuse)
    # One of cuDNN's runs plans, and one asks.
    assert first == second == [1, 1 if refuse else 2]
    # What was refused is asked for again by the build; threads that build plans may each have a handle of cuDNN's.
    assert built[0] == 1 and built[1] >= first[1] + (2 if refuse else 0)


def test_times_in_float32_are_not_taken_for_those_in_tf32(process: Process) -> None:
    exact, both, again = process.run(jobs.times_kept, ["fp32", "tf32", "fp32"])
    # The convolution, two products of the layer and of the recurrent one; what integers are is the same in both.
    assert both - exact > 0 and again == both


def test_an_address_that_is_none_of_the_gpus_is_an_error(process: Process) -> None:
    error = process.run(jobs.astray)
    assert error is not None and error.tensor == "x"
    assert "lies in no memory of the device" in str(error)


def test_small_products_of_one_input_are_one_launch(process: Process) -> None:
    whole = [("cuda", "+".join(["MatMul+Add"] * 3))]
    assert process.run(jobs.together, 0, 2) == (whole, 1)
    # Large ones run one after another.
    assert process.run(jobs.together, 0, 64) == (whole, 3)
    assert process.run(jobs.together, 3, 2)[0] == whole


@pytest.mark.parametrize("level", [0, 3])
def test_from_the_third_call_of_a_shape_on_a_recording_is_replayed(process: Process, level: int) -> None:
    found = process.run(jobs.replays, level)
    first, later = found[:3], found[6:]
    for counts in first:
        assert counts["cuGraphLaunch"] == 0 and sum(counts[name] for name in jobs.LAUNCHES) > 0
    for counts in later:
        assert counts["cuGraphLaunch"] == 1 and not any(counts[name] for name in jobs.LAUNCHES)
    # New shapes compile nothing, and a shape that was seen allocates nothing.
    assert not any(counts["cuModuleLoadData"] for counts in found[1:])
    assert not any(counts["cuMemAlloc_v2"] for counts in found[3:])


@pytest.mark.parametrize("level", [0, 3])
def test_a_slice_is_written_by_the_engine_that_was_chosen(process: Process, level: int) -> None:
    assert process.run(jobs.sliced, level) == ["cudnnBackendExecute 1 operations, engine 0"] * 4


@pytest.mark.parametrize(("calls", "shapes"), [(1000, 1), (300, 8), (60, 20)])
def test_memory_is_flat_over_many_calls_and_free_in_the_end(process: Process, calls: int, shapes: int) -> None:
    early, late = process.run(jobs.flat, calls, shapes)
    assert early == late
    assert late["live_bytes"] > 0


@pytest.mark.parametrize(("elapsed_us", "captured"), [(160, True), (1000, False)])
def test_what_takes_long_is_timed_without_a_graph(fresh: Process, elapsed_us: int, captured: bool) -> None:
    assert (fresh.run(failure_jobs.graphs_of_a_build, elapsed_us) > 0) == captured


def test_many_threads_call_at_once(process: Process) -> None:
    assert process.run(jobs.threads, 16) == 16 * 24


def test_many_threads_build_at_once(fresh: Process, libraries: Path) -> None:
    together = fresh.run(jobs.built_together, 6)
    # Who wants a module that is being compiled waits for it.
    with Process(libraries, NEURENIX_CACHE="0") as alone:
        assert alone.run(jobs.built_together, 1) == together
    assert all(together.values())


def test_too_little_memory_is_an_error_with_both_numbers(process: Process) -> None:
    for error in process.run(failure_jobs.scarce):
        assert isinstance(error, nx.OutOfMemoryError) and isinstance(error, MemoryError)
        assert re.fullmatch(r"\d+ bytes on GPU 0", str(error.expected)), error
        assert re.fullmatch(r"\d+ bytes free", str(error.got)), error


#: Every call that asks for memory, and one of each sort that is refused for other reasons.
REFUSED = {
    "cuMemAlloc_v2": (OUT_OF_MEMORY, "OutOfMemoryError"),
    "cuMemcpyAsync": (1, "DeviceError"),
    "cuStreamCreate": (OUT_OF_MEMORY, "OutOfMemoryError"),
    "cuEventCreate": (OUT_OF_MEMORY, "OutOfMemoryError"),
    "cuGraphInstantiateWithFlags": (OUT_OF_MEMORY, "OutOfMemoryError"),
    "cuGraphLaunch": (OUT_OF_MEMORY, "OutOfMemoryError"),
    "cuLaunchKernelEx": (1, "DeviceError"),
    "cublasLtMatmulDescCreate": (3, "OutOfMemoryError"),
    "cublasLtMatmul": (13, "DeviceError"),
    "cudnnBackendCreateDescriptor": (4003, "OutOfMemoryError"),
    "cudnnBackendFinalize": (4004, "OutOfMemoryError"),
    "cudnnBackendExecute": (5000, "DeviceError"),
}


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("function", REFUSED)
def test_one_refused_call_is_an_error_of_ours_and_leaves_nothing(process: Process, function: str, level: int) -> None:
    status, named = REFUSED[function]
    ends = process.run(failure_jobs.refused_once, function, status, level, 12)
    # A form that can't be timed is passed over; what a build or a call can't do without is named.
    assert set(ends) <= {named, "NoneType"}, ends


def test_a_recording_that_fails_is_given_up_and_reported(process: Process) -> None:
    tried, logged, notes = process.run(failure_jobs.unrecorded, "cuGraphInstantiateWithFlags", 8)
    # What lies between the copies is recorded by itself in the second call.
    assert tried == [0, 2, 1, 1, 0, 0, 0, 0]
    assert len(logged) == len(notes) == 1
    assert "CUDA_ERROR_OUT_OF_MEMORY" in notes[0] and notes[0] in logged[0]


@pytest.mark.parametrize(
    ("function", "status"),
    [
        ("cublasLtCreate", 3),
        ("cuModuleLoadData", OUT_OF_MEMORY),
        ("nvrtcCompileProgram", 1),
        ("cudnnCreate", 4003),
    ],
)
def test_what_could_not_be_opened_is_tried_again(fresh: Process, function: str, status: int) -> None:
    # What fails while kernels are built in parallel is built again by the kernel that needs it.
    assert fresh.run(failure_jobs.refused_once, function, status, 0, 1) == ["NoneType"]


@pytest.mark.parametrize("function", ["cuGraphLaunch", "cuStreamSynchronize"])
def test_a_lost_context_is_named_by_every_later_call(fresh: Process, function: str) -> None:
    for error in fresh.run(failure_jobs.lost, function):
        assert isinstance(error, nx.DeviceError)
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in error.message or "EXECUTION_FAILED" in error.message
        assert "start the process anew" in str(error.hint)


def test_a_context_that_is_lost_while_kernels_are_timed_is_named(fresh: Process) -> None:
    for error in fresh.run(failure_jobs.lost_in_build):
        assert isinstance(error, nx.DeviceError) and "start the process anew" in str(error.hint)


def test_a_forked_child_is_told(fresh: Process) -> None:
    assert "CUDA does not survive a fork" in fresh.run(failure_jobs.forked)


def check_absence(process: Process, reason: str) -> None:
    """The CPU runs all, with the reason wherever it belongs."""
    state, kernels, report, fallback, error = process.run(failure_jobs.without)
    assert state is not None and reason in state
    assert {provider for provider, _ in kernels} == {"cpu"}
    assert fallback is not None and reason in fallback
    assert reason in report
    assert isinstance(error, nx.DeviceError) and reason in str(error.got)


@pytest.mark.parametrize("library", stand_in.LIBRARIES)
def test_a_missing_library_is_named(libraries: Path, tmp_path: Path, library: str) -> None:
    if any(ctypes.util.find_library(name.removeprefix("lib").split(".so")[0]) for name in OTHERS[library]):
        pytest.skip(f"this machine has {library}")
    with Process(stand_in.copied(libraries, tmp_path / "libraries", library)) as process:
        check_absence(process, library)


@pytest.mark.parametrize(
    "packages", [("cu13", "cu13", "cudnn"), ("cuda_nvrtc", "cublas", "cudnn")], ids=["CUDA 13", "a folder each"]
)
def test_libraries_of_packages_are_found(libraries: Path, tmp_path: Path, packages: tuple[str, ...]) -> None:
    libraries, site = stand_in.copied(libraries, tmp_path / "libraries"), tmp_path / "site-packages"
    for library, package in zip(list(stand_in.LIBRARIES)[1:], packages, strict=True):
        folder = site / "nvidia" / package / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        (libraries / library).rename(folder / library)
    with Process(libraries, [str(tmp_path / "nowhere"), str(site)]) as process:
        whole, _, _ = process.run(jobs.cover)
    assert {provider for provider, _ in whole} == {"cuda"}


def test_a_library_that_is_broken_is_named_with_all_places(libraries: Path, tmp_path: Path) -> None:
    libraries, site = stand_in.copied(libraries, tmp_path / "libraries", "libcudnn.so.9"), tmp_path / "site-packages"
    folder = site / "nvidia" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudnn.so.9").write_bytes(b"half of a download")
    if ctypes.util.find_library("cudnn"):
        pytest.skip("this machine has cuDNN")
    with Process(libraries, [str(site)]) as process:
        state = str(process.run(failure_jobs.without)[0])
    assert "none of libcudnn.so.9 found" in state
    assert f"{folder / 'libcudnn.so.9'}: " in state
    assert f"looked in {libraries}, {site}/nvidia/*/lib, the system's folders" in state


def test_a_driver_that_is_too_old_is_named(tmp_path: Path) -> None:
    with Process(stand_in.build(tmp_path / "libraries", lacks="cuGraphInstantiateWithFlags")) as process:
        check_absence(process, "lacks cuGraphInstantiateWithFlags: it is too old")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"RECORDED_SET": "devices=0"}, "CUDA_ERROR_NO_DEVICE"),
        ({"RECORDED_SET": "capability=70"}, "GPU 0 (NVIDIA H200) is too old"),
        ({"RECORDED_FAIL": "cuInit:0:999"}, "error 999 in cuInit"),
    ],
    ids=["no device", "old device", "broken driver"],
)
def test_a_device_that_is_no_use_is_named(libraries: Path, settings: dict[str, str], reason: str) -> None:
    with Process(libraries, **settings) as process:
        check_absence(process, reason)
