"""What callers do to an engine: many threads, odd arrays, outputs kept, many calls, fork, many engines."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import Shape
from neurenix.hardware.tensorrt import TensorRTBackend

RNG = np.random.default_rng(0)
KERNEL = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)
MATRIX = RNG.standard_normal((8, 5)).astype(np.float32)


def network(batch: int | str = "batch") -> nx.Network:
    """A convolution, an activation, a mean and a matrix: several kernels, one arena."""
    made = nx.Network("small")
    x = made.add_input("x", "float32", [batch, 3, 16, 16])
    weights = made.add_constant("w", KERNEL)
    y = made.add_layer("Conv", [x, weights], {"pads": [1, 1, 1, 1]})[0]
    y = made.add_layer("Relu", [y])[0]
    y = made.add_layer("ReduceMean", [y], {"axes": [2, 3], "keepdims": 0})[0]
    y = made.add_layer("MatMul", [y, made.add_constant("m", MATRIX)])[0]
    made.mark_output(y, "y")
    return made


def exact(x: np.ndarray) -> np.ndarray:
    """The same in numpy and double precision."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.einsum("nchwij,mcij->nmhw", windows, KERNEL.astype(np.float64))
    return np.maximum(y, 0).mean((2, 3)) @ MATRIX.astype(np.float64)


def batch_of(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((size, 3, 16, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> Any:
    shape = Shape((1, 3, 16, 16), (4, 3, 16, 16), (16, 3, 16, 16))
    return TensorRTBackend().optimize_model(network(), {"x": shape})


def check(got: np.ndarray, x: np.ndarray) -> None:
    np.testing.assert_allclose(got, exact(x), rtol=1e-4, atol=1e-4)


def test_64_threads_on_one_engine(model: Any) -> None:
    inputs = [batch_of(1 + i % 7, i) for i in range(64)]
    answers = [exact(x) for x in inputs]
    start = threading.Barrier(64)

    def call(number: int) -> None:
        start.wait()
        for _ in range(20):
            np.testing.assert_allclose(model(inputs[number]), answers[number], rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(64) as pool:
        for done in [pool.submit(call, i) for i in range(64)]:
            done.result()


def test_shapes_that_alternate_share_memory_and_stay_right(model: Any) -> None:
    sizes = (1, 16, 3, 16, 2, 5, 40, 1, 7, 11, 13, 4, 16, 40)
    start = threading.Barrier(6)

    def work(number: int) -> None:
        context = model._engine.create_context()
        start.wait()
        for turn, size in enumerate(sizes * 2):
            x = batch_of(size, 100 * number + turn)
            check(context.run({"x": x})["y"], x)
            x = batch_of(sizes[(turn + number) % len(sizes)], turn)
            check(model(x), x)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def test_the_memory_of_shapes_does_not_add_up() -> None:
    # In a process of its own: the arenas of this one's other engines come and go.
    program = (
        "import numpy as np\n"
        "from tests.runtime.test_calls import TensorRTBackend, Shape, network\n"
        "shape = Shape((1, 3, 16, 16), (4, 3, 16, 16), (20000, 3, 16, 16))\n"
        "model = TensorRTBackend(optimization_level=0).optimize_model(network(), {'x': shape})\n"
        "need = model.memory_required({'x': (8000, 3, 16, 16)}).activations\n"
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024\n"
        "x = np.zeros((8000, 3, 16, 16), np.float32)\n"
        "model(x)\n"
        "before = peak()\n"
        "for size in range(7999, 7993, -1):\n"
        "    model(x[:size])\n"
        "assert peak() - before < need, (peak() - before, need)\n"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root, env=environment)


def test_threads_do_not_multiply(model: Any) -> None:
    """64 callers are served by one team, not by 64."""
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda seed: model(batch_of(16, seed)), range(256)))
        threads = len(os.listdir("/proc/self/task"))
    assert threads < 64 + 64 + 4 * (os.cpu_count() or 1)


def test_arrays_that_are_not_contiguous(model: Any) -> None:
    base = batch_of(12)
    views = [base[::2], base[:, ::-1], base[..., ::-1], base.transpose(0, 1, 3, 2), np.asfortranarray(base)]
    views.append(np.broadcast_to(base[:1], base.shape))
    for view in views:
        check(model(view), np.ascontiguousarray(view))


def test_an_array_that_is_not_aligned(model: Any) -> None:
    x = batch_of(2)
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
    check(model(shifted.reshape(x.shape)), x)


def test_an_array_that_is_read_only(model: Any) -> None:
    x = batch_of(2)
    x.flags.writeable = False
    check(model(x), x)


def test_inputs_stay_as_they_are(model: Any) -> None:
    x = batch_of(3)
    before = x.copy()
    model(x)
    assert np.array_equal(x, before)


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        ({"x": np.zeros((1, 3, 16, 16))}, nx.DTypeError),
        ({"x": np.zeros((1, 3, 16, 16), np.int32)}, nx.DTypeError),
        ({"x": np.zeros((1, 4, 16, 16), np.float32)}, nx.ShapeError),
        ({"x": np.zeros((3, 16, 16), np.float32)}, nx.ShapeError),
        ({"x": np.zeros((1, 3, 16, 17), np.float32)}, nx.ShapeError),
        ({"z": np.zeros((1, 3, 16, 16), np.float32)}, nx.InvalidArgumentError),
        ({}, nx.InvalidArgumentError),
        ({"x": np.zeros((1, 3, 16, 16), np.float32), "z": np.zeros(1)}, nx.InvalidArgumentError),
    ],
    ids=["float64", "int32", "channels", "rank", "width", "name", "nothing", "too_many"],
)
def test_wrong_inputs_are_refused_and_the_engine_stays_well(model: Any, inputs: dict[str, Any], kind: type) -> None:
    with pytest.raises(kind):
        model(inputs)
    x = batch_of(2)
    check(model(x), x)


def test_a_shape_outside_the_profile_still_runs(model: Any) -> None:
    x = batch_of(20)
    check(model(x), x)


def test_an_empty_batch(model: Any) -> None:
    assert model(batch_of(0)).shape == (0, 5)


def test_outputs_outlive_the_engine() -> None:
    optimized = TensorRTBackend().optimize_model(network(), {"x": (2, 3, 16, 16)})
    x = batch_of(2)
    kept = [optimized(x) for _ in range(8)]
    del optimized
    gc.collect()
    noise = [np.full(1 << 16, np.nan, np.float32) for _ in range(64)]
    for y in kept:
        check(y, x)
        y += 1  # it is the caller's
    assert noise


def test_each_call_has_its_own_output(model: Any) -> None:
    first = model(batch_of(4, 1))
    before = first.copy()
    model(batch_of(4, 2))
    assert np.array_equal(first, before)


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_flat(call: Callable[[int], Any], times: int) -> bool:
    """Whether so many calls let the process grow by less than 4 MB: in one of three rounds, as tests leave threads."""

    def growth() -> int:
        gc.collect()
        before = resident()
        for i in range(times):
            call(i)
        gc.collect()
        return resident() - before

    return any(growth() < 4 << 20 for _ in range(3))


def test_10_000_calls_in_flat_memory(model: Any) -> None:
    inputs = [batch_of(size, size) for size in range(1, 17)]
    for x in inputs * 20:
        model(x)
    assert is_flat(lambda i: model(inputs[i % 16]), 10_000)


def test_wrong_calls_in_flat_memory(model: Any) -> None:
    wrong = np.zeros((1, 4, 16, 16), np.float32)

    def refused(_: int) -> None:
        with pytest.raises(nx.ShapeError):
            model(wrong)

    for i in range(200):
        refused(i)
    assert is_flat(refused, 2_000)


def test_a_forked_child_runs_and_is_right(model: Any) -> None:
    x = batch_of(16)
    want = model(x)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            # No assert, no exception may leave the child: pytest would go on in it.
            try:
                right = all(np.array_equal(model(x), want) for _ in range(5))
                os._exit(0 if right else 1)
            except BaseException:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert np.array_equal(model(x), want)


OTHER = """
import sys
import numpy as np
from neurenix.hardware.tensorrt import TensorRTBackend
model = TensorRTBackend().load(sys.argv[1])
np.save(sys.argv[3], model(np.load(sys.argv[2])))
"""


def test_another_process_loads_what_was_saved(model: Any, tmp_path: Path) -> None:
    x = batch_of(5)
    engine, given, answer = (tmp_path / name for name in ("small.engine", "x.npy", "y.npy"))
    model.save(engine)
    np.save(given, x)
    subprocess.run([sys.executable, "-c", OTHER, engine, given, answer], check=True, timeout=120)
    assert np.array_equal(np.load(answer), model(x))


def test_a_file_may_be_replaced_while_it_is_open(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.engine"
    model.save(path)
    opened = TensorRTBackend().load(path)
    x = batch_of(3)
    model.save(path)
    check(opened(x), x)
    path.unlink()
    check(opened(x), x)


def test_many_engines_in_one_process() -> None:
    backend = TensorRTBackend()
    engines = [backend.optimize_model(network(size), {"x": (size, 3, 16, 16)}) for size in range(1, 21)]
    for size, engine in enumerate(engines, 1):
        x = batch_of(size, size)
        check(engine(x), x)
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda size: engines[size - 1](batch_of(size, size)), range(1, 21))
        for size, y in enumerate(answers, 1):
            check(y, batch_of(size, size))


def test_torch_in_torch_out(model: Any) -> None:
    torch = pytest.importorskip("torch")
    x = batch_of(4)
    for given in (torch.from_numpy(x), torch.from_numpy(x).requires_grad_(), torch.nn.Parameter(torch.from_numpy(x))):
        y = model(given)
        assert isinstance(y, torch.Tensor) and not y.requires_grad
        check(y.numpy(), x)
    strided = torch.from_numpy(x).to(memory_format=torch.channels_last)
    check(model(strided).numpy(), x)
    assert isinstance(model({"x": torch.from_numpy(x)})["y"], torch.Tensor)


def test_the_same_answer_every_time(model: Any) -> None:
    x = batch_of(16)
    first = model(x)
    assert all(np.array_equal(model(x), first) for _ in range(50))
