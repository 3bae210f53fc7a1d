"""Calibration caches: the text that TensorRT's calibrators write, a scale for each tensor."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from neurenix import files
from neurenix.errors import FileError, FormatError

#: The names that methods have in the first line of a cache; those of TensorRT are its own.
METHODS = {
    "entropy": "EntropyCalibration2",
    "minmax": "MinMaxCalibration",
    "percentile": "PercentileCalibration",
    "mse": "MSECalibration",
}
#: What scales of TensorRT stand for: the magnitude of 127.
STEPS = 127
#: The least scale but 0, and the greatest one whose range is a float32.
LEAST, MOST = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127 / STEPS
#: A cache is a line for each tensor; what is larger is something else.
MOST_BYTES = 64 << 20


@dataclass
class CalibrationCache:
    """The greatest magnitude of each tensor, by name, as TensorRT's text: `name: scale`, the bits of a float32 in hex.

    `method` stands in the first line. A magnitude is kept as float32 of a 127th of it, so that a cache that was
    written and read again means the same.
    """

    method: str = METHODS["entropy"]
    scales: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of_ranges(cls, method: str, ranges: dict[str, float]) -> CalibrationCache:
        """A cache of magnitudes."""
        scales = {name: _single(magnitude / STEPS) for name, magnitude in ranges.items()}
        return cls(METHODS[method], {name: scale if scale >= LEAST else 0.0 for name, scale in scales.items()})

    @property
    def ranges(self) -> dict[str, float]:
        """The magnitude of each tensor."""
        return {name: _single(scale * STEPS) for name, scale in self.scales.items()}

    def to_bytes(self) -> bytes:
        """The text."""
        lines = [f"TRT-101600-{self.method}"]
        lines += [f"{name}: {struct.pack('>f', scale).hex()}" for name, scale in self.scales.items()]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def of_bytes(cls, data: bytes, source: str = "the calibration cache") -> CalibrationCache:
        """A cache from its text. Raises `FormatError`, which names the line, where it is damaged or none."""
        if len(data) > MOST_BYTES:
            raise FormatError(f"{source} is too large", expected=f"at most {MOST_BYTES} bytes", got=str(len(data)))
        try:
            # Names may have what Python takes for ends of lines, too.
            lines = data.decode().replace("\r\n", "\n").split("\n")
        except UnicodeDecodeError as error:
            raise FormatError(f"{source} is no text", hint="delete it, and calibrate again") from error
        first = lines[0].split("-", 2)
        if len(first) != 3 or first[0] != "TRT" or not first[1].isdigit():
            raise FormatError(
                f"{source} does not begin as a calibration cache does",
                expected="TRT-<version>-<method>",
                got=repr(lines[0][:80]) if data else "nothing",
                hint="delete it, and calibrate again",
            )
        cache = cls(first[2])
        for number, line in enumerate(lines[1:], 2):
            if line.strip():
                name, scale = _entry(line, number, source)
                if name in cache.scales:
                    raise FormatError(f"line {number} of {source} names a tensor for the second time", got=name)
                cache.scales[name] = scale
        return cache

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> CalibrationCache:
        """A cache from a file. Raises `FileError` where it can't be read, and as `of_bytes`."""
        return cls.of_bytes(files.read(path, "the calibration cache"), os.fspath(path))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the text, whole or not at all. Raises `FileError` where that fails."""
        write_whole(path, self.to_bytes())


def check_writable(path: str | os.PathLike[str], what: str = "the calibration cache") -> None:
    """Raises `FileError` where a file can't be written, before the work is done that it is to keep."""
    folder = Path(path).absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK) or Path(path).is_dir():
        raise FileError(
            f"{what} can't be written",
            got=str(path),
            hint=f"is {folder} a folder that may be written to?",
        )


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file in one step. Raises `FileError` where that fails."""
    part = Path(f"{os.fspath(path)}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError("the calibration cache can't be written", got=str(error)) from error


def _entry(line: str, number: int, source: str) -> tuple[str, float]:
    name, colon, digits = line.rpartition(":")
    digits = digits.strip()
    try:
        known = colon and name and digits
        scale = struct.unpack(">f", bytes.fromhex(digits.rjust(8, "0")))[0] if known else float("nan")
    except (ValueError, struct.error):
        scale = float("nan")
    # Digits that are cut off are tiny numbers.
    if scale != 0.0 and not LEAST <= scale <= MOST:
        raise FormatError(
            f"line {number} of {source} is damaged",
            expected="name: eight hexadecimal digits, the bits of a scale",
            got=repr(line[:80]),
            hint="delete it, and calibrate again",
        )
    return name, float(scale)


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


__all__ = ["METHODS", "CalibrationCache", "check_writable", "write_whole"]
