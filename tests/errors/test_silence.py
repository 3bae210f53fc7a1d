"""Nothing writes to stdout or stderr, in Python, Rust or C++: what is to be said goes through `logging`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CODE = """
import json, logging, sys
from pathlib import Path
import numpy as np
import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix import nn

class Keep(logging.Handler):
    told = []
    def emit(self, record):
        self.told.append([record.levelname, record.getMessage()])

log = logging.getLogger("neurenix")
log.addHandler(Keep())
log.setLevel(logging.DEBUG)
log.propagate = False
folder = Path(sys.argv[1])

backend = nx.hardware.get_backend("tensorrt", threads=1)
network = nx.nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
model = backend.optimize_model(network, {"input": nx.Shape((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}, precision="fp16",
                               refittable=True, exclude={"cuda": ["Konv"]})
model(np.ones((2, 3, 8, 8), np.float32))
model(np.ones((9, 3, 8, 8), np.float32))
model.save(folder / "a.engine")
again = backend.load(folder / "a.engine", threads=2, optimization_level=1)
again.profile()
again.report().save(folder / "a.html")
again.update_weights({})
for wrong in (lambda: model(1), lambda: backend.load(folder), lambda: backend.optimize_model(b"no model")):
    try:
        wrong()
    except nx.Error:
        continue
    raise SystemExit("it was no error")

builder = trt.Builder()
made = builder.create_network()
made.mark_output(made.add_convolution_nd(made.add_input("x", trt.float32, (1, 3, 8, 8)), 4, (3, 3)))
assert builder.build_serialized_network(made, builder.create_builder_config())
assert trt.Runtime().deserialize_cuda_engine(b"damaged") is None
with nx.hardware.AsyncQueue(model) as queue:
    queue.start_async(np.ones((2, 3, 8, 8), np.float32))
(folder / "told.json").write_text(json.dumps(Keep.told))
"""


def test_only_the_log_is_written_to(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NEURENIX_DUMP"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-W", "error", "-c", CODE, str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")
    told = json.loads((tmp_path / "told.json").read_text())
    warnings = [text for level, text in told if level == "WARNING"]
    for part in ("outside of every profile", "Kaiming-uniform", "planned anew", "neither an op nor a layer"):
        assert [text for text in warnings if part in text], (part, told)
