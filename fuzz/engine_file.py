"""Engine files in parts, to be put together otherwise, for the fuzzer and for tests of damaged files."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  (numpy then knows bfloat16 and its like by name)
import numpy as np
import xxhash

#: magic, version, reserved, length of the header, checksum of the header.
PREAMBLE = struct.Struct("<8sIIQQ")
#: Weights start at multiples of this.
ALIGNMENT = 256
MAGIC = b"NRNXENG\x1a"


@dataclass
class File:
    """An engine file in parts."""

    header: dict[str, Any]
    weights: list[bytes]
    version: int

    @classmethod
    def read(cls, data: bytes) -> File:
        """The parts of a sound file."""
        _, version, _, length, _ = PREAMBLE.unpack_from(data)
        header = json.loads(data[PREAMBLE.size : PREAMBLE.size + length])
        start = _aligned(PREAMBLE.size + length)
        begins = [start + weight["offset"] for weight in header["weights"]]
        kept = [data[at:][: _length(w, len(data))] for at, w in zip(begins, header["weights"], strict=True)]
        return cls(header, kept, version)

    def written(self) -> bytes:
        """The bytes, with the header as it is and checksums that match."""
        return assembled(json.dumps(self.header, separators=(",", ":")).encode(), self.weights, self.version)

    def seal(self) -> None:
        """Lets the checksums of the weights match their bytes."""
        places = self.header.get("weights")
        for weight, data in zip(places if isinstance(places, list) else [], self.weights, strict=False):
            if isinstance(weight, dict):
                weight["checksum"] = xxhash.xxh3_64_intdigest(data[: _length(weight, len(data))])


def assembled(text: bytes, weights: list[bytes], version: int) -> bytes:
    """A file out of a header and weights."""
    head = PREAMBLE.pack(MAGIC, version, 0, len(text), xxhash.xxh3_64_intdigest(text)) + text
    for weight in weights:
        head = head.ljust(_aligned(len(head)), b"\0") + weight
    return head


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _length(weight: dict[str, Any], most: int) -> int:
    """The bytes of a weight, as far as its dtype and shape make sense."""
    try:
        return min(most, np.dtype(weight["dtype"]).itemsize * int(np.prod(weight["shape"], dtype=float)))
    except (KeyError, TypeError, ValueError, OverflowError):
        return most
