"""Header bombs: a small file never makes a process take much memory, or much time, to refuse it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xxhash")
from fuzz.engine_file import File, assembled
from tests.engine.sound import saved

#: What a child may take beyond what it has before it opens the file, and how long.
MOST_GROWTH = 1 << 30
MOST_SECONDS = 60.0

OPEN = """
import resource, sys
import neurenix as nx
backend = nx.hardware.get_backend("cpu", threads=1, optimization_level=0, timing_cache=False)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]), -1))
for path in sys.argv[2:]:
    try:
        backend.load(path)
    except nx.Error as error:
        print(type(error).__name__, " ".join(error.message.replace(path, "FILE").split()))
    else:
        print("opened")
# Its own: what the system counts for a child begins with the memory of its parent.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) << 10)
"""

Change = Callable[[dict[str, Any]], object]


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def chain(header: dict[str, Any], count: int) -> None:
    """Many layers that all read one input, and an output for each."""
    network = header["network"]
    step = network["layers"][1] | {"op": "Relu", "attrs": {}, "inputs": [0], "outputs": 1, "sources": []}
    network["layers"] = [step | {"name": f"l{i}"} for i in range(count)]
    network["constants"], header["weights"] = [], []
    network["outputs"] = [["y", 1]]


def growing(header: dict[str, Any]) -> None:
    """A size that is a third of the one before and that one, forty times over."""
    network = header["network"]
    network["inputs"][0].update(shape=["n", 64])
    network["constants"], header["weights"] = [], []
    network["symbolic"] = [{"name": "three", "ty": {"dtype": "int64", "shape": [1], "value": [3]}}]
    step = network["layers"][1] | {"attrs": {}, "outputs": 1, "sources": []}
    layers = [step | {"name": "s", "op": "Shape", "inputs": [0]}]
    for i in range(40):
        last = 1 + len(layers)
        layers.append(step | {"name": f"d{i}", "op": "Div", "inputs": [last, 1]})
        layers.append(step | {"name": f"g{i}", "op": "Add", "inputs": [last + 1, last]})
    layers.append(step | {"name": "c", "op": "ConstantOfShape", "inputs": [1 + len(layers)]})
    network["layers"] = layers
    network["outputs"] = [["y", 1 + len(layers)]]


def guard(text: str) -> dict[str, Any]:
    return {"left": text, "right": 1, "or_one": False, "reason": ""}


#: A sum of many symbols times itself: a product that is much longer in full.
SQUARED = "*".join(["floordiv(" + "+".join(f"a{i}" for i in range(60)) + ", 1)"] * 2)

#: Each makes much out of little; what the message says of it.
BOMBS: dict[str, tuple[Change, str]] = {
    "dimensions": (lambda h: h["network"]["inputs"][0].update(shape=[1] * 1_100_000), "more values"),
    "values": (lambda h: h["network"]["layers"][0]["attrs"].update(v={"dims": [1] * 1_000_000}), "unknown attribute"),
    "rank": (lambda h: h["network"]["inputs"][0].update(shape=[1] * 500_000), "too many dimensions"),
    "an expression": (
        lambda h: h["network"]["inputs"][0].update(shape=["mod(" * 40 + "n" + ", m)" * 40, 64]), "a shorter expression"
    ),
    "expressions": (lambda h: h["network"].update(guards=[guard(SQUARED)] * 4_000), "not in its normal form"),
    "sums": (lambda h: h["network"].update(guards=[guard("+".join(["n"] * 1_500))] * 1_000), "more values"),
    "profiles": (lambda h: h.update(profiles=[{}] * 20_000), "too many profiles"),
    "outputs": (lambda h: h["network"].update(outputs=[[f"y{i}", 0] for i in range(30_000)]), "too many inputs"),
    "a large tensor": (lambda h: h["network"]["inputs"][0].update(shape=[1 << 40, 1 << 40]), "too large"),
    "depth": (lambda h: h.update(times=nested(900)), "invalid type"),
    "an expression that grows with each layer": (growing, ""),
    "readers of one tensor": (lambda h: chain(h, 20_000), ""),
}  # fmt: skip


def test_bombs_are_refused_in_little_memory_and_time(tmp_path: Path) -> None:
    good = File.read(saved(tmp_path / "good.engine"))
    paths = []
    for name, (change, _) in BOMBS.items():
        header = json.loads(json.dumps(good.header))
        change(header)
        text = json.dumps(header, separators=(",", ":")).encode()
        paths.append(tmp_path / f"{name}.engine")
        paths[-1].write_bytes(assembled(text, good.weights if header["weights"] else [], good.version))
    began = time.monotonic()
    command = [sys.executable, "-c", OPEN, str(MOST_GROWTH), *map(str, paths)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr[-2000:]
    lines = child.stdout.splitlines()
    peak = lines.pop()
    assert len(lines) == len(BOMBS), child.stdout
    for line, (name, (_, text)) in zip(lines, BOMBS.items(), strict=True):
        assert text in line and (line.startswith("FormatError") or not text), f"{name}: {line}"
    assert time.monotonic() - began < MOST_SECONDS
    assert int(peak) < 2 * MOST_GROWTH
