"""The arrays of a plugin: inputs can't be written, and nothing of the engine's memory outlives the call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.plugins.classes import built

X = np.arange(40, dtype=np.float32).reshape(10, 4)

Work = Callable[[Any, Any], None]


class Told(trt.IPluginV2):
    """Copies its input, and does what the test says before."""

    devices = ("cpu",)

    def __init__(self, work: Work) -> None:
        self.work = work

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        return input_shapes[0]

    def get_workspace_size(self, inputs: list[Any], outputs: list[Any]) -> int:
        return 16

    def serialize(self) -> Any:
        return {}

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int, workspace: Any) -> None:
        self.workspace = None
        self.work(inputs[0], outputs[0])
        outputs[0][...] = inputs[0]


def context(work: Work, dtype: Any = trt.float32) -> trt.IExecutionContext:
    """A network whose plugin reads the caller's array."""
    network = trt.Builder().create_network()
    layer = network.add_plugin_v2([network.add_input("x", dtype, ("n", 4))], Told(work))
    layer.name = "mine"
    network.mark_output(layer.get_output(0))
    return built(network).create_execution_context()


def through_flags(x: Any) -> None:
    x.flags.writeable = True
    x[...] = 7


def through_the_flags_of_a_view(x: Any) -> None:
    view = np.asarray(x)[1:]
    view.flags.writeable = True
    view[...] = 7


def by_assignment(x: Any) -> None:
    x[...] = 7


@pytest.mark.parametrize("write", [through_flags, through_the_flags_of_a_view, by_assignment])
def test_numpy_writes_no_input(write: Callable[[Any], None]) -> None:
    runner, x = context(lambda x, y: write(x)), X.copy()
    with pytest.raises(nx.PluginError, match=r"execute raised ValueError: .*(WRITEABLE|read-only)"):
        runner.execute(x)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("dtype", [trt.float32, trt.bfloat16], ids=str)
def test_torch_writes_into_a_copy_of_an_input(dtype: Any) -> None:
    torch = pytest.importorskip("torch")

    def write(x: Any, y: Any) -> None:
        torch.from_dlpack(x).fill_(7)
        assert (np.asarray(x, np.float32) == X).all()

    x = X.astype(ml_dtypes.bfloat16) if dtype == trt.bfloat16 else X.copy()
    before = x.copy()
    np.testing.assert_array_equal(context(write, dtype).execute(x), before)
    np.testing.assert_array_equal(x, before)


def test_outputs_and_who_asks_for_no_copy_share_memory() -> None:
    torch = pytest.importorskip("torch")
    shared = []

    def look(x: Any, y: Any) -> None:
        shared.append(torch.from_dlpack(y).data_ptr() == y.ctypes.data)
        shared.append(torch.from_dlpack(x, copy=False).data_ptr() == x.ctypes.data)

    context(look).execute(X)
    assert shared and all(shared)


def a_view(x: Any) -> Any:
    return x[2:, :1]


def a_plain_view(x: Any) -> Any:
    return np.asarray(x)[1:].T


def a_memoryview(x: Any) -> Any:
    return memoryview(x)


def a_tensor(x: Any) -> Any:
    return pytest.importorskip("torch").from_dlpack(x)


@pytest.mark.parametrize("keep", [lambda x: x, a_view, a_plain_view, a_memoryview, a_tensor])
def test_what_is_kept_of_an_output_is_refused_by_name(keep: Callable[[Any], Any]) -> None:
    kept: list[Any] = []
    runner = context(lambda x, y: kept.append(keep(y)))
    with pytest.raises(nx.PluginError, match="execute keeps arrays beyond its call") as caught:
        runner.execute(X)
    assert caught.value.got == "outputs[0]"
    assert caught.value.layer == "mine"


def test_a_kept_array_is_cut_off_from_the_engine_s_memory() -> None:
    kept: list[Any] = []
    runner, x = context(lambda x, y: kept.append(x)), X.copy()
    with pytest.raises(nx.PluginError) as caught:
        runner.execute(x)
    assert caught.value.got == "inputs[0]"
    x[...] = -1
    np.testing.assert_array_equal(kept[0], X)
    assert kept[0].base is None


def test_a_copy_may_be_kept_and_the_next_call_works() -> None:
    kept: list[Any] = []
    runner = context(lambda x, y: kept.append(x.copy() if len(kept) % 2 else x))
    for number in range(4):
        if number % 2 == 0:
            with pytest.raises(nx.PluginError, match="beyond its call"):
                runner.execute(X)
        else:
            np.testing.assert_array_equal(runner.execute(X), X)
    assert all((array == X).all() for array in kept)


def test_arrays_in_a_traceback_are_cut_off() -> None:
    def fail(x: Any, y: Any) -> None:
        raise ZeroDivisionError

    x = X.copy()
    with pytest.raises(nx.PluginError, match="execute raised ZeroDivisionError") as caught:
        context(fail).execute(x)
    x[...] = -1
    frames, traceback = [], caught.value.__cause__.__traceback__  # type: ignore[union-attr]
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    (held,) = (frame.f_locals["x"] for frame in frames if frame.f_code.co_name == "fail")
    np.testing.assert_array_equal(held, X)


def test_a_cycle_that_nobody_reaches_is_no_keeper() -> None:
    def walk(x: Any, y: Any) -> None:
        def step(depth: int) -> Any:
            return x if depth == 0 else step(depth - 1)

        step(3)

    runner = context(walk)
    for _ in range(3):
        np.testing.assert_array_equal(runner.execute(X), X)


def test_tensors_that_another_thread_drops_take_the_lock() -> None:
    """torch frees a tensor without the interpreter's lock; its owner is an object of Python's."""
    torch = pytest.importorskip("torch")

    def drop(x: Any, y: Any) -> None:
        for _ in range(200):
            torch.from_dlpack(x).add_(1)
        tensors = [torch.from_dlpack(x) for _ in range(50)]
        thread = threading.Thread(target=tensors.clear)
        thread.start()
        thread.join()

    np.testing.assert_array_equal(context(drop).execute(X), X)
