"""Images of every kind in and out, in bounded memory, and runs that go on after a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import FileError, FormatError, InvalidArgumentError
from neurenix.inference import InferenceEngine
from neurenix.inference.images import Image, Windows
from neurenix.inference.windows import Grid
from tests.inference.conftest import convolutions, optimized

ROI = (16, 12, 8)


@pytest.fixture(scope="module")
def engine_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "volume.engine"
    optimized(convolutions(3), (3, 1, *ROI)).save(path)
    return path


@pytest.fixture(scope="module")
def engine(engine_file: Path) -> InferenceEngine:
    return InferenceEngine(engine_file, warmup=0)


@pytest.fixture(scope="module")
def volume() -> np.ndarray[Any, Any]:
    return np.random.default_rng().standard_normal((1, 1, 30, 61, 20)).astype(np.float32)


def as_zarr(volume: Any, path: Path) -> Any:
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    made = zarr.open_array(str(path), mode="w", shape=volume.shape, chunks=(1, 1, 10, 20, 20), dtype=volume.dtype)
    made[...] = volume
    return made


def as_tiff(volume: Any, path: Path) -> Any:
    tifffile = pytest.importorskip("tifffile", reason="tifffile is not installed")
    tifffile.imwrite(path, volume)
    return tifffile.memmap(path, mode="r")


def as_dask(volume: Any, path: Path) -> Any:
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    return da.from_array(volume, chunks=(1, 1, 10, 20, 20))


KINDS: dict[str, Callable[[Any, Path], Any]] = {
    "numpy.memmap": as_tiff,
    "zarr.core.array.Array": as_zarr,
    "dask.array.core.Array": as_dask,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_kind_comes_out(kind: str, engine: InferenceEngine, volume: Any, tmp_path: Path) -> None:
    expected = engine.sliding_window_inference(volume, ROI, 0.4)
    found = engine.sliding_window_inference(KINDS[kind](volume, tmp_path / "image.tif"), ROI, 0.4)
    name = type(found).__name__
    assert kind.startswith(type(found).__module__.partition(".")[0]) and kind.endswith(name)
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("ending", [".zarr", ".tif", ".npy"])
@pytest.mark.parametrize("leading", [0, 1, 2])
def test_outputs_in_files(ending: str, leading: int, engine: InferenceEngine, volume: Any, tmp_path: Path) -> None:
    image = volume.reshape(volume.shape[2 - leading :])
    path = tmp_path / f"result{ending}"
    found = engine.sliding_window_inference(image, ROI, out=str(path))
    np.testing.assert_array_equal(np.asarray(found), engine.sliding_window_inference(image, ROI))
    if ending == ".tif":
        import tifffile

        np.testing.assert_array_equal(tifffile.imread(path).squeeze(), np.asarray(found).squeeze())
    with pytest.raises(FileError, match="there already"):
        engine.sliding_window_inference(image, ROI, out=path)
    before = np.array(found)
    del found
    again = engine.sliding_window_inference(2 * image, ROI, out=path, overwrite=True)
    assert not np.array_equal(np.asarray(again), before)


@pytest.mark.parametrize("kind", ["zarr", "in a group", "dask"])
def test_an_output_never_replaces_its_image(kind: str, engine: InferenceEngine, volume: Any, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    out = tmp_path / "image.zarr"
    if kind == "in a group":
        image = zarr.open_group(str(out), mode="w").create_array("0", shape=volume.shape, dtype=volume.dtype)
        image[...] = volume
    else:
        image = as_zarr(volume, out)
    if kind == "dask":
        image = pytest.importorskip("dask.array", reason="Dask is not installed").from_zarr(str(out))
    with pytest.raises(FileError, match="would replace the image"):
        engine.sliding_window_inference(image, ROI, out=out, overwrite=True)
    np.testing.assert_array_equal(np.asarray(image), volume)


def test_a_folder_of_other_files_is_not_replaced(engine: InferenceEngine, volume: Any, tmp_path: Path) -> None:
    note = tmp_path / "notes.zarr" / "sub" / "note.txt"
    note.parent.mkdir(parents=True)
    note.write_text("important")
    with pytest.raises(FileError, match="no zarr array"):
        engine.sliding_window_inference(volume, ROI, out=note.parents[1], overwrite=True)
    assert note.read_text() == "important"


def test_outputs_in_arrays_of_the_caller(engine: InferenceEngine, volume: Any, tmp_path: Path) -> None:
    expected = engine.sliding_window_inference(volume, ROI)
    into = as_zarr(np.zeros(expected.shape, np.float32), tmp_path / "into.zarr")
    assert engine.sliding_window_inference(volume, ROI, out=into) is into
    np.testing.assert_array_equal(into[...], expected)
    half = np.zeros(expected.shape, np.float16)
    assert engine.sliding_window_inference(as_zarr(volume, tmp_path / "v.zarr"), ROI, out=half) is half
    np.testing.assert_array_equal(half, expected.astype(np.float16))


def test_rows_of_costly_images_are_read_once(volume: Any) -> None:
    read: list[int] = []

    class Counted(Image):
        def read(self, image: int, place: Any) -> Any:
            read.append(int(np.prod([part.stop - part.start for part in place])))
            return super().read(image, place)

    grid = Grid.of(1, volume.shape[2:], ROI, 0.5)
    windows = Windows(Counted(volume, 3), grid, "constant", 0, by_layer=True)
    plain = Windows(Image(volume, 3), grid, "constant", 0, by_layer=False)
    for number in range(len(grid)):
        np.testing.assert_array_equal(windows.read(number), plain.read(number))
    assert sum(read) == volume.size and len(read) == grid.layers


@pytest.mark.parametrize("done", [1, 20, 45, 10**6])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(
    done: int, engine_file: Path, engine: InferenceEngine, volume: Any, tmp_path: Path
) -> None:
    two = np.concatenate([volume, volume[:, :, ::-1]])
    image = as_zarr(two, tmp_path / "image.zarr")
    out = tmp_path / "out.zarr"
    arguments = [str(tmp_path / "image.zarr"), str(out), str(engine_file), str(done)]
    ended = subprocess.run([sys.executable, "-m", "tests.inference.interrupted", *arguments], check=False)
    assert ended.returncode == (0 if done == 10**6 else -9)
    told: list[int] = []
    found = engine.sliding_window_inference(
        image, ROI, 0.4, 3, out=out, resume=True, progress=lambda windows, count: told.append(windows)
    )
    np.testing.assert_array_equal(found[...], engine.sliding_window_inference(two, ROI, 0.4, 3))
    # What was finished is not done again.
    assert len(told) == 1 if done == 10**6 else told[0] > (3 if done > 30 else 0)


def test_only_the_same_run_goes_on(engine: InferenceEngine, volume: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    first = np.array(engine.sliding_window_inference(volume, ROI, out=out, resume=True))
    np.testing.assert_array_equal(engine.sliding_window_inference(volume, ROI, out=out, resume=True), first)
    with pytest.raises(InvalidArgumentError, match="in another way: batch_size, overlap"):
        engine.sliding_window_inference(volume, ROI, 0.5, 3, out=out, resume=True)
    journal = Path(f"{out}.progress.json")
    assert json.loads(journal.read_text())["image"] == 1
    journal.write_text("{")
    with pytest.raises(FormatError, match="damaged"):
        engine.sliding_window_inference(volume, ROI, out=out, resume=True)
    journal.unlink()
    with pytest.raises(FileError, match="nothing tells how it was made"):
        engine.sliding_window_inference(volume, ROI, out=out, resume=True)
    with pytest.raises(InvalidArgumentError, match="continued or replaced"):
        engine.sliding_window_inference(volume, ROI, out=out, resume=True, overwrite=True)


def test_what_fails_in_the_middle_goes_on_where_it_was(engine: InferenceEngine, volume: Any, tmp_path: Path) -> None:
    image, out = as_zarr(volume, tmp_path / "image.zarr"), tmp_path / "out.zarr"

    def interrupt(done: int, count: int) -> None:
        if done > count / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.sliding_window_inference(image, ROI, out=out, progress=interrupt)
    found = engine.sliding_window_inference(image, ROI, out=out, resume=True)
    np.testing.assert_array_equal(found[...], engine.sliding_window_inference(volume, ROI))


def test_a_chunk_that_is_damaged(engine: InferenceEngine, volume: Any, tmp_path: Path) -> None:
    image = as_zarr(volume, tmp_path / "image.zarr")
    chunks = sorted(path for path in (tmp_path / "image.zarr").rglob("*") if path.is_file() and "json" not in path.name)
    chunks[len(chunks) // 2].write_bytes(b"nothing of the sort")
    with pytest.raises(Exception):  # noqa: B017 - zarr's own
        engine.sliding_window_inference(image, ROI, 0)
    found = engine.sliding_window_inference(image, ROI, 0, on_error="skip")[...]
    expected = engine.sliding_window_inference(volume, ROI, 0)
    there = ~np.isnan(found)
    assert 0.3 < there.mean() < 1
    np.testing.assert_allclose(found[there], expected[there], rtol=0, atol=1e-6)


LIMITED = """
import resource, sys, zarr
from neurenix.inference import InferenceEngine
engine = InferenceEngine(sys.argv[1], warmup=0)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
engine.sliding_window_inference(zarr.open_array(sys.argv[2], mode="r")[:, :, :, :64], (64, 64, 64))
before = peak()
image = zarr.open_array(sys.argv[2], mode="r")
engine.sliding_window_inference(image, (64, 64, 64), out=sys.argv[3])
print(peak() - before)
"""


@pytest.mark.parametrize("ending", [".zarr", ".npy"])
def test_memory_is_that_of_a_layer(ending: str, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    optimized(convolutions(3, outputs=1), (2, 1, 64, 64, 64)).save(tmp_path / "e.engine")
    image = zarr.open_array(
        str(tmp_path / "i.zarr"), mode="w", shape=(1, 1, 64, 1792, 64), chunks=(1, 1, 64, 64, 64), dtype="f4"
    )
    for row in range(0, 1792, 256):
        image[:, :, :, row : row + 256] = np.random.default_rng().standard_normal((1, 1, 64, 256, 64))
    arguments = [str(tmp_path / "e.engine"), str(tmp_path / "i.zarr"), str(tmp_path / f"o{ending}")]
    done = subprocess.run([sys.executable, "-c", LIMITED, *arguments], capture_output=True, text=True, check=True)
    # The image has 28 MiB, and so has the output; a layer of windows has 1.
    assert int(done.stdout) < 14
