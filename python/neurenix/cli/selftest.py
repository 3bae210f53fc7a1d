"""Checks on this machine what only a machine like it can show, and prints a report to paste into an issue."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from neurenix import Network, __version__, _native
from neurenix.cli.common import count, write_json
from neurenix.cli.peers import relative_error
from neurenix.cli.selftest_cases import BATCHES, Case, cases
from neurenix.errors import Error
from neurenix.hardware import get_backend, probe
from neurenix.hardware.optimized import OptimizedModel
from neurenix.log import LOG

#: Greatest difference from numpy, over the greatest value.
TOLERANCES = {"fp32": 1e-4, "fp16": 2e-2}
#: What may run besides: TensorRT alone would hide what it leaves.
PROVIDERS = ("tensorrt", "cpu")
#: Exit status where nothing can run here.
NOTHING = 2


@dataclass
class Check:
    """One check: whether it passed, what was seen, and what went wrong."""

    name: str
    passed: bool
    seconds: float
    seen: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("what", choices=("tensorrt",), help="the provider to check")
    parser.add_argument("--device", type=count, default=0, help="the number of the GPU (0)")
    parser.add_argument("--iterations", type=count, default=50, help="timed calls of each network (50)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON, to a file or to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Runs all checks: 0 if they passed, 1 if one did not, 2 if nothing can run on this machine."""
    found: dict[str, Any] = {"machine": machine(arguments.device), "checks": []}
    state = probe.state(arguments.what, arguments.device)
    found["reason"] = state.reason
    checks: list[Check] = []
    if state.available:
        with _own_cache() as cache:
            checks = list(_checks(cache, arguments.device, arguments.iterations))
        found["checks"] = [asdict(check) for check in checks]
    found["passed"] = bool(checks) and all(check.passed for check in checks)
    if not write_json(arguments.json, found):
        _print(found, checks)
    if not checks:
        return NOTHING
    return 0 if found["passed"] else 1


def machine(device: int) -> dict[str, Any]:
    """What a developer asks first: versions, libraries, GPU, driver."""
    library, tried, headers = _native.tensorrt_library()
    try:
        gpu: dict[str, Any] = {**_native.gpu_info(device)}
    except Error as error:
        gpu = {"reason": error.message}
    return {
        "neurenix": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "library": dict(zip(("path", "version", "headers"), library, strict=True)) if library else None,
        "tried": [{"place": place, "reason": reason} for place, reason in tried],
        "headers": headers,
        "gpu": gpu,
    }


@contextmanager
def _own_cache() -> Iterator[Path]:
    """A cache directory of its own, so that what is cold is cold, and what is spoilt is nobody's."""
    name = "NEURENIX_CACHE_DIR"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="neurenix-selftest-") as folder:
        os.environ[name] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before


def _checks(cache: Path, device: int, iterations: int) -> Iterator[Check]:
    every = cases()
    for case in every:
        for precision in TOLERANCES:
            yield _check(f"{case.name} {precision}", partial(_case, case, precision, device, iterations))
    for name, check in (
        ("plan cache", lambda: _cached(every[0], cache, device)),
        ("spoilt plan", lambda: _spoilt(every[1], cache, device)),
        ("two regions", lambda: _parts(device)),
        ("engine file", lambda: _saved(every[2], cache, device)),
        ("threads", lambda: _threads(every[3], device)),
        ("shapes outside of the profile", lambda: _outside(every[1], device)),
        ("shapes that do not fit", lambda: _refused(every[1], device)),
    ):
        yield _check(name, check)


def _check(name: str, job: Callable[[], dict[str, Any]]) -> Check:
    begin = time.perf_counter()
    try:
        seen, error = job(), None
    except Exception as raised:  # What a user's machine does is what is to be told.
        seen, error = {}, f"{type(raised).__name__}: {raised}"
    return Check(name, error is None, time.perf_counter() - begin, seen, error)


class Departure(Exception):
    """What was seen is not what should be."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Departure(what)


def _optimize(case: Case, device: int, **options: Any) -> OptimizedModel:
    given: dict[str, Any] = {"providers": PROVIDERS, "timing_cache": False} | options
    return get_backend("tensorrt", device=device).optimize_model(case.network, case.shapes(), **given)


def _regions(model: OptimizedModel) -> list[list[str]]:
    """The layers of each region; copies of inputs and outputs are none."""
    kernels = model.report()["kernels"]
    return [kernel["layers"] for kernel in kernels if kernel["provider"] == "tensorrt" and kernel["layers"]]


def _differences(model: OptimizedModel, case: Case, batches: tuple[int, ...], tolerance: float) -> dict[str, float]:
    """The greatest difference from numpy for each batch; each call comes several times, so that it is recorded."""
    found = {}
    for batch in batches:
        arrays = case.arrays(batch)
        want = case.compute(arrays)
        calls = [relative_error(model(arrays)["y"], want) for _ in range(4)]
        found[str(batch)] = max(calls)
        _require(max(calls) <= tolerance, f"batch {batch} departs from numpy by {max(calls):.2e} (allowed {tolerance})")
    return found


def _case(case: Case, precision: str, device: int, iterations: int) -> dict[str, Any]:
    begin = time.perf_counter()
    model = _optimize(case, device, precision=precision)
    built = time.perf_counter() - begin
    regions, report = _regions(model), model.report()
    refused = [f"{r['layer']}: {r['reason']}" for r in report["refusals"]]
    _require(len(regions) == 1, f"{len(regions)} regions instead of one; refused: {refused}")
    seen: dict[str, Any] = {"build_s": built, "layers": len(regions[0]), "refusals": refused, "notes": report["notes"]}
    seen["difference_from_numpy"] = _differences(model, case, BATCHES, TOLERANCES[precision])
    arrays = case.arrays(BATCHES[1])
    ours = get_backend("cpu").optimize_model(case.network, case.shapes(), timing_cache=False)(arrays)["y"]
    seen["difference_from_cpu"] = relative_error(model(arrays)["y"], ours)
    _require(seen["difference_from_cpu"] <= TOLERANCES[precision], "it departs from our own CPU engine")
    times = []
    for _ in range(max(1, iterations)):
        begin = time.perf_counter()
        model(arrays)
        times.append(time.perf_counter() - begin)
    seen["call_ms"] = statistics.median(times) * 1e3
    seen["tuned_us"] = [k["tuned_nanoseconds"] / 1e3 for k in report["kernels"] if k["layers"]]
    return seen


def _plans(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((cache / "plans").glob("*"))}


def _cached(case: Case, cache: Path, device: int) -> dict[str, Any]:
    """A second build takes the plan from the cache."""
    for path in (cache / "plans").glob("*"):
        path.unlink()
    begin = time.perf_counter()
    model = _optimize(case, device)
    cold = time.perf_counter() - begin
    kept = _plans(cache)
    _require(len(kept) == 1, f"{len(kept)} plans in the cache instead of one")
    modes = [path.stat().st_mode & 0o777 for path in (cache / "plans", *(cache / "plans").glob("*"))]
    _require(modes == [0o700, 0o600], f"others may see the cache: {list(map(oct, modes))}")
    del model
    begin = time.perf_counter()
    model = _optimize(case, device)
    warm = time.perf_counter() - begin
    _require(_plans(cache) == kept, "the plan was built again")
    _differences(model, case, BATCHES, TOLERANCES["fp32"])
    return {"cold_s": cold, "warm_s": warm, "bytes": sum(map(len, kept.values()))}


def _spoilt(case: Case, cache: Path, device: int) -> dict[str, Any]:
    """A plan that somebody changed is not run, but built anew, and a note says so."""
    for path in (cache / "plans").glob("*"):
        path.unlink()
    _optimize(case, device)
    kept = _plans(cache)
    _require(len(kept) == 1, f"{len(kept)} plans in the cache instead of one")
    (path,) = (cache / "plans").glob("*")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with _quiet():
        model = _optimize(case, device)
    notes = model.report()["notes"]
    _require(any("not what was written" in note for note in notes), f"no note tells of it: {notes}")
    _differences(model, case, BATCHES, TOLERANCES["fp32"])
    return {"notes": notes}


def _parts(device: int) -> dict[str, Any]:
    """A layer that TensorRT does not take stands between two regions."""
    network = Network("parts")
    x = network.add_input("x", "float32", ["batch", 3, 3])
    y = x
    for op in ("Sigmoid", "Tanh", "Exp"):
        y = network.add_layer(op, [y])[0]
    y = network.add_layer("Det", [y], name="not taken")[0]
    for op in ("Neg", "Sigmoid", "Exp"):
        y = network.add_layer(op, [y])[0]
    network.mark_output(y, "y")

    def compute(a: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        inner = np.exp(np.tanh(1 / (1 + np.exp(-a["x"].astype(np.float64)))))
        return np.asarray(np.exp(1 / (1 + np.exp(np.linalg.det(inner)))))

    case = Case("parts", network, {"x": ("float32", (3, 3))}, compute)
    model = _optimize(case, device)
    regions = _regions(model)
    refusals = {r["layer"]: r["reason"] for r in model.report()["refusals"]}
    _require(len(regions) == 2, f"{len(regions)} regions instead of two")
    _require("not taken" in refusals, f"the layer between them is not refused: {refusals}")
    return {
        "regions": regions,
        "reason": refusals["not taken"],
        "difference_from_numpy": _differences(model, case, BATCHES, TOLERANCES["fp32"]),
    }


def _saved(case: Case, cache: Path, device: int) -> dict[str, Any]:
    """An engine file brings no plan along: that comes out of the cache."""
    path = cache / "selftest.engine"
    _optimize(case, device).save(path)
    begin = time.perf_counter()
    model = get_backend("tensorrt", device=device).load(path, providers=PROVIDERS, timing_cache=False)
    loaded = time.perf_counter() - begin
    _require(len(_regions(model)) == 1, "it does not run on TensorRT any more")
    return {"load_s": loaded, "difference_from_numpy": _differences(model, case, BATCHES, TOLERANCES["fp32"])}


def _threads(case: Case, device: int) -> dict[str, Any]:
    """Several threads call one engine at once."""
    model = _optimize(case, device)
    batches = [BATCHES[number % len(BATCHES)] for number in range(24)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda batch: (batch, model(case.arrays(batch))["y"]), batches))
    worst = max(relative_error(y, case.compute(case.arrays(batch))) for batch, y in found)
    _require(worst <= TOLERANCES["fp32"], f"a call departs from numpy by {worst:.2e}")
    return {"calls": len(found), "difference_from_numpy": worst}


def _outside(case: Case, device: int) -> dict[str, Any]:
    """Other kernels run shapes that TensorRT compiled nothing for."""
    model = _optimize(case, device)
    with _quiet():
        return {"difference_from_numpy": _differences(model, case, (2 * BATCHES[-1],), TOLERANCES["fp32"])}


def _refused(case: Case, device: int) -> dict[str, Any]:
    """What does not fit is an error, and the engine goes on."""
    model = _optimize(case, device)
    arrays = {name: array[..., :-1] for name, array in case.arrays(2).items()}
    try:
        model({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    except Error as error:
        _differences(model, case, BATCHES, TOLERANCES["fp32"])
        return {"error": error.message}
    raise Departure("an input of another shape was taken")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that are wanted."""
    before = LOG.level
    if not LOG.isEnabledFor(logging.INFO):
        LOG.setLevel(max(before, logging.ERROR))
    try:
        yield
    finally:
        LOG.setLevel(before)


def _print(found: dict[str, Any], checks: list[Check]) -> None:
    host = found["machine"]
    print(f"neurenix {host['neurenix']}, Python {host['python']}, {host['system']}")
    library = host["library"]
    print(
        f"TensorRT library: {library['path']}, version {library['version']}, driven by headers {library['headers']}"
        if library
        else f"TensorRT library: none that this build can drive (headers: {', '.join(host['headers']) or 'none'})"
    )
    for attempt in host["tried"]:
        print(f"  not {attempt['place']}: {attempt['reason']}")
    gpu = host["gpu"]
    print("GPU: " + (", ".join(f"{key} {value}" for key, value in gpu.items()) if "name" in gpu else gpu["reason"]))
    if not checks:
        print(f"Nothing can run here: {found['reason']}")
        return
    for check in checks:
        print(f"{'PASSED' if check.passed else 'FAILED'} {check.name} ({check.seconds:.2f} s)")
        for key, value in check.seen.items():
            print(f"  {key}: {value}")
        if check.error:
            print("  " + check.error.replace("\n", "\n  "))
    passed = sum(check.passed for check in checks)
    print(f"{passed} of {len(checks)} checks passed")
