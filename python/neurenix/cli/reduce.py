"""The smallest part of a model that fails as the whole does: halving first, then leaving out node after node."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from neurenix import files
from neurenix.cli import cutting, layers
from neurenix.cli.common import write_arrays
from neurenix.cli.cutting import Arrays
from neurenix.cli.layers import Subject
from neurenix.cli.peers import STATISTICS
from neurenix.cli.progress import Tell
from neurenix.errors import Error, InvalidArgumentError
from neurenix.importers.onnx.reads import given_by, read_by

#: Says how a part fails, in a word that must stay the same; None where it does not. It gets the inputs and the trusted
#: values of its outputs.
Judge = Callable[[onnx.ModelProto, Arrays, Arrays], str | None]


@dataclass(frozen=True)
class Found:
    """A part that fails."""

    model: onnx.ModelProto
    failure: str
    #: How many parts were tried.
    tried: int


class Engine:
    """Fails where our engine departs from the trusted values, or raises."""

    def __init__(self, subject: Subject, arguments: argparse.Namespace) -> None:
        self.arguments = arguments

    def __call__(self, model: onnx.ModelProto, inputs: Arrays, trusted: Arrays) -> str | None:
        """`departs`, `not finite`, or the kind of error."""
        try:
            answers = layers.ours(model, inputs, self.arguments)
        except Error as error:
            return f"raises {type(error).__name__}"
        for name, want in trusted.items():
            if layers.not_finite(answers[name]) > layers.not_finite(want):
                return "not finite"
        measure = STATISTICS[self.arguments.check_error_stat]
        errors = [measure(answers[name], want) for name, want in trusted.items()]
        return None if all(error <= self.arguments.tolerance for error in errors) else "departs"


class Command:
    """Fails where a command does."""

    def __init__(self, command: str) -> None:
        self.words = shlex.split(command)
        if not self.words:
            raise InvalidArgumentError("--check needs a command", expected="a command that gets the path of a model")

    def __call__(self, model: onnx.ModelProto, inputs: Arrays, trusted: Arrays) -> str | None:
        """Its status, if that is not 0."""
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.onnx")
            onnx.save(model, path)
            np.savez(path.removesuffix(".onnx") + ".inputs.npz", **inputs)  # type: ignore[arg-type]
            words = [word.replace("{}", path) for word in self.words]
            words += [path] if words == self.words else []
            try:
                status = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode
            except OSError as error:
                raise InvalidArgumentError(f"--check can't be run: {error.strerror}", got=words[0]) from error
        return f"status {status}" if status else None


def smallest(subject: Subject, judge: Judge, tell: Tell) -> Found | None:
    """The smallest part that was found to fail as the whole model does; None where that does not fail."""
    search = _Search(subject, judge, tell)
    everything = list(range(len(subject.model.graph.node)))
    search.failure = search.judge_of(everything)
    if search.failure is None:
        return None
    kept = search.without_tail(everything)
    kept = search.without_head(kept)
    kept = search.without_each(kept)
    return Found(search.part(kept), search.failure, search.tried)


class _Search:
    def __init__(self, subject: Subject, judge: Judge, tell: Tell) -> None:
        self.subject, self.judge, self.tell = subject, judge, tell
        self.failure: str | None = None
        self.tried = 0
        constants = {t.name for t in subject.model.graph.initializer}
        nodes = subject.model.graph.node
        #: Nodes that read nothing: what they give belongs to whoever reads it.
        self.fixed = {i for i, node in enumerate(nodes) if not read_by(node) - constants}

    def part(self, kept: Sequence[int]) -> onnx.ModelProto:
        """The part with these nodes, and the constants that they read."""
        nodes = self.subject.model.graph.node
        reads = {name for number in kept for name in read_by(nodes[number])}
        fixed = [i for i in self.fixed if reads.intersection(given_by(nodes[i]))]
        return cutting.cut(self.subject.model, sorted({*kept, *fixed}), self.subject.values)

    def judge_of(self, kept: Sequence[int]) -> str | None:
        """How a part fails."""
        self.tried += 1
        self.tell(1 - len(kept) / max(len(self.subject.model.graph.node), 1), f"{len(kept)} nodes left")
        model = self.part(kept)
        values = self.subject.values
        inputs = {value.name: values[value.name] for value in model.graph.input}
        trusted = {value.name: values[value.name] for value in model.graph.output if value.name in values}
        return self.judge(cutting.with_outputs(model, trusted), inputs, trusted) if trusted else None

    def fails(self, kept: Sequence[int]) -> bool:
        """Whether a part fails as the whole does."""
        return bool(kept) and self.judge_of(kept) == self.failure

    def without_tail(self, kept: list[int]) -> list[int]:
        """Halves: what comes behind the first failure goes."""
        return self._halve(kept, lambda count: kept[:count])

    def without_head(self, kept: list[int]) -> list[int]:
        """Halves: what comes before goes, as far as it is not needed for the failure."""
        return self._halve(kept, lambda count: kept[len(kept) - count :])

    def _halve(self, kept: list[int], take: Callable[[int], list[int]]) -> list[int]:
        low, high = 1, len(kept)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fails(take(middle)) else (middle + 1, high)
        # Failures need not be in order: what halving gave must fail itself.
        return take(low) if low < len(kept) and self.fails(take(low)) else kept

    def without_each(self, kept: list[int]) -> list[int]:
        """Leaves out runs of nodes, ever shorter ones, as long as what is left fails."""
        size = max(len(kept) // 2, 1)
        while True:
            start, shorter = 0, False
            while start < len(kept):
                rest = kept[:start] + kept[start + size :]
                if self.fails(rest):
                    kept, shorter = rest, True
                else:
                    start += size
            if size == 1 and not shorter:
                return kept
            size = max(size // 2, 1)


def write(found: Found, subject: Subject, path: str) -> list[str]:
    """Writes the part, its inputs and the trusted outputs; gives the paths.

    Raises `FileError` when they can't be written.
    """
    stem = path.removesuffix(".onnx")
    written = [path, f"{stem}.inputs.npz", f"{stem}.outputs.npz"]
    graph = found.model.graph
    with files.replacing(path, "the graph") as file:
        file.write(found.model.SerializeToString())
    for target, ports in zip(written[1:], (graph.input, graph.output), strict=True):
        known = {port.name: subject.values[port.name] for port in ports if port.name in subject.values}
        write_arrays(target, known)
    return written
