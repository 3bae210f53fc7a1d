"""Operators and methods of traced tensors compute what PyTorch's do; names of dynamic dimensions are numbers too."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.nn.functional as F
from neurenix import nn
from tests.optional import torch

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


class Applied(nn.Module):
    """A function of its inputs as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


#: What works alike on tensors of both libraries.
METHODS: dict[str, Callable[[Any], Any]] = {
    "comparisons": lambda x: [x == x[0], x != x[:, :1], (x <= 0) & (x >= -1), (x > 0) | ~(x < 1), (x > 0) ^ (x < 1)],
    "division": lambda x: [x // 0.3, x % 0.3, (x * 10).long() // 3, (x * 10).long() % 3, 2.0**x],
    "elements": lambda x: [
        x.abs().sqrt(), x.abs().rsqrt(), x.reciprocal(), x.square(), x.sign(), x.sin(), x.cos(), x.erf(), x.floor(),
        x.ceil(), x.round(), x.abs().pow(1.5), x.clamp(-0.5), x.clamp(max=0.5), x.clamp(-0.1, 0.2), x.exp().log(),
    ],
    "pairs": lambda x: [x.maximum(-x), x.minimum(-x), x.masked_fill(x > 0, 2.0), x.matmul(x.mT), (x > 0).logical_not()],
    "reductions": lambda x: [
        x.prod(1), x.amin((0, 2)), *x.max(1), *x.min(2, keepdim=True), x.max(), x.argmax(), x.argmin(0), x.var((0, 1)),
        x.std(1, keepdim=True), x.var(2, correction=0), x.norm(2, 1), x.norm(1, (0, 1)), x.norm(3.0, 2, keepdim=True),
        x.cumsum(1), *x.topk(2, 1), *x.topk(2, largest=False),
    ],
    "truths": lambda x: [
        (x > 0).sum(-1), x * (x > 0), (x > 0) + (x < -1), (x > 0) * (x < 1), (x > 0) * 2, (x > 0) + 0.5,
        (x > 0).any(), (x > 0).all(1, keepdim=True), (x * 2).long().any(2), (x * 2).all(0), (x > 0).cumsum(1),
    ],
    "promotion": lambda x: [
        (x * 10).long() * 0.5, 0.5 - (x * 10).int(), (x * 10).long() / 3, 7 / ((x * 10).long() * 2 + 1), 2 + (x > 0),
        (x * 10).int() + (x * 10).long(), x * (x * 10).long(), (x * 10).int() > 0.5, x.half() * 0.25 + x,
        (x * 10).long().clamp(0.5, 3), (x * 10).long().maximum(x), (x * 10).int().sum(1), (x * 10).int() // 0.5,
        (x * 10).int() * x.half(), x.long().abs() ** 0.5, x.half() + x.sum(), (x * 10).int() & (x > 0),
    ],
    "orders": lambda x: [
        *x.sort(), *x.sort(1, descending=True), x.argsort(0), x.roll(1, 2), x.roll((-1, 5), (0, 1)), x.roll(3),
        *(x > 0).long().sort(stable=True, dim=2),
    ],
    "parts": lambda x: [
        x.tril(), x.triu(1), x.tril(-1), x.logsumexp(1), x.logsumexp((0, 2), keepdim=True), (x * 3).trunc(),
        (x * 3).long().trunc(), x.where(x > 0, 2), x.where(x > 0, -x), x.long().where(x > 0, 0.5),
        x.var(1, unbiased=False), x.var(1, unbiased=True), x.std(2, correction=0), x.var(2, correction=2),
    ],
    "shapes": lambda x: [
        x.view(6, 4), x.view_as(x.mT), x.unflatten(2, (2, 2)), x[0].t(), x.mT, x[:1].squeeze(), x[:1].squeeze(1),
        x[:1].expand(5, -1, -1), x[:1].expand_as(x), x.repeat(2, 1, 3), x.repeat(2, 1, 1, 2), x.flip(0, 2),
        x.narrow(1, 1, 2), x.select(2, -1), *x.unbind(1), *x.chunk(2, 2), *x.split([1, 2], 1), x.flatten(1),
        x.flatten(),
    ],
    "dtypes": lambda x: [x.long(), x.int(), x.half().float(), (x > 0).float(), x.bool(), (x > 0).type_as(x)],
    "brackets": lambda x: [
        x[0], x[-1, :, 1], x[..., None, -1], x[:, 1:, ::2], x[None, :, 0], x[:, [2, 0]], x[1, :, [3, 0, 0]],
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    network = nn.trace(Applied(METHODS[name]), X.shape)
    want = METHODS[name](torch.from_numpy(X))
    got = network.evaluate({"input": X})
    assert len(got) == len(want)
    for array, wanted in zip(got.values(), want, strict=True):
        assert array.shape == tuple(wanted.shape) and array.dtype == wanted.numpy().dtype
        np.testing.assert_allclose(array, wanted.numpy(), rtol=1e-5, atol=1e-6)


def picked(library: Any, x: Any, i: Any, j: Any) -> list[Any]:
    return [x[:, i], x.index_select(1, i[0]), x.gather(2, j), library.one_hot(i, 3)]


def test_what_picks_by_tensors() -> None:
    given = {
        "x": X,
        "i": np.array([[2, 0], [1, 1]], np.int64),
        "j": np.array([[[0, 2, 1, 3]] * 3] * 2, np.int64),
    }
    network = nn.trace(Applied(lambda *tensors: picked(F, *tensors)), given)
    want = picked(torch.nn.functional, *map(torch.from_numpy, given.values()))
    for array, wanted in zip(network.evaluate(given).values(), want, strict=True):
        assert np.array_equal(array, wanted.numpy())


def test_where_of_numbers() -> None:
    def chosen(where: Any, x: Any) -> list[Any]:
        return [where(x > 0, 1, 0), where(x > 0, 1.0, 0), where(x > 0, True, False), where(x > 0, 1, x)]

    network = nn.trace(Applied(lambda x: chosen(F.where, x)), X.shape)
    for array, wanted in zip(
        network.evaluate({"input": X}).values(), chosen(torch.where, torch.from_numpy(X)), strict=True
    ):
        assert array.dtype == wanted.numpy().dtype and np.array_equal(array, wanted.numpy())


@pytest.mark.parametrize("rank", [3, 5, 6])
def test_pixels_of_any_leading_dimensions(rank: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 8, 4, 2)[-rank:]).astype(np.float32)
    for name in ("pixel_shuffle", "pixel_unshuffle"):
        network = nn.trace(Applied(lambda x, name=name: getattr(F, name)(x, 2)), x.shape)
        want = getattr(torch.nn.functional, name)(torch.from_numpy(x), 2)
        assert np.array_equal(network.evaluate({"input": x})["output"], want.numpy())
    network = nn.trace(
        nn.PixelShuffle(2), nx.Shape((1, *x.shape[1:]), x.shape, (2, *x.shape[1:])) if rank > 3 else x.shape
    )
    assert network.evaluate({"input": x})["output"].shape == (*x.shape[:-3], 2, 8, 4)


def test_einsum() -> None:
    network = nn.trace(Applied(lambda x: F.einsum("bij,bkj->bik", x, x)), X.shape)
    want = torch.einsum("bij,bkj->bik", *[torch.from_numpy(X).double()] * 2)
    np.testing.assert_allclose(network.evaluate({"input": X})["output"], want.numpy(), rtol=1e-5)


def test_sampling_at_the_places_of_a_grid() -> None:
    x, theta = X[None], np.array([[[0.8, 0.1, 0.2], [-0.3, 0.9, 0.0]]], np.float32)
    network = nn.trace(
        Applied(lambda x, t: F.grid_sample(x, F.affine_grid(t, (1, 2, 5, 6), True), "bicubic", "zeros", True)),
        {"x": x, "t": theta},
    )
    grid = torch.nn.functional.affine_grid(torch.from_numpy(theta).double(), [1, 2, 5, 6], True)
    want = torch.nn.functional.grid_sample(torch.from_numpy(x).double(), grid, "bicubic", "zeros", True)
    got = network.evaluate({"x": x, "t": theta})["output"]
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [2, 1])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"mask": True}])
def test_scaled_dot_product_attention(heads: int, options: dict[str, Any]) -> None:
    q, k = (np.random.default_rng(i).standard_normal((2, 2, n, 4)).astype(np.float32) for i, n in enumerate((3, 5)))
    q, k = (q, k) if heads == 2 else (q[:, 0], k[:, 0])
    given = dict(options)
    mask = np.tri(3, 5, 1, dtype=bool) if given.pop("mask", False) else None
    ours = Applied(lambda q, k: F.scaled_dot_product_attention(q, k, k, mask, **given))
    wide = [torch.from_numpy(x).double() for x in (q, k, k)]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *wide, None if mask is None else torch.from_numpy(mask), **given
    )
    got = nn.trace(ours, {"q": q, "k": k}).evaluate({"q": q, "k": k})["output"]
    np.testing.assert_allclose(got, theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_names_of_dimensions_are_numbers() -> None:
    def windows(x: Any) -> Any:
        batch, length, features = x.shape
        merged = x.reshape(batch * length, features)
        halves = x[:, : length // 2]
        return merged, halves, x.reshape(batch, 2 * length, features // 2), x.expand(1 + 1, *x.shape) - batch

    network = nn.trace(Applied(windows), nx.Shape((1, 2, 4), (2, 4, 4), (4, 8, 4)))
    shapes = [output.shape for output in network.outputs.values()]
    assert [len(shape) for shape in shapes] == [2, 3, 3, 4] and shapes[0][1] == 4
    x = np.arange(3 * 6 * 4, dtype=np.float32).reshape(3, 6, 4)
    merged, halves, folded, wide = network.evaluate({"input": x}).values()
    assert np.array_equal(merged, x.reshape(18, 4)) and np.array_equal(halves, x[:, :3])
    assert np.array_equal(folded, x.reshape(3, 12, 2)) and np.array_equal(wide, np.stack([x, x]) - 3)


def test_first_dimensions_of_other_ranges_are_not_the_batch() -> None:
    shapes = {"a": nx.Shape((1, 2), (2, 2), (4, 2)), "b": nx.Shape((1, 2), (3, 2), (9, 2)), "c": ((1,), (2,), (4,))}
    network = nn.trace(Applied(lambda a, b, c: (a @ b.T) * c.unsqueeze(1)), shapes)
    assert [tensor.shape for tensor in network.inputs] == [("batch", 2), ("b_0", 2), ("batch",)]
    assert network.outputs["output"].shape == ("batch", "b_0")


def test_wrong_indices_and_branches_are_refused() -> None:
    cases: list[tuple[Callable[[Any], Any], str]] = [
        (lambda x: x[x > 0], "indexed by integers"),
        (lambda x: x if x.sum() > 0 else -x, "Python can't branch on it"),
        (lambda x: x.chunk(2, 0), "only a fixed dimension can be split"),
        (lambda x: x.var(0), "variance over a dynamic dimension"),
        (lambda x: x.flatten(2), "there is no such dimension"),
        (lambda x: x.numpy(), "a traced tensor has no 'numpy'"),
        (lambda x: x.selu(), r"nn\.functional\.selu"),
        (lambda x: x.relu_(), r"x = x\.relu"),
        (lambda x: x.add(1), r"hint: x \+ y"),
        (lambda x: x.sofmax(1), "the nearest name is 'softmax'"),
        (lambda x: [x, {"a": 1}], "forward must give traced tensors"),
        (lambda x: None, "forward must give traced tensors"),
    ]
    for function, message in cases:
        with pytest.raises(nx.Error, match=message):
            nn.trace(Applied(function), nx.Shape((1, 2), (2, 2), (4, 2)))


def test_what_is_missing_is_no_attribute() -> None:
    seen = []
    nn.trace(Applied(lambda x: seen.append((hasattr(x, "numpy"), copy.copy(x).shape)) or x), (2,))
    assert seen == [(False, (2,))]


def test_outputs_in_one_another_come_one_after_another() -> None:
    def nested(x: Any) -> Any:
        return x, None, (-x, [x * 2]), {"a": x + 1, "b": (x + 2, {"c": x + 3, "a": x + 4}), 5: x + 5}

    got = nn.trace(Applied(nested), (1,)).evaluate({"input": np.ones(1, np.float32)})
    want = {"output": 1, "output_1": -1, "output_2": 2, "a": 2, "b": 3, "c": 4, "a_1": 5, "5": 6}
    assert {name: array.item() for name, array in got.items()} == want
    model = nx.optimize(nn.LSTM(4, 5), (3, 2, 4), optimization_level=0, providers=("cpu",))
    assert [port.name for port in model.outputs] == ["output", "output_1", "output_2"]
    assert [y.shape for y in model(np.zeros((3, 2, 4), np.float32))] == [(3, 2, 5), (1, 2, 5), (1, 2, 5)]
