"""`trt_compile`: engines that the first call builds and the next process finds, in the shape of MONAI's function."""

from __future__ import annotations

import copy
import logging
import pickle
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch

import neurenix as nx
from neurenix.torch import counters, trt_compile
from tests.torch_tensorrt.models import QUICK, Nested, net, pictures

EXACT: dict[str, Any] = {"precision": "fp32", "build_args": QUICK}


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted.detach(), rtol=1e-5, atol=1e-5)


def built() -> int:
    return counters().get("engines_built", 0)


def test_the_first_call_builds_and_the_next_module_finds(tmp_path: Path) -> None:
    wanted, x = net()(y := pictures()), y
    before = built()
    first = trt_compile(net(), tmp_path / "model", EXACT)
    assert built() == before and list(tmp_path.iterdir()) == []
    for _ in range(2):
        same(first(x), wanted)
    assert built() == before + 1 and [one.name for one in tmp_path.iterdir()] == ["model.pt2"]
    same(trt_compile(net(), tmp_path / "model", EXACT)(x), wanted)
    assert built() == before + 1


def test_other_weights_arguments_and_older_files_are_built_anew(tmp_path: Path) -> None:
    x = pictures()
    trt_compile(net(), tmp_path / "m", EXACT)(x)
    before = built()
    other = net(seed=1)
    same(trt_compile(net(seed=1), tmp_path / "m", EXACT)(x), other(x))
    assert built() == before + 1
    trt_compile(net(seed=1), tmp_path / "m", EXACT)(pictures(3))
    assert built() == before + 2
    later = (tmp_path / "m.pt2").stat().st_mtime + 10
    trt_compile(net(seed=1), tmp_path / "m", {**EXACT, "timestamp": later})(pictures(3))
    assert built() == before + 3
    (tmp_path / "m.pt2").write_bytes(b"damaged")
    same(trt_compile(net(seed=1), tmp_path / "m", EXACT)(x), other(x))
    assert built() == before + 4


def test_ranges_of_batches(tmp_path: Path) -> None:
    model = net()
    profiles = [{"x": [[1, 3, 16, 16], [2, 3, 16, 16], [4, 3, 16, 16]]}]
    for name, more in (("batch", {"dynamic_batchsize": [1, 2, 4]}), ("profile", {"input_profiles": profiles})):
        made = trt_compile(net(), tmp_path / name, {**EXACT, **more})
        before = built()
        for batch in (2, 1, 4):
            same(made(x := pictures(batch)), model(x))
        assert built() == before + 1


def test_submodules_names_of_outputs_and_arguments_by_name(tmp_path: Path) -> None:
    model, x = net(), pictures()
    made = trt_compile(net(), tmp_path / "m", EXACT, submodule=["conv", "out"])
    same(made(x), model(x))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.conv.pt2", "m.out.pt2"]
    named = trt_compile(net(), tmp_path / "n", {**EXACT, "output_names": ["logits"]})
    same(named(x=x)["logits"], model(x))
    torch.manual_seed(0)
    nested, given = Nested().eval(), {"scale": torch.randn(10), "rest": [torch.randn(10)]}
    wanted = nested(y := torch.randn(2, 8), **given)
    for _ in range(2):
        found = trt_compile(nested, tmp_path / "nested", EXACT)(y, **given)
        same(found["scaled"], wanted["scaled"])
        same(found["sums"][0], wanted["sums"][0])


def test_what_an_engine_refuses_runs_in_torch_when_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    strict = trt_compile(net(), tmp_path / "m", EXACT)
    strict(pictures(2))
    with pytest.raises(nx.ShapeError):
        strict(pictures(3))
    loose = trt_compile(net(), tmp_path / "n", {**EXACT, "fallback": True})
    before = counters().get("fallbacks", 0)
    with caplog.at_level(logging.WARNING, "neurenix"):
        for batch in (2, 3, 5, 2):
            same(loose(x := pictures(batch)), model(x))
    told = [one for one in caplog.records if one.name.startswith("neurenix")]
    assert len(told) == 1 and "Net runs in torch" in told[0].getMessage()
    assert counters()["fallbacks"] == before + 2


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(nx.InvalidArgumentError, match=r"(?s)no argument 'precison'.*precision"):
        trt_compile(net(), tmp_path / "m", {"precison": "fp16"})
    with pytest.raises(nx.InvalidArgumentError, match=r"(?s)no submodule 'cnv'.*conv"):
        trt_compile(net(), tmp_path / "m", submodule="cnv")
    with pytest.raises(nx.InvalidArgumentError, match="precision"):
        trt_compile(net(), tmp_path / "m", {"precision": "fp12"})
    with pytest.raises(nx.InvalidArgumentError, match="three numbers"):
        trt_compile(net(), tmp_path / "m", {**EXACT, "dynamic_batchsize": [1, 2]})(pictures())
    with pytest.raises(nx.FileError):
        trt_compile(net(), tmp_path / "missing" / "m", EXACT)(pictures())


def test_a_network_of_monai(tmp_path: Path) -> None:
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(0)
    model = nets.BasicUNet(spatial_dims=2, in_channels=1, out_channels=2, features=(8, 8, 8, 8, 8, 8)).eval()
    x = torch.randn(1, 1, 32, 32)
    wanted = model(x)
    torch.testing.assert_close(trt_compile(model, tmp_path / "unet", EXACT)(x), wanted.detach(), rtol=1e-4, atol=1e-4)


class Plain(torch.nn.Module):
    """What it computes depends on a number and on a buffer that its state dict leaves out."""

    def __init__(self, number: float, element: float) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.number = number
        self.register_buffer("hidden", torch.full((4,), element), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A product."""
        return self.linear(x) * self.number + self.hidden


class Other(Plain):
    """The same weights with another code."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A product, differently."""
        return torch.tanh(self.linear(x)) * self.number + self.hidden


Other.__name__ = Other.__qualname__ = "Plain"


def test_what_a_state_dict_leaves_out_is_built_anew(tmp_path: Path) -> None:
    x = torch.randn(2, 4)
    models = [Plain(2.0, 1.0), Plain(3.0, 1.0), Plain(3.0, 2.0), Other(3.0, 2.0)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
        wanted, before = model(x), built()
        same(trt_compile(model, tmp_path / "m", EXACT)(x), wanted)
        assert built() == before + 1
    again = Other(3.0, 2.0)
    again.load_state_dict(models[0].state_dict())
    before = built()
    same(trt_compile(again, tmp_path / "m", EXACT)(x), models[-1](x))
    assert built() == before


class Scaled(torch.nn.Module):
    """What it computes depends on what no weight says."""

    def __init__(self, by: Any) -> None:
        super().__init__()
        self.held = types.SimpleNamespace(by=by)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        scaled = x * self.held.by
        return scaled if y is None else scaled + y


def test_what_a_module_reads_elsewhere_is_built_anew(tmp_path: Path) -> None:
    x = torch.randn(3, 6)
    for by in (2.0, 3.0):
        same(trt_compile(Scaled(by), tmp_path / "m", EXACT)(x), by * x)
    hooked = torch.nn.Sequential(Scaled(3.0))
    hooked[0].register_forward_hook(lambda _, args, y: y + 1)
    same(trt_compile(hooked, tmp_path / "h", EXACT)(x), 3 * x + 1)
    hooked = torch.nn.Sequential(Scaled(3.0))
    same(trt_compile(hooked, tmp_path / "h", EXACT)(x), 3 * x)
    before = built()
    same(trt_compile(Scaled(3.0), tmp_path / "n", EXACT)(x), 3 * x)
    same(trt_compile(Scaled(3.0), tmp_path / "n", EXACT)(x), 3 * x)
    assert built() == before + 1


def test_hooks_of_the_module_run_once(tmp_path: Path) -> None:
    x = torch.randn(3, 6)
    module = Scaled(3.0)
    module.register_forward_pre_hook(lambda _, args: (args[0] + 1,))
    module.register_forward_hook(lambda _, args, y: y - 1)
    made = trt_compile(module, tmp_path / "m", EXACT)
    for _ in range(2):
        same(made(x), 3 * (x + 1) - 1)


def test_arguments_are_those_that_the_module_takes(tmp_path: Path) -> None:
    x, y = torch.randn(3, 6), torch.randn(3, 6)
    both = trt_compile(Scaled(2.0), tmp_path / "both", {**EXACT, "input_names": ["x"]})
    same(both(x, y), 2 * x + y)
    same(both(x, y=y), 2 * x + y)
    with pytest.raises(TypeError):
        both(x, y, x)
    with pytest.raises(nx.InvalidArgumentError, match="of other arguments"):
        both(x)
    falls = trt_compile(Scaled(2.0), tmp_path / "falls", {**EXACT, "fallback": True})
    same(falls(x), 2 * x)
    same(falls(x, None), 2 * x)
    same(falls(x, y), 2 * x + y)
    with pytest.raises(nx.InvalidArgumentError, match="the module has no input 'image'"):
        trt_compile(Scaled(2.0), tmp_path / "other", {**EXACT, "input_names": ["image"]})
    named = trt_compile(Scaled(2.0), tmp_path / "named", {**EXACT, "output_names": ["a", "b"]})
    with pytest.raises(nx.InvalidArgumentError, match="output_names has another length"):
        named(x)


def test_copies_and_pickles_read_the_file(tmp_path: Path) -> None:
    x = pictures()
    made = trt_compile(net(), tmp_path / "m", EXACT)
    wanted, before = net()(x), built()
    for module in (copy.deepcopy(made), made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        same(module(x), wanted)
    assert built() == before + 1
