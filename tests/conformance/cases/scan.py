"""Scan."""

from typing import Any

import numpy as np
from onnx import parser

from tests.conformance.case import F32, Array, case, normal

OP = "Scan"
BODY = parser.parse_graph(
    """step (float[3] s, float[3] x) => (float[3] t, float[3] y) {
        t = Add (s, x)
        y = Tanh (t)
    }"""
)


def backwards(state: Array, x: Array, **attrs: Any) -> tuple[Array, Array]:
    """The body in numpy, on columns from the last one on."""
    return state + x.sum(1), np.tanh(state[:, None] + np.cumsum(x[:, ::-1], 1))


CASES = [
    case("rows", normal(3), normal(5, 3), dtypes=F32, outputs=2, body=BODY, num_scan_inputs=1),
    case(
        "backwards_along_columns",
        normal(3),
        normal(3, 5),
        dtypes=F32,
        outputs=2,
        body=BODY,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[1],
        reference=backwards,
    ),
]
