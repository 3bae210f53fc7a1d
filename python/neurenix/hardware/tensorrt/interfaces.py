"""What users derive from: allocators, profilers, monitors, recorders, readers."""

from __future__ import annotations

from typing import Any

from neurenix.hardware.tensorrt.build_enums import ErrorCodeTRT
from neurenix.log import LOG


class IOutputAllocator:
    """Brings memory for outputs, whose size may depend on data: derive, and have the two methods."""

    def reallocate_output_async(
        self, tensor_name: str, memory: int | None, size: int, alignment: int, stream: int
    ) -> int:
        """The address of memory of `size` bytes for an output; `memory` is what it had before. 0 means none."""
        return self.reallocate_output(tensor_name, memory, size, alignment)

    def reallocate_output(self, tensor_name: str, memory: int | None, size: int, alignment: int) -> int:
        """As that, without a stream; TensorRT 10 asks the other one."""
        raise NotImplementedError(f"{type(self).__name__} must have reallocate_output_async")

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        """Is told the shape of an output (`Dims`)."""
        raise NotImplementedError(f"{type(self).__name__} must have notify_shape")


class IProfiler:
    """Is told the time of each kernel of a call: derive, and have the method."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Takes the time of a kernel; its name is that of its layers."""
        raise NotImplementedError(f"{type(self).__name__} must have report_layer_time(layer_name, ms)")


class Profiler(IProfiler):
    """Writes the time of each kernel to Python's logging, logger "neurenix" (TensorRT's prints it)."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Takes the time of a kernel."""
        LOG.info("%s: %.6f ms", layer_name, ms)


class IProgressMonitor:
    """Follows a build: derive, and have the three methods. They are called from the thread that builds."""

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """A phase begins, inside another one or None."""
        raise NotImplementedError(f"{type(self).__name__} must have phase_start")

    def step_complete(self, phase_name: str, step: int) -> bool:
        """A step of a phase is done; False ends the build."""
        raise NotImplementedError(f"{type(self).__name__} must have step_complete")

    def phase_finish(self, phase_name: str) -> None:
        """A phase is over."""
        raise NotImplementedError(f"{type(self).__name__} must have phase_finish")


class IErrorRecorder:
    """Is told errors for which a call gives False or None, beside the logger: derive, and have `report_error`."""

    #: TensorRT's length of a description; here it is as long as the error.
    MAX_DESC_LENGTH = 127

    def report_error(self, val: ErrorCodeTRT, desc: str) -> bool:
        """Takes an error."""
        raise NotImplementedError(f"{type(self).__name__} must have report_error(val, desc)")


class IDebugListener:
    """Would be told tensors inside a network; `INetworkDefinition.mark_debug` refuses to mark any."""

    def process_debug_tensor(self, addr: int, location: Any, type: Any, shape: Any, name: str, stream: int) -> bool:
        """Takes a tensor."""
        raise NotImplementedError(f"{type(self).__name__} must have process_debug_tensor")


class IStreamReader:
    """Reads a serialised engine: derive, and have `read(size)`."""

    def read(self, size: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        raise NotImplementedError(f"{type(self).__name__} must have read(size)")


class IStreamReaderV2:
    """Reads a serialised engine: derive, and have `read(num_bytes, stream)` and `seek(offset, where)`."""

    def read(self, num_bytes: int, stream: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        raise NotImplementedError(f"{type(self).__name__} must have read(num_bytes, stream)")

    def seek(self, offset: int, where: Any) -> bool:
        """Goes to another place."""
        raise NotImplementedError(f"{type(self).__name__} must have seek(offset, where)")


class IStreamWriter:
    """Takes a serialised engine: derive, and have `write(data)`."""

    def write(self, data: bytes) -> int:
        """Takes bytes, and gives how many of them it took."""
        raise NotImplementedError(f"{type(self).__name__} must have write(data)")
