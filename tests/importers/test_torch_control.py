"""PyTorch's control flow: torch.cond and while_loop, through its exporter."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from neurenix.hardware.tensorrt import TensorRTBackend  # noqa: E402


class Either(torch.nn.Module):  # type: ignore[misc]
    """One of two layers, as the sum of the input says."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.left(x).relu(), lambda x: self.right(x).tanh(), (x,))


class Until(torch.nn.Module):  # type: ignore[misc]
    """Growth up to a bound, and the number of steps."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from torch._higher_order_ops import while_loop

        def goes_on(count: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return x.sum() < 100

        def step(count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count + 1, x * 1.5 + 0.1

        return while_loop(goes_on, step, (torch.tensor(0), x))


@pytest.mark.parametrize("module", [Either, Until])
def test_results_are_those_of_pytorch(module: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    model = module().eval()
    program = torch.export.export(model, (torch.rand(3, 4),))
    optimized = TensorRTBackend().optimize_model(program)
    for x in (torch.rand(3, 4), -torch.rand(3, 4) if module is Either else torch.rand(3, 4) * 20):
        with torch.no_grad():
            want = model(x)
        got = optimized.run({"x": x.numpy()}).values()
        for answer, expected in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            np.testing.assert_allclose(answer, expected.numpy(), rtol=1e-5, atol=1e-6)
