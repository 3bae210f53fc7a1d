"""How many digits networks mistake in each precision: five folds over scikit-learn's 1,797 images, trained here.

    python -m benchmarks.accuracy_int8 --networks resnet transformer

Prints errors, and how many images another class than float32's is given; writes benchmarks/results/digits.json. Needs
scikit-learn, torch and onnx.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import digits, measure
from neurenix import quantization
from neurenix.hardware import get_backend

#: Each row: the precision, and the calibrator of int8.
ROWS: dict[str, tuple[str, Any]] = {
    "fp32": ("fp32", None),
    "bf16": ("bf16", None),
    "fp16": ("fp16", None),
    "int8 entropy": ("int8", quantization.EntropyCalibrator),
    "int8 minmax": ("int8", quantization.MinMaxCalibrator),
    "int8 percentile": ("int8", quantization.PercentileCalibrator),
    "int8 mse": ("int8", quantization.MSECalibrator),
    "int8 weights alone": ("int8", None),
    "fp8 weights alone": ("fp8", None),
}


def one(name: str, threads: int, epochs: int) -> dict[str, Any]:
    """Sums over the folds, for one network."""
    found: dict[str, Any] = {row: {"errors": 0, "changed": 0, "dtypes": {}} for row in ROWS}
    pytorch = 0
    for fold in digits.folds(name, epochs):
        want = fold.scores()
        pytorch += fold.errors(want)
        with tempfile.TemporaryDirectory() as folder:
            path = fold.export(Path(folder) / "digits.onnx")
            for row, (precision, calibrator) in ROWS.items():
                given = {} if calibrator is None else {"calibration": calibrator(fold.batches())}
                model = get_backend("cpu").optimize_model(
                    path, {"input": fold.test.shape}, precision, threads=threads, **given
                )
                scores = np.asarray(model(fold.test))
                found[row]["errors"] += fold.errors(scores)
                found[row]["changed"] += int((scores.argmax(1) != want.argmax(1)).sum())
                found[row]["dtypes"] = {k: round(v, 3) for k, v in model.report()["arithmetic_per_dtype"].items()}
    return {"pytorch": {"errors": pytorch}, **found}


def main() -> None:
    """Prints and writes."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--networks", nargs="+", default=list(digits.NETWORKS), choices=digits.NETWORKS)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    results = {}
    for name in options.networks:
        results[name] = one(name, options.threads, options.epochs)
        print(name)
        for row, numbers in results[name].items():
            print(f"  {row:20} {numbers}")
    print(measure.write("digits", results, {"epochs": options.epochs, "folds": digits.FOLDS}))


if __name__ == "__main__":
    main()
