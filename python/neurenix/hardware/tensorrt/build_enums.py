"""The words of builds, engines and contexts."""

from __future__ import annotations

from neurenix.hardware.tensorrt.enums import Word


class BuilderFlag(Word):
    """Switches of a build; `IBuilderConfig.set_flag` says what each means here."""

    FP16 = 0, "fp16"
    INT8 = 1, "int8"
    DEBUG = 2
    GPU_FALLBACK = 3
    REFIT = 4
    DISABLE_TIMING_CACHE = 5
    TF32 = 6, "tf32"
    SPARSE_WEIGHTS = 7
    SAFETY_SCOPE = 8
    OBEY_PRECISION_CONSTRAINTS = 9
    PREFER_PRECISION_CONSTRAINTS = 10
    DIRECT_IO = 11
    REJECT_EMPTY_ALGORITHMS = 12
    VERSION_COMPATIBLE = 13
    EXCLUDE_LEAN_RUNTIME = 14
    FP8 = 15, "fp8"
    ERROR_ON_TIMING_CACHE_MISS = 16
    BF16 = 17, "bf16"
    DISABLE_COMPILATION_CACHE = 18
    STRIP_PLAN = 19
    WEIGHTLESS = 19
    REFIT_IDENTICAL = 20
    WEIGHT_STREAMING = 21
    INT4 = 22
    REFIT_INDIVIDUAL = 23
    STRICT_NANS = 24
    MONITOR_MEMORY = 25
    FP4 = 26
    EDITABLE_TIMING_CACHE = 27
    DISTRIBUTIVE_INDEPENDENCE = 28


class NetworkDefinitionCreationFlag(Word):
    """Switches of a network, as bits; networks are always explicit and strongly typed here."""

    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1
    PREFER_JIT_PYTHON_PLUGINS = 2
    PREFER_AOT_PYTHON_PLUGINS = 3


class OnnxParserFlag(Word):
    """Switches of the ONNX parser. Normalisation is native whatever they say, and there is no DLA."""

    NATIVE_INSTANCENORM = 0
    ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = 1
    REPORT_CAPABILITY_DLA = 2
    ENABLE_PLUGIN_OVERRIDE = 3
    ADJUST_FOR_DLA = 4


class MemoryPoolType(Word):
    """Pools of memory whose size can be limited."""

    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class DeviceType(Word):
    """What a layer runs on."""

    GPU = 0
    DLA = 1


class ProfilingVerbosity(Word):
    """How much the inspector tells."""

    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2


class HardwareCompatibilityLevel(Word):
    """Where else an engine runs: an engine file here opens on any machine, planned anew."""

    NONE = 0
    AMPERE_PLUS = 1
    SAME_COMPUTE_CAPABILITY = 2


class RuntimePlatform(Word):
    """The system that an engine is for."""

    SAME_AS_BUILD = 0
    WINDOWS_AMD64 = 1


class EngineCapability(Word):
    """What an engine may use."""

    STANDARD = 0
    SAFETY = 1
    DLA_STANDALONE = 2


class TilingOptimizationLevel(Word):
    """How much TensorRT tries to keep in its cache."""

    NONE = 0
    FAST = 1
    MODERATE = 2
    FULL = 3


class TacticSource(Word):
    """TensorRT's libraries of kernels."""

    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class PreviewFeature(Word):
    """TensorRT's features to come."""

    PROFILE_SHARING_0806 = 0
    ALIASED_PLUGIN_IO_10_03 = 1
    RUNTIME_ACTIVATION_RESIZE_10_10 = 2
    MULTIDEVICE_RUNTIME_10_16 = 3


class SeekPosition(Word):
    """From where `IStreamReaderV2.seek` counts."""

    SET = 0
    CUR = 1
    END = 2


class QuantizationFlag(Word):
    """Switches of calibration."""

    CALIBRATE_BEFORE_FUSION = 0


class CalibrationAlgoType(Word):
    """How ranges are calibrated."""

    LEGACY_CALIBRATION = 0
    ENTROPY_CALIBRATION = 1
    ENTROPY_CALIBRATION_2 = 2
    MINMAX_CALIBRATION = 3


class TensorIOMode(Word):
    """Which way a tensor goes."""

    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(Word):
    """Where a tensor lies."""

    DEVICE = 0
    HOST = 1


class LayerInformationFormat(Word):
    """How the inspector writes."""

    ONELINE = 0
    JSON = 1


class ExecutionContextAllocationStrategy(Word):
    """Who brings the memory of a context: it does itself here, and returns what larger shapes needed."""

    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class SerializationFlag(Word):
    """What an engine file holds."""

    EXCLUDE_WEIGHTS = 0
    EXCLUDE_LEAN_RUNTIME = 1
    INCLUDE_REFIT = 2


class EngineStat(Word):
    """What is counted of an engine."""

    TOTAL_WEIGHTS_SIZE = 0
    STRIPPED_WEIGHTS_SIZE = 1


class WeightsRole(Word):
    """Which weights of a layer."""

    KERNEL = 0, "weight"
    BIAS = 1, "bias"
    SHIFT = 2, "shift"
    SCALE = 3, "scale"
    CONSTANT = 4
    ANY = 5


class ErrorCode(Word):
    """What went wrong, when the ONNX parser tells it."""

    SUCCESS = 0
    INTERNAL_ERROR = 1
    MEM_ALLOC_FAILED = 2
    MODEL_DESERIALIZE_FAILED = 3
    INVALID_VALUE = 4
    INVALID_GRAPH = 5
    INVALID_NODE = 6
    UNSUPPORTED_GRAPH = 7
    UNSUPPORTED_NODE = 8
    UNSUPPORTED_NODE_ATTR = 9
    UNSUPPORTED_NODE_INPUT = 10
    UNSUPPORTED_NODE_DATATYPE = 11
    UNSUPPORTED_NODE_DYNAMIC = 12
    UNSUPPORTED_NODE_SHAPE = 13
    REFIT_FAILED = 14


class ErrorCodeTRT(Word):
    """What went wrong, when a recorder of errors is told it."""

    SUCCESS = 0
    UNSPECIFIED_ERROR = 1
    INTERNAL_ERROR = 2
    INVALID_ARGUMENT = 3
    INVALID_CONFIG = 4
    FAILED_ALLOCATION = 5
    FAILED_INITIALIZATION = 6
    FAILED_EXECUTION = 7
    FAILED_COMPUTATION = 8
    INVALID_STATE = 9
    UNSUPPORTED_STATE = 10
