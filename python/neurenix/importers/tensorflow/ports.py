"""Inputs and outputs as the user knows them: names, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neurenix import names as naming
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow.request import Request

#: The symbol of the first dimension of every input that leaves it open.
BATCH = "batch"

Dim = int | str | None


@dataclass(frozen=True)
class Port:
    """An input or output: its name, and the name of the tensor of the graph."""

    name: str
    tensor: str


def leaves(structure: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The leaves of dicts, lists and tuples in TensorFlow's order (dicts by key), each with the keys on its way."""
    if isinstance(structure, Mapping):
        for key in sorted(structure):
            yield from leaves(structure[key], (*path, str(key)))
    elif isinstance(structure, (list, tuple)):
        for part in structure:
            yield from leaves(part, path)
    elif structure is not None:
        yield path, structure


def unique(names: Iterable[str]) -> list[str]:
    """The names, those that were there before with a number behind."""
    found: list[str] = []
    for name in names:
        count, new = 0, name
        while new in found:
            count += 1
            new = f"{name}_{count}"
        found.append(new)
    return found


def output_names(structure: Any) -> list[str]:
    """What the outputs of a structure are called: by their key, else "output", "output_1", ..."""
    return unique(path[-1] if path else "output" for path, _ in leaves(structure))


def dims(
    ports: Sequence[Port], shapes: Callable[[Port], Sequence[int | None] | None], request: Request
) -> dict[str, list[int | str]]:
    """The shape of each input, by the name of its tensor; open dimensions are named, as the request says if it does.

    Raises `InvalidArgumentError` for names and shapes that the model does not have, and `UnsupportedError` for an input
    of which nobody knows how many dimensions it has.
    """
    names = [port.name for port in ports]
    for name in request.shapes:
        if name not in names:
            raise InvalidArgumentError(
                f"the model has no input {name!r}", expected=", ".join(names), hint=naming.hint(name, names)
            )
    ranges = request.ranges(names)
    # Inputs that the caller gives first dimensions of different sizes have no batch in common.
    firsts = {(r.min[0], r.opt[0], r.max[0]) for r in ranges.values() if r.min}
    found = {}
    for port in ports:
        own = shapes(port)
        if own is None and port.name in ranges:
            own = [None] * len(ranges[port.name].min)
        found[port.tensor] = _dims(port.name, own, request.shapes.get(port.name), len(firsts) <= 1)
    return found


def _dims(name: str, own: Sequence[int | None] | None, given: Sequence[Dim] | None, joint: bool) -> list[int | str]:
    if own is None and given is None:
        raise UnsupportedError(
            "the model does not say how many dimensions an input has",
            tensor=name,
            hint=f"say it: from_tensorflow(model, input_shapes={{{name!r}: ('batch', 3, 224, 224)}})",
        )
    known = [None] * len(given or ()) if own is None else list(own)
    wanted: Sequence[Dim] = known if given is None else list(given)
    fits = len(wanted) == len(known) and all(
        size is None or not isinstance(dim, int) or dim in (size, -1) for dim, size in zip(wanted, known, strict=True)
    )
    if not fits:
        raise InvalidArgumentError(
            "the given shape does not fit the input", tensor=name, expected=str(tuple(known)), got=str(tuple(wanted))
        )
    return [_named(name, axis, dim, size, joint) for axis, (dim, size) in enumerate(zip(wanted, known, strict=True))]


def _named(name: str, axis: int, dim: Dim, size: int | None, joint: bool) -> int | str:
    if size is not None:
        return size
    if isinstance(dim, str) or (dim is not None and dim >= 0):
        return dim
    return f"{name}.{axis}" if axis or not joint else BATCH
