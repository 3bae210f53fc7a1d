"""Memory: how much of the activations share an arena, and the greatest memory of a process that loads and runs a model.

    python -m benchmarks.bench_memory --model resnet50

The peak is that of a fresh process less what it had after its imports, for each peer alike. Neurenix builds from the
ONNX file, as the peers do, and in another row loads its engine file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_models import export

CHILD = """
import sys
from pathlib import Path
import numpy as np
from benchmarks import measure
peer, path, batch, threads = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
x = np.load(batch)
if peer == "neurenix engine":
    from neurenix.hardware.tensorrt import TensorRTBackend
elif peer == "neurenix":
    import onnx, neurenix.hardware.tensorrt
else:
    __import__(peer)
# getrusage's peak would be that of the process that started this one.
status = lambda key: int(Path("/proc/self/status").read_text().partition(key)[2].split()[0])
before = status("VmRSS:")
if peer == "neurenix engine":
    model = TensorRTBackend().load(path)
    run = lambda: model(x)
else:
    run = getattr(measure, peer)(path, x, threads)
for _ in range(3):
    run()
print((status("VmHWM:") - before) // 1024)
"""


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--model", default="resnet50")
    options = parser.parse_args()
    from neurenix.hardware.tensorrt import TensorRTBackend

    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        _, x, path = export(options.model, 1, Path(folder))
        model = TensorRTBackend().optimize_model(path, {"input": x.shape}, threads=options.threads)
        engine, batch = Path(folder, "model.engine"), Path(folder, "x.npy")
        model.save(engine)
        np.save(batch, x)
        results["arena"] = dict(model.report()["memory"])
        for peer in ("neurenix", "neurenix engine", "onnxruntime", "openvino"):
            file = engine if peer == "neurenix engine" else path
            command = [sys.executable, "-c", CHILD, peer, file, batch, str(options.threads)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            results[peer] = {"peak_mib": int(done.stdout.split()[-1])}
    print(json.dumps(results, indent=1))
    print("written:", measure.write("memory", {options.model: results}, {"threads": options.threads}))


if __name__ == "__main__":
    main()
