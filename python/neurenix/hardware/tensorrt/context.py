"""IExecutionContext: what runs an engine, on arrays or on addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix import arrays
from neurenix.errors import Error, InvalidArgumentError, UnsupportedError
from neurenix.hardware.placed import stream_of
from neurenix.hardware.tensorrt.build_enums import ProfilingVerbosity, TensorIOMode
from neurenix.hardware.tensorrt.call import Call, address_of
from neurenix.hardware.tensorrt.enums import Dims
from neurenix.hardware.tensorrt.interfaces import (
    IDebugListener,
    IErrorRecorder,
    IOutputAllocator,
    IProfiler,
)
from neurenix.hardware.tensorrt.logger import report
from neurenix.hardware.tensorrt.ports import Port
from neurenix.hardware.tensorrt.scoped import Scoped

if TYPE_CHECKING:
    from neurenix.hardware.tensorrt.engine import ICudaEngine, IRuntimeConfig


class IExecutionContext(Scoped):
    """The state of one call at a time; use one per thread.

    Where TensorRT's calls give False (`set_input_shape`, `set_tensor_address`, `execute_async_v3`, ...) so do these,
    after the whole error went to the logger; `trt.last_error()` has it. A pointer is one of the GPU's memory where a
    GPU runs the engine, and one of the processor's memory (`array.ctypes.data`, `tensor.data_ptr()`) where the CPU
    does, or where the sizes of outputs depend on data: `engine.get_tensor_location(name)` says which.
    """

    engine: ICudaEngine
    name: str
    debug_sync: bool
    enqueue_emits_profile: bool
    persistent_cache_limit: int
    nvtx_verbosity: ProfilingVerbosity
    error_recorder: IErrorRecorder | None
    temporary_allocator: Any

    def __init__(self, engine: ICudaEngine, runtime_config: IRuntimeConfig) -> None:
        self.engine = engine
        self._runtime_config = runtime_config
        self.name = ""
        self.debug_sync = False
        self.enqueue_emits_profile = True
        self.persistent_cache_limit = 0
        self.nvtx_verbosity = ProfilingVerbosity.DETAILED
        self.error_recorder = None
        self.temporary_allocator = None
        self._profiler: IProfiler | None = None
        self._listener: IDebugListener | None = None
        self._made = engine._engine
        self._context = engine._engine.create_context()
        self._active = 0
        self._call = Call(engine._ports.values())
        self._specs: dict[tuple[Dims, ...], dict[str, Dims]] = {}
        self._times: list[tuple[str, str, int]] = []

    def get_runtime_config(self) -> IRuntimeConfig:
        """How the context was made."""
        return self._runtime_config

    # Shapes.

    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        """Says the shape of an input; False, after logging why, where it does not lie in the active profile."""
        return self._tried(lambda: self._set_shape(name, shape))

    def _set_shape(self, name: str, shape: Sequence[int]) -> None:
        port = self._port(name, TensorIOMode.INPUT)
        self._call.shapes[name] = port.check(shape, self.engine._profile(self._active), self._active)

    def get_tensor_shape(self, name: str) -> Dims:
        """The shape of an input or output; -1 where it is not known yet."""
        port = self._port(name)
        if port.mode is TensorIOMode.INPUT:
            return self._call.shapes.get(name, Dims(port.shape))
        return self._outputs().get(name, Dims(port.shape)) if self.all_binding_shapes_specified else Dims(port.shape)

    def get_tensor_strides(self, name: str) -> Dims:
        """How many elements lie between neighbours along each dimension; -1 where a shape is not known yet."""
        strides = [1]
        for dim in reversed(self.get_tensor_shape(name)[1:]):
            strides.append(-1 if dim < 0 or strides[-1] < 0 else strides[-1] * dim)
        return Dims(reversed(strides[: len(self.get_tensor_shape(name))]))

    @property
    def all_binding_shapes_specified(self) -> bool:
        """Whether the shape of each input is known."""
        return not self._call.missing_shapes()

    #: No input tells shapes by its elements alone.
    all_shape_inputs_specified = True

    def infer_shapes(self) -> list[str]:
        """The names of inputs whose shapes are missing; an empty list when those of the outputs are known.

        Raises `ShapeError` where the shapes of the inputs do not go together.
        """
        missing = self._call.missing_shapes()
        if not missing:
            self._outputs()
        return missing

    def _outputs(self) -> dict[str, Dims]:
        """The shapes of the outputs; without those whose sizes depend on data."""
        key = self._call.shape_key()
        found = self._specs.get(key)
        if found is None:
            names = [name for name, _, _ in self.engine._engine.outputs]
            try:
                specs = self.engine._engine.specs(list(key))
                found = {name: Dims(shape) for name, (_, shape) in zip(names, specs, strict=True)}
            except UnsupportedError:
                found = self._call.known_outputs()
            self._specs = {key: found}
        return found

    # Profiles.

    @property
    def active_optimization_profile(self) -> int:
        """The number of the profile in which shapes must lie."""
        return self._active

    @active_optimization_profile.setter
    def active_optimization_profile(self, index: int) -> None:
        self.engine._profile(index)
        self._active = index
        self._call.forget_shapes()

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        """Chooses the profile in which shapes must lie; shapes that were set are forgotten.

        The plan of the smallest profile that holds the shapes runs, whichever that is.
        """

        def choose() -> None:
            self.active_optimization_profile = profile_index

        return self._tried(choose)

    # Addresses.

    def set_tensor_address(self, name: str, memory: int) -> bool:
        """Says where an input or output lies: a number. False, after logging why, for 0 and names that are not there.

        Raises `InvalidArgumentError` for what is no number, such as an array.
        """
        address = address_of(memory, name)
        return self._tried(lambda: self._set_address(name, address))

    def _set_address(self, name: str, address: int) -> None:
        self._port(name)
        if address <= 0:
            raise InvalidArgumentError("the address of a tensor is no address", tensor=name, got=str(address))
        self._call.addresses[name] = address

    def set_output_tensor_address(self, name: str, memory: int) -> bool:
        """As `set_tensor_address`, for outputs."""
        return self.set_tensor_address(name, memory)

    def get_tensor_address(self, name: str) -> int:
        """Where an input or output lies; 0 where that was not said."""
        self._port(name)
        return self._call.addresses.get(name, 0)

    def set_output_allocator(self, name: str, output_allocator: IOutputAllocator | None) -> bool:
        """Lets an allocator bring the memory of an output, before its address counts; None takes that back."""

        def keep() -> None:
            self._port(name, TensorIOMode.OUTPUT)
            if not isinstance(output_allocator, IOutputAllocator | None):
                raise InvalidArgumentError("an allocator is derived from trt.IOutputAllocator", tensor=name)
            self._call.set_allocator(name, output_allocator)

        return self._tried(keep)

    def get_output_allocator(self, name: str) -> IOutputAllocator | None:
        """The allocator of an output."""
        self._port(name, TensorIOMode.OUTPUT)
        return self._call.allocators.get(name)

    def get_max_output_size(self, name: str) -> int:
        """Bytes of an output at the shapes of the inputs; -1 where they depend on data."""
        port = self._port(name, TensorIOMode.OUTPUT)
        shape = self.get_tensor_shape(name)
        return -1 if any(d < 0 for d in shape) else int(np.prod(shape, dtype=np.int64)) * port.dtype.itemsize

    # Calls.

    def execute_async_v3(self, stream_handle: Any) -> bool:
        """Runs on the addresses and shapes that were set, in the caller's stream; False, after logging why, or True.

        `stream_handle`: a number, or a stream of torch, CuPy or cuda.core. Where the CPU runs the engine it does not
        count, and the call returns when the work is done.
        """
        return self._tried(lambda: self._run(self._call, stream_of(stream_handle or 0)))

    def execute_v2(self, bindings: Sequence[int]) -> bool:
        """Runs on one address for each input and output, in their order; returns when the work is done.

        False, after logging why, where it fails.
        """

        def run() -> None:
            names = list(self.engine._ports)
            if len(bindings) != len(names):
                raise InvalidArgumentError(
                    "an address is needed for each input and output", expected=", ".join(names), got=str(len(bindings))
                )
            for name, address in zip(names, bindings, strict=True):
                self._set_address(name, address_of(address, name))
            self._run(self._call, None)
            self.engine._engine.synchronize()

        return self._tried(run)

    def _run(self, call: Call, stream: int | None) -> None:
        self._follow()
        call.check()
        timed = self._profiler is not None
        times = call.run(self.engine._engine, self._context, self._outputs(), stream, timed)
        self._times = times
        if timed and self.enqueue_emits_profile:
            self._tell(times)

    def execute(self, *inputs: Any) -> Any:
        """Runs on one array per input, in order, or on a dict; `execute(batch_size, bindings)` is `execute_v2`.

        Arrays give the output (a tuple where there are several), a dict gives a dict. Raises `DTypeError` and
        `ShapeError`, with what was expected, for an array that does not fit.
        """
        if len(inputs) == 2 and isinstance(inputs[0], int) and isinstance(inputs[1], list | tuple):
            return self.execute_v2(inputs[1])
        names = [name for name, _, _ in self.engine._engine.inputs]
        is_dict = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        if not is_dict and len(inputs) != len(names):
            raise InvalidArgumentError(
                "the number of arrays differs from that of the inputs", expected=", ".join(names), got=str(len(inputs))
            )
        given = dict(inputs[0]) if is_dict else dict(zip(names, inputs, strict=True))
        kind = next(iter(given.values()), None)
        self._follow()
        outputs = {name: arrays.like(array, kind) for name, array in self._context.run(given).items()}
        if is_dict:
            return outputs
        return next(iter(outputs.values())) if len(outputs) == 1 else tuple(outputs.values())

    def _follow(self) -> None:
        """After a refit the engine has other weights."""
        if self._made is not self.engine._engine:
            self._made = self.engine._engine
            self._context = self._made.create_context()

    # Profiling.

    @property
    def profiler(self) -> IProfiler | None:
        """Who is told the time of each kernel; calls then wait until they are done."""
        return self._profiler

    @profiler.setter
    def profiler(self, profiler: IProfiler | None) -> None:
        if not isinstance(profiler, IProfiler | None):
            raise InvalidArgumentError("a profiler is derived from trt.IProfiler", got=type(profiler).__name__)
        self._profiler = profiler
        self._times = []

    def report_to_profiler(self) -> bool:
        """Tells the profiler of the last call, where `enqueue_emits_profile` is off; False where there was none."""

        def tell() -> None:
            if self._profiler is None or not self._times:
                raise InvalidArgumentError("there is nothing to report: set a profiler, and run")
            self._tell(self._times)

        return self._tried(tell)

    def _tell(self, times: list[tuple[str, str, int]]) -> None:
        profiler = self._profiler
        for name, _, nanoseconds in times:
            if profiler is not None:
                profiler.report_layer_time(name, nanoseconds / 1e6)

    # What contexts do themselves.

    def set_device_memory(self, memory: int, size: int) -> None:
        """Leaves everything as it is: a context brings its memory itself, and keeps what its largest call needed."""

    device_memory = property(None, lambda self, memory: None, doc="As `set_device_memory`.")

    def update_device_memory_size_for_shapes(self) -> int:
        """Bytes of activations and workspaces of a call at the shapes of the inputs."""
        missing = self._call.missing_shapes()
        if missing:
            raise InvalidArgumentError("shapes of inputs are missing", tensor=", ".join(missing))
        return self.engine._engine.prepare({name: list(shape) for name, shape in self._call.shapes.items()})[1]

    def set_aux_streams(self, aux_streams: Sequence[int]) -> None:
        """Leaves everything as it is: the engine's own streams are its own."""

    def set_debug_listener(self, listener: IDebugListener | None) -> bool:
        """Keeps a listener; it is told nothing, as `INetworkDefinition.mark_debug` refuses to mark tensors for it."""
        self._listener = listener
        return True

    def get_debug_listener(self) -> IDebugListener | None:
        """The listener."""
        return self._listener

    def set_input_consumed_event(self, event: int) -> bool:
        """False, after logging that there are no such events."""

        def refuse() -> None:
            raise UnsupportedError("no event tells that inputs were read", hint="wait for the stream")

        return self._tried(refuse)

    def _tried(self, action: Any) -> bool:
        """Whether it went well; an error goes to the logger."""
        try:
            action()
        except Error as error:
            report(self.engine._logger, error, self.error_recorder)
            return False
        return True

    def _port(self, name: str, mode: TensorIOMode | None = None) -> Port:
        port = self.engine._port(name)
        if mode is not None and port.mode is not mode:
            raise InvalidArgumentError(f"the tensor is no {mode.name.lower()}", tensor=name)
        return port
