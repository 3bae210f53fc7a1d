"""Engine files by threat: none of them may do more than raise."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native
from neurenix.hardware.tensorrt import TensorRTBackend

pytest.importorskip("xxhash")
from fuzz.engine_file import MAGIC, PREAMBLE, File, assembled
from tests.engine.sound import X, answers, backend, saved

Refused = Callable[[bytes], str]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound engine file."""
    return saved(tmp_path_factory.mktemp("engine") / "good.engine")


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """Loads bytes, which must fail as a damaged file does; gives the message."""

    def load(data: bytes) -> str:
        path = tmp_path / "bad.engine"
        path.write_bytes(data)
        with pytest.raises(nx.FormatError) as caught:
            backend().load(path)
        assert str(path) in str(caught.value)
        return str(caught.value)

    return load


def header_length(data: bytes) -> int:
    return int(PREAMBLE.unpack_from(data)[3])


def test_the_sound_file_opens(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "good.engine"
    path.write_bytes(good)
    assert answers(backend().load(path))


def test_truncated_at_every_boundary(good: bytes, refused: Refused) -> None:
    header_end = PREAMBLE.size + header_length(good)
    ends = {0, 8, 12, 16, 24, PREAMBLE.size, header_end, -(-header_end // 256) * 256, len(good) - 128, len(good)}
    for length in {end + step for end in ends for step in (-1, 0, 1)} - {-1, len(good), len(good) + 1}:
        refused(good[:length])


def test_a_bit_flipped_in_every_byte_of_the_preamble_and_in_the_header(good: bytes, refused: Refused) -> None:
    header_end = PREAMBLE.size + header_length(good)
    for place in [*range(PREAMBLE.size), *range(PREAMBLE.size, header_end, 61)]:
        damaged = bytearray(good)
        damaged[place] ^= 1 << place % 8
        refused(bytes(damaged))


def test_bits_flipped_in_the_weights_and_between_them(good: bytes, refused: Refused) -> None:
    start = -(-(PREAMBLE.size + header_length(good)) // 256) * 256
    for place in [start - 1, *range(start, len(good), 997), len(good) - 1]:
        damaged = bytearray(good)
        damaged[place] ^= 0x10
        assert "checksum" in (message := refused(bytes(damaged))) or "between" in message


def test_something_behind_the_end(good: bytes, refused: Refused) -> None:
    for behind in (b"\0", b"PK\x05\x06" + bytes(18), good):
        assert "behind the weights" in refused(good + behind)


def test_wrong_magic(good: bytes, refused: Refused) -> None:
    for magic in (b"NRNXENG\x0a", b"PK\x03\x04\0\0\0\0", b"ftrt\0\0\0\0", b"\x08\x07\x12\x07pyto", MAGIC[::-1]):
        assert "not an engine file" in refused(magic + good[8:])


def test_a_newer_version_and_none(good: bytes, refused: Refused) -> None:
    magic, _, *rest = PREAMBLE.unpack_from(good)
    message = refused(PREAMBLE.pack(magic, 77, *rest) + good[PREAMBLE.size :])
    assert "got: 77, written by neurenix" in message and "open it with neurenix" in message
    refused(PREAMBLE.pack(magic, 0, *rest) + good[PREAMBLE.size :])


def test_foreign_endianness(good: bytes, refused: Refused) -> None:
    magic, version, *rest = PREAMBLE.unpack_from(good)
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    assert "in the other order" in refused(PREAMBLE.pack(magic, swapped, *rest) + good[PREAMBLE.size :])


def test_a_length_of_the_header_beyond_the_file(good: bytes, refused: Refused) -> None:
    magic, version, reserved, _, checksum = PREAMBLE.unpack_from(good)
    for length in (1 << 62, (1 << 64) - 1, (1 << 64) - 32, 1 << 40, len(good)):
        refused(PREAMBLE.pack(magic, version, reserved, length, checksum) + good[PREAMBLE.size :])


class TestForgedFiles:
    """Whoever forges a file can forge its checksums: the header is not trusted because it matches."""

    @pytest.fixture
    def forged(self, good: bytes) -> Callable[..., bytes]:
        def forge(change: Callable[[File], object]) -> bytes:
            file = copy.deepcopy(File.read(good))
            change(file)
            return file.written()

        return forge

    def test_the_forgery_itself_opens(self, forged: Any, tmp_path: Path) -> None:
        path = tmp_path / "same.engine"
        path.write_bytes(forged(lambda file: None))
        assert answers(backend().load(path))

    def test_weights_outside_of_the_file_overlapping_or_misaligned(self, forged: Any, refused: Refused) -> None:
        for at in (0, 1):
            for offset in (1 << 20, 1 << 40, (1 << 64) - 256, 255, 1, 256, 8192 - 256, 8192 + 256):
                refused(forged(lambda file, at=at, to=offset: file.header["weights"][at].update(offset=to)))

    def test_weights_of_enormous_shape(self, forged: Any, refused: Refused) -> None:
        shapes: list[list[int]] = [
            [1 << 40, 1 << 40],
            [1 << 63, 2],
            [64, 33],
            [(1 << 64) - 1],
            [(1 << 64) - 1, 0],
            [1] * 65,
        ]
        for shape in shapes:
            refused(forged(lambda file, to=shape: file.header["weights"][0].update(shape=to)))

    def test_weights_missing_or_too_many(self, forged: Any, refused: Refused) -> None:
        refused(forged(lambda file: file.header["weights"].clear()))
        refused(forged(lambda file: file.header["weights"].append(file.header["weights"][0])))

    def test_fields_unknown_missing_or_of_a_newer_version(self, forged: Any, refused: Refused) -> None:
        refused(forged(lambda file: file.header.update(run="rm -rf /")))
        refused(forged(lambda file: file.header.pop("network")))
        message = refused(forged(lambda file: setattr(file, "version", 2)))
        assert "what its format version has not" in message

    def test_options_that_no_build_has(self, forged: Any, refused: Refused, tmp_path: Path) -> None:
        for wrong in ({"threads": 0}, {"threads": -1}, {"optimization_level": 6}, {"hint": "best"}, {"clock": 1}):
            refused(forged(lambda file, wrong=wrong: file.header["built"].update(wrong)))
        path = tmp_path / "many.engine"
        path.write_bytes(forged(lambda file: file.header["built"].update(threads=1 << 60)))
        opened = TensorRTBackend(timing_cache=False).load(path)
        assert opened.report()["threads"]["call"] == _native.default_threads()

    def test_what_only_the_neurenix_that_wrote_it_knows(self, forged: Any, refused: Refused) -> None:
        """A field, an op or an attribute that came later: the message says which Neurenix that was."""

        def later(change: Callable[[dict[str, Any]], object]) -> Callable[[File], object]:
            return lambda file: (file.header.update(producer="neurenix 9.1.0"), change(file.header))

        for change in (
            lambda header: header.update(shards=2),
            lambda header: header["network"]["layers"][0]["attrs"].update(sparse={"int": 1}),
        ):
            message = refused(forged(later(change)))
            assert "written by neurenix 9.1.0, and this is neurenix" in message

    def test_a_field_that_stands_twice(self, good: bytes, refused: Refused) -> None:
        file = File.read(good)
        text = good[PREAMBLE.size : PREAMBLE.size + header_length(good)]
        for doubled in (b'{"notes":[],' + text[1:], text.replace(b'"inputs":', b'"inputs":[],"inputs":', 1)):
            assert "duplicate field" in refused(assembled(doubled, file.weights, file.version))

    def test_ranges_without_order(self, forged: Any, refused: Refused) -> None:
        for bad in ((-5, -5, -5), (4, 2, 1), (1, 2, -1), (-(1 << 63), 0, (1 << 63) - 1)):
            spoilt = {"n": dict(zip(("min", "opt", "max"), bad, strict=True))}
            assert "not ordered" in refused(forged(lambda file, to=spoilt: file.header.update(profiles=[to])))
            assert "not ordered" in refused(forged(lambda file, to=spoilt: file.header["network"].update(symbols=to)))

    def test_a_guard_that_was_taken_out_still_holds(self, tmp_path: Path) -> None:
        """What two inputs must have in common follows from the layers, whatever the file says."""
        network = nx.Network("guarded")
        x, y = (network.add_input(name, "float32", [dim, 4]) for name, dim in (("x", "n"), ("y", "m")))
        network.mark_output(network.add_layer("Add", [x, y])[0], "z")
        path = tmp_path / "a.engine"
        shape = nx.Shape((2, 4), (3, 4), (9, 4))
        backend().optimize_model(network, {"x": shape, "y": shape}).save(path)
        file = File.read(path.read_bytes())
        assert file.header["network"]["guards"]
        file.header["network"]["guards"] = []
        path.write_bytes(file.written())
        forged = backend().load(path)
        ones = np.ones((9, 4), np.float32)
        np.testing.assert_array_equal(forged({"x": ones, "y": ones})["z"], ones + ones)
        with pytest.raises(nx.ShapeError, match="do not go together"):
            forged({"x": ones, "y": ones[:5]})

    def test_a_plugin_that_is_not_there(self, good: bytes, tmp_path: Path) -> None:
        """It is named, and nothing is imported to find it."""
        (tmp_path / "os.path.py").write_text("raise SystemExit('imported')")
        identity = {"name": "os.path", "version": "1", "namespace": ""}
        file = File.read(good)
        held = {"identity": identity, "fields": {}, "shape_inputs": 0}
        file.header["network"]["layers"][0].update(op="Plugin", attrs={"plugin": {"plugin": held}})
        path = tmp_path / "plugin.engine"
        path.write_bytes(file.written())
        with pytest.raises(nx.UnsupportedError, match=r"os\.path"):
            backend().load(path)

    def test_times_of_any_size(self, tmp_path: Path) -> None:
        """They decide what is taken to be fast, and nothing else."""
        network = nx.Network("timed")
        x = network.add_input("x", "float32", [2, 64])
        network.mark_output(network.add_layer("Softmax", [network.add_layer("Relu", [x])[0]])[0], "y")
        path = tmp_path / "timed.engine"
        backend().optimize_model(network, None, optimization_level=1).save(path)
        file = File.read(path.read_bytes())
        assert file.header["times"]
        for time in (0, (1 << 64) - 1):
            file.header["times"] = dict.fromkeys(file.header["times"], time)
            path.write_bytes(file.written())
            np.testing.assert_allclose(backend().load(path)(X), np.full((2, 64), 1 / 64), rtol=1e-6)


def test_the_format_is_as_the_fuzzer_has_it(good: bytes) -> None:
    assert File.read(good).written() == good
    assert _native.__version__ in File.read(good).header["producer"]
