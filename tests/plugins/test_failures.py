"""What goes wrong in a plugin names it and its layer, and leaves engines usable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.hardware.tensorrt.plugins.written import PATTERNS
from tests.plugins.classes import Broken, Unwritten, built, in_threads, leaky, network, runs

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
NAMED = "plugin Broken version 1"


METHODS = ("get_output_shape", "get_output_dtypes", "supports_format_combination", "serialize", "get_workspace_size")


@pytest.mark.parametrize("method", [*METHODS, "execute"])
def test_an_exception_names_plugin_layer_method_and_place(method: str) -> None:
    with pytest.raises(nx.PluginError) as raised:
        built(network("Broken", method=method)).create_execution_context().execute(X)
    text = raised.value.message
    assert text.startswith(f"{NAMED}: {method} raised ZeroDivisionError: as it was told ("), text
    assert "classes.py, line " in text
    # Until the network is built, the layer has the name that it was given first.
    assert str(raised.value.layer).startswith(("mine", "PluginV2_0")), raised.value


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("float", nx.InvalidArgumentError, "get_output_shape: a dimension is neither an integer nor an expression"),
        ("none", nx.ShapeError, "get_output_shape: it gave no shape"),
        ("text", nx.ShapeError, "get_output_shape: it gave no shape"),
        ("negative", nx.ShapeError, "a dimension is negative"),
        ("unknown", nx.ShapeError, "the shape of output 0 has a dimension that no input has"),
        ("no outputs", nx.ShapeError, "it gives no outputs"),
        ("two dtypes", nx.ShapeError, "get_output_shape and get_output_dtypes give different numbers of outputs"),
        ("no dtype", nx.DTypeError, "get_output_dtypes: this is no dtype"),
        ("refuse", nx.DTypeError, "supports_format_combination refuses the element type of input 0"),
    ],
)
def test_what_does_not_fit_is_refused_where_the_layer_is_added(how: str, kind: type[nx.Error], text: str) -> None:
    with pytest.raises(kind) as raised:
        network("Broken", how=how)
    assert raised.value.message == f"{NAMED}: {text}"
    assert str(raised.value.layer).startswith("PluginV2_0")


@pytest.mark.parametrize(("how", "left"), [("nothing", 0), ("rebinds", 0), ("first alone", 1)])
def test_a_plugin_that_leaves_an_output_alone_is_named(how: str, left: int) -> None:
    with pytest.raises(nx.PluginError) as raised:
        built(network("Unwritten", how=how)).create_execution_context().execute(X)
    assert raised.value.message == f"plugin Unwritten version 1: execute wrote nothing to output {left} of 2"
    assert "outputs[0][...] = result" in str(raised.value.hint)
    assert str(raised.value.layer).startswith(("mine", "PluginV2_0"))


def test_a_StopIteration_is_an_exception_like_others() -> None:
    class Ends(Unwritten):
        def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
            next(iter([]))

    with pytest.raises(nx.PluginError, match=r"execute raised StopIteration: .*test_failures\.py, line"):
        built(network(Ends("here"))).create_execution_context().execute(X)


@pytest.mark.parametrize("devices", [None, (), "gpu", ("cpu", None), 5])
def test_devices_that_are_none_are_refused(devices: Any) -> None:
    class Nowhere(Unwritten):
        pass

    Nowhere.devices = devices
    with pytest.raises(nx.InvalidArgumentError, match="`devices` of a plugin names what is no kind of device"):
        network(Nowhere("here"))


@pytest.mark.parametrize("byte", PATTERNS)
def test_bytes_that_a_watch_writes_too_are_an_answer(byte: int) -> None:
    """The outputs of the first call are filled with a pattern, and one may really be that."""
    got = built(network("Unwritten", how="bytes", byte=byte)).create_execution_context().execute(X)
    assert all(set(np.asarray(array).tobytes()) == {byte} for array in got)


def test_a_plugin_is_watched_at_its_first_call_alone() -> None:
    Unwritten.calls = 0
    context = built(network("Unwritten", how="bytes", byte=7)).create_execution_context()
    context.execute(X)
    first = Unwritten.calls
    for _ in range(3):
        context.execute(X)
    assert Unwritten.calls == first + 3


def test_no_size_is_no_workspace() -> None:
    with pytest.raises(nx.PluginError, match=f"{NAMED}: get_workspace_size: it gave no number of bytes"):
        built(network("Broken", how="no size")).create_execution_context().execute(X)


def test_a_field_that_no_file_keeps_is_named() -> None:
    with pytest.raises(nx.InvalidArgumentError, match=f"{NAMED}: serialize: field 'how' of a plugin has a value"):
        network("Broken", how="object")


@pytest.mark.parametrize(
    ("how", "kind", "text", "expected", "got"),
    [
        ("wrong shape", nx.ShapeError, "returned for output 0 has the wrong shape", "[5, 4]", "[5, 1]"),
        ("wrong dtype", nx.DTypeError, "returned for output 0 has the wrong dtype", "float32", "float64"),
        ("wrong count", nx.ShapeError, "the number of arrays that it returned differs", "1", "2"),
        ("rebound", nx.ShapeError, "left in `outputs` for output 0 has the wrong shape", "[5, 4]", "[1, 4]"),
    ],
)
def test_wrong_results_are_named(how: str, kind: type[nx.Error], text: str, expected: str, got: str) -> None:
    made = network("Broken", how=how)
    with pytest.raises(kind) as raised:
        built(made).create_execution_context().execute(X)
    error = raised.value
    assert error.message.startswith(f"{NAMED}: ") and text in error.message, error
    assert (error.expected, error.got, error.layer) == (expected, got, "mine")


def test_an_engine_goes_on_after_a_failure_in_16_threads() -> None:
    with nx.hardware.use("cpu") as backend:
        model = backend.optimize_model(network("Broken", how="sometimes").to_network())
    good, bad = np.abs(X), -np.abs(X)

    def work(number: int) -> int:
        given = ((good, good) if (call + number) % 3 else (bad, None) for call in range(30))
        return sum(runs(model, x, want) for x, want in given)

    assert sum(in_threads(16, work)) == 320


def test_16_threads_with_state_of_the_interpreter_in_between() -> None:
    """Some threads hold the interpreter in short turns while others wait for it inside of the engine."""
    torch = pytest.importorskip("torch")

    class Slow(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return input_shapes[0]

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            value = torch.from_dlpack(inputs[0])
            for _ in range(20):
                value = value + 1
            torch.from_dlpack(outputs[0]).copy_(value)

    with nx.hardware.use("cpu") as backend:
        model = backend.optimize_model(network(Slow(), shape=("n", 64)).to_network(), {"x": (64, 64)}, threads=2)

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((8 + seed, 64)).astype(np.float32)
        for _ in range(10):
            np.testing.assert_allclose(model(x), leaky(x) + 20, rtol=1e-5)

    in_threads(16, work)


def test_a_plugin_may_ask_the_registry_and_run_other_engines() -> None:
    inner = built(network("MyLayer", param=3))

    class Outer(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            assert "MyLayer" in [creator.name for creator in trt.get_plugin_registry().all_creators]
            return input_shapes[0]

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            outputs[0][...] = inner.create_execution_context().execute(np.array(inputs[0]))

    got = built(network(Outer())).create_execution_context().execute(X)
    np.testing.assert_array_equal(got, leaky(leaky(X)) * 3)


def test_an_error_of_ours_in_a_plugin_keeps_its_kind_and_parts() -> None:
    class Strict(Broken):
        def get_output_shape(self, input_shapes: Any) -> Any:
            if input_shapes[0][0] > 3:
                return input_shapes[0]
            raise nx.DTypeError("no", expected="a", got="b", hint="c")

    with pytest.raises(nx.ShapeError, match="get_output_shape: only a call tells how much n is") as raised:
        network(Strict())
    assert "maximum" in str(raised.value.hint)
    with pytest.raises(nx.DTypeError) as told:
        network(Strict(), shape=(2, 4))
    assert (told.value.expected, told.value.got, told.value.hint) == ("a", "b", "c")


class Leaves(trt.IPluginV2):
    """Raises what ends a program, where it is told to."""

    error: BaseException
    at = "execute"

    def get_output_shape(self, input_shapes: Any) -> Any:
        self._leave("get_output_shape")
        return input_shapes[0]

    def get_workspace_size(self, *shapes: Any) -> int:
        self._leave("get_workspace_size")
        return 0

    def execute(self, inputs: Any, outputs: Any, stream: Any) -> None:
        self._leave("execute")
        outputs[0][...] = inputs[0]

    def _leave(self, method: str) -> None:
        if method == Leaves.at:
            raise Leaves.error


class Own(BaseException):
    """Somebody's own."""


@pytest.mark.parametrize("error", [KeyboardInterrupt("mine"), SystemExit(3), Own(1, 2)], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("at", ["get_output_shape", "get_workspace_size", "execute"])
def test_what_ends_a_program_comes_out_as_it_is(error: BaseException, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trt.register_plugin("Leaves", Leaves)
    monkeypatch.setattr(Leaves, "error", error, raising=False)
    monkeypatch.setattr(Leaves, "at", at)
    with pytest.raises(type(error)) as raised:
        built(network("Leaves")).create_execution_context().execute(X)
    assert raised.value is error
    monkeypatch.setattr(Leaves, "at", "")
    assert np.array_equal(built(network("Leaves")).create_execution_context().execute(X), leaky(X))


def test_what_a_plugin_raised_stands_behind_its_error() -> None:
    with pytest.raises(nx.PluginError) as raised:
        built(network("Broken", method="execute")).create_execution_context().execute(X)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
