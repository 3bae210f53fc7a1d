"""What the tools of neurenix.quantization.accuracy gain: int8 against float32, by each tool alone and by all of them.

    python -m benchmarks.accuracy_tools --networks planted digits resnet50

Networks with a planted outlier (benchmarks/planted.py), two small ones that are trained here on scikit-learn's digits,
RapidOCR's detector with its own weights, and torchvision's ResNet-50 with random weights whose BatchNorms are settled.
Ranges are those of the entropy calibrator on the first batches; the signal-to-noise ratios are those of fresh batches.
Prints tables and writes benchmarks/results/accuracy_tools.json, where networks and rows that are not asked for keep
what an earlier run found. Needs scikit-learn, torch, torchvision, onnx and rapidocr-onnxruntime.
"""

from __future__ import annotations

import importlib.metadata
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measure
from benchmarks.planted import PLANTED
from neurenix import quantization
from neurenix.hardware import get_backend
from neurenix.quantization.accuracy import PER_TOKEN, TOOLS

Array = np.ndarray[Any, Any]
#: The tools of tensors that have one scale.
ONE_SCALE = tuple(tool for tool in TOOLS if tool != PER_TOKEN)
#: Each row: the tools.
ROWS: dict[str, tuple[str, ...]] = {
    "none": (),
    **{tool: (tool,) for tool in TOOLS},
    "smooth, per_token": ("smooth", "per_token"),
    "smooth, gptq, bias_correction": ("smooth", "gptq", "bias_correction"),
    "all": ONE_SCALE,
    "all, per_token": TOOLS,
}
#: Networks of which the loss of each layer is measured.
BY_LAYER = ("planted: equalisation", "planted: smooth", "digits: resnet", "digits: transformer")
#: Engines are built fast: their outputs count.
QUICK = {"optimization_level": 0, "timing_cache": False, "verify": False}


class Case(NamedTuple):
    """A network, batches to calibrate on, and fresh ones."""

    model: Any
    shape: tuple[int, ...]
    calibration: list[Array]
    fresh: list[Array]


def planted(tool: str) -> Case:
    """A network with an outlier."""
    network, draw = PLANTED[tool]()
    random = np.random.default_rng(1)
    drawn = [draw(random) for _ in range(24)]
    return Case(network, drawn[0].shape, drawn[:16], drawn[16:])


def digits(name: str, folder: Path) -> Case:
    """A network that is trained here; the fresh images are those that it was not trained on."""
    from benchmarks.digits import trained

    found = trained(name, epochs=12)
    path = found.export(folder / f"{name}.onnx")
    fresh = [found.test[at : at + 64] for at in range(0, 320, 64)]
    return Case(path, fresh[0].shape, found.batches(), fresh)


def rapidocr(folder: Path) -> Case:
    """RapidOCR's detector, with its own weights, on lines of digits and letters."""
    del folder
    files = importlib.metadata.files("rapidocr-onnxruntime") or []
    path = next(file.locate() for file in files if file.name == "ch_PP-OCRv4_det_infer.onnx")
    random = np.random.default_rng(2)
    drawn = [written(random, 320, 640) for _ in range(12)]
    return Case(Path(str(path)), drawn[0].shape, drawn[:8], drawn[8:])


def written(random: np.random.Generator, height: int, width: int) -> Array:
    """A picture of text, [1, 3, height, width], between -1 and 1."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (width, height), tuple(int(level) for level in random.integers(180, 256, 3)))
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789 "))
    for top in range(20, height - 60, 60):
        text = "".join(random.choice(letters, random.integers(8, 24)))
        colour = tuple(int(level) for level in random.integers(0, 100, 3))
        place = (int(random.integers(10, 60)), top)
        ImageDraw.Draw(picture).text(place, text, colour, ImageFont.load_default(int(random.integers(18, 40))))
    return np.ascontiguousarray((np.asarray(picture, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None])


def resnet50(folder: Path) -> Case:
    """A network of torchvision."""
    del folder
    return settled("resnet50", size=128, rounds=10, fresh=4, seed=3)


def settled(name: str, size: int, rounds: int, fresh: int, seed: int) -> Case:
    """A network of torchvision with random weights, whose BatchNorms have the statistics of random pictures."""
    import torch
    import torchvision

    torch.manual_seed(0)
    module = torchvision.models.get_model(name).train()
    with torch.no_grad():
        for _ in range(rounds):
            module(torch.randn(8, 3, size, size))
    random = np.random.default_rng(seed)
    drawn = [random.normal(size=(4, 3, size, size)).astype(np.float32) for _ in range(8 + fresh)]
    return Case(module.eval(), drawn[0].shape, drawn[:8], drawn[8:])


def cases(names: Sequence[str], folder: Path) -> dict[str, Any]:
    """What makes each case, by its name."""
    made: dict[str, Any] = {}
    if "planted" in names:
        made |= {f"planted: {tool}": lambda tool=tool: planted(tool) for tool in PLANTED}
    if "digits" in names:
        made |= {f"digits: {name}": lambda name=name: digits(name, folder) for name in ("resnet", "transformer")}
    if "rapidocr_det" in names:
        made["rapidocr_det"] = lambda: rapidocr(folder)
    if "resnet50" in names:
        made["resnet50"] = lambda: resnet50(folder)
    return made


def decibels(got: Sequence[Array], want: Sequence[Array]) -> float:
    """The signal-to-noise ratio over all batches."""
    signal = sum(float(np.sum(np.square(each, dtype=np.float64))) for each in want)
    noise = sum(float(np.sum(np.square(a.astype(np.float64) - b))) for a, b in zip(got, want, strict=True))
    return 10 * float(np.log10(signal / max(noise, 1e-300)))


def one(name: str, case: Case, threads: int, rows: Sequence[str], found: dict[str, Any]) -> dict[str, Any]:
    """These rows for one network, beside those that are there; and its layers, with all rows."""
    backend = get_backend("cpu")

    def answers(model: Any) -> list[Array]:
        return [np.asarray(model(x)) for x in case.fresh]

    want = answers(backend.optimize_model(case.model, case.shape, threads=threads, **QUICK))
    known = found.setdefault("rows", {})
    for row in rows:
        tools = ROWS[row]
        begin = time.perf_counter()
        model = backend.optimize_model(
            case.model, case.shape, "int8", calibration=case.calibration, accuracy=tools, threads=threads, **QUICK
        )
        seconds = time.perf_counter() - begin
        known[row] = {
            "db": round(decibels(answers(model), want), 2),
            "build_s": round(seconds, 1),
            "notes": [note for note in model.report()["notes"] if note.startswith("accuracy: ")],
        }
        print(f"{name:24} {row:32} {known[row]}", flush=True)
    found["rows"] = {row: known[row] for row in ROWS if row in known}
    if name in BY_LAYER and list(rows) == list(ROWS):
        losses = {
            row: quantization.sensitivity(case.model, case.calibration, case.shape, accuracy=ROWS[row], threads=threads)
            for row in ("none", "all")
        }
        plain = {loss.layer: loss.decibels for loss in losses["none"]}
        better = {loss.layer: loss.decibels for loss in losses["all"]}
        found["layers"] = {layer: [round(plain[layer], 2), round(better[layer], 2)] for layer in plain}
    return found


def main() -> None:
    """Prints and writes."""
    names = ("planted", "digits", "rapidocr_det", "resnet50")
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--networks", nargs="+", default=list(names), choices=names)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    options = parser.parse_args()
    target = measure.RESULTS / "accuracy_tools.json"
    results = json.loads(target.read_text())["results"] if target.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in cases(options.networks, Path(folder)).items():
            results[name] = one(name, make(), options.threads, options.rows, results.get(name, {}))
            # What was found is kept where a later network is not waited for.
            target = measure.write("accuracy_tools", results, {"method": "entropy"})
    print(target)


if __name__ == "__main__":
    main()
