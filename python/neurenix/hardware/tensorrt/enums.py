"""The words of TensorRT's API that scripts compare with."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from neurenix.errors import DTypeError


class DataType(enum.Enum):
    """Element types."""

    FLOAT = np.dtype(np.float32)
    HALF = np.dtype(np.float16)
    BF16 = np.dtype(ml_dtypes.bfloat16)
    INT8 = np.dtype(np.int8)
    UINT8 = np.dtype(np.uint8)
    INT32 = np.dtype(np.int32)
    INT64 = np.dtype(np.int64)
    BOOL = np.dtype(np.bool_)
    FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
    E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
    FP4 = np.dtype(ml_dtypes.float4_e2m1fn)
    INT4 = np.dtype(ml_dtypes.int4)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in an array."""
        return int(self.value.itemsize)


float32 = DataType.FLOAT
float16 = DataType.HALF
bfloat16 = DataType.BF16
int8 = DataType.INT8
uint8 = DataType.UINT8
int32 = DataType.INT32
int64 = DataType.INT64
bool = DataType.BOOL
fp8 = DataType.FP8
e8m0 = DataType.E8M0
fp4 = DataType.FP4
int4 = DataType.INT4


def nptype(dtype: DataType) -> np.dtype[Any]:
    """numpy's dtype for an element type."""
    value: np.dtype[Any] = dtype.value
    return value


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """numpy's dtype for an element type of TensorRT's or numpy's.

    Raises `DTypeError` for anything else.
    """
    if isinstance(dtype, DataType):
        return nptype(dtype)
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except TypeError as error:
        expected = ", ".join(d.name for d in DataType)
        raise DTypeError("this is no dtype", expected=expected, got=repr(dtype)) from error


def as_data_type(dtype: np.dtype[Any]) -> DataType | np.dtype[Any]:
    """TensorRT's element type; numpy's for one that TensorRT does not have."""
    return next((d for d in DataType if d.value == dtype), dtype)


def volume(dims: Iterable[int]) -> int:
    """The number of elements of a shape."""
    return math.prod(dims)


class ActivationType(enum.Enum):
    """Activations; `alpha` and `beta` of the layer are their parameters."""

    RELU = "Relu"
    SIGMOID = "Sigmoid"
    TANH = "Tanh"
    LEAKY_RELU = "LeakyRelu"
    ELU = "Elu"
    SELU = "Selu"
    SOFTSIGN = "Softsign"
    SOFTPLUS = "Softplus"
    CLIP = "Clip"
    HARD_SIGMOID = "HardSigmoid"
    SCALED_TANH = "ScaledTanh"
    THRESHOLDED_RELU = "ThresholdedRelu"
    GELU_ERF = "Gelu"
    GELU_TANH = "GeluTanh"


class PoolingType(enum.Enum):
    """Kinds of pooling."""

    MAX = "MaxPool"
    AVERAGE = "AveragePool"


class ElementWiseOperation(enum.Enum):
    """Operations on two tensors."""

    SUM = "Add"
    PROD = "Mul"
    MAX = "Max"
    MIN = "Min"
    SUB = "Sub"
    DIV = "Div"
    POW = "Pow"
    FLOOR_DIV = "FloorDiv"
    AND = "And"
    OR = "Or"
    XOR = "Xor"
    EQUAL = "Equal"
    GREATER = "Greater"
    LESS = "Less"


class UnaryOperation(enum.Enum):
    """Operations on one tensor."""

    EXP = "Exp"
    LOG = "Log"
    SQRT = "Sqrt"
    RECIP = "Reciprocal"
    ABS = "Abs"
    NEG = "Neg"
    SIN = "Sin"
    COS = "Cos"
    TAN = "Tan"
    SINH = "Sinh"
    COSH = "Cosh"
    ASIN = "Asin"
    ACOS = "Acos"
    ATAN = "Atan"
    ASINH = "Asinh"
    ACOSH = "Acosh"
    ATANH = "Atanh"
    CEIL = "Ceil"
    FLOOR = "Floor"
    ERF = "Erf"
    NOT = "Not"
    SIGN = "Sign"
    ROUND = "Round"
    ISINF = "IsInf"
    ISNAN = "IsNaN"


class ReduceOperation(enum.Enum):
    """Reductions."""

    SUM = "ReduceSum"
    PROD = "ReduceProd"
    MAX = "ReduceMax"
    MIN = "ReduceMin"
    AVG = "ReduceMean"


class MatrixOperation(enum.Enum):
    """What happens to a matrix before a product."""

    NONE = "none"
    TRANSPOSE = "transpose"
    VECTOR = "vector"


class ScaleMode(enum.Enum):
    """What scale, shift and power have an element for."""

    UNIFORM = "uniform"
    CHANNEL = "channel"
    ELEMENTWISE = "elementwise"


class TopKOperation(enum.Enum):
    """Which elements TopK takes."""

    MAX = 1
    MIN = 0


class GatherMode(enum.Enum):
    """ONNX's three kinds of gathering."""

    DEFAULT = "Gather"
    ELEMENT = "GatherElements"
    ND = "GatherND"


class SampleMode(enum.Enum):
    """What stands outside of the input of a Slice."""

    STRICT_BOUNDS = "strict_bounds"
    CLAMP = "edge"
    FILL = "constant"
    REFLECT = "reflect"


class InterpolationMode(enum.Enum):
    """How Resize interpolates."""

    NEAREST = "nearest"
    LINEAR = "linear"
    CUBIC = "cubic"


class ResizeCoordinateTransformation(enum.Enum):
    """Where Resize samples."""

    ALIGN_CORNERS = "align_corners"
    ASYMMETRIC = "asymmetric"
    HALF_PIXEL = "half_pixel"


class ResizeRoundMode(enum.Enum):
    """How Resize rounds for nearest."""

    HALF_UP = "round_prefer_ceil"
    HALF_DOWN = "round_prefer_floor"
    FLOOR = "floor"
    CEIL = "ceil"


class PaddingMode(enum.Enum):
    """How convolution and pooling pad."""

    EXPLICIT_ROUND_DOWN = "explicit_down"
    EXPLICIT_ROUND_UP = "explicit_up"
    SAME_UPPER = "SAME_UPPER"
    SAME_LOWER = "SAME_LOWER"


class BuilderFlag(enum.Enum):
    """Switches of a build."""

    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"


class NetworkDefinitionCreationFlag(enum.IntEnum):
    """Switches of a network, as bits; networks are always explicit and strongly typed here."""

    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1


class MemoryPoolType(enum.Enum):
    """Pools of memory whose size can be limited."""

    WORKSPACE = "workspace"


class TensorIOMode(enum.Enum):
    """Which way a tensor goes."""

    NONE = 0
    INPUT = 1
    OUTPUT = 2


class Dims(tuple[int, ...]):
    """A shape; -1 where a dimension is dynamic."""

    def __new__(cls, shape: Iterable[Any] = ()) -> Dims:
        return super().__new__(cls, (d if isinstance(d, int) else -1 for d in shape))
