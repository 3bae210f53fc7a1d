"""Takes ResNet-50 out of PyTorch, compares its answers, and says what was built.

pip install ".[torch]" torchvision && python examples/02_resnet50_from_torch.py
"""

import time
from collections.abc import Callable

import torch
import torchvision

from neurenix.hardware.tensorrt import TensorRTBackend


def milliseconds(call: Callable[[], object], times: int = 10) -> float:
    """The median of some calls, after two that warm up."""
    taken = []
    for _ in range(times + 2):
        start = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - start))
    return sorted(taken[2:])[times // 2]


def main() -> None:
    torch.manual_seed(0)
    model = torchvision.models.resnet50().eval()  # weights="DEFAULT" downloads the trained ones
    batch = torch.randn(1, 3, 224, 224)

    optimized = TensorRTBackend().optimize_model(model, {"input": (1, 3, 224, 224)}, precision="fp32")
    with torch.inference_mode():
        answer = optimized(batch)  # torch in, torch out
        exact = model.double()(batch.double())
        model.float()
        error = (answer.double() - exact).abs().max() / exact.abs().max()
        ours, theirs = milliseconds(lambda: optimized(batch)), milliseconds(lambda: model(batch))
    print(optimized.report())
    print(f"greatest error against float64: {error:.1e} of the greatest logit")
    print(f"one image: Neurenix {ours:.1f} ms, PyTorch {theirs:.1f} ms")


if __name__ == "__main__":
    main()
