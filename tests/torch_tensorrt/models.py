"""Models to compile, and inputs for them."""

from __future__ import annotations

from typing import Any

import torch

#: Engines are not timed, and no other process's are used.
QUICK: dict[str, Any] = {"optimization_level": 0, "timing_cache": False, "cache": False, "threads": 1}


class Net(torch.nn.Module):
    """A convolution, its normalisation, and a product; with `cut`, an operator between them that torch runs."""

    def __init__(self, cut: bool = False) -> None:
        super().__init__()
        self.cut = cut
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.out = torch.nn.Linear(8, 10)
        torch.nn.init.uniform_(self.norm.running_mean, -1, 1)
        torch.nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of pictures [N, 3, H, W]."""
        x = torch.relu(self.norm(self.conv(x)))
        if self.cut:
            x = x + torch.nanmedian(x)
        logits: torch.Tensor = self.out(x.mean((2, 3)))
        return logits


class Nested(torch.nn.Module):
    """Takes tensors by name and in a list, and gives a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor, rest: list[torch.Tensor]) -> dict[str, Any]:
        """A product, scaled, and with each of the others added."""
        y = self.out(x)
        return {"scaled": y * scale, "sums": [y + one for one in rest]}


def net(cut: bool = False, seed: int = 0) -> Net:
    """A `Net` in eval mode."""
    torch.manual_seed(seed)
    made = Net(cut)
    made.eval()
    return made


def pictures(batch: int = 2, size: int = 16) -> torch.Tensor:
    """Random pictures."""
    return torch.randn(batch, 3, size, size)
