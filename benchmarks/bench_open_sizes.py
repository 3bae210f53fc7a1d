"""Models with open sizes, built without any shapes, beside engines that were built for the sizes that come.

    python -m benchmarks.bench_open_sizes --rounds 15

Each model is exported with every size open and built twice: without shapes, and with those of the call. The second and
later calls of both are timed one after the other in each round, ONNX Runtime's beside them; the first call stands
apart. `reference` names the kernels on reference implementations in the second call. Results go to
benchmarks/results/open_sizes.json.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.zoo import export_entry

NAME = "open_sizes"
#: An engine without shapes may take so many times as long as one that was built with them.
WITHIN = 1.15
#: The first call of a size may take so many milliseconds more than later ones.
FIRST_MS = 50.0


def entries() -> dict[str, tuple[Any, list[dict[str, int]]]]:
    """The models, and the sizes of the calls."""
    from benchmarks.yolov8 import YOLOv8n
    from benchmarks.zoo_models import Adapter, Entry, Segmenter, language, numbers, picture, vision

    def wav2vec() -> Any:
        import transformers

        config = transformers.Wav2Vec2Config(
            hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=1024, conv_dim=[256] * 7
        )
        return Adapter(transformers.Wav2Vec2Model(config), "input_values", "last_hidden_state")

    def sides(height: int, width: int) -> dict[str, int]:
        return {"batch": 1, "height": height, "width": width}

    image = {"input": picture("batch", 3, "height", "width")}
    bert = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    lraspp = vision("segmentation.lraspp_mobilenet_v3_large", weights_backbone=None)
    return {
        "lraspp": (
            Entry(lambda: Segmenter(lraspp()), image, [{"batch": 2, "height": 96, "width": 64}]),
            [sides(256, 256), sides(480, 640)],
        ),
        "yolov8n": (
            Entry(YOLOv8n, image, [{"batch": 2, "height": 96, "width": 64}]),
            [sides(320, 320), sides(640, 640)],
        ),
        "bert": (
            language("BertModel", bert, "input_ids attention_mask", "last_hidden_state"),
            [{"batch": 1, "sequence": 48}, {"batch": 1, "sequence": 384}],
        ),
        "wav2vec": (
            Entry(wav2vec, {"input": numbers("batch", "samples")}, [{"batch": 2, "samples": 4000}]),
            [{"batch": 1, "samples": 16000}, {"batch": 1, "samples": 48000}],
        ),
    }


def one(entry: Any, path: Path, sizes: dict[str, int], options: Any) -> dict[str, Any]:
    """A model at one size."""
    from neurenix.hardware.tensorrt import TensorRTBackend

    given = {name: x.numpy() for name, x in entry.fill(sizes).items()}
    backend = TensorRTBackend(threads=options.threads, providers=["cpu"])
    known = backend.optimize_model(path, {name: x.shape for name, x in given.items()})
    known.run(given)
    start = time.perf_counter()
    free = backend.optimize_model(path)
    build = time.perf_counter() - start
    first = measure.milliseconds(lambda: free.run(given))
    runs = {"without": lambda: free.run(given), "with": lambda: known.run(given)}
    runs["onnxruntime"] = measure.onnxruntime(path, given, options.threads)
    times = measure.interleaved(runs, options.rounds)
    found = {name: round(float(np.median(each)), 3) for name, each in times.items()}
    reference = [row.name for row in free.profile(given, 1) if is_reference(row.implementation)]
    return {
        "first_ms": round(first, 2),
        "build_s": round(build, 2),
        "ms": found,
        "ratio": round(found["without"] / found["with"], 3),
        "first_excess_ms": round(first - found["without"], 2),
        "reference": reference,
    }


def is_reference(implementation: str) -> bool:
    """Whether an implementation is one that is right but not fast."""
    return "ref" in implementation


def main() -> None:
    """The command."""
    import torch

    parser = measure.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=15, help="how often each is timed")
    parser.add_argument("--models", nargs="*", help="some of the models alone")
    parser.add_argument("--cache", type=Path, help="a folder that keeps the exported files")
    options = parser.parse_args()
    logging.getLogger("neurenix").setLevel(logging.ERROR)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (entry, calls) in entries().items():
            if options.models and name not in options.models:
                continue
            path = (options.cache or Path(folder)) / f"{name}.onnx"
            if not path.exists():
                export_entry(entry, entry.build(), False, path, torch)
            for sizes in calls:
                row = f"{name} " + "x".join(str(size) for size in sizes.values())
                results[row] = one(entry, path, sizes, options)
                print(row, json.dumps(results[row]), flush=True)
    settings = {"threads": options.threads, "rounds": options.rounds, "within": WITHIN, "first_ms": FIRST_MS}
    measure.write(NAME, results, settings)


if __name__ == "__main__":
    main()
