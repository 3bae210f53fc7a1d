"""A model whose inputs share a first dimension: any number of rows, in calls of as many as it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware.optimized import OptimizedModel, Port
from neurenix.inference.arrays_of import as_dtype, concatenate, is_array
from neurenix.log import LOG

#: A range up to here is no limit that somebody gave.
ANY_SIZE = 2**31 - 1

Arrays = dict[str, Any]


class Rows:
    """Calls of an `OptimizedModel` on any number of rows.

    A model that was built for just 4 rows gets 4 in each call: the last rows are repeated where there are fewer, and
    what comes of them is dropped. A model for a range of them gets no more than the greatest.
    """

    def __init__(self, model: OptimizedModel) -> None:
        self.model = model
        self.ports = model.inputs
        self._first = next((port.shape[0] for port in self.ports if port.shape), None)
        #: The rows of every call; None where they may vary.
        self.fixed = self._first if isinstance(self._first, int) else None
        self._most = self._greatest()
        self._told = False

    def _greatest(self) -> int | None:
        if self.fixed is not None or self._first is None:
            return self.fixed
        name = str(self._first).strip("'")
        highs = [high for profile in self.model.profiles for key, (_, _, high) in profile.items() if key == name]
        high = max(highs, default=ANY_SIZE)
        return high if high < ANY_SIZE else None

    def limit(self, wanted: int) -> int:
        """How many rows a call gets where so many are wanted; the first time that it is another number, it is told."""
        most = wanted if self._most is None else min(wanted, self._most)
        if self.fixed is not None:
            most = self.fixed
        if most != wanted and not self._told:
            self._told = True
            built = f"just {most} rows" if self.fixed is not None else f"at most {most} rows"
            LOG.warning("the engine was built for %s a call, and gets %d where %d are wanted", built, most, wanted)
        return most

    def is_batched(self, port: Port) -> bool:
        """Whether the first dimension of an input or output is the batch."""
        return bool(port.shape) and port.shape[0] == self._first

    def named(self, given: Any) -> Arrays:
        """Arrays by the names of the inputs: from a mapping, a tuple or list in their order, or the only one.

        Raises `InvalidArgumentError` where they are too few, too many, or no arrays.
        """
        names = [port.name for port in self.ports]
        if isinstance(given, Mapping):
            found = dict(given)
        else:
            several = list(given) if isinstance(given, (tuple, list)) and not is_array(given) else [given]
            if len(several) != len(names):
                raise InvalidArgumentError(
                    "the number of arrays differs from that of the inputs",
                    expected=", ".join(names),
                    got=str(len(several)),
                )
            found = dict(zip(names, several, strict=True))
        if set(found) != set(names):
            raise InvalidArgumentError(
                "the arrays are not those of the inputs", expected=", ".join(names), got=", ".join(map(str, found))
            )
        for name, value in found.items():
            if not is_array(value):
                raise InvalidArgumentError(
                    "an input is no array", tensor=name, expected="an array", got=type(value).__name__
                )
        return {name: found[name] for name in names}

    def fitted(self, given: Any) -> tuple[Arrays, bool]:
        """Arrays by name in the dtypes of the inputs, and whether they are one row without the batch dimension."""
        named = self.named(given)
        lacking = [port.name for port in self.ports if len(named[port.name].shape) == len(port.shape) - 1]
        batched = [port.name for port in self.ports if self.is_batched(port)]
        alone = bool(batched) and all(name in lacking for name in batched)
        return {
            port.name: as_dtype(
                named[port.name][None] if alone and port.name in batched else named[port.name], port.dtype, port.name
            )
            for port in self.ports
        }, alone

    def count(self, inputs: Arrays) -> int | None:
        """The rows of a call; None where the inputs have no batch, or are broadcast to one another.

        Raises `ShapeError` where inputs have different numbers of rows.
        """
        counts = {
            p.name: int(inputs[p.name].shape[0]) for p in self.ports if self.is_batched(p) and inputs[p.name].ndim
        }
        several = set(counts.values())
        if len(several) > 1:
            raise ShapeError(
                "inputs have different numbers of rows",
                expected="one size of the first dimension",
                got=", ".join(f"{name} {count}" for name, count in counts.items()),
            )
        return several.pop() if several else None

    def run(self, inputs: Arrays, wanted: int | None = None) -> Arrays:
        """Outputs by name of as many rows as there are in the inputs, at most `wanted` in a call.

        Raises as `OptimizedModel`, and `UnsupportedError` for an output without a batch where several calls are needed.
        """
        count = self.count(inputs)
        most = self.fixed or min((n for n in (wanted, self._most) if n), default=count)
        if not count or not most or count == most or (count < most and self.fixed is None):
            return self.model.run(inputs)
        parts = [self._part(inputs, begin, min(begin + most, count)) for begin in range(0, count, most)]
        return {name: concatenate([part[name] for part in parts]) for name in parts[0]}

    def _part(self, inputs: Arrays, begin: int, end: int) -> Arrays:
        given = {p.name: inputs[p.name][begin:end] if self.is_batched(p) else inputs[p.name] for p in self.ports}
        lacking = 0 if self.fixed is None else self.fixed - (end - begin)
        if lacking:
            for port in filter(self.is_batched, self.ports):
                rows = given[port.name]
                given[port.name] = concatenate([rows, *[rows[-1:]] * lacking])
        outputs = self.model.run(given)
        at_once = "give as many rows as the engine takes in one call"
        _check_rows(outputs, end - begin + lacking, "put together from calls", at_once)
        return {name: array[: end - begin] for name, array in outputs.items()} if lacking else outputs

    def split(self, outputs: Arrays, counts: list[int]) -> list[Arrays]:
        """The outputs of a batch, apart for each of its parts of so many rows."""
        _check_rows(outputs, sum(counts), "given apart", "batch_size=1")
        found, begin = [], 0
        for count in counts:
            found.append({name: array[begin : begin + count] for name, array in outputs.items()})
            begin += count
        return found


def _check_rows(outputs: Arrays, rows: int, purpose: str, hint: str) -> None:
    for name, array in outputs.items():
        if not array.shape or array.shape[0] != rows:
            raise UnsupportedError(
                f"an output does not have a row for each row of the input, and can't be {purpose}",
                tensor=name,
                expected=f"[{rows}, ...]",
                got=str(list(array.shape)),
                hint=hint,
            )
