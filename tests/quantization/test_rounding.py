"""GPTQ's parts against PyTorch, LAPACK and all roundings there are."""

from __future__ import annotations

from itertools import product as every
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.quantization.accuracy import columns, rounding
from neurenix.quantization.accuracy.graph import Graph, Product

#: Kernel, groups and attributes of convolutions.
CONVOLUTIONS: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    ((3,), 1, {"pads": [2, 0]}),
    ((3, 3), 1, {"pads": [1, 1, 1, 1]}),
    ((3, 2), 2, {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
    ((3, 3), 6, {"dilations": [2, 1], "strides": [1, 2]}),
    ((1, 1), 3, {}),
    ((5, 4), 1, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((4, 3), 1, {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    ((2, 3), 1, {"auto_pad": "VALID"}),
    ((2, 3, 2), 2, {"pads": [1, 0, 0, 0, 2, 1]}),
]


def rng() -> np.random.Generator:
    return np.random.default_rng(17)


def layer_of(op: str, x: Any, weights: Any, attrs: dict[str, Any]) -> tuple[nx.Network, Product]:
    network = nx.Network()
    given = [network.add_input("x", np.float32, x.shape), network.add_constant("w", weights)]
    network.mark_output(network.add_layer(op, given, attrs)[0], "y")
    return network, next(Graph(network).products())


@pytest.mark.parametrize(("kernel", "groups", "attrs"), CONVOLUTIONS)
def test_rows_times_weights_are_the_convolution(kernel: tuple[int, ...], groups: int, attrs: dict[str, Any]) -> None:
    x = rng().normal(size=(2, 6, *range(7, 7 + len(kernel)))).astype(np.float32)
    weights = rng().normal(size=(12, 6 // groups, *kernel)).astype(np.float32)
    network, product = layer_of("Conv", x, weights, {"group": groups, **attrs})
    rows = columns.rows(product, x, 10**9, rng()).astype(np.float64)
    got = np.einsum("gok,grk->gor", rounding.as_rows(product, weights).astype(np.float64), rows)
    # [group, output, row] with rows in the order of samples and places.
    want = np.moveaxis(network.evaluate({"x": x})["y"], 1, 0)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-4)
    assert columns.rows(product, x, 5, rng()).shape == (groups, 5, rows.shape[2])
    torch = pytest.importorskip("torch")
    if len(kernel) == 2 and groups == 1 and "auto_pad" not in attrs:
        exact = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, weights)), padding=attrs["pads"][0])
        np.testing.assert_allclose(np.moveaxis(exact.numpy(), 1, 0), got.reshape(want.shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [0, 1])
def test_rows_of_matrix_products(transposed: int) -> None:
    x = rng().normal(size=(3, 4, 5)).astype(np.float32)
    weights = rng().normal(size=(7, 5) if transposed else (5, 7)).astype(np.float32)
    network, product = layer_of("MatMul", x, weights, {"transB": transposed})
    rows = columns.rows(product, x, 100, rng())
    got = rows[0] @ rounding.as_rows(product, weights)[0].T
    np.testing.assert_allclose(got.reshape(3, 4, 7), network.evaluate({"x": x})["y"], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(rounding.as_weights(product, rounding.as_rows(product, weights)), weights)


@pytest.mark.parametrize("count", [1, 7, 128, 129, 400])
def test_the_factor_is_that_of_the_inverse(count: int) -> None:
    x = rng().normal(size=(2 * count, count))
    hessian = x.T @ x
    upper = rounding._inverse_factor(hessian, 0.01)
    damped = hessian + 0.01 * np.mean(np.diag(hessian)) * np.eye(count)
    np.testing.assert_allclose(upper, np.linalg.cholesky(np.linalg.inv(damped)).T, rtol=1e-6, atol=1e-12)


def test_rounding_is_near_the_best_of_all() -> None:
    """Of 3^6 integers around the weights of each output."""
    random = rng()
    x = (random.normal(size=(200, 2)) @ random.normal(size=(2, 6)) + 0.1 * random.normal(size=(200, 6))).astype(
        np.float32
    )
    weights = random.normal(size=(6, 8)).astype(np.float32)
    _, product = layer_of("MatMul", x, weights, {})
    hessian = rounding.Hessian(product, 1)
    hessian.add(x, float(np.abs(x).max()) / 127, -128, 127)
    scale = (np.abs(weights).max(0, keepdims=True) / 7).astype(np.float32)

    def error(integers: Any) -> Any:
        return np.sum((x.astype(np.float64) @ (integers * scale - weights)) ** 2, 0)

    found = rounding.rounded(product, scale, hessian.sums, 0.01)
    nearest = np.rint(weights / scale)
    best = np.min([error(nearest + np.array(step)[:, None]) for step in every((-1, 0, 1), repeat=6)], 0)
    assert found.dtype == np.int8 and np.all(error(found) <= 1.001 * error(nearest))
    assert np.sum(error(found)) < 0.5 * np.sum(error(nearest)) and np.sum(error(found)) < 20 * np.sum(best)


def test_inputs_that_are_always_zero_and_channels_of_zeros_change_nothing() -> None:
    x = rng().normal(size=(50, 6)).astype(np.float32)
    x[:, 2] = 0
    weights = rng().normal(size=(6, 4)).astype(np.float32)
    weights[:, 1] = 0
    _, product = layer_of("MatMul", x, weights, {})
    hessian = rounding.Hessian(product, 1)
    hessian.add(x, 0.02, -128, 127)
    scale = np.maximum(np.abs(weights).max(0, keepdims=True) / 127, 1e-12).astype(np.float32)
    found = rounding.rounded(product, scale, hessian.sums, 0.01)
    np.testing.assert_array_equal(found[2], np.rint(weights[2] / scale[0]))
    assert not found[:, 1].any() and np.all(np.abs(found - weights / scale) < 2)
    empty = rounding.rounded(product, scale, np.zeros((1, 6, 6), np.float32), 0.01)
    np.testing.assert_array_equal(empty, np.rint(weights / scale))
