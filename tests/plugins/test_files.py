"""Engine files with plugins: fields come back to the last bit, and nothing in a file is run."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.hardware.tensorrt.plugins.fields import pack, unpack
from tests.plugins.classes import MyLayer, built, leaky, network

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def saved(folder: Path, made: trt.INetworkDefinition) -> Path:
    path = folder / "model.engine"
    built(made).save(path)
    return path


def opened(path: Path) -> nx.OptimizedModel:
    return nx.hardware.get_backend("cpu").load(path)


def test_save_and_load_bit_by_bit(tmp_path: Path) -> None:
    made = network("MyLayer", param=1 / 3)
    want = built(made).create_execution_context().execute(X)
    loaded = opened(saved(tmp_path, made))
    np.testing.assert_array_equal(loaded(X).view(np.int32), want.view(np.int32))
    loaded.save(tmp_path / "again.engine")
    np.testing.assert_array_equal(opened(tmp_path / "again.engine")(X).view(np.int32), want.view(np.int32))


@pytest.mark.parametrize(
    "value",
    [
        42,
        -(2**63),
        0.1,
        float("nan"),
        True,
        "a text, ein Täxt",
        b"\x00\xff",
        [1, 2, 3],
        [],
        [0.5, float("-inf")],
        [True, False],
        np.float32(0.1),
        np.arange(6, dtype=np.int8).reshape(2, 3),
        np.array([[1.5]], np.float16),
        np.array([1, 2], ml_dtypes.bfloat16),
        np.zeros((0, 3), np.float32),
    ],
    ids=repr,
)
def test_fields_come_back_as_they_were(value: Any, tmp_path: Path) -> None:
    seen: list[Any] = []

    class Keeps(MyLayer):
        def __init__(self, given: Any) -> None:
            super().__init__(2)
            seen.append(given)

    trt.register_plugin("Keeps", Keeps)
    opened(saved(tmp_path, network("Keeps", given=value)))
    for found in (unpack(pack("given", value)), *seen):
        np.testing.assert_array_equal(found, value)
        assert type(found) is type(value) and getattr(found, "dtype", None) == getattr(value, "dtype", None)
    assert len(seen) >= 2


def test_bytes_of_its_own_and_values_of_its_own(tmp_path: Path) -> None:
    class Bytes(MyLayer):
        def serialize(self) -> Any:
            return f"{self.param:d}".encode()

        @classmethod
        def deserialize(cls, data: Any) -> Any:
            return cls(int(data))

    class Values(MyLayer):
        def serialize(self) -> Any:
            return {"twice": 2 * self.param}

        @classmethod
        def deserialize(cls, data: Any) -> Any:
            return cls(data["twice"] // 2)

    for number, cls in enumerate((Bytes, Values)):
        trt.register_plugin(cls.__name__, cls)
        folder = tmp_path / str(number)
        folder.mkdir()
        for plugin in (cls.__name__, cls(7)):
            fields = {"param": 7} if isinstance(plugin, str) else {}
            got = opened(saved(folder, network(plugin, **fields)))(X)
            np.testing.assert_array_equal(got, leaky(X) * 7)


def test_all_missing_plugins_are_listed_and_nothing_is_imported(tmp_path: Path) -> None:
    made = trt.Builder().create_network()
    x = made.add_input("x", trt.float32, ("n", 4))
    trt.register_plugin("MyLayer", MyLayer, version="9", namespace="acme")
    first = made.add_plugin_v2([x], "MyLayer", param=1, plugin_version="9", plugin_namespace="acme")
    made.mark_output(made.add_plugin_v2([made.add_plugin_v2([first], "MyLayer", param=2)], "Broken"))
    path = saved(tmp_path, made)
    # A process that knows none of them; modules that would define them lie in its folder.
    for name in ("MyLayer", "Broken", "classes"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    code = (
        "import sys, neurenix as nx; before = set(sys.modules)\n"
        "try: nx.hardware.get_backend('cpu').load('model.engine')\n"
        "except nx.UnsupportedError as error: print(error)\n"
        "else: print('opened')\n"
        "print({m for m in set(sys.modules) - before if not m.startswith(('neurenix', 'encodings'))})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    text, loaded = done.stdout.rsplit("\n", 2)[:2]
    assert 'plugins Broken version 1, MyLayer version 1, MyLayer version 9 of "acme" are not registered' in text
    assert "model.engine can't be opened" in text and "trt.register_plugin" in text
    assert loaded == "set()"
    np.testing.assert_array_equal(opened(path)(X), X * 2)


def test_another_class_under_the_name_is_asked_with_the_fields(tmp_path: Path) -> None:
    path = saved(tmp_path, network("MyLayer", param=2))

    class Other(trt.IPluginV2):
        def __init__(self, weight: float) -> None:
            self.weight = weight

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            raise AssertionError("it is never made")

    trt.register_plugin("MyLayer", Other, replace=True)
    with pytest.raises(nx.Error, match="plugin MyLayer version 1: Other does not take these fields") as raised:
        opened(path)
    assert raised.value.expected == "weight" and raised.value.got == "param"
    trt.deregister_plugin("MyLayer")


class Bomb:
    """What runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('a file was executed')",)


def test_pickles_in_fields_are_bytes_and_stay_bytes(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Keeps(MyLayer):
        def __init__(self, given: Any) -> None:
            super().__init__(2)
            seen.append(given)

    bomb = pickle.dumps(Bomb())
    trt.register_plugin("Keeps", Keeps)
    opened(saved(tmp_path, network("Keeps", given=bomb)))
    assert len(seen) >= 2 and all(found == bomb for found in seen)


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_damaged_files_are_refused(at: int, tmp_path: Path) -> None:
    path = saved(tmp_path, network("MyLayer", param=2))
    data = bytearray(path.read_bytes())
    place = data.index(b"MyLayer") + at
    data[place] ^= 0x11
    path.write_bytes(data)
    with pytest.raises(nx.FormatError):
        opened(path)


def test_plugins_come_with_the_call_as_classes_and_as_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, network("MyLayer", param=2))
    trt.deregister_plugin("MyLayer")
    backend = nx.hardware.get_backend("cpu")
    for given in (MyLayer, [MyLayer], {"MyLayer": MyLayer}):
        np.testing.assert_array_equal(backend.load(path, plugins=given)(X), leaky(X) * 2)
        assert trt.deregister_plugin("MyLayer")
    (tmp_path / "brings_plugins.py").write_text(
        "import neurenix.hardware.tensorrt as trt\n"
        "from tests.plugins.classes import MyLayer\n"
        "trt.register_plugin('MyLayer', MyLayer)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    np.testing.assert_array_equal(backend.load(path, plugins="brings_plugins")(X), leaky(X) * 2)
    with pytest.raises(nx.InvalidArgumentError, match="the module 'brings_nothing', which has plugins"):
        backend.load(path, plugins=["brings_nothing"])
    with pytest.raises(nx.InvalidArgumentError, match="the option 'plugins' can't have this value"):
        backend.load(path, plugins=3)
    with pytest.raises(nx.InvalidArgumentError, match="no plugin class"):
        backend.load(path, plugins={"Number": int})
