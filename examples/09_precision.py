"""One network in each precision that this machine computes in: its error, its time, and what became of its layers.

pip install . && python examples/09_precision.py
"""

import time

import numpy as np

import neurenix as nx
from neurenix import nn
from neurenix.hardware import OptimizedModel
from neurenix.hardware.tensorrt import TensorRTBackend


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512), nn.LayerNorm(512), nn.Linear(512, 64))


def milliseconds(model: OptimizedModel, x: np.ndarray, times: int = 20) -> float:
    """The median of some calls, after two that warm up."""
    taken = []
    for _ in range(times + 2):
        start = time.perf_counter()
        model(x)
        taken.append(1e3 * (time.perf_counter() - start))
    return sorted(taken[2:])[times // 2]


def main() -> None:
    backend = TensorRTBackend()
    model, x = network(), nx.random.randn(32, 512)
    exact = backend.optimize_model(model, {"input": x.shape}, precision="fp32")(x)
    for precision in backend.get_device_info(0).precisions:
        # verify (on by default) gives a precision up that departs too far, and says so.
        optimized = backend.optimize_model(model, {"input": x.shape}, precision=precision)
        error = np.abs(optimized(x) - exact).max() / np.abs(exact).max()
        shares = optimized.report()["layers_per_dtype"]
        layers = ", ".join(f"{share:.0%} {dtype}" for dtype, share in shares.items())
        print(f"{precision}: error {error:.1e}, {milliseconds(optimized, x):.3f} ms, layers {layers}")


if __name__ == "__main__":
    main()
