"""Outputs on disks that are full, outputs and progress that were damaged meanwhile, and runs that another one began."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import FileError, FormatError, InvalidArgumentError
from neurenix.inference import InferenceEngine, VideoWriter
from tests.inference.conftest import convolutions, optimized

ROI = (16, 16)
X = np.random.default_rng(3).standard_normal((1, 1, 100, 40)).astype(np.float32)
Slide = Callable[..., Any]


@pytest.fixture(scope="module")
def engine() -> InferenceEngine:
    return InferenceEngine(optimized(convolutions(2), (4, 1, *ROI)), warmup=0)


@pytest.fixture
def slide(engine: InferenceEngine) -> Slide:
    return lambda image=X, **options: engine.sliding_window_inference(image, ROI, **options)


def interrupted(slide: Slide, out: Path, **options: Any) -> None:
    def stop(done: int, count: int) -> None:
        if done > count / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        slide(out=out, progress=stop, **options)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without room: a page of a sparse file that is written there would end the process."""

    def refuse(file: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)


@pytest.mark.parametrize("ending", [".npy", ".tif"])
def test_the_room_of_mapped_outputs_is_taken_first(ending: str, slide: Slide, full: None, tmp_path: Path) -> None:
    if ending == ".tif":
        pytest.importorskip("tifffile", reason="tifffile is not installed")
    with pytest.raises(FileError, match="no room for the output: No space left"):
        slide(out=tmp_path / f"o{ending}")
    assert not (tmp_path / f"o{ending}").exists()


def test_the_room_of_temporary_files_is_taken_first(slide: Slide, full: None, tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", X)
    for options in ({"image": np.load(tmp_path / "i.npy", mmap_mode="r")}, {"max_memory": 0}):
        with pytest.raises(FileError, match="TMPDIR"):
            slide(**options)


def test_mapped_files_have_all_their_blocks(slide: Slide, tmp_path: Path) -> None:
    interrupted(slide, out := tmp_path / "o.npy")
    found = out.stat()
    assert found.st_blocks * 512 >= found.st_size


def test_a_disk_that_fills_up_below_zarr(slide: Slide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")

    def refuse(self: Any, key: Any, value: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(zarr.Array, "__setitem__", refuse)
        with pytest.raises(FileError, match=r"can't be written: No space left"):
            slide(out=tmp_path / "o.zarr")
    found = slide(out=tmp_path / "o.zarr", resume=True)
    np.testing.assert_array_equal(found[...], slide())


@pytest.mark.parametrize(
    "changed",
    [
        {"image": 7}, {"image": -1}, {"layer": 10**6}, {"layer": -2}, {"image": True}, {"image": 0.5}, {"layer": "1"},
        {"asked": [1]}, {"image": None},
    ],
)  # fmt: skip
def test_progress_that_makes_no_sense(changed: dict[str, Any], slide: Slide, tmp_path: Path) -> None:
    interrupted(slide, out := tmp_path / "o.npy")
    journal = Path(f"{out}.progress.json")
    journal.write_text(json.dumps(json.loads(journal.read_text()) | changed))
    with pytest.raises(FormatError, match="damaged"):
        slide(out=out, resume=True)
    assert np.asarray(slide(out=out, overwrite=True)).shape == (1, 2, 100, 40)


@pytest.mark.parametrize("how", ["cut off", "another shape", "another dtype"])
def test_an_output_that_is_another_file_now(how: str, slide: Slide, tmp_path: Path) -> None:
    interrupted(slide, out := tmp_path / "o.npy")
    if how == "cut off":
        os.truncate(out, 1000)
    else:
        np.save(out, np.zeros((1, 2, 100, 41)) if how == "another shape" else np.zeros((1, 2, 100, 40)))
    with pytest.raises(FileError, match="not the one that was begun"):
        slide(out=out, resume=True)


def test_numbers_of_numpy_and_nan_are_the_same_after_a_while(slide: Slide, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "cval": np.float32("nan"), "sigma_scale": np.array([0.25, 0.125]), "batch_size": np.int64(2),
        "overlap": np.float32(0.5),
    }  # fmt: skip
    interrupted(slide, out := tmp_path / "o.npy", **options)
    found = slide(out=out, resume=True, **options)
    np.testing.assert_array_equal(found, slide(sigma_scale=(0.25, 0.125), overlap=0.5, batch_size=2))


def test_another_map_and_other_weights_do_not_go_on(slide: Slide, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).random(ROI) + 0.1
    interrupted(slide, out := tmp_path / "o.npy", roi_weight_map=weights)
    with pytest.raises(InvalidArgumentError, match="in another way: mode"):
        slide(out=out, resume=True, roi_weight_map=weights.T)
    first, other = convolutions(2), convolutions(2, scale=1)
    other[0].bias.data += 1
    engines = [InferenceEngine(m, (4, 1, *ROI), warmup=0, optimization_level=0) for m in (first, other)]
    interrupted(lambda **given: engines[0].sliding_window_inference(X, ROI, **given), out := tmp_path / "m.npy")
    with pytest.raises(InvalidArgumentError, match="in another way: model"):
        engines[1].sliding_window_inference(X, ROI, out=out, resume=True)


def test_a_video_on_a_full_disk(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    (tmp_path / "full.mp4").symlink_to("/dev/full")
    from fractions import Fraction

    with pytest.raises(FileError, match="can't be written"), VideoWriter(tmp_path / "full.mp4", (64, 64), Fraction(25)) as writer:  # fmt: skip  # noqa: E501
        for _ in range(50):
            writer.write(np.random.default_rng().integers(0, 255, (64, 64, 3), dtype=np.uint8))


def test_temporary_files_go_with_their_arrays(slide: Slide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    np.testing.assert_array_equal(slide(max_memory=0), slide())
    assert not list(tmp_path.iterdir())
