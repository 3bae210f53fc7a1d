"""scikit-learn's digits, and a small residual network that learns them; needs scikit-learn and torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Digits(NamedTuple):
    """A trained network and what it is tried on."""

    module: Any
    train: Array
    test: Array
    labels: Array


def trained(seed: int = 0, epochs: int = 4) -> Digits:
    """Trains on three quarters of the images; a few seconds."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
            )
            self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.second(self.first(x)) + self.short(x))

    generator = torch.manual_seed(seed)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images.reshape(-1, 1, 8, 8) / 8 - 1, dtype=torch.float32)
    y = torch.tensor(labels)
    order = torch.randperm(len(x), generator=generator)
    train, test = order[: len(x) * 3 // 4], order[len(x) * 3 // 4 :]
    stem = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    module = nn.Sequential(stem, Block(8, 16, 1), nn.MaxPool2d(2), Block(16, 32, 1), head)
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    for _ in range(epochs):
        for batch in train[torch.randperm(len(train), generator=generator)].split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            optimizer.step()
    module.eval()
    return Digits(module, x[train].numpy(), x[test].numpy(), y[test].numpy())
