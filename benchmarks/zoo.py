"""The zoo: many models out of both of PyTorch's exporters, with dynamic sizes, right and fast?

    python -m benchmarks.zoo --models resnet18 bert --rounds 15

Each model and exporter is a process of its own. The answers at two sets of sizes are compared with PyTorch's in double
precision (RapidOCR's, which come as files, with ONNX Runtime's), the times at batch 1 with those of OpenVINO and ONNX
Runtime in the same run. Prints a table and writes benchmarks/results/zoo.json, where other models
keep what an earlier run with the same settings found. Exported files stay in the cache folder
(`--cache`), one folder for each exporter.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure

EXPORTERS = {"torchscript": False, "dynamo": True}
#: Models that come as files: the package's file and the shapes to run, the first of which is timed.
FILES = {
    "rapidocr_det": ("ch_PP-OCRv4_det_infer", [(1, 3, 320, 640), (2, 3, 160, 224)]),
    "rapidocr_cls": ("ch_ppocr_mobile_v2.0_cls_infer", [(1, 3, 48, 192), (5, 3, 48, 192)]),
    "rapidocr_rec": ("ch_PP-OCRv4_rec_infer", [(1, 3, 48, 320), (3, 3, 48, 487)]),
}
DETECTORS = ("ssdlite", "faster_rcnn", "mask_rcnn")
WITHIN = 1e-4
#: PyTorch's own boxes in single and double precision are 4e-5 apart: each box is computed out of another one.
WITHIN_BOXES = 3e-4
OPSET = 17

#: Arrays by name, and what should come out.
Case = tuple[dict[str, np.ndarray], list[np.ndarray]]


def export(name: str, exporter: str, folder: Path) -> dict[str, Any]:
    """Writes the ONNX file if it is not there yet; how long that took, or why PyTorch can't."""
    path, note = folder / exporter / f"{name}.onnx", folder / exporter / f"{name}.json"
    if note.exists():
        return json.loads(note.read_text())
    path.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write(name, EXPORTERS[exporter], path)
        found: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 1)}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"[:2000]}
    note.write_text(json.dumps(found))
    return found


def write(name: str, dynamo: bool, path: Path) -> None:
    """Exports a model with every dimension that has a name dynamic."""
    import torch

    from benchmarks.zoo_models import ZOO

    entry = ZOO[name]
    export_entry(entry, entry.build(), dynamo, path, torch)


def export_entry(entry: Any, module: Any, dynamo: bool, path: Path, torch: Any) -> None:
    """Exports at the last of the sizes: an exporter takes a batch of 1 for a constant."""
    example = tuple(entry.fill(entry.sizes[-1]).values())
    options: dict[str, Any] = {"input_names": list(entry.inputs), "dynamo": dynamo}
    dynamic = {key: x.names() for key, x in entry.inputs.items()}
    if dynamo:
        auto = torch.export.Dim.DYNAMIC
        options["dynamic_shapes"] = tuple(dict.fromkeys(axes, auto) for axes in dynamic.values())
        options["external_data"] = False
        options["verbose"] = False
    else:
        options |= {"dynamic_axes": dynamic, "opset_version": OPSET}
    with unlogged():
        torch.onnx.export(module, example, path, **options)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Without what exporters warn of; what ours warn of afterwards is told."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def cases_of(name: str) -> list[Case]:
    """Inputs and PyTorch's answers in double precision."""
    import torch

    from benchmarks.zoo_models import ZOO

    entry = ZOO[name]
    module = entry.build().double()
    return [case_of(module, entry.fill(sizes, seed), torch) for seed, sizes in enumerate(entry.sizes)]


def case_of(module: Any, inputs: dict[str, Any], torch: Any) -> Case:
    """One of them; the module computes in double precision already."""
    with torch.inference_mode():
        wide = [x.double() if x.is_floating_point() else x for x in inputs.values()]
        exact = module(*wide)
    exact = exact if isinstance(exact, tuple) else (exact,)
    return {key: x.numpy() for key, x in inputs.items()}, [y.numpy() for y in exact]


def cases_of_file(path: Path, shapes: list[tuple[int, ...]]) -> list[Case]:
    """Pieces of a printed page and ONNX Runtime's answers."""
    import onnxruntime
    import skimage

    page = skimage.data.page()[40:].astype(np.float32) / 127.5 - 1
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = []
    for batch, channels, height, width in shapes:
        wide = np.tile(page, (-(-height // page.shape[0]), -(-(width + 10 * batch) // page.shape[1])))
        pieces = [np.broadcast_to(wide[:height, 10 * i :][:, :width], (channels, height, width)) for i in range(batch)]
        x = {"x": np.stack(pieces)}
        found.append((x, session.run(None, x)))
    return found


def profile_of(cases: list[Case]) -> dict[str, Any]:
    """The range of shapes that holds all cases, best at the first."""
    from neurenix import Shape

    found = {}
    for name in cases[0][0]:
        shapes = [inputs[name].shape for inputs, _ in cases]
        found[name] = Shape(
            tuple(map(min, zip(*shapes, strict=True))), shapes[0], tuple(map(max, zip(*shapes, strict=True)))
        )
    return found


def difference(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The greatest difference, relative to the output's scale; integers and shapes have to be equal."""
    if len(got) != len(want):
        raise AssertionError(f"{len(want)} outputs expected, {len(got)} came")
    worst = 0.0
    for y, exact in zip(got, want, strict=True):
        if y.shape != exact.shape:
            raise AssertionError(f"shape {exact.shape} expected, {y.shape} came")
        if exact.dtype.kind != "f":
            if not np.array_equal(y, exact):
                raise AssertionError(f"{int((y != exact).sum())} of {exact.size} integers differ")
        elif exact.size:
            error = float(np.abs(y - exact).max() / max(np.abs(exact).max(), 1e-30))
            worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst


def difference_of_boxes(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The same for found objects, each compared with the nearest of its label: the order of equal scores is free."""
    if len(got[0]) != len(want[0]):
        raise AssertionError(f"{len(want[0])} boxes expected, {len(got[0])} came")
    mine, exact = ({f"{y.dtype.kind}{y.ndim}": y for y in ys} for ys in (got, want))
    scale, worst = max(float(np.abs(exact["f2"]).max(initial=1)), 1.0), 0.0
    for at, (box, label, score) in enumerate(zip(exact["f2"], exact["i1"], exact["f1"], strict=True)):
        far = np.abs(mine["f2"] - box).max(1) / scale + np.abs(mine["f1"] - score) + 9.0 * (mine["i1"] != label)
        worst = max(worst, float(far.min()))
        if "f4" in exact:
            # Along its rim a mask changes as much as its box moves; the mean over the image does not.
            worst = max(worst, float(np.abs(mine["f4"][far.argmin()] - exact["f4"][at]).mean()))
    return worst


def checked(name: str, run: Any, cases: list[Case]) -> dict[str, Any]:
    """How far the answers are off, and whether the greatest class is the same where that is the answer."""
    compare = difference_of_boxes if name in DETECTORS else difference
    errors = []
    for inputs, want in cases:
        got = list(run(inputs).values())
        errors.append(compare(got, want))
        if want[0].ndim == 2 and want[0].dtype.kind == "f" and name not in DETECTORS:
            rows = np.arange(len(got[0]))
            lost = want[0].max(1) - want[0][rows, got[0].argmax(1)]
            if (lost > WITHIN * np.abs(want[0]).max()).any():
                raise AssertionError("another class is the greatest")
    within = WITHIN_BOXES if name in DETECTORS else WITHIN
    return {"error": float(f"{max(errors):.2g}"), "right": max(errors) <= within}


def where(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The kernel that takes most of the time, and what naive loops take."""
    rows = model.profile(inputs, iterations=5)
    row = max(rows, key=lambda row: row.median_ms)
    naive = [row for row in rows if "naive" in row.name or "naive" in row.implementation]
    slowest = {
        "layer": row.name,
        "kernel": row.implementation,
        "share": round(row.percentage, 1),
        "naive": row in naive,
    }
    return {"slowest": slowest, "all_naive": {row.name: round(row.median_ms, 4) for row in naive}}


def reading(path: Path) -> dict[str, float]:
    """Seconds to read the file, and to import what was read."""
    import onnx

    from neurenix.importers import from_onnx

    start = time.perf_counter()
    model = onnx.load(path)
    middle = time.perf_counter()
    from_onnx(model)
    return {"read_s": round(middle - start, 3), "import_s": round(time.perf_counter() - middle, 3)}


def one(name: str, exporter: str, folder: Path, threads: int, rounds: int) -> dict[str, Any]:
    """Everything about one model and exporter, in this process."""
    import torch

    from neurenix.hardware.tensorrt import TensorRTBackend

    torch.set_num_threads(threads)
    if name in FILES:
        import rapidocr_onnxruntime

        stem, shapes = FILES[name]
        path = Path(rapidocr_onnxruntime.__file__).parent / "models" / f"{stem}.onnx"
        cases = cases_of_file(path, shapes)
    else:
        exported = export(name, exporter, folder)
        if "error" in exported:
            return {"export": exported["error"]}
        path, cases = folder / exporter / f"{name}.onnx", cases_of(name)
    found: dict[str, Any] = {}
    try:
        found |= reading(path)
        # Without the cache of earlier times: the build as a user meets it first.
        model = TensorRTBackend().optimize_model(path, profile_of(cases), threads=threads, timing_cache=False)
        found["build_s"] = round(model.report()["build_seconds"], 2)
        found |= checked(name, model, cases)
        found |= where(model, cases[0][0])
    except Exception as error:
        return found | {"failed": f"{type(error).__name__}: {error}"}
    return found | (times(path, cases[0][0], model, threads, rounds) if rounds else {})


def times(path: Path, inputs: dict[str, np.ndarray], model: Any, threads: int, rounds: int) -> dict[str, Any]:
    """Medians of all, and ours against the better of the others."""
    runs: dict[str, measure.Run] = {"neurenix": lambda: model.run(inputs)}
    found: dict[str, Any] = {}
    for peer, make in (("openvino", measure.openvino), ("onnxruntime", measure.onnxruntime)):
        try:
            run = make(path, inputs, threads)
            run()
            runs[peer] = run
        except Exception as error:
            found[f"{peer}_failed"] = f"{type(error).__name__}: {error}"[:300]
    summaries = {peer: measure.summary(each) for peer, each in measure.interleaved(runs, rounds).items()}
    found |= {"times": summaries}
    others = [each["median_ms"] for peer, each in summaries.items() if peer != "neurenix"]
    if others:
        found["ratio"] = round(summaries["neurenix"]["median_ms"] / min(others), 3)
    return found


def row(name: str, exporter: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    head = f"{name:16} {exporter:11}"
    for key, text in (("export", "torch can't export"), ("failed", "FAILED"), ("died", "DIED")):
        if key in found:
            return f"{head} {text}: {' '.join(str(found[key]).split())[:160]}"
    timed = found.get("times", {})
    medians = [timed.get(p, {}).get("median_ms", float("nan")) for p in ("neurenix", "openvino", "onnxruntime")]
    slow = found["slowest"]
    loop = f"  NAIVE {found['all_naive']}" if found["all_naive"] else ""
    right = "" if found["right"] else "WRONG"
    most = f"{slow['share']:4.0f}% {slow['layer'][:40]}: {slow['kernel'][:30]}"
    return (
        f"{head} {found['error']:8.1e} {right} {found['import_s']:6.2f} {found['build_s']:6.1f}"
        + "".join(f" {ms:8.2f}" for ms in medians)
        + f" {found.get('ratio', float('nan')):6.2f}  {most}{loop}"
    )


def run_one(name: str, exporter: str, options: argparse.Namespace) -> dict[str, Any]:
    """One model in a process of its own: what crashes or eats memory takes no other with it."""
    command = [sys.executable, "-m", "benchmarks.zoo", "--one", name, exporter]
    for key in ("cache", "threads", "rounds"):
        command += [f"--{key}", str(getattr(options, key))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"died": f"longer than {options.limit} s"}
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"died": f"status {done.returncode}: {done.stderr[-500:]}"}


def earlier(output: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What stands in the file already, if it was measured in the same way: a run may be of some models only."""
    path = measure.RESULTS / f"{output}.json"
    if not path.exists():
        return {}
    record = json.loads(path.read_text())
    return dict(record["results"]) if record["settings"] == settings else {}


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--exporters", nargs="+", default=list(EXPORTERS), choices=list(EXPORTERS))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "neurenix-zoo")
    parser.add_argument("--rounds", type=int, default=7, help="0 compares and does not time")
    parser.add_argument("--limit", type=int, default=900, help="seconds for one model")
    parser.add_argument("--output", default="zoo", help="the name of the file in benchmarks/results")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one, options.cache, options.threads, options.rounds)))
        return
    from benchmarks.zoo_models import ZOO

    titles = f"{'import':>6} {'build':>6} {'ours':>8} {'OV':>8} {'ORT':>8} {'ratio':>6}"
    print(f"{'model':16} {'exporter':11} {'error':>8}  {titles}  slowest")
    settings = {"threads": options.threads, "rounds": options.rounds, "within": WITHIN}
    results = earlier(options.output, settings)
    for name in options.models or [*ZOO, *FILES]:
        for exporter in ["file"] if name in FILES else options.exporters:
            found = run_one(name, exporter, options)
            results[f"{name} {exporter}"] = found
            print(row(name, exporter, found), flush=True)
            measure.write(options.output, results, settings)


if __name__ == "__main__":
    main()
