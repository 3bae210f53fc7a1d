"""What stands in the bytes of a plan. NVIDIA does not document them: a plan is asked for what must be in it alone."""

from __future__ import annotations

import re
import struct

#: What stands before the length of a text.
TEXT = rb"\x0c\x80\x01\x00(.{8})"
LONGEST = 1 << 16


def texts(plan: bytes) -> set[str]:
    """The texts of the plan: names of inputs, outputs, layers."""
    found = set()
    for match in re.finditer(TEXT, plan, re.DOTALL):
        length = struct.unpack("<Q", match[1])[0]
        if length < LONGEST:
            found.add(plan[match.end() : match.end() + length].decode(errors="replace"))
    return found


def has_extents(plan: bytes, shape: tuple[int, ...]) -> bool:
    """Whether the extents stand there one after another, as 64-bit integers."""
    return struct.pack(f"<{len(shape)}q", *shape) in plan
