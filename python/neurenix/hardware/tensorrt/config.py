"""IBuilderConfig: how to build."""

from __future__ import annotations

from typing import Any

from neurenix import names
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware import options
from neurenix.hardware.tensorrt import build_enums as e
from neurenix.hardware.tensorrt.build_enums import BuilderFlag, MemoryPoolType
from neurenix.hardware.tensorrt.enums import Word
from neurenix.hardware.tensorrt.interfaces import IProgressMonitor
from neurenix.hardware.tensorrt.profile import IOptimizationProfile
from neurenix.hardware.tensorrt.scoped import Scoped
from neurenix.hardware.tensorrt.strict import absence
from neurenix.hardware.tensorrt.timing_cache import ITimingCache
from neurenix.quantization.adapters import Adapter
from neurenix.quantization.calibrators import Calibrator

#: Switches that ask for what is not there, and why.
REFUSED = {
    BuilderFlag.SAFETY_SCOPE: "there is no restricted runtime",
    BuilderFlag.INT4: "nothing computes in it yet; networks with Quantize and Dequantize layers need no flag",
    BuilderFlag.FP4: "nothing computes in it yet; networks with Quantize and Dequantize layers need no flag",
    BuilderFlag.STRIP_PLAN: "an engine file holds its weights",
    BuilderFlag.WEIGHT_STREAMING: "weights stay where they run",
    BuilderFlag.ERROR_ON_TIMING_CACHE_MISS: "what is not in the cache is measured",
    BuilderFlag.STRICT_NANS: "a NaN that meets a ReLU may come out as a number",
    BuilderFlag.DISTRIBUTIVE_INDEPENDENCE: "kernels are chosen by their time alone",
}

#: What TensorRT's properties are at first; those that ask for nothing may have no other value, and `_WHY` says why.
_PLAIN: dict[str, Any] = {
    "avg_timing_iterations": 1,
    "max_aux_streams": 0,
    "max_num_tactics": -1,
    "profiling_verbosity": e.ProfilingVerbosity.DETAILED,
    "hardware_compatibility_level": e.HardwareCompatibilityLevel.NONE,
    "l2_limit_for_tiling": -1,
    "tiling_optimization_level": e.TilingOptimizationLevel.NONE,
    "profile_stream": 0,
    "plugins_to_serialize": (),
    "quantization_flags": 0,
    "progress_monitor": None,
    "engine_capability": e.EngineCapability.STANDARD,
    "default_device_type": e.DeviceType.GPU,
    "DLA_core": -1,
    "runtime_platform": e.RuntimePlatform.SAME_AS_BUILD,
    "algorithm_selector": None,
    "int8_calibrator": None,
    "remote_auto_tuning_config": "",
}
_WHY = {
    "engine_capability": "there is one runtime",
    "default_device_type": "there is no DLA",
    "DLA_core": "there is no DLA",
    "runtime_platform": "an engine file opens on any machine, planned anew",
    "algorithm_selector": "kernels are chosen by their time; exclude= keeps layers from a provider",
    "remote_auto_tuning_config": "kernels are timed on this machine",
}


class IBuilderConfig(Scoped):
    """How to build: TensorRT's switches, and the options of `optimize_model` as attributes (`config.threads = 2`)."""

    def __init__(self) -> None:
        self.reset()

    _options: dict[str, Any]
    _flags: set[BuilderFlag]
    _profiles: list[IOptimizationProfile]
    _plain: dict[str, Any]
    _pools: dict[MemoryPoolType, int]
    _cache: ITimingCache | None

    #: TensorRT's names of options.
    _ALIASES = {"max_workspace_size": "workspace_size", "builder_optimization_level": "optimization_level"}  # noqa: RUF012

    def reset(self) -> None:
        """Makes everything as it was at first."""
        self._options = {}
        self._flags = set()
        self._profiles = []
        self._plain = {}
        self._pools = {}
        self._cache = None
        self._calibration_profile: IOptimizationProfile | None = None
        self._tactic_sources = (1 << len(e.TacticSource)) - 1
        self._previews: set[e.PreviewFeature] = set()

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        elif name in _PLAIN:
            self._set_plain(name, value)
        else:
            name = self._ALIASES.get(name, name)
            self._options[name] = options.check(name, value)

    def _set_plain(self, name: str, value: Any) -> None:
        first = _PLAIN[name]
        if name in _WHY and value != first:
            raise UnsupportedError(f"{name} can't be set: {_WHY[name]}", expected=str(first), got=repr(value))
        if isinstance(first, Word) and not isinstance(value, type(first)):
            raise InvalidArgumentError(f"{name} is no {type(first).__name__}", got=repr(value))
        if name == "int8_calibrator" and value is not None:
            if not (isinstance(value, Calibrator) or hasattr(value, "get_batch")):
                raise InvalidArgumentError(
                    "this is no calibrator", expected="a trt.IInt8Calibrator or trt.EntropyCalibrator, ...",
                    got=type(value).__name__,
                )  # fmt: skip
        if name == "progress_monitor" and not isinstance(value, IProgressMonitor | None):
            raise InvalidArgumentError("a progress monitor is derived from trt.IProgressMonitor", got=repr(value))
        self._plain[name] = value

    def __getattr__(self, name: str) -> Any:
        if name in _PLAIN:
            return self._plain.get(name, _PLAIN[name])
        name = self._ALIASES.get(name, name)
        if name.startswith("_") or name not in options.names():
            known = [*options.names(), *_PLAIN]
            hint = names.hint(name, known)
            raise AttributeError(absence(type(self), name) + (f"; {hint}" if hint else ""))
        return self._options.get(name, getattr(options.Options(), name))

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        """Limits a pool of memory, in bytes. WORKSPACE counts; the others are kept and need nothing."""
        if not isinstance(pool, MemoryPoolType):
            known = ", ".join(f"MemoryPoolType.{known.name}" for known in MemoryPoolType)
            raise InvalidArgumentError("this is no MemoryPoolType", expected=known, got=repr(pool))
        if pool is MemoryPoolType.WORKSPACE:
            self.workspace_size = pool_size
        else:
            self._pools[pool] = int(pool_size)

    def get_memory_pool_limit(self, pool: MemoryPoolType) -> int:
        """The limit of a pool of memory, in bytes; 0 where there is none."""
        if pool is MemoryPoolType.WORKSPACE:
            return self._options.get("workspace_size") or 0
        return self._pools.get(pool, 0)

    def set_flag(self, flag: BuilderFlag) -> None:
        """Turns a switch on.

        FP16, BF16 and TF32 let float32 layers compute in it. None is on before, TF32 neither: float32 stays float32
        until something else is asked for. FP16 comes before BF16, and that before TF32, where several are on. REFIT and
        its kin keep the original weights, so that a `Refitter` replaces them. INT8 wants a network with Quantize and
        Dequantize layers, a calibrator, or ranges of tensors; otherwise the weights alone have 8 bits, with a warning.
        DISABLE_TIMING_CACHE measures everything. The others permit what is never
        done, or ask for what is always so.

        Raises `UnsupportedError`, with the reason, for what is not there.
        """
        if not isinstance(flag, BuilderFlag):
            raise InvalidArgumentError(
                "this is no BuilderFlag", expected=", ".join(f.name for f in BuilderFlag), got=repr(flag)
            )
        if flag in REFUSED:
            raise UnsupportedError(f"{flag} can't be set: {REFUSED[flag]}")
        self._flags.add(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        """Turns a switch off."""
        self._flags.discard(flag)

    def get_flag(self, flag: BuilderFlag) -> bool:
        """Whether a switch is on."""
        return flag in self._flags

    @property
    def flags(self) -> int:
        """All switches as bits."""
        return sum(1 << int(flag) for flag in self._flags)

    @flags.setter
    def flags(self, bits: int) -> None:
        known = sum(1 << int(flag) for flag in BuilderFlag)
        if int(bits) & ~known:
            raise InvalidArgumentError("there is no such flag of a build", expected=bin(known), got=bin(int(bits)))
        self._flags = set()
        for flag in BuilderFlag:
            if int(bits) >> int(flag) & 1:
                self.set_flag(flag)

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        """Adds a profile and gives its number."""
        if not isinstance(profile, IOptimizationProfile):
            raise InvalidArgumentError("this is no IOptimizationProfile", got=repr(profile))
        self._profiles.append(profile)
        return len(self._profiles) - 1

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles there are."""
        return len(self._profiles)

    def set_calibration_profile(self, profile: IOptimizationProfile) -> bool:
        """Says by its opt shapes what lies at the addresses that a calibrator gives; arrays say theirs themselves.

        Without it those of the first profile count, with the calibrator's batch size.
        """
        if not isinstance(profile, IOptimizationProfile):
            raise InvalidArgumentError("this is no IOptimizationProfile", got=repr(profile))
        self._calibration_profile = profile
        return True

    def get_calibration_profile(self) -> IOptimizationProfile | None:
        """The profile that was set."""
        return self._calibration_profile

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache:
        """A cache of times, from bytes (none for an empty one); what is no time in them is left out."""
        return ITimingCache(bytes(serialized_timing_cache))

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool = False) -> bool:
        """Lets builds read a cache, and add what they measure. The one in the cache directory is then left alone."""
        if not isinstance(cache, ITimingCache):
            raise InvalidArgumentError("this is no ITimingCache", got=repr(cache))
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache | None:
        """The cache that was set."""
        return self._cache

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        """Keeps the bits; `exclude` and `providers` say what kernels may come from here."""
        self._tactic_sources = int(tactic_sources)
        return True

    def get_tactic_sources(self) -> int:
        """The bits."""
        return self._tactic_sources

    def set_preview_feature(self, feature: e.PreviewFeature, enable: bool) -> None:
        """Keeps whether a feature is asked for; none changes anything here."""
        (self._previews.add if enable else self._previews.discard)(feature)

    def get_preview_feature(self, feature: e.PreviewFeature) -> bool:
        """Whether a feature is asked for."""
        return feature in self._previews

    def set_quantization_flag(self, flag: e.QuantizationFlag) -> None:
        """Keeps a switch of calibration."""
        self.quantization_flags |= 1 << int(flag)

    def clear_quantization_flag(self, flag: e.QuantizationFlag) -> None:
        """Takes it back."""
        self.quantization_flags &= ~(1 << int(flag))

    def get_quantization_flag(self, flag: e.QuantizationFlag) -> bool:
        """Whether it is on."""
        return bool(self.quantization_flags >> int(flag) & 1)

    def set_device_type(self, layer: Any, device_type: e.DeviceType) -> None:
        """GPU for every layer; raises `UnsupportedError` for DLA, which is not there."""
        if device_type is not e.DeviceType.GPU:
            raise UnsupportedError("a layer can't be put there: there is no DLA", got=str(device_type))

    def get_device_type(self, layer: Any) -> e.DeviceType:
        """GPU: what the preferred provider runs on, whatever it is."""
        return e.DeviceType.GPU

    def is_device_type_set(self, layer: Any) -> bool:
        """No: there is one."""
        return False

    def reset_device_type(self, layer: Any) -> None:
        """Leaves it as it is."""

    def can_run_on_DLA(self, layer: Any) -> bool:
        """No: there is no DLA."""
        return False

    def _calibrator(self) -> Calibrator:
        """The calibrator, with the shapes of what lies at its addresses."""
        if isinstance(self.int8_calibrator, Calibrator):
            return self.int8_calibrator
        own = self._calibration_profile
        shapes = {} if own is None else {name: shape.opt for name, shape in own._shapes.items()}
        for name, shape in self._profiles[0]._shapes.items() if self._profiles else ():
            shapes.setdefault(name, (-1, *shape.opt[1:]))
        return Adapter(self.int8_calibrator, shapes)

    def _final(self) -> dict[str, Any]:
        """The options, with what the switches mean for them."""
        chosen = dict(self._options)
        for flag in (BuilderFlag.FP16, BuilderFlag.BF16, BuilderFlag.TF32):
            if flag in self._flags and "precision" not in chosen:
                chosen["precision"] = flag.op
        for flag in (BuilderFlag.FP8, BuilderFlag.INT8):
            if flag in self._flags:
                rest = [one.op for one in (BuilderFlag.FP16, BuilderFlag.BF16) if one in self._flags]
                chosen["precision"] = "+".join([flag.op, *rest[:1]])
        if BuilderFlag.INT8 in self._flags and self.int8_calibrator is not None:
            chosen["calibration"] = self._calibrator()
        refit = {BuilderFlag.REFIT, BuilderFlag.REFIT_IDENTICAL, BuilderFlag.REFIT_INDIVIDUAL}
        if self._flags & refit:
            chosen["refittable"] = True
        if BuilderFlag.DISABLE_TIMING_CACHE in self._flags:
            chosen["timing_cache"] = False
        return chosen
