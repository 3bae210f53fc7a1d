"""A model written with neurenix.nn, with PyTorch's weights if there are any, on each backend: the same answers.

pip install . && python examples/10_each_backend.py [weights.safetensors]
"""

import sys

import numpy as np

import neurenix as nx
from neurenix import nn


class Block(nn.Module):
    """Convolution, normalization and SiLU around which the input goes, too."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.SiLU()

    def forward(self, x: nn.Traced) -> nn.Traced:
        out: nn.Traced = self.act(self.norm(self.conv(x)) + x)
        return out


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), Block(16), Block(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )


def main() -> None:
    model = network()
    if len(sys.argv) > 1:
        model.load_state_dict(sys.argv[1])
    x = nx.random.randn(1, 3, 64, 64)
    answers = []
    print("can run here:", ", ".join(nx.hardware.backends()))
    for name in ("tensorrt", "cuda", "cpu"):
        with nx.hardware.use(name) as backend:
            optimized = backend.optimize_model(model, {"input": x.shape})
        answers.append(optimized(x))
        providers = ", ".join(f"{layers} layers on {provider}" for provider, layers in optimized.report()["providers"])
        print(f"{name}: {providers}")
    departs = max(float(np.abs(answer - answers[-1]).max()) for answer in answers)
    print(f"greatest difference between them: {departs:.1e}")


if __name__ == "__main__":
    main()
