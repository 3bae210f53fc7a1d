"""Weights that lie in files beside the model: mapped, never copied, and never a file that the model may not read."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402


def write(folder: Path, opset: int = 21, dims: tuple[int, ...] = (4,), **entries: str) -> Path:
    """A model whose only weight lies where these entries say."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()
    )
    return path


def weight_of(path: Path) -> Any:
    return from_onnx(path).evaluate({"x": np.zeros(4, np.float32)})["y"]


def test_offset_and_length(tmp_path: Path) -> None:
    np.arange(10, dtype=np.float32).tofile(tmp_path / "data")
    cases: list[tuple[dict[str, str], int]] = [
        ({"offset": "8", "length": "16"}, 2),
        ({"length": "16"}, 0),
        ({"offset": "24"}, 6),
    ]
    for entries, first in cases:
        assert np.array_equal(weight_of(write(tmp_path, location="data", **entries)), np.arange(first, first + 4))


def test_an_offset_that_is_not_aligned(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"abc" + np.arange(4, dtype=np.float32).tobytes())
    assert np.array_equal(weight_of(write(tmp_path, location="data", offset="3", length="16")), np.arange(4))


def test_a_file_in_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    np.ones(4, np.float32).tofile(tmp_path / "below" / "data")
    assert np.array_equal(weight_of(write(tmp_path, location="below/data")), np.ones(4))


@pytest.mark.parametrize("opset", [6, 21])
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../secret"}, "only in the model's folder"),
        ({"location": "below/../../secret"}, "only in the model's folder"),
        ({"location": "..\\secret"}, "only in the model's folder"),
        ({"location": "C:\\secret"}, "only in the model's folder"),
        ({"location": "\\\\host\\secret"}, "only in the model's folder"),
        ({"location": "/etc/passwd"}, "only in the model's folder"),
        ({"location": ""}, "only in the model's folder"),
        ({}, "only in the model's folder"),
        ({"location": "data\0"}, "only in the model's folder"),
        ({"location": "out"}, "only in the model's folder"),
        ({"location": "out_folder/secret"}, "only in the model's folder"),
        ({"location": "nowhere"}, "No such file"),
        ({"location": "."}, "it is no plain file"),
        ({"location": "pipe"}, "it is no plain file"),
        ({"location": "data", "offset": "4", "length": "16"}, "beyond the end of their file"),
        ({"location": "data", "offset": "17"}, "beyond the end of their file"),
        ({"location": "data", "offset": "9223372036854775807", "length": "16"}, "beyond the end of their file"),
        ({"location": "data", "length": "99999999999"}, "beyond the end of their file"),
        ({"location": "data", "offset": "-4"}, "is no number"),
        ({"location": "data", "length": "-16"}, "is no number"),
        ({"location": "data", "offset": "0x10"}, "is no number"),
        ({"location": "data", "offset": "٣"}, "is no number"),
        ({"location": "data", "offset": "9" * 5000}, "is no number"),
        ({"location": "data", "length": "12"}, "another number of bytes"),
        ({"location": "empty"}, "another number of bytes"),
    ],
)
def test_what_may_not_be_read(tmp_path: Path, opset: int, entries: dict[str, str], message: str) -> None:
    folder = tmp_path / "inner"
    path = write(folder, opset, **entries)
    (tmp_path / "secret").write_bytes(b"\0" * 16)
    (folder / "data").write_bytes(b"\0" * 16)
    (folder / "empty").touch()
    (folder / "below").mkdir()
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "out_folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    with pytest.raises((nx.FileError, nx.FormatError)) as caught:
        from_onnx(path)
    assert message in str(caught.value) and caught.value.tensor == "w", str(caught.value)


def test_the_model_itself_may_be_a_link(tmp_path: Path) -> None:
    path = write(tmp_path / "inner", location="data")
    np.ones(4, np.float32).tofile(path.parent / "data")
    (tmp_path / "link").symlink_to(path.parent)
    assert np.array_equal(weight_of(tmp_path / "link" / "m.onnx"), np.ones(4))


def test_links_out_of_the_folder_are_followed_when_asked_for(tmp_path: Path) -> None:
    """As in a Hugging Face cache: a snapshot holds links to the files, which lie elsewhere under their hashes."""
    path = write(tmp_path / "snapshots" / "1", location="data")
    (tmp_path / "blobs").mkdir()
    np.full(4, 3, np.float32).tofile(tmp_path / "blobs" / "2c26")
    (path.parent / "data").symlink_to("../../blobs/2c26")
    with pytest.raises(nx.FileError, match="follow_links=True") as caught:
        from_onnx(path)
    assert "without links out of its folder" in str(caught.value)
    network = from_onnx(path, follow_links=True)
    assert np.array_equal(network.evaluate({"x": np.zeros(4, np.float32)})["y"], np.full(4, 3))
    for location in ("../blobs/2c26", str(tmp_path / "blobs" / "2c26")):
        with pytest.raises(nx.FileError, match="only in the model's folder"):
            from_onnx(write(tmp_path / "other", location=location), follow_links=True)


def test_weights_are_mapped_and_not_copied(tmp_path: Path) -> None:
    """A file of 3 GB, most of it a hole: a copy would show in the memory that the process has of its own."""
    count = 3 << 28
    with open(tmp_path / "data", "wb") as file:
        file.truncate(4 * count)
        file.seek(4 * (count - 1))
        file.write(np.float32(7).tobytes())
    path = write(tmp_path, dims=(count,), location="data")
    code = f"""
        import numpy as np
        from neurenix.importers import from_onnx
        def own():
            return sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) >> 10
        import onnx
        before = own()
        network = from_onnx({str(path)!r})
        print(own() - before, network.layers[0].inputs[1].shape)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    megabytes, shape = done.stdout.split(maxsplit=1)
    assert int(megabytes) < 64 and shape.strip() == f"({count},)"
