"""Lists of inputs of any shapes, in batches of those that are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from neurenix.errors import Error, InvalidArgumentError
from neurenix.inference.arrays_of import concatenate, dtype_name, is_array, is_count, is_on_gpu
from neurenix.inference.flight import in_order
from neurenix.inference.rows import Arrays, Rows

#: What may become of an input that fails.
ON_ERROR = ("raise", "return")


class BatchError(Error, RuntimeError):
    """Some inputs of a batch failed; the others did not.

    `outputs` has what came of each input, None where it failed; `failures` the exceptions, by index.
    """

    kind = "batch"

    def __init__(self, message: str, outputs: list[Any] | None = None, failures: dict[int, Exception] | None = None,
                 **parts: Any) -> None:  # fmt: skip
        super().__init__(message, **parts)
        self.outputs = outputs or []
        self.failures = failures or {}


class Member(NamedTuple):
    """One input of a batch: its place in the list, its arrays, and whether it came without the batch dimension."""

    place: int
    inputs: Arrays
    rows: int
    alone: bool


def run_all(
    rows: Rows,
    inputs: Sequence[Any],
    batch_size: int,
    prepare: Callable[[Any], tuple[Arrays, bool]],
    finish: Callable[[Arrays, Any], Any],
    on_error: str,
) -> list[Any]:
    """What comes of each input, in order; raises `BatchError` at the end where some failed and `on_error` is "raise".

    Inputs of the same shapes and dtypes go together, up to `batch_size` rows; the results do not depend on their order.
    """
    batch_size = check_batch_size(batch_size)
    if on_error not in ON_ERROR:
        raise InvalidArgumentError("on_error is unknown", expected=" or ".join(map(repr, ON_ERROR)), got=repr(on_error))
    items = as_list(inputs)
    outputs: list[Any] = [None] * len(items)
    failures: dict[int, Exception] = {}
    batches = _batches(items, rows.limit(batch_size), prepare, rows, failures)
    jobs = 1 if any(map(_is_on_gpu, items[:1])) else rows.model.jobs

    def deliver(members: list[Member], found: Arrays) -> None:
        for member, own in zip(members, rows.split(found, [m.rows for m in members]), strict=True):
            taken = {name: array[0] for name, array in own.items()} if member.alone else own
            try:
                outputs[member.place] = finish(taken, items[member.place])
            except Exception as error:
                failures[member.place] = error

    for members, found, error in in_order(lambda ms: rows.run(_together(ms), batch_size), batches, jobs):
        try:
            if error is not None:
                raise error
            deliver(members, found)
        except Exception as reason:
            _apart(rows, members, reason, deliver, failures)
    if on_error == "return":
        return [failures.get(index, output) for index, output in enumerate(outputs)]
    if failures:
        raise failed(failures, outputs)
    return outputs


def check_batch_size(batch_size: Any) -> int:
    """The number of rows, of any kind of integer; raises `InvalidArgumentError` for what is none."""
    if not is_count(batch_size):
        raise InvalidArgumentError("batch_size is a number of rows", expected="1, 2, ...", got=repr(batch_size))
    return int(batch_size)


def as_list(inputs: Any) -> list[Any]:
    """The inputs one by one; of an array its rows.

    Raises `InvalidArgumentError` for what is no list, such as a dict: that is one input.
    """
    if is_array(inputs):
        if not inputs.shape:
            raise InvalidArgumentError("inputs is a list", expected="arrays, or dicts of them", got="a single number")
        return [inputs[i] for i in range(inputs.shape[0])]
    if isinstance(inputs, (str, bytes, dict)) or not hasattr(inputs, "__iter__"):
        raise InvalidArgumentError(
            "inputs is a list", expected="a list of arrays, or of dicts of them", got=type(inputs).__name__
        )
    return list(inputs)


def _batches(
    items: Sequence[Any],
    most: int,
    prepare: Callable[[Any], tuple[Arrays, bool]],
    rows: Rows,
    failures: dict[int, Exception],
) -> Iterator[list[Member]]:
    waiting: dict[Any, list[Member]] = {}
    for index, item in enumerate(items):
        try:
            inputs, alone = prepare(item)
            count = rows.count(inputs)
        except Exception as error:
            failures[index] = error
            continue
        member = Member(index, inputs, 1 if count is None else count, alone)
        if count is None or count >= most:
            yield [member]
            continue
        key = _kind(member, rows)
        group = waiting.get(key, [])
        if sum(m.rows for m in group) + count > most:
            yield group
            group = []
        waiting[key] = [*group, member]
        if sum(m.rows for m in waiting[key]) == most:
            yield waiting.pop(key)
    yield from waiting.values()


def _kind(member: Member, rows: Rows) -> Any:
    """What inputs of one batch have in common: but for the batch, all shapes, and the arrays' library and device."""
    found = []
    for port in rows.ports:
        array = member.inputs[port.name]
        # What has no batch is the same array for all of them, or they do not go together.
        own = tuple(array.shape[1:]) if rows.is_batched(port) else id(array)
        found.append((own, dtype_name(array), type(array), str(getattr(array, "device", ""))))
    return tuple(found)


def _together(members: Sequence[Member]) -> Arrays:
    if len(members) == 1:
        return members[0].inputs
    first = members[0].inputs
    shared = {name for name, array in first.items() if all(m.inputs[name] is array for m in members[1:])}
    return {
        name: array if name in shared else concatenate([m.inputs[name] for m in members])
        for name, array in first.items()
    }


def _apart(
    rows: Rows,
    members: Sequence[Member],
    reason: Exception,
    deliver: Callable[[list[Member], Arrays], None],
    failures: dict[int, Exception],
) -> None:
    """Runs the inputs of a batch that failed one by one, to find whose fault it is."""
    if len(members) == 1:
        failures[members[0].place] = reason
        return
    for member in members:
        try:
            deliver([member], rows.run(member.inputs))
        except Exception as error:
            failures[member.place] = error


def failed(failures: dict[int, Exception], outputs: list[Any]) -> BatchError:
    """What tells of the inputs that failed."""
    first = min(failures)
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    error = BatchError(
        f"{len(failures)} of {len(outputs)} inputs failed: index {first}{more}: "
        f"{getattr(failures[first], 'message', failures[first])}",
        outputs,
        dict(sorted(failures.items())),
        expected=getattr(failures[first], "expected", None),
        got=getattr(failures[first], "got", None),
        hint='the other outputs are in `outputs` of this exception; on_error="return" gives exceptions in their places',
    )
    error.__cause__ = failures[first]
    return error


def _is_on_gpu(item: Any) -> bool:
    values = item.values() if isinstance(item, dict) else item if isinstance(item, (tuple, list)) else [item]
    return any(is_array(value) and is_on_gpu(value) for value in values)
