"""Files whose large weights are read apart: the same model as protobuf reads, in half of the memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import neurenix as nx
from neurenix.importers import from_onnx
from neurenix.importers.onnx import wire
from tests.importers.single import Array

RNG = np.random.default_rng(2)


def model(*weights: Array) -> onnx.ModelProto:
    """Gives each weight as an output."""
    held = [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(weights)]
    nodes = [helper.make_node("Identity", [tensor.name], [f"y{index}"]) for index, tensor in enumerate(held)]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "g", [], outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def arrays() -> list[Array]:
    return [
        RNG.standard_normal((64, 512)).astype(np.float32),
        RNG.standard_normal(3).astype(np.float32),
        RNG.integers(-9, 9, (1000, 33)),
        RNG.standard_normal((257, 300)).astype(ml_dtypes.bfloat16),
        RNG.integers(-8, 8, (700, 401)).astype(ml_dtypes.int4),
        RNG.integers(0, 2, 1 << 17).astype(bool),
    ]


def constants(network: nx.Network) -> list[Array]:
    return [np.asarray(tensor.numpy()) for tensor in network.outputs.values()]


def test_weights_are_those_that_protobuf_reads(tmp_path: Path) -> None:
    given = arrays()
    onnx.save(model(*given), tmp_path / "m.onnx")
    _, apart = wire.read(tmp_path / "m.onnx")
    assert len(apart) == 5
    for one, other in zip(constants(from_onnx(tmp_path / "m.onnx")), given, strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()


def test_a_file_that_is_written_in_another_order(tmp_path: Path) -> None:
    """A message may come in parts, and its fields in any order: so protobuf merges them."""
    first, second = (model(array) for array in arrays()[:3:2])
    second.graph.node[0].input[0] = second.graph.initializer[0].name = "w1"
    second.graph.node[0].output[0] = second.graph.output[0].name = "y1"
    (tmp_path / "m.onnx").write_bytes(second.SerializeToString() + first.SerializeToString())
    found = from_onnx(tmp_path / "m.onnx")
    assert sorted(found.outputs) == ["y0", "y1"]


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.9, 0.999])
def test_a_file_that_is_cut_short(tmp_path: Path, keep: float) -> None:
    data = model(*arrays()).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(nx.FormatError) as caught:
        from_onnx(path)
    with pytest.raises(nx.FormatError) as other:
        from_onnx(path.read_bytes())
    assert caught.value.message == other.value.message


@pytest.mark.parametrize("at", range(0, 60, 3))
def test_a_file_with_another_byte(tmp_path: Path, at: int) -> None:
    data = bytearray(model(arrays()[0]).SerializeToString())
    data[at] ^= 0xFF
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    outcomes = []
    for given in (path, bytes(data)):
        try:
            outcomes.append([array.tobytes() for array in constants(from_onnx(given))])
        except nx.Error as error:
            outcomes.append([type(error).__name__.encode()])
    assert outcomes[0] == outcomes[1]


def test_a_tensor_with_elements_in_two_fields_is_refused_as_ever(tmp_path: Path) -> None:
    proto = model(arrays()[0])
    proto.graph.initializer[0].float_data.append(1.0)
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(nx.FormatError, match="in the wrong field, or in two"):
        from_onnx(tmp_path / "m.onnx")


def test_no_model_can_name_the_weights_of_another(tmp_path: Path) -> None:
    proto = model(arrays()[0])
    tensor = TensorProto(name="w1", data_type=TensorProto.FLOAT, dims=[64, 512], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="0/0")
    proto.graph.initializer.append(tensor)
    proto.graph.node.append(helper.make_node("Identity", ["w1"], ["y1"]))
    proto.graph.output.append(onnx.ValueInfoProto(name="y1"))
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(nx.FileError, match="can't be read"):
        from_onnx(tmp_path / "m.onnx")


PEAK = """
import sys
from neurenix.importers import from_onnx

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

import onnx
before = peak()
network = from_onnx(sys.argv[1])
print(peak() - before)
"""


@pytest.mark.parametrize("outside", [True, False])
def test_a_large_model_is_in_memory_once(tmp_path: Path, outside: bool) -> None:
    """Weights beside the model are mapped and not read; those inside of it are read once."""
    proto: Any = model(*(RNG.standard_normal((1024, 8192)).astype(np.float32) for _ in range(6)))
    options = {"save_as_external_data": True, "location": "m.data"} if outside else {}
    onnx.save(proto, tmp_path / "m.onnx", **options)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "m.onnx")], capture_output=True, text=True, check=True
    )
    size = 6 * 1024 * 8192 * 4
    assert int(done.stdout) * 1024 < (0.2 if outside else 1.2) * size
