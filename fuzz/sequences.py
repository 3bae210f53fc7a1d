"""Random ONNX graphs over sequences, through If, Loop and SequenceMap inside of each other, against ONNX Runtime.

    python -m fuzz.sequences [--seed N] [--count N] [--fixed] [--level N]

Sequences hold vectors. Each graph is built once and called with several lengths, numbers of steps and conditions.
Prints what differs, what fails in a call that ONNX Runtime answers, and how many graphs were refused with which words.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import parser

import neurenix as nx
from neurenix.hardware import get_backend

#: Lengths of both vectors, two numbers, and a condition.
CALLS = [(3, 2, 2, 3, True), (3, 2, 0, 1, False), (4, 1, 3, 2, True), (2, 5, 1, 0, False), (3, 3, 3, 3, True)]
TYPES = {"s": "seq(float[])", "t": "float[]", "i": "int64", "b": "bool"}
LITERALS = {"c0": "int64 {0}", "c1": "int64 {1}", "c2": "int64 {2}", "c4": "int64 {4}", "last": "int64 {-1}"}
VECTORS = {"v0": "int64[1] {0}", "flat": "int64[1] {-1}"}
DEEPEST = 3


class Scope:
    """Names that a node may read, by kind: s(equences), t(ensors), i(ntegers), b(ools); and the nodes so far."""

    def __init__(self, names: dict[str, list[str]]) -> None:
        self.names = {kind: list(found) for kind, found in names.items()}
        self.nodes: list[str] = []

    def inner(self) -> Scope:
        """That of a graph inside."""
        return Scope(self.names)

    def __str__(self) -> str:
        return "\n".join(self.nodes)


class Maker:
    """Makes the text of a graph."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def graph(self, dims: tuple[str, str]) -> str:
        """A model of two vectors, two numbers and a condition."""
        scope = Scope({"s": [], "t": ["x", "w"], "i": ["k", "j", "c0", "c1", "c2"], "b": ["c"]})
        scope.nodes += [f"{name} = Constant<value = {value}>()" for name, value in (LITERALS | VECTORS).items()]
        for _ in range(self._random.choice([1, 1, 2])):
            self._source(scope)
        self._statements(scope, self._random.randint(2, 5), 0)
        outputs = []
        for name in scope.names["s"][-3:]:
            longer, joined, length = (self._name(kind) for kind in "sti")
            scope.nodes += [
                f"{longer} = SequenceInsert({name}, x)",
                f"{joined} = ConcatFromSequence<axis = 0>({longer})",
                f"{length} = SequenceLength({name})",
            ]
            outputs += [f"float[] {joined}", f"int64 {length}"]
        inputs = f"float[{dims[0]}] x, float[{dims[1]}] w, int64 k, int64 j, bool c"
        return f'<ir_version: 8, opset_import: ["": 18]> m ({inputs}) => ({", ".join(outputs)}) {{ {scope} }}'

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count + 10}"

    def _pick(self, scope: Scope, kind: str) -> str:
        """One of the names, the last ones more often."""
        names = scope.names[kind]
        return self._random.choice(names[-4:] if self._random.random() < 0.6 else names)

    def _put(self, scope: Scope, kind: str, value: str) -> str:
        name = self._name(kind)
        scope.nodes.append(f"{name} = {value}")
        scope.names[kind].append(name)
        return name

    def _statements(self, scope: Scope, count: int, depth: int) -> None:
        kinds = [self._change, self._tensor, self._integer, self._condition, self._source]
        for _ in range(count):
            if depth < DEEPEST and self._random.random() < 0.4:
                self._random.choice([self._loop, self._loop, self._if])(scope, depth)
            else:
                self._random.choices(kinds, [5, 3, 2, 1, 1])[0](scope)

    def _source(self, scope: Scope) -> str:
        elements = ", ".join(self._pick(scope, "t") for _ in range(self._random.randint(1, 3)))
        size = self._put(scope, "i", f"Max({self._pick(scope, 'i')}, c1)")
        choices = [
            "SequenceEmpty<dtype = 1>()",
            f"SequenceConstruct({elements})",
            f"SplitToSequence({self._pick(scope, 't')})",
            f"SplitToSequence({self._pick(scope, 't')}, {size})",
        ]
        return self._put(scope, "s", self._random.choices(choices, [3, 3, 1, 2])[0])

    def _place(self, scope: Scope, sequence: str) -> str:
        """A position that is there, if anything is."""
        if self._random.random() < 0.4:
            return self._random.choice(["c0", "last"])
        count = self._put(scope, "i", f"SequenceLength({sequence})")
        most = self._put(scope, "i", f"Max({count}, c1)")
        return self._put(scope, "i", f"Mod({self._pick(scope, 'i')}, {most})")

    def _change(self, scope: Scope) -> str:
        """A sequence of another one."""
        source, tensor = self._pick(scope, "s"), self._pick(scope, "t")
        kind = self._random.random()
        if kind < 0.4:
            return self._put(scope, "s", f"SequenceInsert({source}, {tensor})")
        if kind < 0.55:
            place = self._place(scope, source).replace("last", "c0")
            return self._put(scope, "s", f"SequenceInsert({source}, {tensor}, {place})")
        if kind < 0.7:
            longer = self._put(scope, "s", f"SequenceInsert({source}, {tensor})")
            place = self._random.choice(["", f", {self._place(scope, longer)}"])
            return self._put(scope, "s", f"SequenceErase({longer}{place})")
        if kind < 0.8:
            return self._put(scope, "s", f"Identity({source})")
        taken, made = self._name("t"), self._name("t")
        body = self._random.choice(
            [f"Neg({taken})", f"Concat<axis = 0>({taken}, {tensor})", f"Identity({tensor})", f"Identity({taken})"]
        )
        ports = f"{self._name('g')} (float[] {taken}) => (float[] {made})"
        return self._put(scope, "s", f"SequenceMap({source}) <body = {ports} {{ {made} = {body} }}>")

    def _tensor(self, scope: Scope) -> str:
        one, other = self._pick(scope, "t"), self._pick(scope, "t")
        kind = self._random.random()
        if kind < 0.3:
            return self._put(scope, "t", self._random.choice([f"Neg({one})", f"Concat<axis = 0>({one}, {other})"]))
        if kind < 0.5:
            end = self._name("n")
            scope.nodes.append(f"{end} = Reshape({self._pick(scope, 'i')}, flat)")
            return self._put(scope, "t", f"Slice({one}, v0, {end})")
        source = self._pick(scope, "s")
        if self._random.random() < 0.6:
            source = self._put(scope, "s", f"SequenceInsert({source}, {one})")
        if self._random.random() < 0.3:
            return self._put(scope, "t", f"ConcatFromSequence<axis = 0>({source})")
        return self._put(scope, "t", f"SequenceAt({source}, {self._place(scope, source)})")

    def _integer(self, scope: Scope) -> str:
        if scope.names["s"] and self._random.random() < 0.5:
            return self._put(scope, "i", f"SequenceLength({self._pick(scope, 's')})")
        total = self._put(scope, "i", f"Add({self._pick(scope, 'i')}, {self._pick(scope, 'i')})")
        return self._put(scope, "i", f"Mod({total}, c2)")

    def _condition(self, scope: Scope) -> str:
        op = self._random.choice(["Less", "Equal", "Greater"])
        return self._put(scope, "b", f"{op}({self._pick(scope, 'i')}, {self._pick(scope, 'i')})")

    def _result(self, scope: Scope, kind: str, carried: str) -> str:
        """What a graph inside gives: a name of its own."""
        choice = self._random.random()
        if kind == "i":
            return self._integer(scope)
        if kind == "t":
            return self._tensor(scope) if choice < 0.6 else self._put(scope, "t", f"Identity({self._pick(scope, 't')})")
        if choice < 0.45:
            return self._put(scope, "s", f"SequenceInsert({carried}, {self._pick(scope, 't')})")
        if choice < 0.85:
            return self._put(scope, "s", f"Identity({self._random.choice([carried, self._pick(scope, 's')])})")
        return self._change(scope)

    def _if(self, scope: Scope, depth: int) -> None:
        condition = self._condition(scope) if self._random.random() < 0.6 else self._pick(scope, "b")
        kinds = self._random.choice(["s", "s", "st", "ss", "si"])
        source, branches = self._pick(scope, "s"), []
        for branch in ("then_branch", "else_branch"):
            inner = scope.inner()
            self._statements(inner, self._random.choice([0, 0, 1, 2]), depth + 1)
            results = ", ".join(f"{TYPES[kind]} {self._result(inner, kind, source)}" for kind in kinds)
            branches.append(f"{branch} = {self._name('g')} () => ({results}) {{ {inner} }}")
        self._outputs(scope, kinds, f"If({condition}) < {', '.join(branches)} >")

    def _outputs(self, scope: Scope, kinds: str, value: str, more: str = "") -> None:
        names = [self._name(kind) for kind in kinds]
        scope.nodes.append(f"{', '.join(names)}{more} = {value}")
        for kind, name in zip(kinds, names, strict=True):
            scope.names[kind].append(name)

    def _loop(self, scope: Scope, depth: int) -> None:
        kinds = self._random.choice(["s", "s", "ss", "st", "si", "tss"])
        initial = [self._pick(scope, kind) for kind in kinds]
        if self._random.random() < 0.3:
            initial[kinds.index("s")] = self._source(scope)
        steps = self._put(scope, "i", f"Min({self._pick(scope, 'i')}, c4)")
        inner, step, goes_on = scope.inner(), self._name("i"), self._name("b")
        carried = [self._name(kind) for kind in kinds]
        inner.names["i"] += [step, step]
        for kind, name in zip(kinds, carried, strict=True):
            inner.names[kind] += [name, name]
        self._statements(inner, self._random.choice([0, 1, 1, 2, 3]), depth + 1)
        results = [self._result(inner, kind, name) for kind, name in zip(kinds, carried, strict=True)]
        lists = [at for at, kind in enumerate(kinds) if kind == "s"]
        if len(lists) == 2 and self._random.random() < 0.15:
            for at, other in (lists, lists[::-1]):
                results[at] = self._put(inner, "s", f"Identity({carried[other]})")
        holds = self._condition(inner) if self._random.random() < 0.3 else goes_on
        ends = self._put(inner, "b", f"Identity({holds})")
        given, more = [f"{TYPES[kind]} {name}" for kind, name in zip(kinds, results, strict=True)], ""
        if self._random.random() < 0.25:
            row, more = self._name("t"), f", {self._name('rows')}"
            inner.nodes.append(f"{row} = ReduceSum<keepdims = 1>({self._pick(inner, 't')})")
            given.append(f"float[] {row}")
        taken = [f"{TYPES[kind]} {name}" for kind, name in zip(kinds, carried, strict=True)]
        ports = f"(int64 {step}, bool {goes_on}, {', '.join(taken)}) => (bool {ends}, {', '.join(given)})"
        value = f"Loop({steps}, , {', '.join(initial)}) <body = {self._name('g')} {ports} {{ {inner} }}>"
        self._outputs(scope, kinds, value, more)


def inputs(seed: int, call: tuple[int, int, int, int, bool]) -> dict[str, Any]:
    """Arrays for a call."""
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(length).astype(np.float32) for length in call[:2])
    return {"x": x, "w": w, "k": np.asarray(call[2]), "j": np.asarray(call[3]), "c": np.asarray(call[4])}


def theirs(proto: onnx.ModelProto, calls: list[dict[str, Any]]) -> list[list[Any] | None] | None:
    """What ONNX Runtime gives, unoptimised; None for a call that it refuses, and where it refuses the graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    found: list[list[Any] | None] = []
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return None
    for given in calls:
        try:
            found.append(session.run(None, given))
        except Exception:
            found.append(None)
    return found


def outcome(seed: int, dims: tuple[str, str], level: int) -> str:
    """What became of a graph."""
    proto = parser.parse_model(Maker(seed).graph(dims))
    calls = [inputs(seed, call) for call in CALLS if dims != ("3", "2") or call[:2] == (3, 2)]
    wanted = theirs(proto, calls)
    if wanted is None or not any(wanted):
        return "passed over: ONNX Runtime refuses it"
    try:
        shapes = {name: array.shape for name, array in calls[0].items()}
        engine = get_backend("cpu").optimize_model(proto, shapes, threads=1, optimization_level=level)
    except nx.Error as error:
        return f"refused: {str(error).splitlines()[0]}"
    for given, answer in zip(calls, wanted, strict=True):
        if answer is None:
            continue
        try:
            found = engine.run(given)
        except nx.Error as error:
            return f"fails: {error}"
        for (name, one), other in zip(found.items(), answer, strict=True):
            if one.shape != other.shape or not np.allclose(one, other, 1e-5, 1e-5):
                return f"differs: {name} is {one}, wanted {other}"
    return "agrees"


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int, default=0, help="the first one")
    arguments.add_argument("--count", type=int, default=200)
    arguments.add_argument("--fixed", action="store_true", help="lengths of the vectors that the model knows")
    arguments.add_argument("--level", type=int, default=0, help="optimization_level")
    options = arguments.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        found = outcome(seed, ("3", "2") if options.fixed else ("N", "M"), options.level)
        kind = found.partition(":")[0]
        counts[found if kind == "refused" else kind] += 1
        if kind in ("differs", "fails"):
            print(f"seed {seed} {found}", flush=True)
    for what, count in counts.most_common():
        print(f"{count:5} {what}")
    if any(what in ("differs", "fails") for what in counts):
        sys.exit(1)


if __name__ == "__main__":
    main()
