"""Ensemble: every way to reduce against numpy, weights, disagreement, lists and windows, and what fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import DTypeError, InvalidArgumentError, ShapeError
from neurenix.inference import BatchError, Ensemble, InferenceEngine
from tests.inference.conftest import by_torch, convolutions, optimized

torch = pytest.importorskip("torch")
COUNT = 4


@pytest.fixture(scope="module")
def modules() -> list[Any]:
    torch.manual_seed(0)
    return [torch.nn.Conv2d(1, 3, 3, padding=1).eval() for _ in range(COUNT)]


@pytest.fixture(scope="module")
def engines(modules: list[Any]) -> list[InferenceEngine]:
    return [InferenceEngine(optimized(module, (2, 1, 16, 16)), warmup=0) for module in modules]


def softmax(scores: Any) -> Any:
    powers = np.exp(scores.astype(np.float64))
    return powers / powers.sum(1, keepdims=True)


def majority(labels: Any, weights: Any) -> Any:
    shares = np.stack([((labels == c) * np.reshape(weights, (-1, 1, 1, 1))).sum(0) for c in range(3)])
    return shares.round(9).argmax(0)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("members", [3, 4])
def test_reductions_are_numpys(
    library: str, members: int, engines: Any, modules: Any, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 1, 16, 16)).astype(np.float32)
    given = x if library == "numpy" else torch.from_numpy(x)
    each = np.stack([by_torch(module, x) for module in modules[:members]]).astype(np.float64)
    weights = rng.random(members) + 0.1
    share = weights / weights.sum()
    expected = {
        ("mean", None): each.mean(0),
        ("mean", tuple(weights)): np.tensordot(share, each, 1),
        ("median", None): np.median(each, 0),
        ("max", None): each.max(0),
        ("vote", None): majority(each.argmax(2), np.ones(members)),
        ("vote", tuple(weights)): majority(each.argmax(2), weights),
    }
    for (reduce, wanted), values in expected.items():
        with Ensemble(engines[:members], reduce, wanted) as ensemble:
            found = ensemble(given)
        assert type(found) is type(given)
        np.testing.assert_allclose(np.asarray(found), values, rtol=0, atol=1e-5)


def test_a_function_reduces(engines: Any, modules: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 1, 16, 16)).astype(np.float32)
    ensemble = Ensemble(engines, reduce=lambda found: found[0] - found[-1])
    expected = by_torch(modules[0], x) - by_torch(modules[-1], x)
    np.testing.assert_allclose(ensemble(x), expected, rtol=0, atol=1e-5)


def test_disagreement(engines: Any, modules: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 1, 16, 16)).astype(np.float32)
    each = np.stack([by_torch(module, x) for module in modules]).astype(np.float64)
    for given in (x, torch.from_numpy(x)):
        mean, std, entropy = Ensemble(engines, disagreement=("std", "entropy"))(given)
        np.testing.assert_allclose(np.asarray(mean), each.mean(0), rtol=0, atol=1e-5)
        np.testing.assert_allclose(np.asarray(std), each.std(0), rtol=0, atol=1e-5)
        share = np.stack([softmax(one) for one in each]).mean(0)
        np.testing.assert_allclose(np.asarray(entropy), -(share * np.log(share)).sum(1), rtol=0, atol=1e-5)
    by_name = Ensemble(engines, disagreement="std")({"input": x})
    assert list(by_name) == ["output", "output_std"]
    labels = [np.array([[0, 1]]), np.array([[0, 2]]), np.array([[0, 2]]), np.array([[0, 1]])]
    members = [lambda x, one=one: one for one in labels]
    vote, nats = Ensemble(members, "vote", disagreement="entropy")(x)
    np.testing.assert_array_equal(vote, [[0, 1]])
    np.testing.assert_allclose(nats, [[0, np.log(2)]], atol=1e-12)


def test_members_of_files_and_models(modules: Any, engines: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    optimized(modules[0], (2, 1, 16, 16)).save(tmp_path / "one.engine")
    x = rng.standard_normal((2, 1, 16, 16)).astype(np.float32)
    ensemble = Ensemble([tmp_path / "one.engine", optimized(modules[1], (2, 1, 16, 16)), engines[2]], warmup=0)
    np.testing.assert_allclose(ensemble(x), np.mean([by_torch(m, x) for m in modules[:3]], 0), rtol=0, atol=1e-5)


def test_lists_and_windows(engines: Any, modules: Any, rng: np.random.Generator) -> None:
    ensemble = Ensemble(engines, disagreement="std")
    inputs: list[Any] = [rng.standard_normal((1, 16, 16)).astype(np.float32) for _ in range(5)]
    for x, (mean, std) in zip(inputs, ensemble.batch_inference(inputs, batch_size=2), strict=True):
        each = np.stack([by_torch(module, x[None])[0] for module in modules])
        np.testing.assert_allclose(mean, each.mean(0), rtol=0, atol=1e-5)
        np.testing.assert_allclose(std, each.std(0), rtol=0, atol=1e-5)
    inputs[3] = np.zeros((1, 16, 15), np.float32)
    with pytest.raises(BatchError, match="index 3"):
        ensemble.batch_inference(inputs)
    slide = rng.standard_normal((1, 1, 40, 50)).astype(np.float32)
    mean, std = ensemble.sliding_window_inference(slide, (16, 16))
    each = np.stack([engine.sliding_window_inference(slide, (16, 16)) for engine in engines])
    np.testing.assert_allclose(mean, each.mean(0), rtol=0, atol=1e-5)
    assert std.shape == mean.shape


def test_what_a_member_raises_comes_through(engines: Any) -> None:
    def broken(x: Any) -> Any:
        raise RuntimeError("a broken member")

    with pytest.raises(RuntimeError, match="a broken member"):
        Ensemble([engines[0], broken])(np.zeros((1, 1, 16, 16), np.float32))
    with pytest.raises(ShapeError, match="different shapes"):
        Ensemble([engines[0], lambda x: x])(np.zeros((1, 1, 16, 16), np.float32))
    with pytest.raises(DTypeError, match="labels have no mean"):
        Ensemble([lambda x: np.zeros(3, int)])(np.zeros((1, 1, 16, 16), np.float32))


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"members": []}, "has members"),
        ({"members": "model.engine"}, "has members"),
        ({"reduce": "meen"}, "reduce is unknown"),
        ({"disagreement": "variance"}, "disagreement is unknown"),
        ({"weights": [1]}, "do not fit"),
        ({"weights": [1, -1]}, "do not fit"),
        ({"weights": [0, 0]}, "do not fit"),
        ({"weights": [1, float("nan")]}, "do not fit"),
        ({"weights": ["a", "b"]}, "numbers"),
        ({"weights": [1, 2], "reduce": "max"}, "ways to reduce alone"),
    ],
)
def test_wrong_arguments(keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Ensemble(**({"members": [lambda x: x, lambda x: x]} | keywords))


X = np.arange(6, dtype=np.float32).reshape(1, 2, 3)


def test_weights_of_any_size() -> None:
    for scale in (1e308, 1e-320):
        np.testing.assert_allclose(Ensemble([lambda x: x, lambda x: 2 * x], weights=[scale, scale])(X), 1.5 * X)
    with pytest.raises(InvalidArgumentError, match="in the order of the members"):
        Ensemble([lambda x: x, lambda x: x], weights={0: 1, 1: 2})  # type: ignore[arg-type]


def labels(x: Any) -> Any:
    return x.astype(np.int64)


@pytest.mark.parametrize(
    ("members", "kind", "text"),
    [
        ([labels, lambda x: x + 0.5], DTypeError, "some labels"),
        ([lambda x: x, lambda x: torch.from_numpy(x)], InvalidArgumentError, "different libraries"),
        ([lambda x: x, lambda x: 3.0], InvalidArgumentError, "member 1 of the ensemble gives no array"),
        ([lambda x: {"a": x}, lambda x: {"a": x}, lambda x: {"b": x}], InvalidArgumentError, "got: .*b"),
    ],
)
def test_members_that_do_not_go_together(members: Any, kind: Any, text: str) -> None:
    for reduce in ("mean", "max", "vote"):
        with pytest.raises(kind, match=text):
            Ensemble(members, reduce)(X)


def test_the_member_that_fails_is_named() -> None:
    def bad(x: Any) -> Any:
        raise InvalidArgumentError("a bad member")

    with pytest.raises(InvalidArgumentError, match=r"a bad member\n.*in member 1 of the ensemble"):
        Ensemble([lambda x: x, bad])(X)
    with Ensemble([lambda x: x]) as ensemble:
        ensemble(X)
    with pytest.raises(InvalidArgumentError, match="closed"):
        ensemble(X)


def test_entropy_over_windows_and_what_is_no_output_of_windows() -> None:
    engines = [InferenceEngine(optimized(convolutions(2), (4, 1, 16, 16)), warmup=0)] * 2
    x = np.random.default_rng().standard_normal((1, 1, 40, 30)).astype(np.float32)
    found = Ensemble(engines, disagreement=("std", "entropy")).sliding_window_inference(x, 16, 0, mode="constant")
    assert [one.shape[1] for one in found] == [2, 2, 1]
    scores = engines[0](x[:, :, :16, :16])
    share = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(
        found[2][:, :, :16, :14], -(share * np.log(share)).sum(1, keepdims=True)[..., :14], rtol=0, atol=1e-5
    )
    for wrong in (lambda ys: None, lambda ys: (ys[0], ys[1])):
        with pytest.raises(InvalidArgumentError, match="no outputs of windows"):
            Ensemble(engines, wrong).sliding_window_inference(x, 16)
