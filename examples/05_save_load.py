"""Builds once, saves the engine, and opens it in another process, where nothing is measured again.

pip install ".[torch]" && python examples/05_save_load.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from neurenix.hardware.tensorrt import TensorRTBackend

OTHER = """
import sys, time
import numpy as np
from neurenix.hardware.tensorrt import TensorRTBackend
start = time.perf_counter()
answer = TensorRTBackend().load(sys.argv[1])(np.load(sys.argv[2]))
print(f"the other process: engine file to first answer in {time.perf_counter() - start:.3f} s")
np.save(sys.argv[3], answer)
"""


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).eval()
    optimized = TensorRTBackend().optimize_model(model, {"input": (8, 64)})
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)

    with tempfile.TemporaryDirectory() as folder:
        engine, batch, answer = (Path(folder, name) for name in ("model.engine", "x.npy", "y.npy"))
        optimized.save(engine)
        np.save(batch, x)
        subprocess.run([sys.executable, "-c", OTHER, engine, batch, answer], check=True)
        same = np.array_equal(np.load(answer), optimized(x))
        print(f"{engine.stat().st_size} bytes; the same answer to the last bit: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
