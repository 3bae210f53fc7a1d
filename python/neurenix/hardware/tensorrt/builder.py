"""Builder: makes networks, configurations and engines."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from neurenix import _native
from neurenix.errors import Error, FileError, InvalidArgumentError, UnsupportedError
from neurenix.hardware.options import check, has_int8
from neurenix.hardware.tensorrt.build_enums import BuilderFlag, NetworkDefinitionCreationFlag
from neurenix.hardware.tensorrt.calibrators import FixedRanges
from neurenix.hardware.tensorrt.config import IBuilderConfig
from neurenix.hardware.tensorrt.engine import ICudaEngine
from neurenix.hardware.tensorrt.interfaces import IErrorRecorder
from neurenix.hardware.tensorrt.layers import INetworkDefinition
from neurenix.hardware.tensorrt.logger import Logger, Severity, checked, report
from neurenix.hardware.tensorrt.memory import IHostMemory
from neurenix.hardware.tensorrt.plugins import IPluginRegistry, get_plugin_registry
from neurenix.hardware.tensorrt.profile import IOptimizationProfile
from neurenix.hardware.tensorrt.progress import Follower
from neurenix.hardware.tensorrt.scoped import Scoped
from neurenix.hardware.tensorrt.timing_cache import lent

Given = INetworkDefinition | _native.Network


class Builder(Scoped):
    """Makes networks, configurations and engines.

    `build_serialized_network` and `build_engine_with_config` give None when a build fails, after the whole error went
    to the logger; `trt.last_error()` has it. `build_engine` raises it.
    """

    #: There is no DLA.
    num_DLA_cores = 0
    max_DLA_batch_size = 0
    _REFUSED: ClassVar = {"gpu_allocator": "memory comes from the provider that runs a layer"}

    logger: Any
    error_recorder: IErrorRecorder | None
    #: As TensorRT 7 has it; networks say their batch themselves.
    max_batch_size: int
    _threads: int | None
    _own: IBuilderConfig
    _own_set: set[str]

    def __init__(self, logger: Any = None) -> None:
        self.logger = checked(logger)
        self.reset()

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        """An empty network; it is explicit and strongly typed whatever the flags are.

        `flags`: bits of NetworkDefinitionCreationFlag; raises `InvalidArgumentError` for others.
        """
        known = sum(1 << int(flag) for flag in NetworkDefinitionCreationFlag)
        if int(flags) & ~known:
            raise InvalidArgumentError("there is no such flag of a network", expected=bin(known), got=bin(int(flags)))
        return INetworkDefinition(flags=int(flags), builder=self)

    def create_builder_config(self) -> IBuilderConfig:
        """A configuration."""
        return IBuilderConfig()

    def create_optimization_profile(self) -> IOptimizationProfile:
        """An optimisation profile."""
        return IOptimizationProfile()

    @property
    def max_threads(self) -> int:
        """Threads of a CPU that engines run on, where their configuration does not say."""
        return self._threads or _native.default_threads()

    @max_threads.setter
    def max_threads(self, threads: int) -> None:
        self._threads = check("threads", threads)

    @property
    def platform_has_tf32(self) -> bool:
        """Whether the preferred provider multiplies in tf32."""
        return self._computes("tf32")

    @property
    def platform_has_fast_fp16(self) -> bool:
        """Whether the preferred provider computes in fp16."""
        return self._computes("float16")

    @property
    def platform_has_fast_int8(self) -> bool:
        """Whether the preferred provider has kernels for products of 8 bits."""
        from neurenix.hardware import get_backend

        return has_int8(get_backend().native_options()["providers"][0])

    def _computes(self, dtype: str) -> bool:
        from neurenix.hardware import get_backend

        provider = get_backend().native_options()["providers"][0]
        return _native.computes(provider, dtype)

    def build_engine(self, network: Given, config: IBuilderConfig | None = None) -> ICudaEngine:
        """Builds an engine. Raises as `TensorRTBackend.optimize_model`."""
        config = self._configuration(config)
        given = network.to_network() if isinstance(network, INetworkDefinition) else network
        _check_flags(network, config)
        follower = Follower(config.progress_monitor) if config.progress_monitor is not None else None
        options = config._final() | _ranges(network, config)
        if self._threads is not None:
            options.setdefault("threads", self._threads)
        if follower is not None:
            options["progress"] = follower
        built = False
        try:
            with _cache(config, options):
                engine = self._build(given, config, options)
            built = True
            return engine
        finally:
            if follower is not None:
                follower.end(built)

    build_cuda_engine = build_engine

    def _build(self, network: _native.Network, config: IBuilderConfig, options: dict[str, Any]) -> ICudaEngine:
        from neurenix.hardware import get_backend

        profiles: Any = [dict(profile._shapes) for profile in config._profiles if profile] or None
        model = get_backend().optimize_model(network, profiles, **options)
        engine = model._engine
        if type(self.logger) is not Logger:
            for note in engine.notes:
                self.logger.log(Severity.WARNING, note)
        return ICudaEngine(engine, model._options, self.logger, config.profiling_verbosity)

    def build_engine_with_config(self, network: Given, config: IBuilderConfig) -> ICudaEngine | None:
        """Builds an engine; None, after logging the error, where that fails."""
        try:
            return self.build_engine(network, config)
        except Error as error:
            report(self.logger, error, self.error_recorder)
            return None

    def build_serialized_network(
        self, network: Given, config: IBuilderConfig | None = None, kernel_text: Any = None
    ) -> IHostMemory | None:
        """Builds an engine and gives it as bytes; None, after logging the error, where that fails."""
        engine = self.build_engine_with_config(network, self._configuration(config))
        return None if engine is None else engine.serialize()

    def build_serialized_network_to_stream(self, network: Given, config: IBuilderConfig, writer: Any) -> bool:
        """Builds an engine and writes it by `writer.write(bytes)`; False, after logging why, where that fails.

        So it does where the writer says that it took fewer bytes.
        """
        plan = self.build_serialized_network(network, config)
        if plan is None:
            return False
        data = bytes(plan)
        taken = writer.write(data)
        if isinstance(taken, int) and taken != len(data):
            error = FileError("the writer did not take the engine", expected=f"{len(data)} bytes", got=f"{taken} bytes")
            report(self.logger, error, self.error_recorder)
            return False
        return True

    def is_network_supported(self, network: Given, config: IBuilderConfig) -> bool:
        """Whether a build would succeed: it plans without timing anything, and logs what is in the way."""
        try:
            given = network.to_network() if isinstance(network, INetworkDefinition) else network
            _check_flags(network, config)
            options = (
                config._final()
                | _ranges(network, config)
                | {"optimization_level": 0, "timing_cache": False, "verify": False}
            )
            self._build(given, config, options)
        except Error as error:
            report(self.logger, error, self.error_recorder)
            return False
        return True

    def get_plugin_registry(self) -> IPluginRegistry:
        """The registry of plugins."""
        return get_plugin_registry()

    def reset(self) -> None:
        """Makes everything as it was at first."""
        self._threads = None
        self.error_recorder = None
        self.max_batch_size = 1
        # What the properties below say, for builds without a configuration.
        self._own = IBuilderConfig()
        self._own_set = set()

    def _configuration(self, given: IBuilderConfig | None) -> IBuilderConfig:
        """The configuration of a build: the one that is given, or else what was set of the builder itself."""
        if given is None:
            return self._own
        if self._own_set and given is not self._own:
            names = ", ".join(f"builder.{name}" for name in sorted(self._own_set))
            self.logger.log(Severity.WARNING, f"{names}: counts for builds without an IBuilderConfig alone")
        return given

    def _set_own(self, name: str, flag: BuilderFlag, on: bool) -> None:
        (self._own.set_flag if on else self._own.clear_flag)(flag)
        self._own_set.add(name)

    # As TensorRT 7 has them, for `build_cuda_engine(network)`.

    @property
    def fp16_mode(self) -> bool:
        """Whether builds without a configuration compute in fp16, as TensorRT 7 has it."""
        return self._own.get_flag(BuilderFlag.FP16)

    @fp16_mode.setter
    def fp16_mode(self, on: bool) -> None:
        self._set_own("fp16_mode", BuilderFlag.FP16, on)

    @property
    def int8_mode(self) -> bool:
        """Whether builds without a configuration compute in int8 where the network says how, as TensorRT 7 has it."""
        return self._own.get_flag(BuilderFlag.INT8)

    @int8_mode.setter
    def int8_mode(self, on: bool) -> None:
        self._set_own("int8_mode", BuilderFlag.INT8, on)

    @property
    def strict_type_constraints(self) -> bool:
        """Whether builds without a configuration keep the precision of single layers, as TensorRT 7 has it."""
        return self._own.get_flag(BuilderFlag.OBEY_PRECISION_CONSTRAINTS)

    @strict_type_constraints.setter
    def strict_type_constraints(self, on: bool) -> None:
        self._set_own("strict_type_constraints", BuilderFlag.OBEY_PRECISION_CONSTRAINTS, on)

    @property
    def refittable(self) -> bool:
        """Whether builds without a configuration keep weights that can be replaced, as TensorRT 7 has it."""
        return self._own.get_flag(BuilderFlag.REFIT)

    @refittable.setter
    def refittable(self, on: bool) -> None:
        self._set_own("refittable", BuilderFlag.REFIT, on)

    @property
    def max_workspace_size(self) -> int:
        """Bytes that kernels may use beside their operands in builds without a configuration, as TensorRT 7 has it."""
        return self._own.workspace_size or 0

    @max_workspace_size.setter
    def max_workspace_size(self, size: int) -> None:
        self._own.workspace_size = size
        self._own_set.add("max_workspace_size")


def _cache(config: IBuilderConfig, options: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """The file of times for a build, where the script brought a cache of its own."""
    cache = config.get_timing_cache()
    if cache is None or config.get_flag(BuilderFlag.DISABLE_TIMING_CACHE):
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def borrowed() -> Any:
        with lent(cache) as path:
            options["timing_cache"] = path
            yield

    return borrowed()


def _ranges(network: Given, config: IBuilderConfig) -> dict[str, Any]:
    """What `set_dynamic_range` told, as a calibration, where no calibrator is set."""
    asked = config.get_flag(BuilderFlag.INT8) and config.int8_calibrator is None
    if not asked or not isinstance(network, INetworkDefinition) or not network._ranges:
        return {}
    names = ((tensor._native().name.removesuffix(":out"), ends) for tensor, ends in network._ranges.items())
    return {"calibration": FixedRanges({name: max(abs(low), abs(high)) for name, (low, high) in names})}


def _check_flags(network: Given, config: IBuilderConfig) -> None:
    if not isinstance(network, INetworkDefinition):
        return
    kept = [layer.name for layer in network if layer.precision_is_set]
    if kept and config.get_flag(BuilderFlag.OBEY_PRECISION_CONSTRAINTS):
        raise UnsupportedError(
            "the precision of single layers can't be prescribed", layer=", ".join(kept[:8]),
            hint="say it in the network: add_cast before and after them",
        )  # fmt: skip
