"""One engine for many shapes: a profile says least, expected and greatest, and any shape between them runs.

pip install ".[torch]" && python examples/04_dynamic_shapes.py
"""

import numpy as np
import torch
from torch import nn

from neurenix import Shape
from neurenix.hardware.tensorrt import TensorRTBackend


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 8, 3, padding=1),
    ).eval()

    shape = Shape(min=(1, 3, 32, 32), opt=(4, 3, 128, 128), max=(16, 3, 512, 512))
    optimized = TensorRTBackend().optimize_model(model, {"input": shape})
    print("takes", optimized.inputs)

    rng = np.random.default_rng(0)
    for dims in [(1, 3, 32, 32), (4, 3, 128, 128), (3, 3, 65, 97), (16, 3, 64, 64)]:
        x = rng.standard_normal(dims).astype(np.float32)
        y = optimized(x)
        with torch.inference_mode():
            error = np.abs(y - model(torch.from_numpy(x)).numpy()).max()
        print(f"{dims} -> {y.shape}, greatest difference to PyTorch {error:.1e}")


if __name__ == "__main__":
    main()
