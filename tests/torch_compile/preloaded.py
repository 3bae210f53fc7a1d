"""What every case needs and takes long to read."""

import contextlib
import importlib

from neurenix.torch.operators import decompositions, exportable, registry

for name in (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.onnx._internal.exporter._core",
    "neurenix.torch.dynamo",
):
    importlib.import_module(name)
# What dynamo and AOT autograd import when they are called first; not each is there in each version.
for name in (
    "functorch.compile",
    "torch._dynamo.repro.after_dynamo",
    "torch._inductor.debug",
    "torch._inductor.sizevars",
    "torch.distributed.tensor.experimental._func_map",
):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
registry()
exportable()
decompositions()
