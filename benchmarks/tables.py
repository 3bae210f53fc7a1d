"""The tables of the pages in PAGES, written from benchmarks/results: `python -m benchmarks.tables [--check]`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
PAGES = (
    DOCS / "cuda-results.md",
    DOCS / "triton.md",
    DOCS / "guides" / "int8.md",
    DOCS / "guides" / "int8-accuracy.md",
)
#: Names of models as people write them.
NAMES = {
    "resnet50": "ResNet-50",
    "yolov5s": "YOLOv5s 640",
    "yolov8n": "YOLOv8n 640",
    "bert": "BERT-base s128",
    "gpt2": "GPT-2 s128",
    "unet": "U-Net c64 256",
    "unet3d": "U-Net 3-D",
    "vit_b_16": "ViT-B/16",
    "swin_t": "Swin-T",
    "mobilenetv3": "MobileNetV3",
}
#: The share of PyTorch's error above which a unit is listed by name.
LISTED = 1.1


def record(name: str) -> dict[str, Any]:
    """A file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Markdown."""
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def named(key: str) -> str:
    """`resnet50:32` as people write it."""
    name, _, batch = key.partition(":")
    return f"{NAMES.get(name, name)} b{batch}" if batch else NAMES.get(name, name)


def speeds() -> str:
    """Times beside PyTorch's."""

    def time(side: dict[str, Any] | None) -> str:
        return f"{side['median_ms']:.3f} ({side['stream_ms']:.3f})" if side else "not measured"

    def row(key: str, found: dict[str, Any]) -> list[str]:
        rms = found["rms"]
        return [
            named(key),
            time(found["neurenix"]),
            f"{found['kernels_ms']:.3f}",
            f"{found['numpy_ms']:.2f}",
            time(found.get("torch_eager")),
            time(found.get("torch_compile")),
            f"{found['build_s']:.1f} s",
            f"{100 * found['activations_mib'] / found['torch_activations_mib']:.0f} %",
            f"{rms['neurenix']:.1e} / {rms['torch_eager']:.1e}",
        ]

    head = (
        "ms|Neurenix|sum of its kernels|numpy in and out|torch eager|torch.compile|build, cold|memory|RMS: ours / eager"
    )
    return table(head.split("|"), (row(key, found) for key, found in record("cuda")["results"].items()))


def eight_bits() -> str:
    """Times and errors of int8 beside fp16."""

    def row(key: str, precision: str, found: dict[str, Any]) -> list[str]:
        sides = (found["fp16"], found[precision])
        times = [f"{side['median_ms']:.3f}" for side in sides]
        dtypes = found[precision]["arithmetic"]
        share = f"{100 * max(dtypes.get('int8', 0), dtypes.get('float8_e4m3fn', 0)):.0f} %"
        errors = " / ".join(f"{side['sqnr_db']:.1f}" for side in sides)
        builds = " / ".join(f"{side['build_s']:.0f} s" for side in sides)
        return [named(key), precision, *times, f"{found[f'{precision} / fp16']:.2f}", share, errors, builds]

    head = "|precision|fp16, ms|it, ms|of fp16's time|arithmetic in 8 bits|dB: fp16 / it|build, cold: fp16 / it"
    results = record("int8_cuda")["results"]
    measured = [(key, found) for key, found in results.items() if "failed" not in found]
    rows = [row(key, p, found) for key, found in measured for p in found if f"{p} / fp16" in found]
    return table(head.split("|"), rows)


def microscopy() -> str:
    """Times of the inference engine's models beside eager PyTorch's."""
    names = {"labelfree2d": "U-Net 256 x 256", "segmentation3d": "U-Net 3-D 64^3", "mae3d": "MAE 3-D 64^3"}
    sides = ("eager fp32", "eager fp16", "fp32", "fp16", "int8+fp16")
    results = record("inference_cuda")["results"]

    def row(key: str) -> list[str]:
        found = results[key]
        ratios = [f"{found[f'eager fp32 / {side}']:.1f}" for side in ("fp16", "int8+fp16")]
        return [names[key], *(f"{found[side]['median_ms']:.3f}" for side in sides), *ratios]

    head = "|PyTorch fp32, ms|PyTorch fp16|fp32|fp16|int8+fp16|PyTorch fp32 / fp16|PyTorch fp32 / int8+fp16"
    return table(head.split("|"), [row(key) for key in names if key in results])


def streams() -> str:
    """The rates of streams of pictures of 1080p."""

    def row(name: str, key: str) -> list[str]:
        found = results[key]
        return [name, f"{found['frames_a_second']:.0f}", f"{found['calls_a_second']:.0f}", f"{found['on_gpu_ms']:.2f}"]

    results = record("inference_cuda")["results"]
    head = "|frames a second|calls a second, one after another|ms on an array on the GPU"
    return table(head.split("|"), [row("arrays", "pictures"), row("H.264, decoded here", "video")])


def units(of: str = "accuracy_levels") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Model, level and precision, and what was found, of those that were verified."""
    for name, model in record(of)["results"].items():
        for unit, found in model["neurenix"].items():
            if unit.count("/") == 1:
                yield name, unit, found


def accuracy() -> str:
    """How far levels and precisions are from float64, over all models with their own weights."""
    rows = []
    alone = [(unit, found) for name, unit, found in units() if "@" not in name]
    for unit in sorted({unit for unit, _ in alone}):
        found = [each for key, each in alone if key == unit]
        ratios = [each["ratio"] for each in found if each.get("ratio")]
        level, precision = unit.split("/")
        rows.append(
            [
                level,
                precision,
                len(found),
                sum(each["right"] is True for each in found),
                f"{statistics.median(ratios):.2f}",
                f"{max(ratios):.2f}",
                sum(bool(each.get("lifted")) for each in found),
                sum(bool(each.get("false_alarm")) for each in found),
            ]
        )
    head = "level|precision|models|within the limits|median share of PyTorch's error|greatest|lifted|false alarms"
    return table(head.split("|"), rows)


def exceptions() -> str:
    """What is not within the limits, with the mean over orders of the weights where there are some, of the last run."""
    orders: dict[tuple[str, str], list[float]] = {}
    for of in ("accuracy_levels", "accuracy_orders"):
        measured: dict[tuple[str, str], list[float]] = {}
        for name, unit, found in units(of):
            if found.get("ratio"):
                measured.setdefault((name.partition("@")[0], unit), []).append(found["ratio"])
        orders |= {key: ratios for key, ratios in measured.items() if len(ratios) > 1 or key not in orders}
    rows = []
    for name, unit, found in units():
        if "@" in name or found["right"] is True:
            continue
        ratios = orders.get((name, unit), [])
        mean = f"{statistics.geometric_mean(ratios):.2f} of {len(ratios)}" if len(ratios) > 1 else "not measured"
        rows.append([name, unit, found.get("failed", "").split("\n")[0] or f"{found['ratio']:.2f}", mean])
    head = "model|level and precision|share of PyTorch's error|mean over orders of its weights"
    return table(head.split("|"), sorted(rows))


def accuracy_tools() -> str:
    """What the tools of neurenix.quantization.accuracy gain."""
    results = record("accuracy_tools")["results"]
    rows = list(max((found["rows"] for found in results.values()), key=len))

    def cell(found: dict[str, Any], row: str) -> str:
        return f"{found['rows'][row]['db']:.1f}" if row in found["rows"] else "not run"

    return table(["network", *rows], ([name, *(cell(found, row) for row in rows)] for name, found in results.items()))


def accuracy_layers() -> str:
    """What each layer loses alone, without tools and with all of them."""
    rows = []
    for name, found in record("accuracy_tools")["results"].items():
        for layer, (plain, better) in found.get("layers", {}).items():
            rows.append([name, f"`{layer}`", f"{plain:.1f}", f"{better:.1f}"])
    return table(["network", "layer", "none", "all"], rows)


def triton_resnet() -> str:
    """Images a second of ResNet-50 in Triton, by each number of clients."""

    def row(clients: str, found: dict[str, Any]) -> list[str]:
        sides = [found[side] for side in ("neurenix", "onnxruntime", "openvino")]
        rates = [f"{statistics.median(side['rounds']):.1f} ({statistics.median(side['rows']):.1f})" for side in sides]
        least, most = found["of one with itself"]
        return [clients, *rates, f"{found['neurenix / the better']:.2f}", f"{least:.2f} to {most:.2f}"]

    head = "clients|Neurenix|ONNX Runtime|OpenVINO|ours / the better|ours / ours"
    return table(head.split("|"), [row(*each) for each in record("triton_resnet")["results"].items()])


def decisions_ocr() -> str:
    """What RapidOCR decides in 8 bits as in float32."""

    def share(found: dict[str, Any]) -> str:
        extra = f", {found['extra']} more" if found["extra"] else ""
        return f"{found['same']} of {found['boxes']}{extra}; {found['lines']}"

    def row(setting: str, found: dict[str, Any]) -> list[str]:
        parts = [share(found[key]) for key in ("detector alone", "classifier alone", "reader alone", "all")]
        counts = ["{} of {}".format(*found[key]) for key in ("classes", "texts")]
        shares = " / ".join(f"{100 * part.get('int8', 0):.0f}" for part in found["arithmetic"].values())
        return [setting, *parts, *counts, shares]

    head = "setting|detector|classifier|reader|all three|classes|texts|arithmetic in int8, %"
    return table(head.split("|"), [row(*each) for each in record("decisions_int8")["results"]["rapidocr"].items()])


def decisions_layers() -> str:
    """The layers of RapidOCR's models that lose most."""
    results = record("decisions_int8")["results"]["layers"]
    rows = [[part, ", ".join(f"`{name}` {db:.1f}" for name, db in losses.items())] for part, losses in results.items()]
    return table(["model", "dB of a layer alone"], rows)


def calibration() -> str:
    """How fast calibration is, and the memory of an engine in 8 bits."""

    def row(key: str, found: dict[str, Any]) -> list[str]:
        model, _, device = key.partition(" ")
        where = "H200" if device == "cuda" else f"{found['threads']} cores"
        times = [f"{found[key]:.1f}" for key in ("float32_ms", "calibration_ms")]
        ours, peer = found["weights_mib"] + found["activations_mib"], found["eager_peak_mib"]
        return [named(model), where, *times, f"{found['rate']:.2f}", f"{ours:.0f} of {peer:.0f}: {found['memory']:.2f}"]

    head = "model|on|call in float32, ms|batch of calibration, ms|rate|MiB beside PyTorch"
    return table(head.split("|"), [row(*each) for each in record("calibration")["results"].items()])


def few_bits() -> str:
    """Products whose weights have few bits, beside those of float16."""

    def row(key: str, found: dict[str, Any]) -> list[str]:
        sizes, bits, block = key.split(", ")
        peer, own = found["float16"], found["few bits"]
        errors = " / ".join(f"{side['products'][0]['error']:.1e}" for side in (peer, own))
        times = [f"{side['us']:.1f}" for side in (peer, own)]
        rows = sizes.split(" x ")[1]
        return [rows, f"{bits}, {block}", *times, f"{found['float16 / few bits']:.2f}", errors]

    head = "rows|weights, terms with a scale|float16, us|it, us|times as fast|error: float16 / it"
    return table(head.split("|"), [row(*each) for each in record("n_bits_cuda")["results"].items()])


def mistaken_digits() -> str:
    """How many digits networks mistake in each precision."""
    results = record("digits")["results"]
    nets = [results["resnet"], results["transformer"]]

    def row(key: str) -> list[str]:
        cells = [
            str(net[key]["errors"]) + (f" ({net[key]['changed']})" if "changed" in net[key] else "") for net in nets
        ]
        return [key.replace("minmax", "min-max").replace("mse", "MSE"), *cells]

    return table(["", "a small ResNet", "a small transformer"], [row(key) for key in results["resnet"]])


def mixed_search() -> str:
    """How much of the arithmetic `mixed` leaves in 8 bits, by two ways to search."""
    ways = ("by loss", "by loss and work")

    def cell(found: dict[str, Any]) -> str:
        return f"{100 * found['share']:.0f} % ({found['db']:.1f} dB)"

    rows = []
    for name, found in record("mixed_search")["results"].items():
        for budget, each in ((key, value) for key, value in found.items() if key.endswith(" dB")):
            products = str(found["products"])
            rows.append([name, products, budget, *(cell(each[way]) for way in ways), str(each["builds"][1])])
    return table("network|products|budget|by loss alone|by loss and work|builds".split("|"), rows)


def decisions_minilm() -> str:
    """How well similarities in 8 bits keep their order."""

    def row(setting: str, found: dict[str, Any]) -> list[str]:
        share = f"{100 * found['arithmetic'].get('int8', 0):.0f} %"
        return [setting, f"{found['spearman']:.4f}", f"{found['furthest']:.3f}", share]

    head = "setting|Spearman|furthest similarity|arithmetic in int8"
    return table(head.split("|"), [row(*each) for each in record("decisions_int8")["results"]["minilm"].items()])


def page(path: Path) -> str:
    """A page as it must be."""
    parts = path.read_text().split("<!-- table: ")
    made = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition(" -->\n")
        text = rest.partition("<!-- end -->")[2]
        made.append(f"<!-- table: {name} -->\n{globals()[name]()}\n<!-- end -->{text}".removeprefix("<!-- table: "))
    return "<!-- table: ".join(made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    check = parser.parse_args().check
    stale = [path for path in PAGES if path.read_text() != page(path)]
    for path in stale:
        if check:
            print(f"{path} is not what benchmarks/results say: python -m benchmarks.tables", file=sys.stderr)
        else:
            path.write_text(page(path))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
