"""Mutated engine files, with checksums that match: what is opened, run and saved, or refused with an error of ours."""

from __future__ import annotations

import copy
import json
import random
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onnx import parser

import neurenix as nx
from fuzz.children import Run, brief, main
from fuzz.engine_file import File, assembled
from fuzz.importer import EXTREMES, HEAD, TEXTS, damage, example
from neurenix import _native
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

#: The files are small, and opening one may not take more memory than this beyond what cases before it took.
MOST_GROWTH = 512 << 20
#: Dimensions that are hard to read.
DIMS = (
    "n", "n + 1", "-n", "m*n", "floordiv(n, 2)", "floordiv(n, m)", "min(n, 3)", "mod(n, 7)", "'a b'", "", "(", "n n",
    "ü",
    "9223372036854775807*n", "9223372036854775807*n + 9223372036854775807", "ceildiv(-9223372036854775807 - n, n)",
    "mod(" * 30 + "n" + ", 7)" * 30, "mod(" * 30 + "n" + ", m)" * 30, "min(" * 200, "n*" * 3000 + "n",
    "n*m + " * 3000 + "n",
    "floordiv(" * 20 + "9223372036854775807*n" + ", 9223372036854775807)" * 20,
)  # fmt: skip

Rng = random.Random
#: Where a value stands: what holds it, and its key or number there.
Place = tuple[Any, Any]

MORE_TEXTS = [
    HEAD + """ m (float[n,4] x, float[m,4] z) => (float[] y) {
        a = Concat<axis = 0>(x, z) b = Relu(a) y = Add(x, z) }""",
    HEAD + """ m (float[n,4] x, int64 k) => (float[n,4] y) { c = Constant<value = bool {1}>()
        y = Loop (k, c, x) <body = b (int64 i, bool go, float[n,4] s) => (bool on, float[n,4] t) {
            on = Identity(go) w = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() t = Mul(s, w) }> }""",
    HEAD + """ m (float[2,3,8,8] x, int64[2] i) => (float[] y, float[] v) <float[4,3,1,1] w> {
        w = ConstantOfShape<value = float[1] {0.5}>(ws) ws = Constant<value_ints = [4,3,1,1]>()
        t = Constant<value_ints = [2, 0, 1]>() a = Conv(x, w) b = Gather<axis = 1>(a, i) r = ReduceMean(b)
        g = Gather<axis = 3>(x, t) v = Resize<mode = "linear">(g, , sc)
        sc = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>() y = Add(b, r) }""",
    HEAD + """ m (float[t,2,4] x) => (float[] y, float[] h) {
        ws = Constant<value_ints = [1,16,4]>() rs = Constant<value_ints = [1,16,4]>()
        w = ConstantOfShape<value = float[1] {0.1}>(ws) r = ConstantOfShape<value = float[1] {0.2}>(rs)
        y, h = LSTM<hidden_size = 4>(x, w, r) }""",
]  # fmt: skip


def corpus() -> list[File]:
    """Small sound files: symbols, profiles, weights kept for refit, networks in layers, stages, measured times."""
    files = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.engine"
        for number, text in enumerate([*TEXTS, *MORE_TEXTS]):
            level = number % 2
            backend = TensorRTBackend(threads=1, optimization_level=level, timing_cache=False, verify=False)
            network = from_onnx(parser.parse_model(text))
            refittable = number % 3 == 0
            backend.optimize_model(network, _profiles(network), refittable=refittable).save(path)
            file = File.read(path.read_bytes())
            # The same at each run.
            file.header["times"] = dict.fromkeys(sorted(file.header["times"]), 1000)
            files.append(file)
    return files


def _profiles(network: nx.Network) -> Any:
    """Two profiles where there is something to choose."""

    def shape(given: nx.Tensor, value: int) -> tuple[int, ...]:
        return tuple(dim if isinstance(dim, int) else value for dim in given.shape)

    if all(isinstance(dim, int) for given in network.inputs for dim in given.shape):
        return None
    ranges = ((1, 2, 4), (2, 6, 8))
    return [{t.name: nx.Shape(*(shape(t, v) for v in values)) for t in network.inputs} for values in ranges]


def mutate(rng: Rng, seeds: list[File]) -> bytes:
    """One of the files, changed in a few places."""
    file, other = copy.deepcopy(rng.choice(seeds)), copy.deepcopy(rng.choice(seeds))
    kind = rng.random()
    if kind < 0.06:
        return damage(rng, file.written())
    if kind < 0.12:
        text = json.dumps(file.header, separators=(",", ":"))
        return assembled(_spoilt(rng, text).encode(), file.weights, file.version)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        rng.choice(MUTATIONS)(rng, file, other)
    if rng.random() < 0.9:
        file.seal()
    return file.written()


def _spoilt(rng: Rng, text: str) -> str:
    """JSON that no writer writes."""
    at = rng.randrange(len(text))
    depth = rng.choice((3, 120, 5000, 200_000))
    deep = ("[" * depth, '{"a":' * depth, "1" * depth)
    inserted = rng.choice((*deep, "1e999", "-0", "NaN", "null,", "\x00", "\\ud800", '"', ",", "}", "]"))
    if rng.random() < 0.3:
        # The first field twice.
        first = text[1 : text.index(",") + 1]
        return "{" + first + text[1:]
    return text[:at] + inserted + text[at + rng.choice((0, 0, 1, len(inserted))) :]


def places(value: Any) -> Iterator[Place]:
    """Where the values inside of one stand."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def _some(rng: Rng, file: File) -> Place:
    """A place; half of the time in the network, and seldom among the times, of which there are many."""
    part = rng.choice(["network", "network", "weights", "source", "profiles", None])
    found = list(places(file.header.get(part) or file.header)) if part else []
    return rng.choice(found or list(places(file.header)))


def _value(rng: Rng, old: Any, file: File) -> Any:
    """Another value, of the same type more often than not."""
    if rng.random() < 0.15:
        return rng.choice([None, True, 0, 1.5, "", [], {}, [[]], -1, 1 << 64, "float32", [1, 2], {"int": 1}])
    if isinstance(old, bool) or old is None:
        return rng.choice([True, False, None, 1])
    if isinstance(old, int):
        return rng.choice((*EXTREMES, 2**63, 2**64 - 1)) if rng.random() < 0.5 else old + rng.choice((-1, 1, 2))
    if isinstance(old, float):
        return rng.choice([0.0, -1.0, 1e308, -1e308, 1e-308, 3])
    if isinstance(old, str):
        ops = [op["name"] for op in _native.ops()]
        dtypes = ["float16", "bfloat16", "int64", "bool", "int4", "uint8", "float64", "float8_e4m3fn"]
        texts = [word for holder, key in places(file.header) if isinstance(word := holder[key], str)]
        return rng.choice(rng.choice([ops, dtypes, DIMS, texts]))
    return _changed(rng, old, file)


def _changed(rng: Rng, old: Any, file: File) -> Any:
    """A list or a dict with something more, less, or elsewhere."""
    new = copy.deepcopy(old)
    kind = rng.randrange(4)
    if not new:
        return rng.choice([[1], {"a": 1}, ["n"], [None]])
    if isinstance(new, list):
        if kind == 0:
            new.pop(rng.randrange(len(new)))
        elif kind == 1:
            new.insert(rng.randrange(len(new) + 1), copy.deepcopy(rng.choice(new)))
        elif kind == 2:
            rng.shuffle(new)
        else:
            new = new * rng.choice((2, 3, 30))
        return new
    key = rng.choice(list(new))
    if kind == 0:
        del new[key]
    elif kind == 1:
        new[rng.choice(["axis", "op", "n", "source", "symbols", key + "x"])] = new[key]
    else:
        new[key] = _value(rng, new[key], file)
    return new


def another(rng: Rng, file: File, other: File) -> None:
    """Another value in some place."""
    holder, key = _some(rng, file)
    holder[key] = _value(rng, holder[key], file)


def swapped(rng: Rng, file: File, other: File) -> None:
    """What stands elsewhere in this file or another one, where there is something of its type."""
    holder, key = _some(rng, file)
    donors = [h[k] for h, k in places(rng.choice([file, other]).header) if type(h[k]) is type(holder[key])]
    holder[key] = copy.deepcopy(rng.choice(donors or [None]))


def without(rng: Rng, file: File, other: File) -> None:
    """Something left out."""
    holder, key = _some(rng, file)
    del holder[key]


def guards(rng: Rng, file: File, other: File) -> None:
    """Relations between dimensions that are not checked, or others."""
    kept = file.header.get("network")
    if isinstance(kept, dict):
        kept["guards"] = rng.choice([[], [{"left": "n", "right": rng.choice(DIMS), "or_one": False, "reason": ""}]])


def ranges(rng: Rng, file: File, other: File) -> None:
    """Other ranges of symbols, and profiles of others."""
    profile = {name: {part: rng.choice(EXTREMES) for part in ("min", "opt", "max")} for name in ("n", "m", "strange")}
    if rng.random() < 0.5:
        profile = {
            name: dict(zip(("min", "opt", "max"), sorted(r.values()), strict=True)) for name, r in profile.items()
        }
    network = file.header.get("network")
    if rng.random() < 0.5 or not isinstance(network, dict):
        file.header["profiles"] = [profile] * rng.choice((0, 1, 2, 50))
    else:
        network["symbols"] = profile


def weight(rng: Rng, file: File, other: File) -> None:
    """Other bytes of a weight, which are as good as the old ones where they are numbers."""
    kept = [at for at, data in enumerate(file.weights) if data]
    if kept:
        at = rng.choice(kept)
        file.weights[at] = damage(rng, file.weights[at])


def times(rng: Rng, file: File, other: File) -> None:
    """Times of any size."""
    known = file.header.get("times")
    if isinstance(known, dict):
        extremes = (0, 1, 2**53, 2**63, 2**64 - 1)
        file.header["times"] = {key: rng.choice(extremes) for key in known} | {"strange": rng.choice(extremes)}


MUTATIONS: list[Callable[[Rng, File, File], None]] = [*[another] * 8, *[swapped] * 3, *[without] * 2, guards, ranges,
                                                      weight, times]  # fmt: skip


def attempt(path: Path, level: int) -> str:
    """Opens a file, runs it and saves it as far as it goes; says how far that was."""
    step = "opened"
    try:
        backend = TensorRTBackend(threads=1, optimization_level=level, timing_cache=False)
        model = backend.load(path)
        step = "reported"
        model.report()
        step = "ran"
        inputs = example(model)
        if inputs is not None:
            model.run(inputs)
        step = "saved"
        model.save(path.with_suffix(".again"))
        step = "opened again"
        backend.load(path.with_suffix(".again"))
    except nx.InternalError as error:
        return f"bad: not {step}: {brief(error)}"
    except nx.Error as error:
        # What was opened can be saved, and what was saved can be opened.
        bad = "bad: " if step in ("saved", "opened again") else ""
        return f"{bad}not {step}, {type(error).__name__}: {brief(error)}"
    finally:
        path.with_suffix(".again").unlink(missing_ok=True)
    return "ran" if inputs is not None else "opened and too large to run"


def target(seed: int) -> Run:
    """A function that runs the case of a number."""
    seeds = corpus()

    def run(case: int, out: Path) -> str:
        rng = Rng(f"{seed} {case}")
        path = out / f"engine-{seed}-{case}.engine"
        # Written before it runs: a crash leaves no time.
        path.write_bytes(mutate(rng, seeds))
        before = _peak()
        try:
            word = attempt(path, int(rng.random() < 0.1))
        except Exception as error:
            word = f"bad: {brief(error)}"
        if (growth := _peak() - before) > MOST_GROWTH:
            word = f"bad: took {growth >> 20} MiB more: {word}"
        if not word.startswith("bad"):
            path.unlink()
        return word

    return run


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    main("fuzz.engine", target, __doc__ or "")
