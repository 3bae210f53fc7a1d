"""Plans of NVIDIA's own TensorRT that run, through its runtime: what `trtexec` and Triton do with them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neurenix import _native
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.logger import Logger

#: A shape in which -1 comes with a call.
Extents = tuple[int, ...]
#: Gives the address of memory on the GPU: what was given before (0 for nothing), bytes, alignment, stream.
Allocate = Callable[[int, int, int, int], int]


class EnginePort(NamedTuple):
    """An input or output: its name, TensorRT's name of its dtype, its shape, and where it is.

    An input has for each profile its least, expected and greatest shape.
    """

    name: str
    dtype: str
    shape: Extents
    is_input: bool
    on_host: bool
    profiles: tuple[tuple[Extents, Extents, Extents], ...] = ()


class PlanEngine:
    """A plan that TensorRT has opened; any number of contexts share it, in any threads."""

    def __init__(self, engine: _native.TensorRTEngine) -> None:
        self._engine = engine

    @property
    def tensors(self) -> tuple[EnginePort, ...]:
        """The inputs and outputs."""
        return tuple(
            EnginePort(
                name, dtype, tuple(shape), into, host, tuple((tuple(a), tuple(b), tuple(c)) for a, b, c in profiles)
            )
            for name, dtype, shape, into, host, profiles in self._engine.tensors
        )

    @property
    def num_profiles(self) -> int:
        """How many profiles there are."""
        return self._engine.profiles

    def device_memory(self, profile: int = 0) -> int:
        """The bytes of scratch memory that a context needs for all shapes of a profile.

        Raises `InvalidArgumentError` if there is no such profile.
        """
        return self._engine.device_memory(profile)

    def layers(self) -> dict[str, Any]:
        """What TensorRT's inspector says of each layer; "Metadata" names the layers of the source model.

        Raises `DeviceError` if it says nothing.
        """
        layers = json.loads(self._engine.layers())
        assert isinstance(layers, dict)
        return layers

    @property
    def streamable_weights(self) -> int:
        """The bytes of weights that need not stay on the GPU; 0 unless the plan was built with `weight_streaming`."""
        return self._engine.streamable_weights

    def set_weight_budget(self, size: int | None) -> None:
        """Lets weights take so many bytes of the GPU's memory, None all; before the first context.

        Raises `DeviceError` where TensorRT refuses.
        """
        self._engine.set_weight_budget(size)

    @property
    def weight_names(self) -> list[str]:
        """The names of the weights that can be replaced.

        Raises `DeviceError` if the plan was not built with `refittable` or `strip_weights`.
        """
        return self._engine.weight_names

    def refit(self, weights: Mapping[str, Any]) -> None:
        """Replaces weights by name, when all calls have been waited for.

        Raises `InvalidArgumentError` if the plan was not built for that, for a name, count or dtype that is not one of
        its weights, and, with their names, where others must be given too: then nothing was changed.
        """
        self._engine.refit(list(weights.items()))

    def context(self) -> PlanContext:
        """A context: the state of one call at a time.

        Raises `DeviceError` where TensorRT gives none.
        """
        return PlanContext(self, self._engine.context())

    def __repr__(self) -> str:
        ports = ", ".join(f"{port.name}: {port.dtype}{list(port.shape)}" for port in self.tensors)
        return f"<PlanEngine {ports}>"


class PlanContext:
    """The state of one call at a time of a plan. Memory is the caller's, and named by its address on the GPU.

    An address, as `torch.Tensor.data_ptr()` gives it, is a multiple of 256; what is there must live until the stream
    has been waited for. Wrong addresses end the process, as they do in NVIDIA's own package.
    """

    def __init__(self, engine: PlanEngine, context: _native.TensorRTContext) -> None:
        self._engine, self._context = engine, context
        self._shapes: dict[str, Extents] = {}

    @property
    def engine(self) -> PlanEngine:
        """The engine."""
        return self._engine

    def set_profile(self, profile: int, stream: int = 0) -> None:
        """Chooses a profile; shapes are set anew after it.

        Raises `InvalidArgumentError` if there is none such, `DeviceError` where TensorRT refuses.
        """
        self._context.set_profile(profile, stream)

    def set_input_shape(self, name: str, shape: Sequence[int]) -> None:
        """Sets the shape of an input.

        Raises `ShapeError` with the profile's range for a shape outside of it, `InvalidArgumentError` for a name that
        is no input's, `DeviceError` where TensorRT refuses.
        """
        self._context.set_shape(name, list(shape))

    def get_tensor_shape(self, name: str) -> Extents:
        """The shape of an input or output; -1 where it depends on data, or on shapes that are not set."""
        return tuple(self._context.shape(name))

    def infer_shapes(self) -> list[str]:
        """Works the shapes of the outputs out; gives the names of the inputs that are missing for that.

        Raises `DeviceError` where the shapes do not fit each other.
        """
        return self._context.infer()

    def memory_required(self) -> int:
        """The bytes of scratch memory for the shapes that are set."""
        return self._context.memory()

    def set_device_memory(self, address: int, size: int) -> None:
        """Says where the scratch memory is."""
        self._context.set_memory(address, size)

    def set_tensor_address(self, name: str, address: int) -> None:
        """Says where an input or output is.

        Raises `InvalidArgumentError` if there is none such, `DeviceError` where TensorRT refuses.
        """
        self._context.set_address(name, address)

    def set_output_allocator(self, name: str, allocate: Allocate) -> None:
        """Lets a function give the memory of an output whose size depends on data; `collected` then has its shape.

        What the function raises is told as an error that nobody catches, and the call fails.
        """

        # Not the context itself, which would then hold itself and never be freed.
        shapes = self._shapes

        def shape(extents: list[int]) -> None:
            shapes[name] = tuple(extents)

        self._context.collect(name, allocate, shape)

    def collected(self, name: str) -> Extents:
        """The shape of an output with an allocator, after the call.

        Raises `InvalidArgumentError` where no call has told it.
        """
        if name not in self._shapes:
            raise InvalidArgumentError("no call has told the shape of this output", tensor=name)
        return self._shapes[name]

    def is_capturable(self, stream: int = 0) -> bool:
        """Whether the next call can be captured in a CUDA graph, as far as TensorRT tells."""
        return self._context.capturable(stream)

    def execute_async(self, stream: int = 0) -> None:
        """Puts the call into a stream, named by its address.

        Raises `DeviceError` with TensorRT's own words where it refuses.
        """
        self._context.enqueue(stream)

    def time_layers(self, wanted: bool = True) -> None:
        """Whether the next calls are timed layer by layer, which makes them slower."""
        self._context.profile_layers(wanted)

    def layer_times(self) -> list[tuple[str, float]]:
        """The milliseconds of each layer of the last call, for which the caller has waited.

        Raises `DeviceError` where TensorRT has none.
        """
        return self._context.times()


def open_plan(plan: bytes | str | os.PathLike[str], *, trust: bool = False, logger: Logger | None = None) -> PlanEngine:
    """Opens a plan, or a file of one, with the TensorRT library of this machine.

    A plan is native code for a GPU: only with `trust=True`, which says that you trust whoever built it.

    Raises `InvalidArgumentError` without that; `OSError` if the file can't be read; `FormatError` if it is no plan;
    `DeviceError`, with what TensorRT said, for a plan of another version, for another GPU, or damaged.
    """
    if not trust:
        raise InvalidArgumentError(
            "a plan is native code, and opening it runs what its builder put there",
            hint="open_plan(..., trust=True) for one whose builder you trust",
        )
    data = plan if isinstance(plan, bytes) else Path(plan).read_bytes()
    return opened(data, logger)


def opened(data: bytes, logger: Logger | None) -> PlanEngine:
    """A plan whose builder is trusted."""
    return PlanEngine(_native.TensorRTEngine.open(data, _Listener(logger or Logger())))


class _Listener:
    """What TensorRT calls, from threads of its own."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger

    def say(self, severity: str, text: str) -> None:
        self._logger.log(Logger.Severity[severity], f"[TRT] {text}")
