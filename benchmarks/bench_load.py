"""From an engine file to the first answer, after the imports, in a fresh process; the file is in the page cache.

python -m benchmarks.bench_load --model resnet50
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.bench_models import export

CHILD = """
import sys, time
import numpy as np
from neurenix.hardware.tensorrt import TensorRTBackend
x = np.load(sys.argv[2])
start = time.perf_counter()
model = TensorRTBackend().load(sys.argv[1])
loaded = time.perf_counter()
model(x)
print(loaded - start, time.perf_counter() - start)
"""


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--processes", type=int, default=5)
    options = parser.parse_args()
    from neurenix.hardware.tensorrt import TensorRTBackend

    with tempfile.TemporaryDirectory() as folder:
        _, x, path = export(options.model, 1, Path(folder))
        model = TensorRTBackend().optimize_model(path, {"input": x.shape}, threads=options.threads)
        engine, batch = Path(folder, "model.engine"), Path(folder, "x.npy")
        model.save(engine)
        np.save(batch, x)
        size = engine.stat().st_size
        seconds = []
        for _ in range(options.processes):
            command = [sys.executable, "-c", CHILD, engine, batch]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            seconds.append([float(each) for each in done.stdout.split()])
    load, first = (round(statistics.median(column), 4) for column in zip(*seconds, strict=True))
    results = {options.model: {"file_bytes": size, "load_s": load, "first_answer_s": first}}
    print(f"{options.model}: {size >> 20} MiB, loaded in {load:.3f} s, first answer after {first:.3f} s")
    print("written:", measure.write("load", results, {"processes": options.processes, "threads": options.threads}))


if __name__ == "__main__":
    main()
