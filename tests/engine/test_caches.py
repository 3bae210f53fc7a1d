"""Cache directories by threat: without a cache, or with a spoilt one, builds take longer, and that is all.

What of a cache is run, compiled kernels and plans, has its tests in `src/providers/common/kept.rs` and
`tests/tensorrt/test_regions.py`.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend

xxhash = pytest.importorskip("xxhash")

BUILD = """
import os, sys
import numpy as np
import neurenix as nx
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
network = nx.Network("m")
x = network.add_input("x", "float32", [2, 64])
network.mark_output(network.add_layer("Softmax", [network.add_layer("Relu", [x])[0]])[0], "y")
model = nx.hardware.get_backend("cpu", threads=1).optimize_model(network)
print(model(np.zeros((2, 64), np.float32)).sum())
"""


def optimised(cache: Path) -> nx.OptimizedModel:
    network = nx.Network("m")
    x = network.add_input("x", "float32", [2, 64])
    network.mark_output(network.add_layer("Relu", [x])[0], "y")
    return TensorRTBackend(threads=1, optimization_level=1, timing_cache=cache).optimize_model(network)


def test_a_cache_directory_that_may_not_be_written(tmp_path: Path) -> None:
    """In a process of another user where this one is root, who may write everywhere."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o755)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    cache.chmod(0o555)
    environment = os.environ | {"NEURENIX_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run([sys.executable, "-c", BUILD], env=environment, capture_output=True, text=True)
    assert child.returncode == 0 and child.stdout.startswith("2.0"), child.stderr
    assert list(cache.iterdir()) == []


@pytest.mark.timeout(60)
def test_a_timing_cache_that_is_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for cache in (tmp_path, tmp_path / "pipe", Path("/dev/full"), tmp_path / "loop"):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "neurenix"):
            optimised(cache)
        assert [r for r in caplog.records if "the timing cache was not written" in r.getMessage()], cache


def test_a_poisoned_timing_cache(tmp_path: Path) -> None:
    """Lines without their checksum are no times; with it they only say what is fast."""
    cache = tmp_path / "timing.cache"
    optimised(cache)
    (line,) = cache.read_bytes().splitlines()
    _, _, key = line.split(b"\t")
    for time in (b"0", b"18446744073709551615", b"18446744073709551616", b"-1", b"1e3", b""):
        body = time + b"\t" + key
        cache.write_bytes(f"{xxhash.xxh3_64_intdigest(body):016x}\t".encode() + body + b"\n")
        optimised(cache)
    for poison in (b"\0" * 4096, b"\xff\xfe" * 100, line[:-1], b"\t\t\n" * 50, b"+" + line, line.upper(), b"\n"):
        cache.write_bytes(poison)
        optimised(cache)
        assert line.split(b"\t")[2] in cache.read_bytes(), "it was not measured anew"
