"""Whether what torch's exporters wrote of a model gives its results: they write some operators otherwise than PyTorch
computes them, and say nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from neurenix.importers.torch.guesses import Kind, kind
from neurenix.importers.torch.silence import eval_mode, silence
from neurenix.importers.torch.trying import prepared
from neurenix.log import LOG

#: The root mean square of the difference over that of the result, from which on it is no rounding, by the width in bits
#: of what is computed in.
MOST = {8: 0.3, 16: 0.1, 32: 1e-3}
#: An engine that takes so many seconds is not compared: PyTorch may take many times as long.
LONGEST = 1.0

Results = Sequence[torch.Tensor]


def bits_of(precision: str, dtypes: Iterable[str]) -> int:
    """What an engine computes in, in bits, by its precision and the dtypes of its layers.

    tf32 has the digits of 16 bits, and a model may cast to these by itself.
    """
    if any(word in precision for word in ("int8", "fp8", "mixed")):
        return 8
    return 16 if precision in ("bf16", "fp16", "tf32") or any("float16" in dtype for dtype in dtypes) else 32


def departure(wanted: Results, got: Results, bits: int) -> str | None:
    """Which result is another one, and how far it is off; None where all agree.

    Of integers the shapes alone count: they differ where numbers tie.
    """
    for place, (want, have) in enumerate(zip(wanted, got, strict=True)):
        if want.shape != have.shape:
            return f"result {place} has the shape {list(have.shape)} instead of {list(want.shape)}"
        if not want.is_floating_point() or not have.is_floating_point() or not want.numel():
            continue
        off = _distance(want.detach().double().cpu(), have.detach().double().cpu())
        if off > max(MOST[bits], MOST[min(32, torch.finfo(want.dtype).bits)]):
            return f"result {place} is off by {off:.2g} of its root mean square"
    return None


def _distance(want: torch.Tensor, have: torch.Tensor) -> float:
    """The distance where both are finite; infinite where one in a hundred is finite in one of them alone."""
    finite = torch.isfinite(want) & torch.isfinite(have)
    if (torch.isfinite(want) != torch.isfinite(have)).double().mean() > 0.01:
        return float("inf")
    noise, signal = (want - have)[finite].square().sum(), want[finite].square().sum()
    return float((noise / signal).sqrt()) if noise > 0 else 0.0


def of_model(
    model: torch.nn.Module | torch.export.ExportedProgram,
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ports: Sequence[tuple[str, np.dtype[Any], Sequence[int]]],
    on_gpu: bool,
    bits: int,
) -> str | None:
    """As `departure`, of an engine that `run` calls and the model that it was made from, on numbers that are made up.

    Masks hide nothing at first; where results differ they hide all, as nobody knows what they mean, and both must
    differ: rows of which everything is hidden mean nothing.

    None, too, where that can't be told: the engine takes seconds, the model does not run on such inputs, or gives
    something else each time.
    """
    reason = _on(model, run, _made_up(ports, True), on_gpu, bits)
    if reason is None or _on(model, run, _made_up(ports, False), on_gpu, bits) is None:
        return None
    return reason


def _made_up(ports: Sequence[tuple[str, np.dtype[Any], Sequence[int]]], shows: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Normal numbers, zeros, which are in the range of every table, and masks of ones or zeros."""
    random = np.random.default_rng(0)
    found = {}
    for name, dtype, shape in ports:
        floats = dtype.kind not in "iub"
        if kind(name) is Kind.MASK or dtype.kind == "b":
            # A mask of floats is added: zeros hide nothing.
            found[name] = np.full(shape, shows != floats, dtype)
        else:
            found[name] = random.standard_normal(shape).astype(dtype) if floats else np.zeros(shape, dtype)
    return found


def _on(
    model: Any,
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    arrays: Mapping[str, np.ndarray[Any, Any]],
    on_gpu: bool,
    bits: int,
) -> str | None:
    try:
        got, seconds = _timed(run, arrays, on_gpu)
        given = {name: torch.from_numpy(array) for name, array in arrays.items()}
        # A GPU's milliseconds may be a processor's minutes.
        if seconds > (LONGEST * 1e-3 if on_gpu and not _is_on_gpu(model) else LONGEST):
            return None
        with _as_exported(model), silence():
            # Not in inference mode: what the module keeps for later must not be of it.
            call = prepared(model, given, torch.no_grad)
            wanted = call()
            if len(wanted) != len(got):
                return None
            found = departure(wanted, got, bits)
            return None if found is None or departure(wanted, call(), 32) else found
    except Exception as error:
        # Whatever code of the user's raises on numbers that are made up.
        LOG.debug("the model was not compared with PyTorch", exc_info=error)
        return None


def _timed(
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]], arrays: Mapping[str, Any], on_gpu: bool
) -> tuple[list[torch.Tensor], float]:
    """What an engine gives, and the seconds of a call; on a GPU of the second one."""
    if on_gpu:
        run(arrays)
    begin = time.perf_counter()
    results = run(arrays)
    seconds = time.perf_counter() - begin
    return [torch.from_numpy(np.asarray(array)) for array in results.values()], seconds


def _is_on_gpu(model: Any) -> bool:
    tensors = model.parameters() if isinstance(model, torch.nn.Module) else model.state_dict.values()
    return any(one.device.type == "cuda" for one in tensors)


def _as_exported(model: Any) -> Any:
    return eval_mode(model if isinstance(model, torch.nn.Module) else torch.nn.Module())
