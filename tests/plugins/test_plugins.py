"""Plugins of the short kind: what a class with two methods can do."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.plugins.classes import Halves, MyLayer, Scratch, built, leaky, network

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def test_the_example_of_the_api() -> None:
    builder = trt.Builder()
    made = builder.create_network()
    x = made.add_input("input", trt.float32, (1, 3, 8, 8))

    # Word for word, but for what execute does.
    layer = made.add_plugin_v2([x], "MyLayer", param=42)

    made.mark_output(made.add_activation(layer, trt.ActivationType.RELU))
    given = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    with nx.hardware.use("cpu"):
        engine = builder.build_engine(made, builder.create_builder_config())
    got = engine.create_execution_context().execute(given)
    np.testing.assert_array_equal(got, np.maximum(given * np.float32(42), 0))


@pytest.mark.parametrize("level", [0, 1, 3, 5])
def test_any_batch_at_any_level(level: int) -> None:
    with nx.hardware.use("cpu") as backend:
        model = backend.optimize_model(network("MyLayer", param=3).to_network(), optimization_level=level)
    for rows in (1, 7, 0, 7, 300):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        np.testing.assert_array_equal(model(x), leaky(x) * 3)
    row = next(row for row in model.report()["kernels"] if row["kernel"].startswith("Plugin"))
    assert (row["provider"], row["kernel"]) == ("cpu", "Plugin MyLayer version 1")
    assert "mine" in str(model.profile({"x": X}))


def test_a_plugin_in_place_of_its_name() -> None:
    for plugin in (MyLayer(2), MyLayer(param=2)):
        np.testing.assert_array_equal(built(network(plugin)).create_execution_context().execute(X), leaky(X) * 2)


def test_several_outputs_with_their_own_types_and_symbolic_shapes() -> None:
    made = network("Halves", shape=("n", "m"))
    layer = made.get_layer(1)
    assert [tuple(layer.get_output(i).symbolic_shape) for i in range(2)] == [("n", "floordiv(m, 2)"), ("n",)]
    assert [layer.get_output(i).dtype for i in range(2)] == [trt.float32, trt.int64]
    context = built(made).create_execution_context()
    for rows, columns in ((5, 4), (2, 10)):
        x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
        left, index = context.execute(x)
        np.testing.assert_array_equal(left, leaky(x)[:, : columns // 2])
        np.testing.assert_array_equal(index, leaky(x)[:, : columns // 2].argmax(1))


def test_a_workspace() -> None:
    context = built(network("Scratch")).create_execution_context()
    for rows in (3, 50, 4):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        np.testing.assert_allclose(context.execute(x), leaky(x).sum(1), rtol=1e-6)


def test_a_number_as_result_and_extents_that_are_computed() -> None:
    class Sum(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return ()

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            outputs[0][...] = inputs[0].sum()

    class Grown(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            n, m = input_shapes[0]
            # The same at every size, told in roundabout ways.
            assert (n + 1) * 2 - 2 == 2 * n and (2 * n) // 2 == n and n % 1 == 0 and 0 - (-n) == n
            return ((n + m).ceildiv(2), n.maximum(3), 7 - n + n)

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            outputs[0].fill(inputs[0].shape[0])

    assert built(network(Sum())).create_execution_context().execute(X) == pytest.approx(leaky(X).sum())
    context = built(network(Grown())).create_execution_context()
    for rows, shape in ((1, (3, 3, 7)), (8, (6, 8, 7))):
        assert context.execute(np.zeros((rows, 4), np.float32)).shape == shape


def test_what_execute_makes_itself_is_taken_where_it_fits() -> None:
    class Returns(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return input_shapes[0]

        def execute(self, inputs: Any, outputs: Any, stream: int) -> Any:
            return inputs[0] + 1

    class Rebinds(Returns):
        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            outputs[0] = inputs[0] + 1

    for plugin in (Returns(), Rebinds()):
        np.testing.assert_array_equal(built(network(plugin)).create_execution_context().execute(X), leaky(X) + 1)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.int64, np.uint8, bool, np.float64])
def test_arrays_of_every_type_go_out_through_dlpack(dtype: Any) -> None:
    torch = pytest.importorskip("torch")

    class Turned(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return input_shapes[0]

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            assert stream == 0 and not inputs[0].flags.writeable
            from_, to = torch.from_dlpack(inputs[0]), torch.from_dlpack(outputs[0])
            assert to.data_ptr() == outputs[0].ctypes.data
            to.copy_(from_.flip(0))

    made = trt.Builder().create_network()
    x = made.add_input("x", dtype, (3, 4))
    made.mark_output(made.add_plugin_v2([x], Turned()))
    given = (np.arange(12).reshape(3, 4) % 7).astype(dtype)
    np.testing.assert_array_equal(built(made).create_execution_context().execute(given), given[::-1])


def test_an_input_can_not_be_written() -> None:
    class Greedy(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return input_shapes[0]

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            inputs[0][...] = 0

    with pytest.raises(nx.PluginError, match="read-only"):
        built(network(Greedy())).create_execution_context().execute(X)


def test_versions_and_namespaces_live_beside_each_other() -> None:
    class Second(MyLayer):
        def execute(self, inputs, outputs, stream):  # type: ignore[no-untyped-def]
            np.add(inputs[0], self.param, out=outputs[0])

    trt.register_plugin("MyLayer", Second, version="2")
    trt.register_plugin("MyLayer", Second, namespace="acme")

    def run(**which: str) -> Any:
        return built(network("MyLayer", param=10, **which)).create_execution_context().execute(X)

    np.testing.assert_array_equal(run(), leaky(X) * 10)
    np.testing.assert_array_equal(run(plugin_version="1"), leaky(X) * 10)
    np.testing.assert_array_equal(run(plugin_version="2"), leaky(X) + 10)
    np.testing.assert_array_equal(run(plugin_namespace="acme"), leaky(X) + 10)
    with pytest.raises(nx.UnsupportedError, match="MyLayer version 3 is not registered") as raised:
        run(plugin_version="3")
    assert raised.value.got == 'MyLayer version 1, MyLayer version 1 of "acme", MyLayer version 2'
    assert trt.deregister_plugin("MyLayer", version="1")
    np.testing.assert_array_equal(run(), leaky(X) + 10)


def test_an_identity_is_taken_once() -> None:
    class Other(MyLayer):
        """Another class of the same name."""

    assert trt.register_plugin("MyLayer", MyLayer) is MyLayer
    with pytest.raises(nx.InvalidArgumentError, match="plugin MyLayer version 1 is registered already"):
        trt.register_plugin("MyLayer", Other)
    trt.register_plugin("MyLayer", Other, replace=True)
    assert trt.get_plugin_registry().get_creator("MyLayer", "1").cls is Other

    @trt.register_plugin("Decorated")
    class Decorated(MyLayer):
        """Registered where it is defined."""

    assert trt.get_plugin_registry().get_creator("Decorated", "1").cls is Decorated
    with pytest.raises(nx.InvalidArgumentError, match="no plugin class"):
        trt.register_plugin("Number", int)  # type: ignore[type-var]


def test_what_is_no_plugin_is_refused_where_it_is_added() -> None:
    with pytest.raises(nx.UnsupportedError, match="plugin Nobody version 1 is not registered") as raised:
        network("Nobody")
    assert "trt.register_plugin" in str(raised.value.hint)
    with pytest.raises(nx.InvalidArgumentError, match="no plugin"):
        network(object())
    with pytest.raises(nx.InvalidArgumentError, match="does not take these fields") as raised2:
        network("MyLayer", parameter=42)
    assert "MyLayer version 1" in raised2.value.message and raised2.value.expected == "param"
    with pytest.raises(nx.InvalidArgumentError, match="field 'param' of a plugin") as raised2:
        network("MyLayer", param={"a": 1})
    assert raised2.value.got == "dict"
    with pytest.raises(nx.InvalidArgumentError, match="at least one tensor"):
        trt.Builder().create_network().add_plugin_v2([], "MyLayer", param=1)


@dataclasses.dataclass
class Scaled(trt.IPluginV2):
    """Its constructor is the one that dataclasses write."""

    factor: float

    def get_output_shape(self, input_shapes: Any) -> Any:
        return input_shapes[0]

    def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
        np.multiply(inputs[0], self.factor, out=outputs[0])


class Inherits(Scaled):
    """Takes what its base takes."""


class Factor:
    """No plugin, but it brings the constructor of one."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


class MixedBefore(Factor, Scaled):
    """Its constructor stands before the plugin's in its MRO."""


class MixedBehind(trt.IPluginV2, Factor):
    """Its constructor stands behind IPluginV2 in its MRO."""

    get_output_shape = Scaled.get_output_shape
    execute = Scaled.execute


class Made(Scaled):
    """Its __new__ hands on what it is given."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, factor: float) -> None:
        super().__init__(factor)


@pytest.mark.parametrize("cls", [Scaled, Inherits, MixedBefore, MixedBehind, Made])
def test_the_fields_are_the_arguments_of_the_nearest_constructor(cls: Any) -> None:
    made = cls(4.0)
    assert made.serialize() == {"factor": 4.0}
    trt.register_plugin(cls.__name__, cls)
    again = trt.Runtime().deserialize_cuda_engine(built(network(made)).serialize())
    assert again is not None
    np.testing.assert_array_equal(again.create_execution_context().execute(X), leaky(X) * 4)


def test_a_plugin_without_a_constructor_takes_no_arguments() -> None:
    class Bare(trt.IPluginV2):
        """Has no fields."""

    assert Bare().serialize() == {}
    for arguments, fields in (((1,), {}), ((), {"factor": 1})):
        with pytest.raises(TypeError, match="argument"):
            Bare(*arguments, **fields)


def test_devices_say_where_a_plugin_runs() -> None:
    class Far(MyLayer):
        devices = ("cuda",)

    class Nowhere(MyLayer):
        devices = ("tpu",)

    class Empty(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return input_shapes[0]

    with pytest.raises(nx.UnsupportedError, match=r"plugin Far version 1 runs on cuda .* not on cpu") as raised:
        built(network(Far(1)))
    assert "mine" in raised.value.message
    with pytest.raises(nx.InvalidArgumentError, match="`devices`"):
        network(Nowhere(1))
    with pytest.raises(nx.InvalidArgumentError, match="nothing that runs on cpu or cuda"):
        network(Empty())


def test_folding_and_merging_leave_plugins_alone() -> None:
    calls = []

    class Counted(MyLayer):
        def execute(self, inputs, outputs, stream):  # type: ignore[no-untyped-def]
            calls.append(1)
            super().execute(inputs, outputs, stream)

    made = trt.Builder().create_network()
    x = made.add_input("x", trt.float32, (4,))
    fixed = made.add_plugin_v2([made.add_constant((4,), np.ones(4, np.float32))], Counted(2))
    twins = [made.add_plugin_v2([x], Counted(2)) for _ in range(2)]
    total = made.add_elementwise(twins[0], twins[1], trt.ElementWiseOperation.SUM)
    made.mark_output(made.add_elementwise(total, fixed, trt.ElementWiseOperation.SUM))
    engine = built(made)
    assert not calls
    got = engine.create_execution_context().execute(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(got, np.arange(4) * 4 + 2)
    assert len(calls) == 3


def test_a_lower_precision_goes_around_a_plugin() -> None:
    seen = []

    class Watched(MyLayer):
        def execute(self, inputs, outputs, stream):  # type: ignore[no-untyped-def]
            seen.append(inputs[0].dtype)
            super().execute(inputs, outputs, stream)

    with nx.hardware.use("cpu") as backend:
        model = backend.optimize_model(network(Watched(2)).to_network(), {"x": (5, 4)}, precision="bf16")
    np.testing.assert_allclose(model(X), leaky(X) * 2, rtol=2e-2)
    assert set(seen) == {np.dtype(np.float32)}


def test_the_reference_runs_a_plugin_too() -> None:
    given = network("MyLayer", param=5).to_network()
    np.testing.assert_allclose(given.evaluate({"x": X})["PluginV2_0_output"], leaky(X) * 5, rtol=1e-6)


def test_plugins_in_a_branch() -> None:
    body = nx.Network("then")
    outer = nx.Network("m")
    x, condition = outer.add_input("x", "float32", ["n", 4]), outer.add_input("c", "bool", [])
    inner = body.capture(x)
    from neurenix.hardware.tensorrt.plugins.fields import pack_all

    y = body.add_registered_plugin([inner], ("MyLayer", "1", ""), pack_all({"param": 2}))[0]
    body.mark_output(y, "y")
    other = nx.Network("else")
    other.mark_output(other.add_layer("Neg", [other.capture(x)])[0], "y")
    bodies = {"then_branch": (body, [x]), "else_branch": (other, [x])}
    outer.mark_output(outer.add_control("If", [condition], bodies)[0], "y")
    with nx.hardware.use("cpu") as backend:
        model = backend.optimize_model(outer)
    for flag, want in ((True, X * 2), (False, -X)):
        np.testing.assert_array_equal(model({"x": X, "c": np.array(flag)})["y"], want)


def test_arrays_of_torch_come_back_as_such() -> None:
    torch = pytest.importorskip("torch")
    got = built(network(MyLayer(2))).create_execution_context().execute(torch.from_numpy(X))
    assert isinstance(got, torch.Tensor)
    np.testing.assert_array_equal(got.numpy(), leaky(X) * 2)


def test_classes_of_the_tests_are_used() -> None:
    names = {creator.name for creator in trt.get_plugin_registry().plugin_creator_list}
    assert {cls.__name__ for cls in (Halves, MyLayer, Scratch)} <= names


def test_a_taken_identity_is_told_in_the_log() -> None:
    class Creator(trt.IPluginCreator):
        name = "MyLayer"

    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logging.getLogger("neurenix").addHandler(handler)
    with contextlib.ExitStack() as stack:
        stack.callback(logging.getLogger("neurenix").removeHandler, handler)
        assert trt.get_plugin_registry().register_creator(Creator(), "") is False
        assert trt.get_plugin_registry().deregister_creator(Creator()) is False
    assert "MyLayer version 1 is registered already" in text.getvalue()
