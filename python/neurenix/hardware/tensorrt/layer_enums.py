"""The words of layers; behind a number stands the name of our op, or of our attribute."""

from __future__ import annotations

from neurenix.hardware.tensorrt.enums import Word


class ActivationType(Word):
    """Activations; `alpha` and `beta` of the layer are their parameters."""

    RELU = 0, "Relu"
    SIGMOID = 1, "Sigmoid"
    TANH = 2, "Tanh"
    LEAKY_RELU = 3, "LeakyRelu"
    ELU = 4, "Elu"
    SELU = 5, "Selu"
    SOFTSIGN = 6, "Softsign"
    SOFTPLUS = 7, "Softplus"
    CLIP = 8, "Clip"
    HARD_SIGMOID = 9, "HardSigmoid"
    SCALED_TANH = 10, "ScaledTanh"
    THRESHOLDED_RELU = 11, "ThresholdedRelu"
    GELU_ERF = 12, "Gelu"
    GELU_TANH = 13, "GeluTanh"


class PoolingType(Word):
    """Kinds of pooling."""

    MAX = 0, "MaxPool"
    AVERAGE = 1, "AveragePool"
    MAX_AVERAGE_BLEND = 2, "blend"


class ElementWiseOperation(Word):
    """Operations on two tensors."""

    SUM = 0, "Add"
    PROD = 1, "Mul"
    MAX = 2, "Max"
    MIN = 3, "Min"
    SUB = 4, "Sub"
    DIV = 5, "Div"
    POW = 6, "Pow"
    FLOOR_DIV = 7, "FloorDiv"
    AND = 8, "And"
    OR = 9, "Or"
    XOR = 10, "Xor"
    EQUAL = 11, "Equal"
    GREATER = 12, "Greater"
    LESS = 13, "Less"


class UnaryOperation(Word):
    """Operations on one tensor."""

    EXP = 0, "Exp"
    LOG = 1, "Log"
    SQRT = 2, "Sqrt"
    RECIP = 3, "Reciprocal"
    ABS = 4, "Abs"
    NEG = 5, "Neg"
    SIN = 6, "Sin"
    COS = 7, "Cos"
    TAN = 8, "Tan"
    SINH = 9, "Sinh"
    COSH = 10, "Cosh"
    ASIN = 11, "Asin"
    ACOS = 12, "Acos"
    ATAN = 13, "Atan"
    ASINH = 14, "Asinh"
    ACOSH = 15, "Acosh"
    ATANH = 16, "Atanh"
    CEIL = 17, "Ceil"
    FLOOR = 18, "Floor"
    ERF = 19, "Erf"
    NOT = 20, "Not"
    SIGN = 21, "Sign"
    ROUND = 22, "Round"
    ISINF = 23, "IsInf"
    ISNAN = 24, "IsNaN"


class ReduceOperation(Word):
    """Reductions."""

    SUM = 0, "ReduceSum"
    PROD = 1, "ReduceProd"
    MAX = 2, "ReduceMax"
    MIN = 3, "ReduceMin"
    AVG = 4, "ReduceMean"
    NONE = 5, "none"


class CumulativeOperation(Word):
    """Operations on what stood before."""

    SUM = 0, "CumSum"


class MatrixOperation(Word):
    """What happens to a matrix before a product."""

    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class ScaleMode(Word):
    """What scale, shift and power have an element for."""

    UNIFORM = 0
    CHANNEL = 1
    ELEMENTWISE = 2


class TopKOperation(Word):
    """Which elements TopK takes."""

    MAX = 0
    MIN = 1


class GatherMode(Word):
    """ONNX's three kinds of gathering."""

    DEFAULT = 0, "Gather"
    ELEMENT = 1, "GatherElements"
    ND = 2, "GatherND"


class ScatterMode(Word):
    """ONNX's two kinds of scattering."""

    ELEMENT = 0, "ScatterElements"
    ND = 1, "ScatterND"


class FillOperation(Word):
    """What a Fill makes."""

    LINSPACE = 0
    RANDOM_UNIFORM = 1
    RANDOM_NORMAL = 2


class SampleMode(Word):
    """What stands outside of the input of a Slice or a GridSample."""

    STRICT_BOUNDS = 0, "strict_bounds"
    WRAP = 1, "wrap"
    CLAMP = 2, "edge"
    FILL = 3, "constant"
    REFLECT = 4, "reflect"


class InterpolationMode(Word):
    """How Resize interpolates."""

    NEAREST = 0, "nearest"
    LINEAR = 1, "linear"
    CUBIC = 2, "cubic"


class ResizeCoordinateTransformation(Word):
    """Where Resize samples."""

    ALIGN_CORNERS = 0, "align_corners"
    ASYMMETRIC = 1, "asymmetric"
    HALF_PIXEL = 2, "half_pixel"


class ResizeSelector(Word):
    """Where Resize samples a single pixel."""

    FORMULA = 0
    UPPER = 1


class ResizeRoundMode(Word):
    """How Resize rounds for nearest."""

    HALF_UP = 0, "round_prefer_ceil"
    HALF_DOWN = 1, "round_prefer_floor"
    FLOOR = 2, "floor"
    CEIL = 3, "ceil"


class PaddingMode(Word):
    """How convolution and pooling pad."""

    EXPLICIT_ROUND_DOWN = 0
    EXPLICIT_ROUND_UP = 1
    SAME_UPPER = 2, "SAME_UPPER"
    SAME_LOWER = 3, "SAME_LOWER"


class BoundingBoxFormat(Word):
    """How boxes are written."""

    CORNER_PAIRS = 0
    CENTER_SIZES = 1


class AttentionNormalizationOp(Word):
    """What an attention does between its products."""

    NONE = 0
    SOFTMAX = 1


class LoopOutput(Word):
    """What a loop gives."""

    LAST_VALUE = 0
    CONCATENATE = 1
    REVERSE = 2


class TripLimit(Word):
    """What ends a loop."""

    COUNT = 0
    WHILE = 1


class LayerType(Word):
    """Kinds of layers; behind the number the kind's own name here."""

    CONVOLUTION = 0, "Convolution"
    CAST = 1, "Cast"
    ACTIVATION = 2, "Activation"
    POOLING = 3, "Pooling"
    LRN = 4, "LRN"
    SCALE = 5, "Scale"
    SOFTMAX = 6, "SoftMax"
    DECONVOLUTION = 7, "Deconvolution"
    CONCATENATION = 8, "Concatenation"
    ELEMENTWISE = 9, "ElementWise"
    PLUGIN = 10, "Plugin"
    UNARY = 11, "Unary"
    PADDING = 12, "Padding"
    SHUFFLE = 13, "Shuffle"
    REDUCE = 14, "Reduce"
    TOPK = 15, "TopK"
    GATHER = 16, "Gather"
    MATRIX_MULTIPLY = 17, "MatrixMultiply"
    RAGGED_SOFTMAX = 18, "RaggedSoftMax"
    CONSTANT = 19, "Constant"
    IDENTITY = 20, "Identity"
    PLUGIN_V2 = 21, "PluginV2"
    SLICE = 22, "Slice"
    SHAPE = 23, "Shape"
    PARAMETRIC_RELU = 24, "ParametricReLU"
    RESIZE = 25, "Resize"
    TRIP_LIMIT = 26, "TripLimit"
    RECURRENCE = 27, "Recurrence"
    ITERATOR = 28, "Iterator"
    LOOP_OUTPUT = 29, "LoopOutput"
    SELECT = 30, "Select"
    FILL = 31, "Fill"
    QUANTIZE = 32, "Quantize"
    DEQUANTIZE = 33, "Dequantize"
    CONDITION = 34, "Condition"
    CONDITIONAL_INPUT = 35, "ConditionalInput"
    CONDITIONAL_OUTPUT = 36, "ConditionalOutput"
    SCATTER = 37, "Scatter"
    EINSUM = 38, "Einsum"
    ASSERTION = 39, "Assertion"
    ONE_HOT = 40, "OneHot"
    NON_ZERO = 41, "NonZero"
    GRID_SAMPLE = 42, "GridSample"
    NMS = 43, "NMS"
    REVERSE_SEQUENCE = 44, "ReverseSequence"
    NORMALIZATION = 45, "Normalization"
    PLUGIN_V3 = 46, "PluginV3"
    SQUEEZE = 47, "Squeeze"
    UNSQUEEZE = 48, "Unsqueeze"
    CUMULATIVE = 49, "Cumulative"
    DYNAMIC_QUANTIZE = 50, "DynamicQuantize"
    ATTENTION_INPUT = 51, "Attention"
    ATTENTION_OUTPUT = 52, "AttentionOutput"
    ROTARY_EMBEDDING = 53, "RotaryEmbedding"
    KVCACHE_UPDATE = 54, "KVCacheUpdate"
    MOE = 55, "MoE"
    DIST_COLLECTIVE = 56, "DistCollective"
