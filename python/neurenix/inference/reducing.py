"""How the outputs of several models become one, and how much they disagree. Arrays of numpy and of torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neurenix import arrays
from neurenix.errors import DTypeError, InvalidArgumentError, ShapeError
from neurenix.inference.arrays_of import FLOATS, dtype_name, is_array
from neurenix.names import hint

#: A function of the outputs of all members, and their weights (which sum to 1).
Reduce = Callable[[Sequence[Any], Sequence[float]], Any]


def check_alike(found: Sequence[Any], name: str) -> None:
    """Raises `InvalidArgumentError` where members give no arrays, or those of different libraries, `ShapeError` where
    they have different shapes, and `DTypeError` where some are scores and some labels.
    """
    for number, array in enumerate(found):
        if not is_array(array):
            raise InvalidArgumentError(
                f"member {number} of the ensemble gives no array", tensor=name, got=type(array).__name__
            )
    libraries = ["torch" if arrays.is_torch(array) else "numpy" for array in found]
    if len(set(libraries)) > 1:
        raise InvalidArgumentError(
            "the members give arrays of different libraries", tensor=name, got=", ".join(libraries)
        )
    kinds = [dtype_name(array) for array in found]
    if len({kind in FLOATS for kind in kinds}) > 1:
        raise DTypeError(
            "some members give floats and some labels", tensor=name, expected="scores of all, or labels of all",
            got=", ".join(kinds),
        )  # fmt: skip
    shapes = [tuple(array.shape) for array in found]
    if len(set(shapes)) > 1:
        raise ShapeError(
            "the members give outputs of different shapes", tensor=name, expected=str(shapes[0]), got=str(shapes[1:])
        )


def mean(found: Sequence[Any], weights: Sequence[float]) -> Any:
    """The weighted mean, summed in float32 or wider, in the dtype of the outputs."""
    _require_floats(found, "mean")
    if arrays.is_torch(found[0]) and len(set(weights)) == 1:
        # Two kernels of a GPU for any number of members.
        torch = sys.modules["torch"]
        stacked = torch.stack(list(found))
        return _narrow(stacked.mean(0, dtype=torch.promote_types(stacked.dtype, torch.float32)), found[0])
    return _narrow(sum(_wide(array) * weight for array, weight in zip(found, weights, strict=True)), found[0])


def median(found: Sequence[Any], weights: Sequence[float]) -> Any:
    """The median; of an even number of members the mean of the two in the middle."""
    _require_floats(found, "median")
    stacked = _stack(found)
    if not arrays.is_torch(stacked):
        return _narrow(np.median(stacked, axis=0), found[0])
    ordered, middle = stacked.sort(0).values, (len(found) - 1) // 2
    return _narrow((ordered[middle] + ordered[len(found) // 2]) / 2, found[0])


def greatest(found: Sequence[Any], weights: Sequence[float]) -> Any:
    """The greatest of each element."""
    total = found[0]
    for array in found[1:]:
        total = total.maximum(array) if arrays.is_torch(total) else np.maximum(total, array)
    return total


def vote(found: Sequence[Any], weights: Sequence[float]) -> Any:
    """The label with the most votes, by weight; the least of those that have as many.

    Integers and truth values are labels; the label of scores is the greatest along axis 1 (int64).
    """
    votes, labels = _votes(found, weights)
    best, share = votes[0], None
    for label in labels:
        mine = sum((array == label) * weight for array, weight in zip(votes, weights, strict=True))
        if share is None:
            best, share = votes[0] * 0 + label, mine
            continue
        # Sums of the same weights in another order are as many votes.
        more = mine > share + 1e-9
        where = sys.modules["torch"].where if arrays.is_torch(more) else np.where
        best, share = where(more, label, best), where(more, mine, share)
    if dtype_name(found[0]) == "bool":
        return best.bool() if arrays.is_torch(best) else best.astype(bool)
    return best


def deviation(found: Sequence[Any], weights: Sequence[float]) -> Any:
    """The weighted standard deviation of the members (of all of them, not of a sample)."""
    _require_floats(found, "std")
    middle = sum(_wide(array) * weight for array, weight in zip(found, weights, strict=True))
    spread = sum((_wide(a) - middle) ** 2 * weight for a, weight in zip(found, weights, strict=True))
    return _narrow(spread**0.5, found[0])


def entropy(found: Sequence[Any], weights: Sequence[float]) -> Any:
    """In nats: of the mean over the members of softmax along axis 1, or, of labels, of the shares of the votes."""
    if dtype_name(found[0]) not in FLOATS:
        votes, labels = _votes(found, weights)
        shares = [sum((v == label) * w for v, w in zip(votes, weights, strict=True)) for label in labels]
        return sum(map(_surprise, shares))
    _require_classes(found, "entropy")
    share = sum(_softmax(_wide(array)) * weight for array, weight in zip(found, weights, strict=True))
    return _narrow(_surprise(share).sum(1), found[0])


REDUCE: dict[str, Reduce] = {"mean": mean, "median": median, "max": greatest, "vote": vote}
DISAGREEMENT: dict[str, Reduce] = {"std": deviation, "entropy": entropy}
#: Those that know of weights.
WEIGHED = ("mean", "vote")


def named(word: Any, known: dict[str, Reduce], what: str) -> Reduce:
    """A function by its name; raises `InvalidArgumentError` for an unknown one."""
    if isinstance(word, str) and word in known:
        return known[word]
    raise InvalidArgumentError(
        f"{what} is unknown", expected=", ".join(map(repr, known)), got=repr(word), hint=hint(word, list(known))
    )


def _stack(found: Sequence[Any]) -> Any:
    wide = [_wide(array) for array in found]
    return sys.modules["torch"].stack(wide) if arrays.is_torch(wide[0]) else np.stack(wide)


def _wide(array: Any) -> Any:
    if dtype_name(array) in ("float32", "float64"):
        return array
    return array.float() if arrays.is_torch(array) else np.asarray(array, np.float32)


def _narrow(array: Any, like: Any) -> Any:
    return array.to(like.dtype) if arrays.is_torch(array) else np.asarray(array, like.dtype)


def _softmax(scores: Any) -> Any:
    if arrays.is_torch(scores):
        return scores.softmax(1)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _surprise(share: Any) -> Any:
    """-p log p, 0 where p is 0."""
    if arrays.is_torch(share):
        return -share * share.clamp_min(1e-30).log()
    return -share * np.log(np.maximum(share, 1e-30))


def _votes(found: Sequence[Any], weights: Sequence[float]) -> tuple[list[Any], list[int]]:
    """What each member votes for, and all labels that some member votes for, the least first."""
    if dtype_name(found[0]) in FLOATS:
        _require_classes(found, "vote")
        votes = [array.argmax(1) for array in found]
    else:
        votes = [array.long() if arrays.is_torch(array) else np.asarray(array).astype(np.int64) for array in found]
    labels = {
        int(label) for array in votes for label in (array.unique() if arrays.is_torch(array) else np.unique(array))
    }
    return votes, sorted(labels)


def _require_floats(found: Sequence[Any], what: str) -> None:
    if dtype_name(found[0]) not in FLOATS:
        raise DTypeError(f"labels have no {what}", expected="floats", got=dtype_name(found[0]), hint='reduce="vote"')


def _require_classes(found: Sequence[Any], what: str) -> None:
    if len(found[0].shape) < 2:
        raise ShapeError(f"{what} wants a score for each class along axis 1, or labels", got=str(list(found[0].shape)))
