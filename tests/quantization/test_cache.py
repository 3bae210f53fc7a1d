"""Calibration caches: TensorRT's text, and what is wrong with damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import neurenix as nx
from neurenix.quantization import CalibrationCache

#: As TensorRT 8 and 10 write it.
TENSORRT = b"TRT-8601-EntropyCalibration2\ninput: 3c010a14\n/conv1/Conv_output_0: 3d2a1c3b\nOutput: 0\n"


def test_tensorrts_text_is_read_and_written() -> None:
    cache = CalibrationCache.of_bytes(TENSORRT)
    assert cache.method == "EntropyCalibration2"
    assert cache.scales["input"] == struct.unpack(">f", bytes.fromhex("3c010a14"))[0]
    assert cache.ranges["input"] == pytest.approx(1.0, rel=1e-3) and cache.ranges["Output"] == 0.0
    assert CalibrationCache.of_bytes(cache.to_bytes()) == cache
    assert cache.to_bytes().splitlines()[1] == b"input: 3c010a14"


def test_ranges_survive_the_text_to_the_last_bit() -> None:
    cache = CalibrationCache.of_ranges("minmax", {"a": 0.1, "b: with a colon": 3.0e-20, "c\u2028": 1e30, "d": 1e-44})
    again = CalibrationCache.of_bytes(cache.to_bytes())
    assert again.ranges == cache.ranges
    assert again.ranges["a"] == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin as a calibration cache does"),
        (b"\xff\xfe\x00", "is no text"),
        (b"PK\x03\x04", "does not begin as a calibration cache does"),
        (b"TRT-x-EntropyCalibration2\n", "does not begin as a calibration cache does"),
        (b"TRT-8601-EntropyCalibration2\ninput 3c010a14\n", "line 2 of the calibration cache is damaged"),
        (b"TRT-8601-EntropyCalibration2\ninput: 3c010a1g\n", "line 2 of the calibration cache is damaged"),
        (b"TRT-8601-EntropyCalibration2\ninput: 7fc00000\n", "line 2 of the calibration cache is damaged"),
        (b"TRT-8601-EntropyCalibration2\ninput: bf800000\n", "line 2 of the calibration cache is damaged"),
        (b"TRT-8601-EntropyCalibration2\ninput: 3c010a14ff\n", "line 2 of the calibration cache is damaged"),
        (b"TRT-8601-EntropyCalibration2\ninput: \n", "line 2 of the calibration cache is damaged"),
        (b"TRT-8601-EntropyCalibration2\ninput: 3c01", "line 2 of the calibration cache is damaged"),
        (b"TRT-8601-EntropyCalibration2\ninput: 7f7fffff\n", "line 2 of the calibration cache is damaged"),
        (b"TRT-8601-EntropyCalibration2\na: 0\na: 0\n", "line 3 of the calibration cache names a tensor"),
    ],
)
def test_damaged_caches_are_refused_by_line(data: bytes, message: str) -> None:
    with pytest.raises(nx.FormatError, match=message):
        CalibrationCache.of_bytes(data)


def test_files_that_can_not_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(nx.FileError, match="can't be read"):
        CalibrationCache.read(tmp_path / "nowhere")
    with pytest.raises(nx.FileError, match="a device or a pipe"):
        CalibrationCache.read("/dev/zero")
    with pytest.raises(nx.FileError, match="can't be written"):
        CalibrationCache().write(tmp_path / "no" / "folder")
    assert not list(tmp_path.iterdir())
