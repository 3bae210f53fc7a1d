"""Plugins in the classes of TensorRT's own Python samples. They get addresses: those of the processor's memory here."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.plugins.classes import built

X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
PADS = np.array([1, 2, 2, 1], np.int32)


def at(address: int, desc: trt.PluginTensorDesc) -> np.ndarray:
    dtype = np.dtype(trt.nptype(desc.type))
    count = int(np.prod(desc.dims)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * count).from_address(address), dtype).reshape(desc.dims)


def wrapped(x: np.ndarray, pads: np.ndarray) -> np.ndarray:
    return np.pad(x, [(0, 0), (0, 0), (pads[2], pads[3]), (pads[0], pads[1])], "wrap")


class Shared:
    """What both generations of the circular padding do."""

    devices = ("cpu",)
    pads: np.ndarray

    def grown(self, dims: trt.DimsExprs, builder: trt.IExprBuilder) -> trt.DimsExprs:
        out = trt.DimsExprs(dims)
        for i in range(len(self.pads) // 2):
            extra = builder.constant(int(self.pads[2 * i] + self.pads[2 * i + 1]))
            out[len(out) - i - 1] = builder.operation(trt.DimensionOperation.SUM, dims[len(out) - i - 1], extra)
        return out

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        assert self.shape == list(input_desc[0].dims) and workspace != 0 and stream == 0
        at(outputs[0], output_desc[0])[...] = wrapped(at(inputs[0], input_desc[0]), self.pads)


class SecondPad(Shared, trt.IPluginV2DynamicExt):
    def __init__(self, fc: Any = None) -> None:
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs = 1
        self.plugin_namespace, self.plugin_type, self.plugin_version = "", "CircPad", "1"
        if fc is not None:
            assert fc[0].name == "pads" and fc[0].type == trt.PluginFieldType.INT32
            self.pads = fc[0].data

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return input_types[0]

    def get_output_dimensions(self, output_index: int, inputs: Any, builder: Any) -> Any:
        return self.grown(inputs[0], builder)

    def serialize(self) -> str:
        return ",".join(map(str, self.pads))

    def configure_plugin(self, inp: Any, out: Any) -> None:
        self.shape = list(inp[0].desc.dims)

    def get_workspace_size(self, input_desc: Any, output_desc: Any) -> int:
        return 64

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        assert num_inputs == 1 and in_out[pos].format == trt.TensorFormat.LINEAR
        return in_out[pos].type == (trt.DataType.FLOAT if pos == 0 else in_out[0].type)

    def clone(self) -> Any:
        cloned = SecondPad()
        cloned.__dict__.update(self.__dict__)
        return cloned


class Idle(SecondPad):
    """It puts nothing into its stream."""

    def enqueue(self, *given: Any) -> None:
        pass

    def clone(self) -> Any:
        cloned = Idle()
        cloned.__dict__.update(self.__dict__)
        return cloned


class SecondCreator(trt.IPluginCreator):
    def __init__(self) -> None:
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_namespace, self.plugin_version = "CircPad", "", "1"
        self.field_names = trt.PluginFieldCollection([trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)])

    def create_plugin(self, name: str, fc: Any) -> Any:
        return SecondPad(fc)

    def deserialize_plugin(self, name: str, data: bytes) -> Any:
        made = SecondPad()
        made.pads = np.array([int(value) for value in data.decode().split(",")], np.int32)
        return made


class ThirdPad(Shared, trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    phases: list[Any] = []  # noqa: RUF012

    def __init__(self, fc: Any = None, phase: Any = None) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.num_outputs = 1
        self.plugin_namespace, self.plugin_name, self.plugin_version = "pads", "CircPad", "3"
        self.tactic = 0
        if fc is not None:
            self.pads = fc[0].data
        self.phases.append(phase)

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
        return [self.grown(inputs[0], builder)]

    def get_fields_to_serialize(self) -> Any:
        return trt.PluginFieldCollection([trt.PluginField("pads", self.pads, trt.PluginFieldType.INT32)])

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        return 64

    def on_shape_change(self, inp: Any, out: Any) -> None:
        self.shape = list(inp[0].dims)

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return bool(in_out[pos].desc.type == trt.DataType.FLOAT)

    def get_valid_tactics(self) -> list[int]:
        return [7, 8]

    def set_tactic(self, tactic: int) -> None:
        self.tactic = tactic

    def enqueue(self, *args: Any) -> None:
        assert self.tactic == 7
        Shared.enqueue(self, *args)

    def attach_to_context(self, context: Any) -> Any:
        return self.clone()

    def clone(self) -> Any:
        cloned = ThirdPad()
        cloned.__dict__.update(self.__dict__)
        return cloned


class ThirdCreator(trt.IPluginCreatorV3One):
    def __init__(self) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_namespace, self.plugin_version = "CircPad", "pads", "3"
        self.field_names = trt.PluginFieldCollection([trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)])

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        return ThirdPad(fc, phase)


FIELDS = trt.PluginFieldCollection([trt.PluginField("pads", PADS, trt.PluginFieldType.INT32)])


def check(made: trt.INetworkDefinition, folder: Path) -> None:
    engine = built(made)
    engine.save(folder / "model.engine")
    loaded = nx.hardware.get_backend("cpu").load(folder / "model.engine").engine
    for one in (engine, loaded):
        for batch in (2, 1, 2):
            got = (one if isinstance(one, trt.ICudaEngine) else trt.ICudaEngine(one)).create_execution_context()
            np.testing.assert_array_equal(got.execute(X[:batch]), wrapped(X[:batch], PADS))


@pytest.mark.parametrize("creator", [SecondCreator, ThirdCreator])
def test_a_plugin_from_its_creator_as_an_object_and_by_name(creator: Any, tmp_path: Path) -> None:
    registry, mine = trt.get_plugin_registry(), creator()
    assert registry.register_creator(mine, "")
    found = registry.get_creator("CircPad", mine.plugin_version, mine.plugin_namespace)
    assert found is mine and mine in registry.all_creators
    assert (mine in registry.plugin_creator_list) == (creator is SecondCreator)
    for by_name in (False, True):
        made = trt.Builder().create_network()
        x = made.add_input("x", trt.float32, (-1, 3, 4, 5))
        if by_name:
            which = {"plugin_version": mine.plugin_version, "plugin_namespace": mine.plugin_namespace}
            layer = made.add_plugin_v2([x], "CircPad", pads=[1, 2, 2, 1], **which)
        elif creator is SecondCreator:
            layer = made.add_plugin_v2([x], found.create_plugin("pad", FIELDS))
        else:
            plugin = found.create_plugin("pad", FIELDS, trt.TensorRTPhase.BUILD)
            layer = made.add_plugin_v3([x], [], plugin)
        assert tuple(layer.get_output(0).shape) == (-1, 3, 7, 8)
        made.mark_output(layer)
        check(made, tmp_path)
    if creator is ThirdCreator:
        assert {trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME} <= set(ThirdPad.phases)
    assert registry.deregister_creator(mine)


def test_the_elements_of_a_shape_input_tell_the_shape(tmp_path: Path) -> None:
    class Repeat(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
        devices = ("cpu",)
        plugin_name = "Repeat"

        def get_output_data_types(self, input_types: Any) -> Any:
            assert len(input_types) == 1
            return input_types

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
            (count,), (length,) = shape_inputs[0], inputs[0]
            assert count.is_constant() == isinstance(count.value, int) and not length.is_size_tensor()
            return [trt.DimsExprs([count, length])]

        def enqueue(
            self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
        ) -> None:
            assert len(inputs) == len(input_desc) == 1
            at(outputs[0], output_desc[0])[...] = at(inputs[0], input_desc[0])

    class Creator(trt.IPluginCreatorV3One):
        name = "Repeat"

        def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
            return Repeat()

    assert trt.get_plugin_registry().register_creator(Creator(), "")
    made = trt.Builder().create_network()
    x = made.add_input("x", trt.float32, ("n",))
    fixed = made.add_constant((1,), np.array([3], np.int64))
    made.mark_output(made.add_plugin_v3([x], [fixed], Repeat()))
    made.mark_output(made.add_plugin_v3([x], [made.add_shape(x)], Repeat()))
    given = np.arange(4, dtype=np.float32)
    built(made).save(tmp_path / "model.engine")
    for engine in (built(made)._engine, nx.hardware.get_backend("cpu").load(tmp_path / "model.engine").engine):
        got = trt.ICudaEngine(getattr(engine, "_engine", engine)).create_execution_context().execute(given)
        assert [array.shape for array in got] == [(3, 4), (4, 4)]
        assert all((array == given).all() for array in got)
    data = made.add_input("data", trt.int64, (1,))
    with pytest.raises(nx.UnsupportedError, match="plugin Repeat version 1: a shape input depends on data"):
        made.add_plugin_v3([x], [data], Repeat())


def test_operations_on_dimensions() -> None:
    builder, op = trt.IExprBuilder(), trt.DimensionOperation
    seven, three = builder.constant(7), builder.constant(3)
    numbers = {op.SUM: 10, op.PROD: 21, op.MAX: 7, op.MIN: 3, op.SUB: 4, op.EQUAL: 0, op.LESS: 0, op.FLOOR_DIV: 2}
    for operation, value in {**numbers, op.CEIL_DIV: 3}.items():
        assert builder.operation(operation, seven, three).get_constant_value() == value
    with pytest.raises(nx.UnsupportedError, match="size depends on data"):
        builder.declare_size_tensor(0, seven, seven)
    with pytest.raises(nx.InvalidArgumentError, match="not above zero"):
        builder.operation(op.FLOOR_DIV, seven, builder.constant(0))


def test_addresses_are_those_of_a_gpu_unless_a_class_says_otherwise() -> None:
    class Far(SecondPad):
        devices = trt.IPluginV2DynamicExt.devices

    made = trt.Builder().create_network()
    x = made.add_input("x", trt.float32, (1, 3, 4, 5))
    made.mark_output(made.add_plugin_v2([x], Far(FIELDS)))
    with pytest.raises(nx.UnsupportedError, match=r"plugin CircPad version 1 runs on cuda .* not on cpu"):
        built(made)


def test_what_fails_is_named() -> None:
    class Fails(SecondPad):
        def enqueue(self, *args: Any) -> int:  # type: ignore[override]
            return 5

        def clone(self) -> Any:
            return self

    made = trt.Builder().create_network()
    x = made.add_input("x", trt.float32, (1, 3, 4, 5))
    made.mark_output(made.add_plugin_v2([x], Fails(FIELDS)))
    with pytest.raises(nx.PluginError, match="plugin CircPad version 1: enqueue failed") as raised:
        built(made).create_execution_context().execute(X[:1])
    assert (raised.value.got, raised.value.layer) == ("5", "PluginV2_0")
    with pytest.raises(nx.InvalidArgumentError, match="add_plugin_v3"):
        made.add_plugin_v2([x], ThirdPad(FIELDS))


def test_an_enqueue_that_writes_nothing_is_an_error() -> None:
    made = trt.Builder().create_network()
    pads = trt.PluginFieldCollection([trt.PluginField("pads", PADS, trt.PluginFieldType.INT32)])
    made.mark_output(made.add_plugin_v2([made.add_input("x", trt.float32, X.shape)], Idle(pads)).get_output(0))
    with pytest.raises(nx.PluginError, match="enqueue wrote nothing to output 0 of 1") as raised:
        built(made).create_execution_context().execute(X)
    assert raised.value.hint == "write to the addresses in its argument `outputs`"
