"""GPTQ (Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, 2022):
rounds the weights of a product so that the error of its results on the batches is small, rather than that of each
weight.

The linear algebra is BLAS and LAPACK through numpy, once at a build: there is no kernel of ours to reuse, and Rust
would bring one more library for it.
"""

from __future__ import annotations

import numpy as np

from neurenix.arrays import Array
from neurenix.quantization.accuracy import columns
from neurenix.quantization.accuracy.graph import Product

#: Columns that are rounded before their error reaches those behind them.
BLOCK = 128
#: The rows that count, of all batches: more of them hardly change the Hessian.
ROWS = 16384
#: The least and greatest integer that a weight becomes: those that quantization gives.
LEAST, MOST = -127, 127
#: A row of zeros has this magnitude.
TINY = np.float32(1e-30)


def is_able(of: Product) -> bool:
    """Whether a product's weights can be rounded so: not those of a transposed convolution."""
    return of.layer.op in ("Conv", "MatMul")


def hessian_bytes(of: Product) -> int:
    """The bytes of a Hessian."""
    groups, first, second, _ = of.view
    count = of.weights.size // (groups * (first if of.outputs_first else second))
    return int(4 * groups * count * count)


class Hessian:
    """The second moments of what a product multiplies its weights with, [group, input, input]: half of the Hessian of
    the squared error of its results."""

    def __init__(self, of: Product, batches: int) -> None:
        self._of, self._share = of, -(-ROWS // batches)
        self._random = np.random.default_rng(0)
        self.sums: Array = np.zeros(0, np.float32)

    def add(self, x: Array, step: float, least: int, most: int) -> None:
        """Counts what a layer reads in a batch, in the integers that it gets: steps from `least` to `most`; without a
        step, as many as its greatest number is `most` of in each row."""
        rows = columns.rows(self._of, x, self._share, self._random)
        steps = np.float32(step) if step else np.maximum(np.abs(rows).max(-1, keepdims=True), TINY) / np.float32(most)
        rows = np.clip(np.rint(rows / steps), least, most) * steps
        found = np.swapaxes(rows, 1, 2) @ rows
        self.sums = self.sums + found if self.sums.size else found


def as_rows(of: Product, array: Array) -> Array:
    """Weights, or what has their shape, as [group, output of the group, input of the group]."""
    if of.layer.op == "MatMul":
        return (array if of.outputs_first else array.T)[None]
    return array.reshape(of.view[0], of.view[1], -1)


def as_weights(of: Product, rows: Array) -> Array:
    """The inverse of `as_rows`."""
    if of.layer.op == "MatMul":
        found: Array = np.ascontiguousarray(rows[0] if of.outputs_first else rows[0].T)
        return found
    return rows.reshape(of.weights.shape)


def rounded(of: Product, scale: Array, hessian: Array, damping: float) -> Array:
    """The weights of a product as int8 in steps of `scale` (of a shape that broadcasts to theirs), where `hessian` is
    that of `Hessian`. Of each output the integers are those of GPTQ, or the nearest ones where these lose less.
    """
    weights = as_rows(of, of.weights).astype(np.float64)
    steps = as_rows(of, np.broadcast_to(scale, of.weights.shape)).astype(np.float64)[..., :1]
    nearest = np.clip(np.rint(weights / steps), LEAST, MOST)
    found = np.empty_like(nearest)
    for group in range(len(weights)):
        found[group] = _gptq(weights[group], steps[group], hessian[group], damping)
    worse = _error(weights - found * steps, hessian) >= _error(weights - nearest * steps, hessian)
    return as_weights(of, np.where(worse[..., None], nearest, found).astype(np.int8))


def _error(difference: Array, hessian: Array) -> Array:
    """The squared error of each output, [group, output]."""
    found: Array = np.einsum("gok,gok->go", difference @ hessian, difference)
    return found


def _gptq(weights: Array, steps: Array, hessian: Array, damping: float) -> Array:
    """The integers of one group, [output, input]."""
    count = len(hessian)
    # What matters most is rounded first, while there are others to make up for it.
    order = np.argsort(-np.diag(hessian), kind="stable")
    work, found = weights[:, order], np.empty_like(weights)
    inverse = _inverse_factor(hessian[np.ix_(order, order)], damping)
    for begin in range(0, count, BLOCK):
        end = min(begin + BLOCK, count)
        errors = np.empty((len(weights), end - begin))
        for at in range(begin, end):
            integers = np.clip(np.rint(work[:, at] / steps[:, 0]), LEAST, MOST)
            errors[:, at - begin] = (work[:, at] - integers * steps[:, 0]) / inverse[at, at]
            work[:, at:end] -= np.outer(errors[:, at - begin], inverse[at, at:end])
            found[:, order[at]] = integers
        work[:, end:] -= errors @ inverse[begin:end, end:]
    return found


def _inverse_factor(hessian: Array, damping: float) -> Array:
    """The upper Cholesky factor of the inverse of a damped Hessian; inputs that were always zero change nothing."""
    damped = hessian.astype(np.float64)
    diagonal = np.diag(damped).copy()
    mean = float(np.mean(diagonal)) or 1.0
    damped[np.diag_indices_from(damped)] += damping * mean
    damped[np.diag_indices_from(damped)] = np.where(diagonal == 0, mean, np.diag(damped))
    # With J that turns the order round, J H J = L L' gives inv(H) = U' U for U = J inv(L) J, which is upper.
    return _inverse_of_factor(damped[::-1, ::-1])[::-1, ::-1]


def _inverse_of_factor(matrix: Array) -> Array:
    """The inverse of the lower Cholesky factor of a positive definite matrix, by halves, so that
    products dominate: of 4608 inputs in about half the time that LAPACK's factor and inverse take."""
    count = len(matrix)
    if count <= BLOCK:
        return np.linalg.inv(np.linalg.cholesky(matrix))
    half = count // 2
    found = np.zeros_like(matrix)
    first = found[:half, :half] = _inverse_of_factor(matrix[:half, :half])
    below = matrix[half:, :half] @ first.T
    second = found[half:, half:] = _inverse_of_factor(matrix[half:, half:] - below @ below.T)
    found[half:, :half] = -second @ (below @ first)
    return found
