"""The names "tensorrt" and "torch_tensorrt" of `torch.compile`: ours where Torch-TensorRT is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

TRY = """
import torch
import neurenix.torch_tensorrt as torch_tensorrt
from neurenix.torch import counters
from torch._dynamo.backends.registry import list_backends
print(sorted(set(list_backends(exclude_tags=())) & {"neurenix", "tensorrt", "torch_tensorrt"}))
if "tensorrt" in list_backends(exclude_tags=()):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()
    x = torch.randn(3, 8)
    for name in ("tensorrt", "torch_tensorrt"):
        torch._dynamo.reset()
        options = {"optimization_level": 0, "timing_cache": False, "cache_built_engines": False}
        found = torch.compile(model, backend=name, options=options)(x)
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)
    assert counters()["engines_built"] == 2, counters()
"""


def printed(text: str, *folders: Path) -> str:
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(
    any((Path(place) / "torch_tensorrt").is_dir() for place in sys.path if place), reason="Torch-TensorRT is installed"
)
def test_they_are_ours_where_torch_tensorrt_is_not_installed() -> None:
    assert printed(TRY).splitlines()[0] == "['neurenix', 'tensorrt', 'torch_tensorrt']"


def test_they_stay_its_own_where_it_is(tmp_path: Path) -> None:
    """An installed package of that name is enough, though nobody has imported it."""
    (tmp_path / "torch_tensorrt").mkdir()
    (tmp_path / "torch_tensorrt" / "__init__.py").write_text("raise RuntimeError('nobody imports this')\n")
    assert printed(TRY, tmp_path) == "['neurenix']"


def test_names_that_others_registered_stay_theirs() -> None:
    text = """
import torch
def theirs(module, inputs):
    return module.forward
torch._dynamo.register_backend(theirs, name="tensorrt")
import neurenix.torch_tensorrt
from torch._dynamo.backends import registry
assert registry._COMPILER_FNS["tensorrt"] is theirs
print("theirs")
"""
    assert printed(text) == "theirs"
