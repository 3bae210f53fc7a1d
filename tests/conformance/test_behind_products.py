"""Functions that become part of a product's kernel, against double precision: near zero, too, where logarithms are
taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx

Array = np.ndarray[Any, Any]


def softplus(x: Array) -> Array:
    found: Array = np.logaddexp(0, x)
    return found


#: Each with what it is, and whether all digits count where it is next to nothing.
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], bool]] = {
    "Softplus": (softplus, True),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), True),
    "Silu": (lambda x: x / (1 + np.exp(-x)), True),
    "Mish": (lambda x: x * np.tanh(softplus(x)), False),
    "Tanh": (np.tanh, True),
    "Elu": (lambda x: np.where(x < 0, np.expm1(x), x), False),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), False),
    "HardSigmoid": (lambda x: np.clip(0.2 * x + 0.5, 0, 1), False),
}


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("product", ["MatMul", "Conv"])
def test_a_function_behind_a_product_keeps_its_digits(op: str, level: int, product: str) -> None:
    function, exact = FUNCTIONS[op]
    # Products with a one and zeros give back what they read.
    shape, weights = ((4096, 16), (16, 16)) if product == "MatMul" else ((1, 16, 64, 64), (16, 16, 1, 1))
    x = np.linspace(-30, 30, 1 << 16).astype(np.float32).reshape(shape)
    network = nx.Network()
    operands = [network.add_input("x", np.float32, shape)]
    operands.append(network.add_constant("w", np.eye(16, dtype=np.float32).reshape(weights)))
    network.mark_output(network.add_layer(op, network.add_layer(product, operands))[0], "y")
    model = nx.hardware.get_backend("cpu").optimize_model(network, optimization_level=level, timing_cache=False)
    want = function(x.astype(np.float64))
    np.testing.assert_allclose(model(x), want, rtol=1e-5 if exact else 0, atol=1e-12 if exact else 2e-6)
