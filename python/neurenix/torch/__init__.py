"""`torch.compile(model, backend="neurenix")`: what became of the graphs, and what happened to them.

The backend itself needs no import: torch finds it by the entry point of this package.
"""

from neurenix.torch.settings import Settings
from neurenix.torch.stats import GraphReport, PartitionReport, counters, reports, reset

__all__ = ["GraphReport", "PartitionReport", "Settings", "counters", "reports", "reset"]
