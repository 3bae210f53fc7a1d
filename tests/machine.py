"""What the processor that runs the tests computes in."""

from __future__ import annotations

import pytest

from neurenix import _native

#: Without VNNI products of 8 bits compute between the roundings in floating point.
HAS_INT8: bool = _native.computes("cpu", "int8")
needs_int8 = pytest.mark.skipif(not HAS_INT8, reason="this processor has no VNNI")
