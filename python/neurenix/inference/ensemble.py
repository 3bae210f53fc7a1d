"""Ensemble: several models on the same input, side by side, as one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

from neurenix import arrays
from neurenix.errors import Error, InvalidArgumentError
from neurenix.inference import reducing
from neurenix.inference.arrays_of import is_array, is_on_gpu
from neurenix.inference.batches import ON_ERROR, as_list, failed
from neurenix.inference.engine import InferenceEngine
from neurenix.inference.flight import NAME
from neurenix.inference.journal import identity
from neurenix.inference.sliding import Model
from neurenix.inference.windowed import Windowed


class Ensemble(Windowed):
    """Several models as one: each gets the input, and their outputs are reduced to one.

    - `members`: `InferenceEngine`s, whatever an `InferenceEngine` is made of, or functions that give arrays.
    - `reduce`: "mean", "median", "max", "vote" (labels, or the greatest score along axis 1; ties go to the lower
      label), or a function of the list of their outputs.
    - `weights`: one for each member, for "mean" and "vote".
    - `disagreement`: "std", "entropy", or both: more outputs behind each one, called `<output>_std` and
      `<output>_entropy`. The entropy (nats) is that of the mean of softmax along axis 1, or of the votes for labels.
    - `options`: those of `InferenceEngine`, for members that are made here.

    Members on arrays in the processor's memory run on a thread each, on tensors of torch on a GPU in a stream each.
    A call takes and gives what its members do. Any thread may call it.

    Raises `InvalidArgumentError` for no members, unknown words, or weights that do not fit, and as `InferenceEngine`;
    calls raise what a member raises, and `ShapeError` where their outputs differ in shape.
    """

    def __init__(
        self,
        members: Sequence[Any],
        reduce: str | Callable[[list[Any]], Any] = "mean",
        weights: Sequence[float] | None = None,
        *,
        disagreement: str | Sequence[str] = (),
        **options: Any,
    ) -> None:
        if isinstance(members, (str, bytes)) or not isinstance(members, Sequence) or not members:
            raise InvalidArgumentError("an ensemble has members", expected="a list of models", got=repr(members))
        words = (disagreement,) if isinstance(disagreement, str) else tuple(disagreement)
        self._extra = {word: reducing.named(word, reducing.DISAGREEMENT, "disagreement") for word in words}
        self._reduce: reducing.Reduce
        if callable(reduce):
            given = reduce
            self._reduce = lambda found, weights: given(list(found))
        else:
            self._reduce = reducing.named(reduce, reducing.REDUCE, "reduce")
        self._weights = _weights(weights, len(members), reduce)
        self.members = [_member(member, options) for member in members]
        self._pool = ThreadPoolExecutor(len(members), thread_name_prefix=NAME)
        self._streams: dict[int, list[Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        first = next(iter(given[0].values()), None) if given and isinstance(given[0], Mapping) else (given or [None])[0]
        if arrays.is_torch(first) and is_on_gpu(first):
            found = self._in_streams(first, args, kwargs)
        else:
            found = self._side_by_side([(member, args, kwargs) for member in self.members])
        return self._reduced(found)

    def batch_inference(self, inputs: Sequence[Any], batch_size: int = 4, on_error: str = "raise") -> list[Any]:
        """As `InferenceEngine.batch_inference`, of each member; an input that fails in one of them fails."""
        if on_error not in ON_ERROR:
            raise InvalidArgumentError("on_error is unknown", expected="'raise' or 'return'", got=repr(on_error))
        items = as_list(inputs)
        engines = [member for member in self.members if isinstance(member, InferenceEngine)]
        if len(engines) < len(self.members):
            raise InvalidArgumentError("a member is a function, which knows of no batches", hint="give its model")
        each = self._side_by_side([(engine.batch_inference, (items, batch_size, "return"), {}) for engine in engines])
        outputs: list[Any] = [None] * len(items)
        failures: dict[int, Exception] = {}
        for index, found in enumerate(zip(*each, strict=True)):
            failing = next((number for number, one in enumerate(found) if isinstance(one, Exception)), None)
            try:
                if failing is not None:
                    raise _told(found[failing], failing)
                outputs[index] = self._reduced(found)
            except Exception as reason:
                failures[index] = reason
        if failures and on_error == "raise":
            raise failed(failures, outputs)
        return [failures.get(index, output) for index, output in enumerate(outputs)]

    def _side_by_side(self, calls: Sequence[tuple[Callable[..., Any], Any, Any]]) -> list[Any]:
        """What each call gives, one for each member; raises what the first one raises that fails."""
        try:
            futures = [self._pool.submit(call, *args, **kwargs) for call, args, kwargs in calls]
        except RuntimeError as error:
            raise InvalidArgumentError("the ensemble is closed", hint="make another one") from error
        found = []
        for number, future in enumerate(futures):
            try:
                found.append(future.result())
            except Exception as error:
                _told(error, number)
                raise
        return found

    def _in_streams(self, first: Any, args: Any, kwargs: Any) -> list[Any]:
        """A call of each member in a stream of its own; the caller's stream waits for all of them."""
        cuda = sys.modules["torch"].cuda
        device = first.get_device()
        streams = self._streams.setdefault(device, [cuda.Stream(device) for _ in self.members])
        caller = cuda.current_stream(device)
        given, found = caller.record_event(), []
        for member, stream in zip(self.members, streams, strict=True):
            stream.wait_event(given)
            with cuda.stream(stream):
                found.append(member(*args, **kwargs))
        for stream, outputs in zip(streams, found, strict=True):
            caller.wait_stream(stream)
            for array in _flat(outputs).values():
                # Its memory came from the other stream, and is read in this one.
                array.record_stream(caller)
        return found

    def _reduced(self, found: Sequence[Any]) -> Any:
        flat = [_flat(outputs) for outputs in found]
        names = list(flat[0])
        other = next((list(one) for one in flat if list(one) != names), None)
        if other is not None:
            raise InvalidArgumentError("the members have different outputs", expected=str(names), got=str(other))
        outputs: dict[Any, Any] = {}
        torch = sys.modules.get("torch")
        with torch.no_grad() if torch is not None else nullcontext():
            for name in names:
                each = [one[name] for one in flat]
                reducing.check_alike(each, str(name))
                outputs[name] = self._reduce(each, self._weights)
                for word, function in self._extra.items():
                    outputs[f"{name}_{word}"] = function(each, self._weights)
        if isinstance(found[0], Mapping):
            return outputs
        values = tuple(outputs.values())
        return values[0] if len(values) == 1 else values

    def _window_model(self, batch_size: int) -> Model:
        engines = [member for member in self.members if isinstance(member, InferenceEngine)]
        if not engines:
            raise InvalidArgumentError("no member says what it takes", expected="an InferenceEngine among the members")
        each = [engine._window_model(batch_size) for engine in engines]
        names = [f"{name}{end}" for name in each[0].outputs for end in ("", *(f"_{word}" for word in self._extra))]

        def predict(windows: Any) -> dict[str, Any]:
            found = self(windows)
            values = found if isinstance(found, tuple) else (found,)
            if len(values) != len(names) or not all(map(is_array, values)):
                raise InvalidArgumentError(
                    "the members, reduced, are no outputs of windows", expected=f"arrays for {', '.join(names)}",
                    got=", ".join(type(value).__name__ for value in values),
                )  # fmt: skip
            # What has no classes any more, such as votes and entropies, is an image of one channel.
            shaped = (value[:, None] if len(value.shape) == each[0].axes + 1 else value for value in values)
            return dict(zip(names, shaped, strict=True))

        who = f"{identity(self)} of {[model.identity for model in each]}"
        return Model(predict, each[0].axes, 1, names, each[0].fixed, who, each[0].channels)

    def close(self) -> None:
        """Ends its threads."""
        self._pool.shutdown()

    def __enter__(self) -> Ensemble:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _member(given: Any, options: Mapping[str, Any]) -> Any:
    """A member that can be called."""
    from neurenix.hardware.optimized import OptimizedModel

    is_module = "torch" in sys.modules and isinstance(given, sys.modules["torch"].nn.Module)
    if isinstance(given, (InferenceEngine, Ensemble)):
        return given
    if callable(given) and not is_module and not isinstance(given, OptimizedModel):
        return given
    return InferenceEngine(given, **options)


def _told(error: Exception, number: int) -> Exception:
    """The exception of a member, which says whose it is."""
    where = f"in member {number} of the ensemble"
    if isinstance(error, Error):
        error.hint = f"{error.hint or ''} ({where})".strip()
    elif hasattr(error, "add_note"):
        error.add_note(where)
    return error


def _weights(given: Sequence[float] | None, count: int, reduce: Any) -> list[float]:
    """Weights whose sum is 1.

    Raises `InvalidArgumentError` for another number of them, negative ones, or where nothing asks for them.
    """
    if given is None:
        return [1 / count] * count
    if reduce not in reducing.WEIGHED:
        raise InvalidArgumentError(
            "weights are for some ways to reduce alone",
            expected=" or ".join(map(repr, reducing.WEIGHED)),
            got=repr(reduce),
        )
    try:
        if isinstance(given, (Mapping, str)):
            raise TypeError("weights by name")
        found = [float(weight) for weight in given]
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "weights are numbers in the order of the members", expected="[0.5, 0.3, 0.2]", got=repr(given)
        ) from error
    greatest = max(found, default=0)
    if len(found) != count or not all(0 <= weight < float("inf") for weight in found) or not greatest > 0:
        raise InvalidArgumentError(
            "the weights do not fit", expected=f"{count} numbers, none below 0, not all 0", got=repr(given)
        )
    # By the greatest first: a sum may have no end where each of them has.
    shares = [weight / greatest for weight in found]
    return [share / sum(shares) for share in shares]


def _flat(outputs: Any) -> dict[Any, Any]:
    """Outputs by name; those without names get the names that OptimizedModel gives."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    values = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return {"output" if i == 0 else f"output_{i}": value for i, value in enumerate(values)}
