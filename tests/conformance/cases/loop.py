"""Loop."""

from typing import Any

import numpy as np
from onnx import parser

from tests.conformance.case import F32, Array, case, exact, normal

OP = "Loop"
BODY = parser.parse_graph(
    """step (int64 i, bool before, float[2, 3] v) => (bool after, float[2, 3] w, float[2, 3] kept) {
        after = Identity (before)
        f = Cast <to = 1> (i)
        s = Sin (v)
        w = Add (s, f)
        kept = Neg (w)
    }"""
)


def reference(trips: Array, condition: Array | None, v: Array, body: Any) -> tuple[Array, Array]:
    """The body in numpy."""
    kept = np.zeros((0, *v.shape))
    for step in range(int(trips) if condition is None or condition else 0):
        v = np.sin(v) + step
        kept = np.concatenate([kept, -v[None]])
    return v, kept


COUNT = exact(np.array(4), np.int64)
CASES = [
    case("counted", COUNT, None, normal(2, 3), dtypes=F32, reference=reference, outputs=2, body=BODY),
    case("never", COUNT, exact(False, bool), normal(2, 3), dtypes=F32, reference=reference, outputs=2, body=BODY),
]
