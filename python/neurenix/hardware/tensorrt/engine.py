"""ICudaEngine: what a build gives."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neurenix import _native
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware.tensorrt import build_enums as e
from neurenix.hardware.tensorrt.context import IExecutionContext
from neurenix.hardware.tensorrt.enums import DataType, Dims, as_data_type
from neurenix.hardware.tensorrt.inspector import EngineInspector
from neurenix.hardware.tensorrt.interfaces import IErrorRecorder
from neurenix.hardware.tensorrt.logger import checked
from neurenix.hardware.tensorrt.memory import IHostMemory
from neurenix.hardware.tensorrt.plugins.describe import TensorFormat
from neurenix.hardware.tensorrt.ports import Port, Ranges, ports_of, profiles_of, unknown
from neurenix.hardware.tensorrt.scoped import Scoped
from neurenix.hardware.tensorrt.strict import Strict


class IRuntimeConfig(Strict):
    """How a context is made."""

    def __init__(self) -> None:
        self._strategy = e.ExecutionContextAllocationStrategy.STATIC

    def set_execution_context_allocation_strategy(
        self, strategy: e.ExecutionContextAllocationStrategy = e.ExecutionContextAllocationStrategy.STATIC
    ) -> None:
        """Keeps who brings the memory; contexts do so themselves."""
        self._strategy = strategy

    def get_execution_context_allocation_strategy(self) -> e.ExecutionContextAllocationStrategy:
        """Who brings the memory."""
        return self._strategy


class ISerializationConfig(Strict):
    """What an engine file shall hold."""

    flags: int

    def __init__(self) -> None:
        self.flags = 0

    def set_flag(self, flag: e.SerializationFlag) -> bool:
        """Keeps a switch; raises `UnsupportedError` for EXCLUDE_WEIGHTS."""
        if flag is e.SerializationFlag.EXCLUDE_WEIGHTS:
            raise UnsupportedError("an engine file holds its weights", got=str(flag))
        self.flags |= 1 << int(flag)
        return True

    def clear_flag(self, flag: e.SerializationFlag) -> bool:
        """Takes a switch back."""
        self.flags &= ~(1 << int(flag))
        return True

    def get_flag(self, flag: e.SerializationFlag) -> bool:
        """Whether a switch is on."""
        return bool(self.flags >> int(flag) & 1)


class ICudaEngine(Scoped):
    """A network made ready to run. Weights exist once, however many contexts there are."""

    #: What TensorRT tells of streams and of weights that stream: there are none of its own.
    num_aux_streams = 0
    weight_streaming_scratch_memory_size = 0
    streamable_weights_size = 0
    minimum_weight_streaming_budget = 0
    has_implicit_batch_dimension = False
    engine_capability = e.EngineCapability.STANDARD
    hardware_compatibility_level = e.HardwareCompatibilityLevel.NONE
    tactic_sources = (1 << len(e.TacticSource)) - 1

    profiling_verbosity: e.ProfilingVerbosity
    error_recorder: IErrorRecorder | None

    def __init__(
        self,
        engine: _native.Engine,
        options: Mapping[str, Any] | None = None,
        logger: Any = None,
        profiling_verbosity: e.ProfilingVerbosity = e.ProfilingVerbosity.DETAILED,
    ) -> None:
        self._engine = engine
        self._options = dict(options or {})
        self._logger = checked(logger)
        self._ports = ports_of(engine)
        self._profiles = profiles_of(engine)
        self._told: dict[str, Any] | None = None
        self.profiling_verbosity = profiling_verbosity
        self.error_recorder = None

    def _report(self) -> dict[str, Any]:
        if self._told is None:
            self._told = json.loads(self._engine.report())
        return self._told

    def _replace(self, engine: _native.Engine) -> None:
        """Another engine of the same inputs, outputs and profiles takes the place of this one's."""
        self._engine, self._told = engine, None

    @property
    def name(self) -> str:
        """The name of the network."""
        return self._engine.name

    @property
    def num_layers(self) -> int:
        """How many kernels run in a call."""
        return len(self._report()["kernels"])

    @property
    def num_io_tensors(self) -> int:
        """How many inputs and outputs there are."""
        return len(self._ports)

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles it was built for: 1 where no size of an input is dynamic."""
        return len(self._profiles)

    @property
    def refittable(self) -> bool:
        """Whether a `Refitter` can replace its weights: it was built with BuilderFlag.REFIT."""
        return self._engine.refittable

    def get_tensor_name(self, index: int) -> str:
        """The name of an input or output; inputs come first. Raises `InvalidArgumentError` where there is none."""
        if not 0 <= index < len(self._ports):
            raise InvalidArgumentError(
                "there is no input or output of this number", expected=f"0 to {len(self._ports) - 1}", got=str(index)
            )
        return list(self._ports)[index]

    def __getitem__(self, index: int) -> str:
        if not -len(self._ports) <= index < len(self._ports):
            raise IndexError(index)
        return list(self._ports)[index]

    def get_tensor_mode(self, name: str) -> e.TensorIOMode:
        """Whether a tensor is an input, an output, or neither."""
        return self._ports[name].mode if name in self._ports else e.TensorIOMode.NONE

    def get_tensor_dtype(self, name: str) -> DataType | np.dtype[Any]:
        """The element type of an input or output."""
        return as_data_type(self._port(name).dtype)

    def get_tensor_shape(self, name: str) -> Dims:
        """The shape of an input or output, -1 where it is dynamic."""
        return Dims(self._port(name).shape)

    def get_tensor_location(self, name: str) -> e.TensorLocation:
        """Where the pointers of a tensor point: HOST where the CPU runs the engine, or sizes depend on data."""
        self._port(name)
        return e.TensorLocation.DEVICE if self._engine.devices else e.TensorLocation.HOST

    def get_tensor_format(self, name: str, profile_index: int = 0) -> TensorFormat:
        """Row-major."""
        self._port(name)
        return TensorFormat.LINEAR

    def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str:
        """The format and the element type in words."""
        return f"Row-major linear {self._port(name).dtype.name} format (kLINEAR)"

    def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int:
        """-1, as elements are not packed into vectors."""
        self._port(name)
        return -1

    def get_tensor_components_per_element(self, name: str, profile_index: int = 0) -> int:
        """-1, as elements are not packed into vectors."""
        self._port(name)
        return -1

    def get_tensor_vectorized_dim(self, name: str, profile_index: int = 0) -> int:
        """-1, as elements are not packed into vectors."""
        self._port(name)
        return -1

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        """The least, expected and greatest shape of an input in a profile; an empty list for an output."""
        port = self._port(name)
        return port.profile_shapes(self._profile(profile_index)) if port.mode is e.TensorIOMode.INPUT else []

    def get_tensor_profile_values(self, name: int | str, profile_index: str | int) -> list[list[int]]:
        """An empty list: no input tells shapes by its elements alone.

        TensorRT takes the number of the profile first and the tensor second, under each other's names; here both orders
        will do.
        """
        tensor, profile = (profile_index, name) if isinstance(profile_index, str) else (name, profile_index)
        self._port(str(tensor))
        self._profile(int(profile))
        return []

    def is_shape_inference_io(self, name: str) -> bool:
        """Whether an input is needed to tell shapes: none is, beside its own shape."""
        self._port(name)
        return False

    def is_debug_tensor(self, name: str) -> bool:
        """Whether a tensor was marked for a debug listener: none can be."""
        return False

    def get_aliased_input_tensor(self, name: str) -> str | None:
        """The input whose memory an output shares: none does."""
        self._port(name)
        return None

    def get_binding_size(self, binding: str | int) -> int:
        """Bytes of an input or output at the greatest shapes of the first profile.

        Raises `UnsupportedError` for an output whose size depends on data, which `IOutputAllocator` brings memory for.
        """
        port = self._port(self.get_tensor_name(binding) if isinstance(binding, int) else binding)
        if port.mode is e.TensorIOMode.INPUT:
            shape: Any = port.profile_shapes(self._profile(0))[2]
        else:
            shape = self._greatest()[0].get(port.name)
        if shape is None or any(not isinstance(d, int) or d < 0 for d in shape):
            raise UnsupportedError(
                "the size of the output depends on data", tensor=port.name, hint="use context.set_output_allocator"
            )
        return int(np.prod(shape, dtype=np.int64)) * port.dtype.itemsize

    def _greatest(self, profile: int = 0) -> tuple[dict[str, Any], int]:
        """The shapes of outputs, and bytes of activations, at the greatest shapes of a profile."""
        inputs = [port for port in self._ports.values() if port.mode is e.TensorIOMode.INPUT]
        shapes = {port.name: list(port.profile_shapes(self._profile(profile))[2]) for port in inputs}
        try:
            found, size = self._engine.prepare(shapes)
            return dict(found), size
        except UnsupportedError:
            # Outputs whose sizes depend on data.
            outputs = (port for port in self._ports.values() if port.mode is e.TensorIOMode.OUTPUT)
            return {port.name: port.shape for port in outputs}, int(self._report()["memory"]["arena"])

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        """Bytes of activations and workspaces of a context at the greatest shapes of a profile."""
        return self._greatest(profile_index)[1]

    get_device_memory_size_for_profile = get_device_memory_size_for_profile_v2

    @property
    def device_memory_size_v2(self) -> int:
        """Bytes of activations and workspaces of a context at the greatest shapes of all profiles."""
        return max(self._greatest(number)[1] for number in range(self.num_optimization_profiles))

    @property
    def device_memory_size(self) -> int:
        """As `device_memory_size_v2`."""
        return self.device_memory_size_v2

    @property
    def weight_streaming_budget_v2(self) -> int:
        """0: weights stay where they run."""
        return 0

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, budget: int) -> None:
        if budget:
            raise UnsupportedError("weights can't be streamed: they stay where they run", expected="0", got=str(budget))

    def get_weight_streaming_automatic_budget(self) -> int:
        """0: weights stay where they run."""
        return 0

    def get_engine_stat(self, stat: e.EngineStat = e.EngineStat.TOTAL_WEIGHTS_SIZE) -> int:
        """Bytes of the weights as they came."""
        return int(self._report()["memory"]["weights"]) if stat is e.EngineStat.TOTAL_WEIGHTS_SIZE else 0

    def create_execution_context(
        self, strategy: e.ExecutionContextAllocationStrategy | IRuntimeConfig | None = None, **given: Any
    ) -> IExecutionContext:
        """A context: the state of one call at a time. It brings its memory itself, whatever the strategy says."""
        runtime_config = given.pop("runtime_config", None) or strategy
        if given or not isinstance(runtime_config, e.ExecutionContextAllocationStrategy | IRuntimeConfig | None):
            raise InvalidArgumentError(
                "a context takes a strategy or a runtime_config", got=", ".join(given) or repr(strategy)
            )
        if not isinstance(runtime_config, IRuntimeConfig):
            asked, runtime_config = runtime_config, IRuntimeConfig()
            if asked is not None:
                runtime_config.set_execution_context_allocation_strategy(asked)
        return IExecutionContext(self, runtime_config)

    create_execution_context_without_device_memory = create_execution_context

    def create_runtime_config(self) -> IRuntimeConfig:
        """How contexts shall be made."""
        return IRuntimeConfig()

    def create_engine_inspector(self) -> EngineInspector:
        """What tells of its layers."""
        return EngineInspector(self)

    def create_serialization_config(self) -> ISerializationConfig:
        """What a file shall hold."""
        return ISerializationConfig()

    def serialize(self) -> IHostMemory:
        """The engine as bytes, for `Runtime.deserialize_cuda_engine`."""
        with tempfile.TemporaryDirectory(prefix="neurenix-") as folder:
            path = Path(folder) / "engine"
            self._engine.save(str(path))
            return IHostMemory(path.read_bytes())

    def serialize_with_config(self, config: ISerializationConfig) -> IHostMemory:
        """As `serialize`."""
        return self.serialize()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the engine to a file."""
        self._engine.save(os.fspath(path))

    def _port(self, name: str) -> Port:
        if name not in self._ports:
            raise unknown(name, list(self._ports))
        return self._ports[name]

    def _profile(self, index: int) -> Ranges:
        if not 0 <= index < len(self._profiles):
            raise InvalidArgumentError(
                "there is no profile of this number", expected=f"0 to {len(self._profiles) - 1}", got=str(index)
            )
        return self._profiles[index]
