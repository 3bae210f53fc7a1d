"""Plugins in C++: built here against the header that the package carries, loaded, and compared with numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.plugins.classes import built, in_threads, leaky, network, runs

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
COMPILER = os.environ.get("CXX", "c++")
PROBE = "plugin Probe version 2 (libprobe.so)"


def compile_library(source: Path, library: Path) -> Path:
    """A shared library of one file, on which a strict compiler finds nothing to say."""
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{trt.plugin_include_dir()}"]
    done = subprocess.run(
        [COMPILER, *flags, str(source), "-o", str(library)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return library


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built by CMake as its first lines say."""
    folder = tmp_path_factory.mktemp("gate")
    configure = ["cmake", "-S", str(ROOT / "examples/cpp_plugin"), "-B", str(folder), "-G", "Ninja"]
    for command in (
        [*configure, f"-DNEURENIX_INCLUDE_DIR={trt.plugin_include_dir()}"],
        ["cmake", "--build", str(folder)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0 and "warning" not in done.stdout, done.stdout + done.stderr
    return folder / "libgate_plugin.so"


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin that fails as it is told."""
    return compile_library(ROOT / "tests/plugins/probe_plugin.cc", tmp_path_factory.mktemp("probe") / "libprobe.so")


@pytest.fixture
def gated(gate: Path) -> Iterator[None]:
    """The example's plugin, registered."""
    assert trt.load_plugin_library(gate) == ["Gate"]
    yield
    assert trt.deregister_plugin("Gate", namespace="example")


@pytest.fixture
def probed(probe: Path) -> Iterator[None]:
    """The tests' plugin, registered."""
    assert trt.load_plugin_library(str(probe)) == ["Probe"]
    yield
    assert trt.deregister_plugin("Probe")


def gate_of(x: np.ndarray[Any, Any], warmth: float) -> np.ndarray[Any, Any]:
    a, b = np.split(x.astype(np.float64), 2, axis=-1)
    return np.asarray(np.tanh(warmth * a) / (1 + np.exp(-b)))


def gate_network(dtype: Any = trt.float32, **fields: Any) -> trt.INetworkDefinition:
    return network("Gate", shape=("n", "m"), dtype=dtype, plugin_namespace="example", **fields)


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_example_gives_what_numpy_gives_at_every_batch(dtype: Any) -> None:
    made = gate_network(np.dtype(dtype), warmth=0.5)
    assert [str(extent) for extent in made.get_layer(1).get_output(0).symbolic_shape] == ["n", "floordiv(m, 2)"]
    context = built(made).create_execution_context()
    for rows, columns in ((1, 8), (33, 8), (3, 14), (1, 8)):
        x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(dtype)
        y = context.execute(x)
        assert y.dtype == dtype and y.shape == (rows, columns // 2)
        want = gate_of(np.where(x < 0, dtype(0.01) * x, x), 0.5)
        np.testing.assert_allclose(y, want, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


@pytest.mark.usefixtures("gated")
def test_attributes_are_checked_against_what_the_creator_declares() -> None:
    for warmth in (2, np.float32(2), [2.0]):
        y = built(gate_network(warmth=warmth)).create_execution_context().execute(X)
        np.testing.assert_allclose(y, gate_of(leaky(X), 2), rtol=1e-6)
    with pytest.raises(nx.InvalidArgumentError, match='it has no field "warm"') as raised:
        gate_network(warm=2.0)
    assert raised.value.expected == "warmth"
    with pytest.raises(nx.InvalidArgumentError, match='field "warmth": its value is of another type'):
        gate_network(warmth="hot")
    with pytest.raises(nx.PluginError, match="createPlugin threw an exception: warmth is one number"):
        gate_network(warmth=[1.0, 2.0])


@pytest.mark.usefixtures("probed")
def test_fields_of_several_types_a_workspace_and_two_outputs() -> None:
    made = network("Probe", numbers=[1.5, -0.25], whole=np.int64(-7), how="well")
    y, rows = built(made).create_execution_context().execute(X)
    want = np.float32(1.5) * leaky(X) + np.float32(-0.25) + np.float32(-7)
    np.testing.assert_array_equal(y, want)
    assert rows.dtype == np.int64 and rows == 5
    for field, text in ((1 << 40, "does not fit int32"), (0.5, "does not fit int32")):
        with pytest.raises(nx.InvalidArgumentError, match=text):
            network("Probe", whole=field)


@pytest.mark.usefixtures("gated")
def test_a_file_gives_the_same_bits_here_and_in_a_new_process(gate: Path, tmp_path: Path) -> None:
    engine = built(gate_network(warmth=1 / 3))
    want = engine.create_execution_context().execute(X)
    path = tmp_path / "gate.engine"
    engine.save(path)
    np.testing.assert_array_equal(nx.hardware.get_backend("cpu").load(path)(X).view(np.int32), want.view(np.int32))
    np.save(tmp_path / "x.npy", X)
    code = (
        "import sys, numpy as np, neurenix as nx\n"
        "model = nx.hardware.get_backend('cpu').load(sys.argv[1], plugins=[sys.argv[2]])\n"
        "np.save('y.npy', model(np.load('x.npy')))\n"
    )
    subprocess.run([sys.executable, "-c", code, path, gate], cwd=tmp_path, check=True, timeout=300)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").view(np.int32), want.view(np.int32))


def test_a_file_without_its_library_is_a_clear_error(gate: Path, tmp_path: Path) -> None:
    trt.load_plugin_library(gate)
    path = tmp_path / "gate.engine"
    built(gate_network()).save(path)
    assert trt.deregister_plugin("Gate", namespace="example")
    with pytest.raises(nx.UnsupportedError, match='plugin Gate version 1 of "example" is not registered') as raised:
        nx.hardware.get_backend("cpu").load(path)
    assert "trt.load_plugin_library(path)" in str(raised.value.hint)
    # The library is open still, and registers again what was deregistered.
    model = nx.hardware.get_backend("cpu").load(path, plugins=[str(gate)])
    np.testing.assert_allclose(model(X), gate_of(leaky(X), 1), rtol=1e-6)
    assert trt.deregister_plugin("Gate", namespace="example")


@pytest.mark.usefixtures("gated")
def test_onnx_nodes_find_it() -> None:
    node = helper.make_node("Gate", ["x"], ["y"], domain="example", warmth=0.25)
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])]
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    proto: onnx.ModelProto = helper.make_model(helper.make_graph([node], "g", ports, outputs), opset_imports=sets)
    x = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
    model = nx.hardware.get_backend("cpu").optimize_model(proto)
    np.testing.assert_allclose(model(x), gate_of(x, 0.25), rtol=1e-6)


def test_loading_twice_is_harmless_and_another_one_of_its_name_is_not(gate: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(gate)
    before = trt.load_plugin_library(gate)
    assert trt.load_plugin_library(gate) == trt.load_plugin_library(link) == before == ["Gate"]
    copy = tmp_path / "copy.so"
    copy.write_bytes(gate.read_bytes())
    with pytest.raises(nx.InvalidArgumentError, match=r"copy\.so: plugin Gate version 1 .* is registered already"):
        trt.load_plugin_library(copy)
    np.testing.assert_allclose(
        built(gate_network()).create_execution_context().execute(X), gate_of(leaky(X), 1), rtol=1e-6
    )
    assert trt.deregister_plugin("Gate", namespace="example")
    assert not trt.deregister_plugin("Gate", namespace="example")


def test_libraries_that_are_none_name_their_path(tmp_path: Path) -> None:
    with pytest.raises(nx.FileError, match=r"plugin library .*gone\.so: No such file"):
        trt.load_plugin_library(tmp_path / "gone.so")
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(nx.FileError, match=r"plugin library .*text\.so: it can't be opened"):
        trt.load_plugin_library(tmp_path / "text.so")
    for name, code, text in (
        ("empty", "int nothing;", "it exports no neurenix_plugin_entry"),
        ("null", 'extern "C" void const* neurenix_plugin_entry() { return nullptr; }', "gives no table"),
        ("bare", '#include "neurenix/plugin.h"', "it has no creator"),
    ):
        source = tmp_path / f"{name}.cc"
        source.write_text(code)
        library = compile_library(source, tmp_path / f"{name}.so")
        with pytest.raises(nx.UnsupportedError, match=f"plugin library .*{name}.so: .*{text}"):
            trt.load_plugin_library(library)


def test_another_version_of_the_abi_is_refused_before_anything_else(tmp_path: Path) -> None:
    source = tmp_path / "newer.cc"
    # Behind the version stands nothing that could be called.
    source.write_text(
        'static const unsigned table[2] = {999, 8};\nextern "C" void const* neurenix_plugin_entry() { return table; }\n'
    )
    library = compile_library(source, tmp_path / "newer.so")
    with pytest.raises(
        nx.UnsupportedError, match=r"newer\.so: it was built for another version of the plugin ABI"
    ) as e:
        trt.load_plugin_library(library)
    assert (e.value.expected, e.value.got) == ("version 1", "version 999")


@pytest.mark.usefixtures("probed")
@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("createPlugin", nx.PluginError, "createPlugin threw an exception: as it was told"),
        ("serialize", nx.PluginError, "serialize threw an exception: as it was told"),
        ("getOutputDimensions", nx.PluginError, "getOutputDimensions threw an exception: as it was told"),
        ("getOutputDataType", nx.PluginError, "getOutputDataType threw an exception: as it was told"),
        ("supportsFormatCombination", nx.PluginError, "supportsFormatCombination threw an exception: as it was told"),
        ("int", nx.PluginError, "getOutputDimensions threw something that is no std::exception"),
        ("null dim", nx.PluginError, "getOutputDimensions: a dimension is none of those that it was given"),
        ("compare", nx.UnsupportedError, "dimensions that only a call tells are not compared"),
        ("rank", nx.ShapeError, "getOutputDimensions gave a shape with a wrong nbDims"),
        ("dtype", nx.DTypeError, "getOutputDataType gave what is no DataType"),
    ],
)
def test_what_fails_in_a_network_names_plugin_library_and_method(how: str, kind: type[nx.Error], text: str) -> None:
    with pytest.raises(kind) as raised:
        network("Probe", how=how)
    assert raised.value.message.startswith(PROBE) and text in raised.value.message, raised.value
    assert str(raised.value.layer).startswith("PluginV2_0")
    y, _ = built(network("Probe")).create_execution_context().execute(X)
    np.testing.assert_array_equal(y, leaky(X))


@pytest.mark.usefixtures("probed")
def test_what_does_not_fit_a_network_names_the_plugin() -> None:
    for how, kind, text in (
        ("no outputs", nx.ShapeError, "it gives no outputs"),
        ("shape", nx.ShapeError, "a dimension is negative"),
    ):
        with pytest.raises(kind, match=f"plugin Probe version 2: {text}"):
            network("Probe", how=how)
    with pytest.raises(nx.DTypeError, match="supports_format_combination refuses the element type of input 0"):
        network("Probe", dtype=trt.float16)
    with pytest.raises(nx.UnsupportedError, match="runs on cuda"):
        built(network("Probe", how="cuda alone"))


@pytest.mark.usefixtures("probed")
@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("clone", nx.PluginError, "clone threw an exception: as it was told"),
        ("no clone", nx.PluginError, "clone: it gave null"),
        ("configurePlugin", nx.PluginError, "configurePlugin threw an exception: as it was told"),
        ("initialize", nx.PluginError, "initialize: it gave 7 instead of 0"),
        ("getWorkspaceSize", nx.OutOfMemoryError, "getWorkspaceSize ran out of memory"),
        ("status", nx.PluginError, "enqueue: it gave 3 instead of 0"),
    ],
)
def test_what_fails_in_a_call_names_plugin_library_and_method(how: str, kind: type[nx.Error], text: str) -> None:
    with pytest.raises(kind) as raised:
        built(network("Probe", how=how)).create_execution_context().execute(X)
    assert raised.value.message == f"{PROBE}: {text}"
    assert raised.value.layer == "mine"


@pytest.mark.usefixtures("probed")
def test_an_engine_goes_on_after_an_exception() -> None:
    context = built(network("Probe", how="sometimes")).create_execution_context()
    for _ in range(3):
        with pytest.raises(nx.PluginError) as raised:
            context.execute(-np.ones((2, 4), np.float32))
        assert raised.value.message == f"{PROBE}: enqueue threw an exception: less than nothing"
        np.testing.assert_array_equal(context.execute(abs(X))[0], abs(X))


@pytest.mark.usefixtures("gated", "probed")
def test_eight_threads_with_shapes_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "gate.engine"
    built(gate_network(warmth=0.75)).save(path)
    model = nx.hardware.get_backend("cpu").load(path)
    failing = built(network("Probe", how="sometimes"))

    def work(number: int) -> None:
        context = failing.create_execution_context()
        for turn in range(20):
            x = np.random.default_rng([number, turn]).standard_normal((1 + number, 8)).astype(np.float32)
            np.testing.assert_allclose(model(x), gate_of(leaky(x), 0.75), rtol=1e-6, atol=1e-7)
            x = x[:, :4]
            runs(context.execute, x, None if x[0, 0] < 0 else leaky(x))

    in_threads(8, work)


@pytest.mark.usefixtures("gated")
def test_bytes_that_are_not_its_own_are_refused() -> None:
    with pytest.raises(nx.PluginError, match="deserializePlugin threw an exception: the file does not hold a Gate"):
        gate_network(**{"(serialized)": b"short"})
