"""Runs a module on its examples before, or after, an exporter does: what it says is clearer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neurenix.errors import InvalidArgumentError
from neurenix.importers.torch.request import Request
from neurenix.importers.torch.silence import eval_mode, first_line, silence
from neurenix.log import LOG

#: Integers are tried in all combinations of so many inputs.
_MOST_TRIED = 4


def settled(module: torch.nn.Module, request: Request) -> Request:
    """The request with the first of its examples that the module runs on.

    Raises `InvalidArgumentError` where it runs on none of several.
    """
    if not request.others:
        return request
    errors = []
    for examples in (request.examples, *request.others):
        candidate = request.with_examples(examples)
        error = _failure(module, candidate)
        if error is None:
            LOG.info("the names of the inputs say what they hold: %s", candidate.describe())
            return candidate
        errors.append(error)
    raise _refusal(module, request, errors[0])


def check_loaded(weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises `InvalidArgumentError` for weights without elements, which a model made on torch's meta device has."""
    empty = [name for name, tensor in weights if tensor.is_meta or type(tensor).__name__ == "FakeTensor"]
    if empty:
        raise InvalidArgumentError(
            "weights of the module have no elements: they lie on torch's meta device",
            tensor=", ".join(empty[:3]) + (f" and {len(empty) - 3} more" if len(empty) > 3 else ""),
            expected="tensors in memory",
            got="device meta",
            hint="load them, for example with module.load_state_dict(state, assign=True)",
        )


def check_runs(module: torch.nn.Module, request: Request) -> None:
    """Raises `InvalidArgumentError` where it is not an exporter that fails, but the module itself."""
    error = _failure(module, request)
    if error is not None:
        raise _refusal(module, request, error)


def prepared(
    model: torch.nn.Module | torch.export.ExportedProgram,
    inputs: Mapping[str, torch.Tensor],
    mode: Callable[[], AbstractContextManager[Any]] = torch.inference_mode,
) -> Callable[[], list[Any]]:
    """What runs a module or program on these inputs, in the names and order of its network's, and gives its tensors.

    `mode`: a context without gradients that it runs in.
    """
    if isinstance(model, torch.nn.Module):
        request = Request.of(model, dict(inputs), None, None)
        run, args, kwargs = model, request.args, request.kwargs
    else:
        given = iter(inputs.values())
        leaves = [next(given) if isinstance(e, torch.Tensor) else e for e in pytree.tree_leaves(model.example_inputs)]
        run, (args, kwargs) = model.module(), pytree.tree_unflatten(leaves, model.call_spec.in_spec)

    def call() -> list[Any]:
        with mode():
            result = run(*args, **kwargs)
        return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]

    return call


def _failure(module: torch.nn.Module, request: Request) -> Exception | None:
    """What the module raises on the examples."""
    try:
        with eval_mode(module), silence(), torch.no_grad():
            module(*request.args, **request.kwargs)
    except Exception as error:
        LOG.debug("the module fails on %s", request.describe(), exc_info=error)
        return error
    return None


def _refusal(module: torch.nn.Module, request: Request, error: Exception) -> InvalidArgumentError:
    integers = _on_integers(module, request) if request.is_guessed else None
    return InvalidArgumentError(
        "the module fails on inputs of these shapes",
        expected="shapes and dtypes that module(*inputs) runs on",
        got=f"{request.describe()}: {first_line(error)}",
        hint=f"it runs on integers; give them: {integers.line()}" if integers is not None else None,
    )


def _on_integers(module: torch.nn.Module, request: Request) -> Request | None:
    """The same request with zeros of int64 for some inputs, if the module runs so."""
    places = [i for i, example in enumerate(request.examples) if example.is_floating_point()][:_MOST_TRIED]
    for count in range(1, len(places) + 1):
        for chosen in itertools.combinations(places, count):
            examples = [e.long() if i in chosen else e for i, e in enumerate(request.examples)]
            candidate = request.with_examples(examples)
            if _failure(module, candidate) is None:
                return candidate
    return None
