"""What every case needs and takes long to read."""

import contextlib
import importlib

from neurenix.torch.operators import decompositions, exportable, registry

for name in (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.onnx._internal.exporter._core",
    "neurenix.torch.dynamo",
    # What dynamo and AOT autograd import when they are called first.
    "functorch.compile",
    "torch._dynamo.repro.after_dynamo",
    "torch._inductor.debug",
    "torch._inductor.sizevars",
    "torch.distributed.tensor.experimental._func_map",
):
    # Not each is there in each version.
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
registry()
exportable()
decompositions()
