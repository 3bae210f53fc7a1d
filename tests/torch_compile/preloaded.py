"""What every case needs and takes long to read."""

import importlib

from neurenix.torch.operators import decompositions, exportable, registry

for name in (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.onnx._internal.exporter._core",
    "neurenix.torch.dynamo",
):
    importlib.import_module(name)
registry()
exportable()
decompositions()
