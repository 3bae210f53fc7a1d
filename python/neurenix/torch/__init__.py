"""`torch.compile(model, backend="neurenix")`: what became of the graphs, and what happened to them.

The backend itself needs no import where this package is installed: torch finds it by its entry point. Where it is not
(a source tree on the path), this import registers it. After it, `torch.jit.load` and `torch.export.load` read files
with engines in them.
"""

from neurenix.torch import engine_op  # noqa: F401 - defines torch.ops.neurenix.run
from neurenix.torch.dynamo import neurenix
from neurenix.torch.lazy import trt_compile
from neurenix.torch.registering import register
from neurenix.torch.settings import Settings
from neurenix.torch.stats import GraphReport, PartitionReport, counters, reports, reset

__all__ = ["GraphReport", "PartitionReport", "Settings", "counters", "neurenix", "reports", "reset", "trt_compile"]

register("neurenix", neurenix)
