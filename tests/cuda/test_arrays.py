"""Arrays that lie on a GPU, in the caller's streams; what goes wrong there; several GPUs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import neurenix as nx
from neurenix import _native
from neurenix.errors import DTypeError, InvalidArgumentError, OutOfMemoryError, ShapeError
from neurenix.hardware.placed import stream_of

parser = pytest.importorskip("onnx").parser
torch = pytest.importorskip("torch")

MISSING = dict(_native.provider_states())["cuda"]
gpu = pytest.mark.skipif(MISSING is not None, reason=f"no GPU for the CUDA provider: {MISSING}")


def model(body: str, signature: str, held: str = "") -> Any:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> m {signature} {held} {{ {body} }}')


def optimized(given: Any, shapes: Any, **options: Any) -> nx.OptimizedModel:
    return nx.hardware.get_backend("cuda").optimize_model(given, shapes, **options)


def chain() -> nx.OptimizedModel:
    given = model(
        "a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)",
        "(float[n,64] x, float[64,64] w, float[64,32] v) => (float[] y)",
    )
    return optimized(given, {"x": (16, 64), "w": (64, 64), "v": (64, 32)})


def operands(rows: int, seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {
        "x": torch.randn(rows, 64, device="cuda"),
        "w": torch.randn(64, 64, device="cuda"),
        "v": torch.randn(64, 32, device="cuda"),
    }


def exact(given: dict[str, Any]) -> Any:
    wide = {name: array.double() for name, array in given.items()}
    return (wide["x"] @ wide["w"]).relu() @ wide["v"]


def close(got: Any, want: Any) -> bool:
    return bool((got.double() - want).abs().max() <= 1e-5 * want.abs().max())


@pytest.mark.gpu
@gpu
def test_torch_in_torch_out_on_the_gpu_again_and_again() -> None:
    ready = chain()
    for turn, rows in enumerate([16, 16, 16, 16, 5, 5, 16, 16, 16]):
        given = operands(rows, turn)
        got = ready(given)["y"]
        assert got.device.type == "cuda"
        assert got.shape == (rows, 32)
        assert close(got, exact(given)), (turn, rows)


@pytest.mark.gpu
@gpu
def test_the_same_arrays_again_are_replayed_with_their_new_contents() -> None:
    ready, given = chain(), operands(16)
    for turn in range(6):
        given["x"].copy_(torch.randn(16, 64, device="cuda") * (turn + 1))
        assert close(ready(given)["y"], exact(given)), turn


@pytest.mark.gpu
@gpu
def test_arrays_of_the_processor_and_of_the_gpu_go_together() -> None:
    ready, given = chain(), operands(16)
    mixed = given | {"w": given["w"].cpu(), "v": given["v"].cpu().numpy()}
    for _ in range(4):
        got = ready(mixed)["y"]
        assert got.device.type == "cuda"
        assert close(got, exact(given))
    assert close(ready({name: array.cpu() for name, array in given.items()})["y"], exact(given).cpu())


@pytest.mark.gpu
@gpu
def test_work_follows_what_the_callers_stream_holds() -> None:
    ready, given = chain(), operands(16)
    want = exact(given)
    big = torch.randn(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()
    for _ in range(4):
        with torch.cuda.stream(stream):
            for _ in range(20):
                big = big @ big / 4096
            late = given | {"x": given["x"].clone()}
            got = ready(late)["y"] * 1.0
        stream.synchronize()
        assert close(got, want)
        got = ready.run(given, stream=stream)["y"]
        stream.synchronize()
        assert close(got, want)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("number", [None, 0, 1], ids=["another", "default", "legacy"])
def test_a_view_is_copied_in_the_stream_that_is_named(number: int | None) -> None:
    ready, given = chain(), operands(16)
    view = given | {"x": given["x"].t().contiguous().t()}
    want = exact(given)
    named, busy = torch.cuda.Stream(), torch.cuda.default_stream()
    if number is not None:
        named, busy = busy, named
    big = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    for _ in range(4):
        with torch.cuda.stream(busy):
            for _ in range(20):
                big = big @ big / 4096
            got = ready.run(view, stream=named.cuda_stream if number is None else number)["y"]
        named.synchronize()
        with torch.cuda.stream(named):
            assert close(got, want)


@pytest.mark.gpu
@gpu
def test_two_engines_and_torch_on_their_own_streams_give_what_each_gives_alone() -> None:
    engines = [chain(), chain()]
    given = [operands(16, seed) for seed in range(2)]
    alone = [engine(inputs)["y"].clone() for engine, inputs in zip(engines, given, strict=True)]
    square = torch.randn(512, 512, device="cuda")
    alone_square = square @ square
    torch.cuda.synchronize()
    failures: list[int] = []

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(300):
                if number == 2:
                    same = bool(((square @ square) == alone_square).all())
                else:
                    same = bool((engines[number](given[number])["y"] == alone[number]).all())
                if not same:
                    failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.gpu
@gpu
def test_a_call_can_be_captured_by_torch() -> None:
    ready, given = chain(), operands(16)
    for _ in range(3):
        ready(given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = ready(given)["y"]
    for turn in range(3):
        given["x"].copy_(torch.randn(16, 64, device="cuda") + turn)
        graph.replay()
        ready(operands(16, turn))
        torch.cuda.synchronize()
        assert close(got, exact(given))


@pytest.mark.gpu
@gpu
def test_an_index_out_of_range_is_told_and_the_next_call_is_right() -> None:
    given = model("y = Gather<axis = 0>(t, i)", "(float[10,8] t, int64[n] i) => (float[] y)")
    ready = optimized(given, {"t": (10, 8), "i": (4,)})
    table = torch.randn(10, 8, device="cuda")
    good, bad = (torch.tensor(i, device="cuda") for i in ([0, 3, -1, 9], [0, 12, 1, 2]))
    assert bool((ready({"t": table, "i": good})["y"] == table[good]).all())
    ready({"t": table, "i": bad})
    with pytest.raises(ShapeError, match="out of range"):
        ready.synchronize()
    assert bool((ready({"t": table, "i": good})["y"] == table[good]).all())
    ready.synchronize()
    with pytest.raises(ShapeError, match="out of range"):
        ready({"t": table.cpu(), "i": bad.cpu()})
    ready.synchronize()


@pytest.mark.gpu
@gpu
def test_layers_of_the_processor_read_and_write_arrays_of_the_gpu() -> None:
    given = model("a = Det(x) b = Relu(a) y = Sigmoid(x)", "(float[5,3,3] x) => (float[] b, float[] y)")
    ready = optimized(given, {"x": (5, 3, 3)})
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(5, 3, 3, device="cuda")
        got = ready({"x": x})
        assert close(got["b"], torch.linalg.det(x.double()).relu())
        assert close(got["y"], x.double().sigmoid())


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("level", [0, 3])
def test_results_are_inputs_views_of_them_parts_of_each_other_and_read_again(level: int) -> None:
    """With arrays that kernels use where they are, in graphs and outside, others on the GPU, and the processor's."""
    given = model(
        "a, b = Split <axis = 1> (x) r = Relu(a) joined = Concat <axis = 1> (r, b) again = Sigmoid(joined)"
        "twice = Identity(again) same = Identity(x) flat = Flatten(x)",
        "(float[n,8,4] x) => (float[] r, float[] joined, float[] again, float[] twice, float[] same, float[] flat)",
    )
    ready = optimized(given, {"x": nx.Shape((1, 8, 4), (3, 8, 4), (9, 8, 4))}, optimization_level=level)
    for turn, rows in enumerate([3, 3, 3, 3, 9, 3, 1, 1, 1, 1]):
        torch.manual_seed(turn)
        # 4 bytes behind the start of an allocation: no address for kernels.
        room = torch.randn(rows * 32 + 1, device="cuda")
        for x in (room[:-1].view(rows, 8, 4), room[1:].view(rows, 8, 4), room[1:].view(rows, 8, 4).cpu()):
            r = x[:, :4].relu()
            joined = torch.cat([r, x[:, 4:]], dim=1)
            again = joined.sigmoid()
            want = {"r": r, "joined": joined, "same": x, "flat": x.flatten(1)}
            got = ready({"x": x})
            for name, array in want.items():
                assert torch.equal(torch.as_tensor(got[name]), array), (turn, name)
            for name in ("again", "twice"):
                assert close(torch.as_tensor(got[name]), again.double()), (turn, name)


@pytest.mark.gpu
@gpu
def test_what_does_not_fit_is_refused_by_name() -> None:
    ready, given = chain(), operands(16)
    with pytest.raises(DTypeError, match=r"(?s)x.*float32.*float16"):
        ready(given | {"x": given["x"].half()})
    with pytest.raises(ShapeError):
        ready(given | {"x": given["x"][:, :63]})
    with pytest.raises(InvalidArgumentError, match="missing"):
        ready({"x": given["x"], "w": given["w"]})
    transposed = given | {"w": given["w"].t()}
    assert close(ready(transposed)["y"], exact(transposed))


@pytest.mark.gpu
@gpu
def test_too_little_memory_is_told_with_numbers_and_leaves_everything_usable() -> None:
    given = model("a = MatMul(x, x) b = Softmax(a) y = MatMul(b, x)", "(float[n,n] x) => (float[] y)")
    ready = optimized(given, {"x": (64, 64)})
    x, side = torch.eye(64, device="cuda"), 16_384
    want = ready({"x": x})["y"].clone()
    huge = torch.zeros(side, side, device="cuda")
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    # Room for the result, and not for what lies between.
    filler = torch.empty(free - side * side * 4 * 3 // 2, dtype=torch.uint8, device="cuda")
    with pytest.raises(OutOfMemoryError, match=r"bytes"):
        ready({"x": huge})
    del filler, huge
    torch.cuda.empty_cache()
    assert bool((ready({"x": x})["y"] == want).all())


@pytest.mark.gpu
@gpu
def test_a_number_beyond_the_last_gpu_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no such device"):
        nx.hardware.get_backend("cuda", device=64).initialize()
    info = nx.hardware.get_backend("cuda").get_device_info(0)
    assert info.provider == "cuda"
    assert info.total_memory > info.free_memory > 0
    assert {"cudnn", "cublaslt", "nvrtc"} <= set(info.libraries)


@pytest.mark.gpu
@pytest.mark.skipif(_native.gpu_count() < 2, reason="one GPU or none")
def test_two_gpus_each_run_an_engine(tmp_path: Any) -> None:
    given = model("a = MatMul(x, x) y = Softmax(a)", "(float[n,n] x) => (float[] y)")
    first = optimized(given, {"x": (512, 512)})
    first.save(tmp_path / "engine.nx")
    second = nx.hardware.get_backend("cuda", device=1).load(tmp_path / "engine.nx")
    for number, ready in enumerate([first, second]):
        x = torch.randn(512, 512, device=f"cuda:{number}")
        got = ready({"x": x})["y"]
        assert got.device.index == number
        want = (x.double() @ x.double()).softmax(-1)
        assert float((got.double() - want).abs().max()) < 1e-4


def test_streams_have_numbers() -> None:
    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 7

    assert [stream_of(5), stream_of(Stream())] == [5, 7]
    with pytest.raises(InvalidArgumentError, match="stream"):
        stream_of("torch")
