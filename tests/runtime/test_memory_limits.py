"""A limit on the addresses of a process: what needs more is refused, and nothing ends the process."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import parser  # noqa: E402

#: Elements of an input: 8 MB of float32, and twice that as doubles.
COUNT = 1 << 21
MEGABYTE = 1 << 20
#: What a process may take besides what it has.
LIMITS = (25, 50, 100, 150, 250)

#: Ops that the reference evaluates, each in another way.
CASES = {
    "Softmax": ("float[n] x", "y = Softmax(x)"),
    "ReduceSum": ("float[n] x", "y = ReduceSum(x)"),
    "ArgMax": ("float[n] x", "y = ArgMax(x)"),
    "TopK": ("float[n] x", "k = Constant<value_ints = [4]>() y, j = TopK(x, k)"),
    "Transpose": ("float[a,16] x", "y = Transpose(x)"),
    "Pad": ("float[n] x", "p = Constant<value_ints = [1, 1]>() y = Pad(x, p)"),
    "Resize": ("float[1,1,a,16] x", "s = Constant<value_floats = [1.0, 1.0, 1.0, 0.5]>() y = Resize(x, , s)"),
    "MaxPool": ("float[1,1,a,16] x", "y = MaxPool<kernel_shape = [2, 2]>(x)"),
    "Unique": ("float[k] x", "y, i, j, c = Unique(x)"),
}
SIZES = {"n": COUNT, "a": COUNT // 16, "k": COUNT // 16}


def used() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize:"))
    return int(line.split()[1]) * 1024


def child() -> None:
    """Each case under each limit, the lowest first, until one is enough; prints how many were."""
    ran = 0
    for signature, body in CASES.values():
        text = f'<ir_version: 10, opset_import: ["" : 21]> m ({signature}) => (float[] y) {{ {body} }}'
        network = from_onnx(parser.parse_model(text))
        dims = signature.partition("[")[2].partition("]")[0].split(",")
        x: Any = np.zeros([SIZES.get(dim) or int(dim) for dim in dims], np.float32)
        for limit in LIMITS:
            resource.setrlimit(resource.RLIMIT_AS, (used() + limit * MEGABYTE, resource.RLIM_INFINITY))
            try:
                network.evaluate({"x": x})
                ran += 1
                break
            except nx.OutOfMemoryError as error:
                assert "not enough memory" in str(error)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(f"{ran} of {len(CASES)} ran")


def test_what_is_too_large_for_a_limit_is_refused() -> None:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[0]) >= len(CASES) - 3, done.stdout


if __name__ == "__main__":
    child()
