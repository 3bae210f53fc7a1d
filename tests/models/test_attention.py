"""Attention as models write it, out of both of PyTorch's exporters: one layer each, and what PyTorch computes."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import Shape
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

torch = pytest.importorskip("torch")
functional = torch.nn.functional

HIDDEN, HEADS = 48, 4


class Projected(torch.nn.Module):
    """Queries, keys and values of their own; the shared keys are repeated."""

    def __init__(self, shared: int = HEADS, bias: bool = True) -> None:
        super().__init__()
        self.size = HIDDEN // HEADS
        self.q = torch.nn.Linear(HIDDEN, HIDDEN, bias=bias)
        self.k = torch.nn.Linear(HIDDEN, shared * self.size, bias=bias)
        self.v = torch.nn.Linear(HIDDEN, shared * self.size, bias=bias)
        self.out = torch.nn.Linear(HIDDEN, HIDDEN, bias=bias)

    def heads(self, x: Any) -> tuple[Any, Any, Any]:
        split = lambda t: t.view(*t.shape[:2], -1, self.size).transpose(1, 2)  # noqa: E731
        return split(self.q(x)), split(self.k(x)), split(self.v(x))

    def joined(self, y: Any) -> Any:
        return self.out(y.transpose(1, 2).reshape(y.shape[0], -1, HIDDEN))


class Bert(Projected):
    """Scores by hand, with the least number where padding is."""

    def forward(self, x: Any) -> Any:
        q, k, v = self.heads(x)
        seen = (x[..., 0] > -1)[:, None, None, :].to(x.dtype)
        bias = (1.0 - seen) * torch.finfo(torch.float32).min
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size) + bias
        return self.joined(torch.softmax(scores, -1) @ v)


class Fused(Projected):
    """PyTorch's own function, with truth values."""

    def forward(self, x: Any) -> Any:
        q, k, v = self.heads(x)
        seen = (x[..., 0] > -1)[:, None, None, :].expand(-1, 1, x.shape[1], -1)
        return self.joined(functional.scaled_dot_product_attention(q, k, v, seen))


class Causal(torch.nn.Module):
    """One projection for all three, and PyTorch's own function without a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(HIDDEN, 3 * HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Any) -> Any:
        parts = (part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in self.qkv(x).split(HIDDEN, 2))
        y = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(*x.shape[:2], HIDDEN))


class Grouped(Projected):
    """Groups of heads that share keys, behind a norm by the root mean square."""

    def __init__(self) -> None:
        super().__init__(shared=2, bias=False)
        self.weight = torch.nn.Parameter(torch.rand(HIDDEN))

    def forward(self, x: Any) -> Any:
        x = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        q, k, v = self.heads(x)
        k, v = (t[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape) for t in (k, v))
        hidden = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
        weights = torch.softmax(q @ k.transpose(2, 3) * self.size**-0.5 + hidden, -1)
        return self.joined(weights @ v)


class Relative(Projected):
    """Scores that are not scaled, with a bias for each distance."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Embedding(64, HEADS)

    def forward(self, x: Any) -> Any:
        q, k, v = self.heads(x)
        places = torch.arange(x.shape[1])
        distance = (places[None] - places[:, None]).clamp(-31, 31) + 31
        bias = self.bias(distance).permute(2, 0, 1)[None]
        return self.joined(torch.softmax(q @ k.transpose(3, 2) + bias, -1) @ v)


class Windows(torch.nn.Module):
    """Windows of 6, every third with a mask of its own, as shifted windows have."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(HIDDEN, 3 * HIDDEN)
        self.bias = torch.nn.Parameter(torch.randn(1, HEADS, 6, 6))
        self.mask = torch.nn.Buffer(torch.randint(0, 2, (3, 6, 6)) * -100.0)

    def forward(self, x: Any) -> Any:
        x = x.reshape(-1, 6, HIDDEN)
        qkv = self.qkv(x).reshape(-1, 6, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * 0.3, qkv[1], qkv[2]
        scores = q.matmul(k.transpose(-2, -1)) + self.bias
        scores = scores.view(-1, 3, HEADS, 6, 6) + self.mask.unsqueeze(1).unsqueeze(0)
        weights = functional.softmax(scores.view(-1, HEADS, 6, 6), dim=-1)
        return weights.matmul(v).transpose(1, 2).reshape(-1, 18, HIDDEN)


MODELS = {"bert": Bert, "fused": Fused, "causal": Causal, "grouped": Grouped, "relative": Relative, "windows": Windows}


def export(model: Any, path: Path, dynamo: bool, dynamic: bool, fixed: bool) -> None:
    """Writes an ONNX file; the length stays fixed where the model wants that."""
    options: dict[str, Any] = {"input_names": ["x"], "dynamo": dynamo}
    if not dynamo:
        options["opset_version"] = 17
        axes = {0: "batch"} if fixed else {0: "batch", 1: "length"}
        options["dynamic_axes"] = {"x": axes} if dynamic else None
    elif dynamic:
        batch, length = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("length", min=2, max=64)
        options["dynamic_shapes"] = ({0: batch} if fixed else {0: batch, 1: length},)
    torch.onnx.export(model, (torch.randn(2, 18, HIDDEN),), path, **options)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("name", MODELS)
def test_attention_is_one_layer(name: str, dynamo: bool, dynamic: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, path, fixed = MODELS[name]().eval(), tmp_path / "model.onnx", name == "windows"
    export(model, path, dynamo, dynamic, fixed)
    network = from_onnx(path)
    network.simplify()
    ops = Counter(layer.op for layer in network.layers)
    assert ops["Attention"] == 1 and not {"Softmax", "IsNaN", "ReduceMean"} & set(ops), network
    if name in ("causal", "grouped"):
        # What lies behind a query is hidden without a mask.
        (attention,) = (layer for layer in network.layers if layer.op == "Attention")
        assert attention.inputs[3:] in ([], [None]) and "Trilu" not in ops
    shape = Shape((1, 18, HIDDEN), (2, 18, HIDDEN), (3, 18 if fixed else 40, HIDDEN)) if dynamic else (2, 18, HIDDEN)
    optimized = TensorRTBackend().optimize_model(path, {"x": shape})
    for batch, length in [(2, 18), (1, 18), (3, 18 if fixed else 33)] if dynamic else [(2, 18)]:
        x = torch.randn(batch, length, HIDDEN)
        with torch.inference_mode():
            want = model.double()(x.double()).numpy()
            model.float()
        got = optimized(x.numpy())
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


class Triangle(Projected):
    """A mask that is nearly causal."""

    def __init__(self, low: float, diagonal: int) -> None:
        super().__init__()
        self.low, self.diagonal = low, diagonal

    def forward(self, x: Any) -> Any:
        q, k, v = self.heads(x)
        hidden = torch.full((x.shape[1], x.shape[1]), self.low).triu(self.diagonal)
        return self.joined(torch.softmax(q @ k.transpose(2, 3) + hidden, -1) @ v)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("low", "diagonal"), [(-torch.inf, 2), (-torch.inf, -1), (-2.0, 1)])
def test_other_triangles_are_masks(low: float, diagonal: int, dynamic: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, path = Triangle(low, diagonal).eval(), tmp_path / "model.onnx"
    export(model, path, False, dynamic, False)
    shape = Shape((1, 18, HIDDEN), (2, 18, HIDDEN), (3, 40, HIDDEN)) if dynamic else (2, 18, HIDDEN)
    x = torch.randn(2, 18, HIDDEN)
    got = TensorRTBackend().optimize_model(path, {"x": shape})(x.numpy())
    with torch.inference_mode():
        want = model(x).numpy()
    assert (np.isnan(got) == np.isnan(want)).all()
    assert np.abs(got - want)[~np.isnan(want)].max() <= 1e-5
