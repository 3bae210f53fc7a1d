"""A provider that another package brings: a toy, installed as an entry point, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOY = '''
import numpy as np
from neurenix.hardware.provider import Provider

class Toy(Provider):
    """Runs Relu and Clip, and no more."""
    name, version = "toy", "1"

    def offer(self, layer):
        if layer.op == "Relu":
            if layer.name == "raises": raise KeyError("offer")
            return lambda inputs, outputs: np.maximum(inputs[0], 0, out=outputs[0])
        if layer.op == "Clip":
            assert layer.inputs[1] is None and layer.inputs[2].shape == () and layer.outputs[0].dtype == np.float32
            return self.clip
        return "too hard for a toy" if layer.op == "CumSum" else None

    @staticmethod
    def clip(inputs, outputs):
        if inputs[0].shape[0] == 3: raise ValueError("three")
        if inputs[0].shape[0] == 7: return
        assert inputs[1] is None
        np.minimum(inputs[0], inputs[2], out=outputs[0])

class Misnamed(Toy):
    name = "other"
'''
CODE = """
import json, sys
import numpy as np
import neurenix as nx

network = nx.Network("m")
x = network.add_input("x", "float32", ["n", 4])
y = network.add_layer("Clip", [x, None, network.add_constant("most", np.float32(1))], name="clip")[0]
y = network.add_layer("CumSum", [y, network.add_constant("axis", np.int64(1))], name="sum")[0]
y = network.add_layer("Relu", [y], name=sys.argv[1] if len(sys.argv) > 1 else "relu")[0]
network.mark_output(network.add_layer("Transpose", [y], {"perm": [1, 0]}, name="turn")[0], "y")
assert "toy_package" not in sys.modules
model = nx.hardware.get_backend("cpu").optimize_model(network, {"x": (2, 4)}, providers=["toy", "cpu"])
ends = []
for rows in (2, 3, 5, 2, 7):
    given = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
    try:
        got = model({"x": given})["y"]
    except nx.PluginError as error:
        ends.append([error.message, error.layer])
        continue
    want = np.maximum(np.cumsum(np.minimum(given.astype(np.float64), 1), axis=1), 0).T
    np.testing.assert_allclose(got, want, rtol=1e-5)
    ends.append(None)
report = model.report()
print(json.dumps({"ends": ends, "refusals": report["refusals"], "kernels": report["kernels"]}))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which a package with two providers is installed."""
    (tmp_path / "toy_package.py").write_text(TOY)
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('at the import')")
    info = tmp_path / "toy_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1.0\n")
    points = ("toy = toy_package:Toy", "misnamed = toy_package:Misnamed", "broken = broken_package:Toy")
    (info / "entry_points.txt").write_text("\n".join(("[neurenix.providers]", *points)))
    return tmp_path


def run(site: Path, code: str, *arguments: str) -> Any:
    path = os.pathsep.join([str(site), *sys.path])
    environment = {name: value for name, value in os.environ.items() if name != "NEURENIX_PROVIDERS"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, env=environment | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_provider_from_outside_runs_its_layers_beside_ours(site: Path) -> None:
    found = json.loads(run(site, CODE))
    kernels = {layer: row for row in found["kernels"] for layer in row["layers"]}
    providers = {layer: row["provider"] for layer, row in kernels.items()}
    assert providers == {"relu": "toy", "clip": "toy", "sum": "cpu", "turn": "cpu"}
    assert kernels["relu"]["implementation"] == "the provider's own code"
    assert {(r["layer"], r["reason"]) for r in found["refusals"]} == {
        ("sum", "too hard for a toy"),
        ("turn", "it does not run Transpose"),
    }
    message, layer = found["ends"][1]
    assert layer == "clip" and "provider toy Clip: its kernel raised ValueError: three" in message
    assert [found["ends"][i] for i in (0, 2, 3)] == [None] * 3
    message, layer = found["ends"][4]
    assert layer == "clip" and "provider toy Clip: its kernel wrote nothing to output 0 of 1" in message


def test_a_provider_that_raises_refuses_the_layer(site: Path) -> None:
    found = json.loads(run(site, CODE, "raises"))
    reason = next(r["reason"] for r in found["refusals"] if r["layer"] == "raises")
    assert reason.startswith("offer of provider toy raised KeyError: 'offer'")


def test_providers_that_can_not_be_had_are_named(site: Path) -> None:
    code = """
import neurenix as nx
from neurenix.hardware.provider import Provider, register_provider
network = nx.Network("m")
network.mark_output(network.add_layer("Relu", [network.add_input("x", "float32", [2])])[0], "y")
for name in ("nobody", "misnamed", "broken"):
    try: nx.hardware.get_backend("cpu").optimize_model(network, providers=[name, "cpu"])
    except nx.Error as error: print(error.message, "|", error.expected)
class Cuda(Provider): name = "cuda"
for provider in (Cuda(), Provider(), 3):
    try: register_provider(provider)
    except nx.InvalidArgumentError as error: print(error.message)
"""
    lines = run(site, code).splitlines()
    assert lines[0] == "there is no provider 'nobody' | tensorrt, cuda, cpu, toy, misnamed, broken"
    assert "provider 'misnamed' can't be had from its entry point 'toy_package:Misnamed'" in lines[1]
    assert "RuntimeError: at the import" in lines[2]
    assert lines[3:] == ['there is a provider "cuda" already', "this is no provider", "this is no provider"]


def test_info_lists_entry_points_without_importing_them(site: Path) -> None:
    code = "import sys; from neurenix.cli import main; main(['info']); print('toy_package' in sys.modules)"
    text = run(site, code)
    assert "toy: from outside (toy_package:Toy), where it is asked for by name" in text and text.endswith("False\n")
