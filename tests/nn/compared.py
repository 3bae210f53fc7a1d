"""Modules of ours beside PyTorch's of the same name, on the same weights."""

from typing import Any

import numpy as np

from neurenix import nn
from tests.optional import torch


def torch_module(name: str, arguments: dict[str, Any]) -> Any:
    """PyTorch's module with random weights."""
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(**arguments).eval()
    for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
        torch.nn.init.uniform_(tensor.data, 0.1, 1.0)
    return module


def both(name: str, arguments: dict[str, Any], *inputs: Any, **options: Any) -> None:
    """Compares a module of ours with PyTorch's in float64, on the same weights; `options` go to forward."""
    theirs, ours = torch_module(name, arguments), getattr(nn, name)(**arguments)
    assert {k for k in theirs.state_dict() if "num_batches" not in k} == set(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ours

        def forward(self, *given: Any) -> Any:
            return flat(self.inner(*given, **options))

    tensors = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in inputs]
    with torch.no_grad():
        want = flat(theirs.double()(*map(widened, tensors), **{name: widened(x) for name, x in options.items()}))
    names = [f"x{i}" for i in range(len(inputs))]
    network = nn.trace(Around(), dict(zip(names, tensors, strict=True)))
    got = network.evaluate({name: x.numpy() for name, x in zip(names, tensors, strict=True)})
    assert len(got) == len(want)
    for (output, array), wanted in zip(got.items(), want, strict=True):
        assert network.outputs[output].shape == tuple(wanted.shape)
        np.testing.assert_allclose(array, wanted.numpy(), rtol=2e-5, atol=1e-5)


def widened(x: Any) -> Any:
    """Tensors of floating-point numbers in float64."""
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def flat(result: Any) -> list[Any]:
    """Outputs one after another."""
    if isinstance(result, (tuple, list)):
        return [one for part in result if part is not None for one in flat(part)]
    return [result]
