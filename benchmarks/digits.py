"""scikit-learn's digits (1,797 images of 8x8), and two small networks that learn them; needs scikit-learn and torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

Array = np.ndarray[Any, Any]
#: The networks by name.
NETWORKS = ("resnet", "transformer")
FOLDS = 5


class Digits(NamedTuple):
    """A trained network and what it is tried on."""

    module: nn.Module
    train: Array
    test: Array
    labels: Array

    def errors(self, scores: Array) -> int:
        """How many of the test's images are taken for another digit."""
        return int((np.argmax(scores, 1) != self.labels).sum())

    def scores(self) -> Array:
        """What PyTorch gives on the test's images."""
        with torch.inference_mode():
            return np.asarray(self.module(torch.from_numpy(self.test)))

    def batches(self, size: int = 64, count: int = 8) -> list[Array]:
        """The first images of the training, to calibrate on."""
        return [self.train[at : at + size] for at in range(0, min(size * count, len(self.train)), size)]

    def export(self, path: Path) -> Path:
        """The network as ONNX, of any batch."""
        torch.onnx.export(
            self.module, (torch.from_numpy(self.train[:2]),), path, dynamo=False, opset_version=17,
            input_names=["input"], output_names=["scores"], dynamic_axes={"input": {0: "n"}},
        )  # fmt: skip
        return path


class Block(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As residual networks have it."""
        return torch.relu(self.second(self.first(x)) + self.short(x))


class Layer(nn.Module):
    """Attention and a perceptron, each behind a norm and beside a short cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, width] both ways."""
        normed = self.norms[0](x)
        q, k, v = (
            each(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.queries, self.keys, self.values)
        )
        weights = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.perceptron(self.norms[1](x))


class Transformer(nn.Module):
    """Patches of 2x2 as tokens."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.places = nn.Parameter(torch.randn(16, width) * 0.1)
        self.layers = nn.Sequential(*[Layer(width, 4) for _ in range(depth)], nn.LayerNorm(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 1, 8, 8] to [batch, 10]."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layers(tokens).mean(1))


def network(name: str) -> nn.Module:
    """An untrained network."""
    if name == "transformer":
        return Transformer()
    stem = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return nn.Sequential(stem, Block(8, 16), nn.MaxPool2d(2), Block(16, 32), head)


def images() -> tuple[Array, Array]:
    """All images between -1 and 1, [1797, 1, 8, 8], and their digits."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return (pixels.reshape(-1, 1, 8, 8) / 8 - 1).astype(np.float32), labels


def trained(name: str = "resnet", fold: int = 0, epochs: int = 4) -> Digits:
    """Trains on all images but those of a fold; a few seconds."""
    x, labels = images()
    order = np.random.default_rng(0).permutation(len(x))
    held = order[fold::FOLDS]
    train = np.setdiff1d(order, held, assume_unique=True)
    generator = torch.manual_seed(fold)
    module = network(name)
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    data, wanted = torch.from_numpy(x[train]), torch.from_numpy(labels[train])
    for _ in range(epochs):
        for batch in torch.randperm(len(data), generator=generator).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(data[batch]), wanted[batch]).backward()
            optimizer.step()
    module.eval()
    return Digits(module, x[train], x[held], labels[held])


def folds(name: str, epochs: int) -> Iterator[Digits]:
    """A network for each fold: together their tests are all images."""
    for fold in range(FOLDS):
        yield trained(name, fold, epochs)
