"""Builder, IBuilderConfig, IOptimizationProfile, Logger."""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from typing import Any

from neurenix import _native
from neurenix.errors import InvalidArgumentError
from neurenix.hardware import options
from neurenix.hardware.tensorrt.engine import ICudaEngine
from neurenix.hardware.tensorrt.enums import BuilderFlag, MemoryPoolType
from neurenix.hardware.tensorrt.layers import INetworkDefinition
from neurenix.shapes import Shape

LOG = logging.getLogger("neurenix")


class Logger:
    """TensorRT's logger: messages up to a severity go to Python's logging, logger "neurenix"."""

    class Severity(enum.IntEnum):
        """How severe a message is; less is worse."""

        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2
        INFO = 3
        VERBOSE = 4

    INTERNAL_ERROR = Severity.INTERNAL_ERROR
    ERROR = Severity.ERROR
    WARNING = Severity.WARNING
    INFO = Severity.INFO
    VERBOSE = Severity.VERBOSE

    _LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

    def __init__(self, min_severity: Severity = Severity.WARNING) -> None:
        self.min_severity = min_severity

    def log(self, severity: Severity, msg: str) -> None:
        """Takes a message."""
        if severity <= self.min_severity:
            LOG.log(self._LEVELS[severity], "%s", msg)


class IOptimizationProfile:
    """The shapes to optimise for."""

    def __init__(self) -> None:
        self._shapes: dict[str, Shape] = {}

    def set_shape(self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> None:
        """The least, expected and greatest shape of an input."""
        self._shapes[input] = Shape(tuple(min), tuple(opt), tuple(max))

    def get_shape(self, input: str) -> list[tuple[int, ...]]:
        """The three shapes of an input, or an empty list."""
        shape = self._shapes.get(input)
        return [shape.min, shape.opt, shape.max] if shape else []

    def __bool__(self) -> bool:
        return bool(self._shapes)


class IBuilderConfig:
    """How to build: TensorRT's switches, and the options of `optimize_model` as attributes (`config.threads = 2`)."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}
        self._flags: set[BuilderFlag] = set()
        self._profiles: list[IOptimizationProfile] = []

    _options: dict[str, Any]
    _flags: set[BuilderFlag]
    _profiles: list[IOptimizationProfile]

    #: TensorRT's names of options.
    _ALIASES = {"max_workspace_size": "workspace_size", "builder_optimization_level": "optimization_level"}  # noqa: RUF012

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        name = self._ALIASES.get(name, name)
        self._options[name] = options.check(name, value)

    def __getattr__(self, name: str) -> Any:
        name = self._ALIASES.get(name, name)
        if name.startswith("_") or name not in options.names():
            raise AttributeError(f"IBuilderConfig has no attribute {name!r}; it has {', '.join(options.names())}")
        return self._options.get(name, getattr(options.Options(), name))

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        """Limits a pool of memory, in bytes."""
        if pool is not MemoryPoolType.WORKSPACE:
            raise InvalidArgumentError("this pool is not there", expected="MemoryPoolType.WORKSPACE", got=repr(pool))
        self.workspace_size = pool_size

    def get_memory_pool_limit(self, pool: MemoryPoolType) -> int:
        """The limit of a pool of memory, in bytes; 0 where there is none."""
        return self._options.get("workspace_size") or 0

    def set_flag(self, flag: BuilderFlag) -> None:
        """Turns a switch on: FP16, BF16 and TF32 let float32 layers compute in it.

        None is on before, TF32 neither: float32 stays float32 until something else is asked for. FP16 comes before
        BF16, and that before TF32, where several are on.
        """
        if not isinstance(flag, BuilderFlag):
            raise InvalidArgumentError(
                "this is no BuilderFlag", expected=", ".join(f.name for f in BuilderFlag), got=repr(flag)
            )
        self._flags.add(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        """Turns a switch off."""
        self._flags.discard(flag)

    def get_flag(self, flag: BuilderFlag) -> bool:
        """Whether a switch is on."""
        return flag in self._flags

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        """Adds a profile and gives its number."""
        self._profiles.append(profile)
        return len(self._profiles) - 1

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles there are."""
        return len(self._profiles)

    def _final(self) -> dict[str, Any]:
        """The options, with what the switches mean for the precision."""
        chosen = dict(self._options)
        for flag in (BuilderFlag.FP16, BuilderFlag.BF16, BuilderFlag.TF32):
            if flag in self._flags and "precision" not in chosen:
                chosen["precision"] = flag.value
        return chosen


class Builder:
    """Makes networks, configurations and engines."""

    def __init__(self, logger: Any = None) -> None:
        self.logger = logger or Logger()

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        """An empty network; it is explicit and strongly typed whatever the flags."""
        return INetworkDefinition()

    def create_builder_config(self) -> IBuilderConfig:
        """A configuration."""
        return IBuilderConfig()

    def create_optimization_profile(self) -> IOptimizationProfile:
        """An optimisation profile."""
        return IOptimizationProfile()

    def build_engine(
        self, network: INetworkDefinition | _native.Network, config: IBuilderConfig | None = None
    ) -> ICudaEngine:
        """Builds an engine. Raises as `TensorRTBackend.optimize_model`."""
        from neurenix.hardware import get_backend

        config = config or IBuilderConfig()
        given = network.to_network() if isinstance(network, INetworkDefinition) else network
        profiles: Any = [dict(profile._shapes) for profile in config._profiles if profile] or None
        return get_backend().optimize_model(given, profiles, **config._final()).engine

    build_cuda_engine = build_engine

    def build_serialized_network(
        self, network: INetworkDefinition | _native.Network, config: IBuilderConfig | None = None
    ) -> bytes:
        """Builds an engine and gives it as bytes."""
        return self.build_engine(network, config).serialize()
