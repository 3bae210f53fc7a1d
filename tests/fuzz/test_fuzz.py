"""A short run of each fuzz target, the same at every run; CONTRIBUTING.md says how to run them for longer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("xxhash")
from fuzz import engine, importer, networks, precision, quantized
from fuzz.children import watch
from fuzz.generate import Network
from fuzz.recipes import RECIPES
from neurenix import _native
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

#: Ops that an importer does not add, or only in control flow, which has tests of its own, or for what a user registers.
NOT_BY_IMPORT = {"Deferred", "DynamicQuantizePerToken", "Histogram", "Identity", "Plugin"}


@pytest.mark.parametrize("number", range(4))
def test_damaged_models_are_imported_or_refused(tmp_path: Path, number: int) -> None:
    run = importer.target(seed=0)
    for case in range(250 * number, 250 * (number + 1)):
        assert not run(case, tmp_path).startswith("bad"), f"python -m fuzz.importer --first {case} --cases 1"


@pytest.mark.parametrize("number", range(2))
def test_changed_engine_files_are_opened_or_refused(tmp_path: Path, number: int) -> None:
    run = engine.target(seed=0)
    for case in range(150 * number, 150 * (number + 1)):
        assert not run(case, tmp_path).startswith("bad"), f"python -m fuzz.engine --first {case} --cases 1"


@pytest.mark.parametrize("number", range(4))
def test_random_networks_give_what_the_reference_does(tmp_path: Path, number: int) -> None:
    run = networks.target(seed=0)
    for case in range(12 * number, 12 * (number + 1)):
        word = run(case, tmp_path)
        assert not word.startswith("bad"), f"{word}\npython -m fuzz.networks --first {case} --cases 1"


@pytest.mark.skipif(
    "bf16" not in TensorRTBackend().get_device_info().precisions, reason="this processor has no bfloat16 arithmetic"
)
def test_random_networks_in_bfloat16_keep_what_they_compute(tmp_path: Path) -> None:
    run = precision.target(seed=0)
    words = [run(case, tmp_path) for case in range(24)]
    bad = [word for word in words if word.startswith("bad")]
    assert not bad, f"{bad}\npython -m fuzz.precision --cases 24"
    assert words.count("lifted") > 5, words


def test_random_networks_in_8_bits_give_what_their_files_say(tmp_path: Path) -> None:
    run = quantized.target(seed=0)
    bad = [word for word in (run(case, tmp_path) for case in range(16)) if word.startswith("bad")]
    assert not bad, f"{bad}\npython -m fuzz.quantized --cases 16"


def test_random_networks_at_the_ends_of_their_symbols_behind_guard_pages(tmp_path: Path) -> None:
    """In processes of their own: what the first buffer reads can't be changed here, and a crash is a finding."""
    for placement, first in (("behind", 0), ("before", 18)):
        found = subprocess.run(
            [sys.executable, "-m", "fuzz.corners", "--first", str(first), "--cases", "18", "--out", str(tmp_path)],
            env={**os.environ, "NEURENIX_GUARD_PAGES": placement},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert found.returncode == 0 and "'fine': 18" in found.stdout, found.stdout + found.stderr[-2000:]


def test_what_reads_a_part_of_an_input_gets_it_behind_guard_pages(tmp_path: Path) -> None:
    """What stands in for the caller's array holds all of it."""
    found = subprocess.run(
        [sys.executable, "-m", "fuzz.corners", "--seed", "7", "--first", "840", "--cases", "1", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0 and "'fine': 1" in found.stdout, found.stdout + found.stderr[-2000:]


def test_every_op_can_be_in_a_random_network() -> None:
    found: set[str] = set()
    for op in RECIPES:
        for attempt in range(12):
            network = networks.grow(f"{op} {attempt}", [op])
            imported = from_onnx(networks.model_of(network.nodes, network.values, network.opset))
            found |= {layer.op for layer in imported.layers}
            imported.simplify()
            found |= {layer.op for layer in imported.layers}
            if op in found:
                break
    assert {op["name"] for op in _native.ops()} - found <= NOT_BY_IMPORT


def test_a_child_that_dies_is_a_finding(tmp_path: Path) -> None:
    """The parent sees the crash, and goes on behind the case."""
    code = (
        "import os, sys; from pathlib import Path; from fuzz.children import child;"
        "first = int(sys.argv[sys.argv.index('--first') + 1]);"
        "child(lambda n, out: os.abort() if n == 2 else 'fine', range(first, 5), Path('.'))"
    )
    command = [sys.executable, "-c", code, "--out", str(tmp_path)]
    words = dict(watch(command, 0, 5, 60.0))
    assert words == {0: "fine", 1: "fine", 2: "bad: the process ended with -6", 3: "fine", 4: "fine"}


def test_what_is_found_is_made_small() -> None:
    """Of twenty nodes the one that matters is left."""
    network = None
    for seed in range(50):
        network = networks.grow(f"minimise {seed}")
        if len(network.nodes) > 6:
            break
    assert isinstance(network, Network)
    guilty = network.nodes[3]
    nodes, results = networks.minimise(
        list(network.nodes), lambda n, w: guilty in n and bool(w), networks.outputs_of(network)
    )
    assert nodes == [guilty] and set(results) <= set(guilty.output)
