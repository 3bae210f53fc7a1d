"""Engine files by threat: none of them may do more than raise."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend

#: magic, version, reserved, length of the header, checksum of the header.
PREAMBLE = struct.Struct("<8sIIQQ")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound engine file."""
    network = nx.Network("sound")
    x = network.add_input("x", "float32", [2, 64])
    weights = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    network.mark_output(network.add_layer("MatMul", [x, network.add_constant("w", weights)])[0], "y")
    path = tmp_path_factory.mktemp("engine") / "good.engine"
    TensorRTBackend().optimize_model(network, {"x": (2, 64)}).save(path)
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[bytes], str]:
    """Loads bytes, which must fail as a damaged file does; gives the message."""

    def load(data: bytes) -> str:
        path = tmp_path / "bad.engine"
        path.write_bytes(data)
        with pytest.raises(nx.FormatError) as caught:
            TensorRTBackend().load(path)
        assert str(path) in str(caught.value)
        return str(caught.value)

    return load


def test_the_sound_file_opens(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "good.engine"
    path.write_bytes(good)
    assert TensorRTBackend().load(path)(np.zeros((2, 64), np.float32)).shape == (2, 32)


def test_truncated(good: bytes, refused: Callable[[bytes], str]) -> None:
    for length in {0, 1, 7, 8, 12, 31, 32, 33, 100, len(good) // 2, len(good) - 4096, len(good) - 1}:
        refused(good[: max(length, 0)])


def test_bit_flips_in_the_preamble_and_the_header(good: bytes, refused: Callable[[bytes], str]) -> None:
    header = PREAMBLE.unpack_from(good)[3]
    places = [*range(12), *range(16, PREAMBLE.size), *range(PREAMBLE.size, PREAMBLE.size + header, 97)]
    for place in places:
        damaged = bytearray(good)
        damaged[place] ^= 1 << place % 8
        refused(bytes(damaged))


def test_bit_flips_in_the_weights(good: bytes, refused: Callable[[bytes], str]) -> None:
    for place in (len(good) - 1, len(good) - 64 * 32 * 4, len(good) - 1000):
        damaged = bytearray(good)
        damaged[place] ^= 0x10
        assert "checksum" in refused(bytes(damaged))


def test_wrong_magic(good: bytes, refused: Callable[[bytes], str]) -> None:
    for magic in (b"NRNXENG\x0a", b"PK\x03\x04\0\0\0\0", b"ftrt\0\0\0\0", b"\x08\x07\x12\x07pyto"):
        assert "not an engine file" in refused(magic + good[8:])


def test_a_newer_version(good: bytes, refused: Callable[[bytes], str]) -> None:
    magic, version, *rest = PREAMBLE.unpack_from(good)
    message = refused(PREAMBLE.pack(magic, version + 1, *rest) + good[PREAMBLE.size :])
    assert "version" in message and str(version + 1) in message
    refused(PREAMBLE.pack(magic, 0, *rest) + good[PREAMBLE.size :])


def test_a_header_bomb(good: bytes, refused: Callable[[bytes], str]) -> None:
    magic, version, reserved, _, checksum = PREAMBLE.unpack_from(good)
    for length in (1 << 62, (1 << 64) - 1, 1 << 40, len(good)):
        refused(PREAMBLE.pack(magic, version, reserved, length, checksum) + good[PREAMBLE.size :])


def test_a_folder_an_empty_file_and_no_file(tmp_path: Path, refused: Callable[[bytes], str]) -> None:
    refused(b"")
    with pytest.raises(nx.FileError):
        TensorRTBackend().load(tmp_path / "missing.engine")
    with pytest.raises(nx.Error):
        TensorRTBackend().load(tmp_path)


class TestForgedHeaders:
    """Whoever forges a file can forge its checksums: the header is not trusted because it matches."""

    def forged(self, good: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
        xxhash = pytest.importorskip("xxhash")
        magic, version, reserved, length, _ = PREAMBLE.unpack_from(good)
        header = json.loads(good[PREAMBLE.size : PREAMBLE.size + length])
        change(header)
        text = json.dumps(header, separators=(",", ":")).encode()
        start = -(-(PREAMBLE.size + length) // 256) * 256
        head = PREAMBLE.pack(magic, version, reserved, len(text), xxhash.xxh3_64_intdigest(text)) + text
        return head + bytes(-len(head) % 256) + good[start:]

    def test_the_forgery_itself_opens(self, good: bytes, tmp_path: Path) -> None:
        path = tmp_path / "same.engine"
        path.write_bytes(self.forged(good, lambda header: None))
        TensorRTBackend().load(path)

    def test_weights_outside_the_file(self, good: bytes, refused: Callable[[bytes], str]) -> None:
        for offset in (1 << 20, 1 << 40, (1 << 64) - 256, 255, 1):
            refused(self.forged(good, lambda header, to=offset: header["weights"][0].update(offset=to)))

    def test_weights_of_enormous_shape(self, good: bytes, refused: Callable[[bytes], str]) -> None:
        for shape in ([1 << 40, 1 << 40], [1 << 63, 2], [64, 33], [(1 << 64) - 1]):
            refused(self.forged(good, lambda header, to=shape: header["weights"][0].update(shape=to)))

    def test_weights_missing_or_too_many(self, good: bytes, refused: Callable[[bytes], str]) -> None:
        refused(self.forged(good, lambda header: header["weights"].clear()))
        refused(self.forged(good, lambda header: header["weights"].append(header["weights"][0])))

    def test_fields_unknown_or_missing(self, good: bytes, refused: Callable[[bytes], str]) -> None:
        refused(self.forged(good, lambda header: header.update(run="rm -rf /")))
        refused(self.forged(good, lambda header: header.pop("network")))
