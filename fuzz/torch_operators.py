"""PyTorch's operators on the samples of PyTorch's own tests: `torch.compile` with our backend against PyTorch.

    python -m fuzz.torch_operators [--seed N] [--seconds S] [--operators NAME ...]

Each operator runs as it is and in place, on some samples of three dtypes; results, what shares their memory, and the
arguments afterwards are compared. Needs the package `expecttest`, which PyTorch's tests import.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

# A checkout has no entry points: this gives the backend its name.
import neurenix.torch  # noqa: F401

#: So many samples of each dtype.
SAMPLES = {torch.float32: 2, torch.int64: 1, torch.bool: 1}
#: A sample that takes longer is told, and left.
SECONDS = 90
#: What has no value to agree with, or writes into its arguments by what it is.
LEFT_OUT = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")

Function = Callable[..., tuple[torch.Tensor, ...]]


class TooLong(Exception):
    """A sample took longer than `SECONDS`."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--operators", nargs="*", help="these alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, _alarm)
    found, end = Counter[str](), time.monotonic() + options.seconds
    operators = sorted(op_db, key=lambda one: (one.name, one.variant_test_name))
    random.Random(options.seed).shuffle(operators)
    for operator in operators:
        if time.monotonic() > end:
            break
        if operator.name in LEFT_OUT or (options.operators and operator.name not in options.operators):
            continue
        for name, function, inputs in _cases(operator, options.seed):
            outcome = _outcome(function, inputs)
            found[outcome.partition(":")[0]] += 1
            if not outcome.startswith(("agrees", "passed over")):
                print(f"{name} {[tuple(one.shape) for one in inputs]}: {outcome}", flush=True)
    print(dict(found))


def _cases(operator: Any, seed: int) -> Iterator[tuple[str, Function, list[torch.Tensor]]]:
    for dtype, count in SAMPLES.items():
        if dtype not in operator.dtypes:
            continue
        samples = list(operator.sample_inputs("cpu", dtype, requires_grad=False))
        random.Random(seed).shuffle(samples)
        for sample in samples[:count]:
            leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            if not inputs or any(one.is_complex() or one.layout is not torch.strided for one in inputs):
                continue
            name = f"{operator.name}{'.' * bool(operator.variant_test_name)}{operator.variant_test_name} {dtype}"
            yield name, _called(operator.op, leaves, spec, in_place=False), inputs
            if operator.inplace_variant is not None:
                yield f"{name} in place", _called(operator.inplace_variant, leaves, spec, in_place=True), inputs


def _called(function: Any, leaves: list[Any], spec: Any, in_place: bool) -> Function:
    """The operator as a function of the tensors among its arguments."""

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(tensors)
        first, args, kwargs = pytree.tree_unflatten(
            [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec
        )
        if not in_place:
            return tuple(_tensors(function(first, *args, **kwargs)))
        own = first.clone()
        view = own.reshape(-1)
        return (*_tensors(function(own, *args, **kwargs)), own, view)

    return call


def _tensors(results: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def _outcome(function: Function, inputs: list[torch.Tensor]) -> str:
    try:
        wanted, again = (function(*(one.clone() for one in inputs)) for _ in range(2))
    except Exception as error:
        return f"passed over: PyTorch refuses it ({type(error).__name__})"
    if any(one.is_complex() or one.layout is not torch.strided for one in wanted) or _differs(again, wanted):
        return "passed over: complex, sparse or random"
    signal.alarm(SECONDS)
    try:
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="neurenix", options={"cache": False})
        given = [one.clone() for one in inputs]
        wrong = _differs(compiled(*given), wanted) or _differs(compiled(*(one.clone() for one in inputs)), wanted)
    except TooLong:
        return f"too long: {SECONDS} s"
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error).splitlines()[0]}"
    finally:
        signal.alarm(0)
    if wrong:
        return f"differs: {wrong}"
    return "agrees"


def _differs(found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> str:
    """What is another than wanted; empty where nothing is."""
    if len(found) != len(wanted):
        return f"{len(found)} results instead of {len(wanted)}"
    for one, other in zip(found, wanted, strict=True):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{one.dtype}{list(one.shape)} instead of {other.dtype}{list(other.shape)}"
        if one.dtype.is_floating_point:
            # Sums that nearly cancel are as far off as their terms are large.
            least = 1e-5 + 1e-6 * other.double().nan_to_num(0, 0, 0).abs().max().item() if other.numel() else 0.0
            if not torch.allclose(one.double(), other.double(), rtol=1e-4, atol=least, equal_nan=True):
                return f"off by {(one.double() - other.double()).abs().nan_to_num().max().item():.3g}"
        elif not torch.equal(one, other):
            return "other integers"
    return ""


def _alarm(*_: Any) -> None:
    raise TooLong


if __name__ == "__main__":
    main()
