"""A class for each kind of layer, by TensorRT's names: scripts ask for them, and give them to `network[i]`."""

from __future__ import annotations

from typing import Any

from neurenix.hardware.tensorrt.control_classes import (
    IConditionLayer,
    IIfConditionalInputLayer,
    IIfConditionalOutputLayer,
    IIteratorLayer,
    ILoopOutputLayer,
    IRecurrenceLayer,
    ITripLimitLayer,
)
from neurenix.hardware.tensorrt.layer import ILayer


class IConvolutionLayer(ILayer):
    """Convolution."""


class IDeconvolutionLayer(ILayer):
    """Transposed convolution."""


class IActivationLayer(ILayer):
    """Activation."""

    @property
    def type(self) -> Any:
        """Which activation it is."""
        return self._properties["type"]


class IPoolingLayer(ILayer):
    """Pooling."""

    @property
    def type(self) -> Any:
        """Which pooling it is."""
        return self._properties["type"]


class ILRNLayer(ILayer):
    """Local response normalisation."""


class IScaleLayer(ILayer):
    """Scale, shift and power."""


class ISoftMaxLayer(ILayer):
    """Softmax."""


class IConcatenationLayer(ILayer):
    """Concatenation."""


class IElementWiseLayer(ILayer):
    """Operation on two tensors."""


class IUnaryLayer(ILayer):
    """Operation on one tensor."""


class IPaddingLayer(ILayer):
    """Padding."""


class IShuffleLayer(ILayer):
    """Transpose, reshape, transpose."""


class IReduceLayer(ILayer):
    """Reduction."""


class ITopKLayer(ILayer):
    """Choice of the greatest or least."""


class IGatherLayer(ILayer):
    """Gathering by indices."""


class IScatterLayer(ILayer):
    """Scattering by indices."""


class IMatrixMultiplyLayer(ILayer):
    """Matrix product."""


class IRaggedSoftMaxLayer(ILayer):
    """Softmax over sequences of several lengths."""


class IConstantLayer(ILayer):
    """Constant."""


class IIdentityLayer(ILayer):
    """Identity."""


class ICastLayer(ILayer):
    """Conversion."""


class ISliceLayer(ILayer):
    """Slice."""


class IShapeLayer(ILayer):
    """Shape of a tensor."""


class IParametricReLULayer(ILayer):
    """PReLU."""


class IResizeLayer(ILayer):
    """Resampling."""


class ISelectLayer(ILayer):
    """Choice by a condition."""


class IFillLayer(ILayer):
    """Tensor filled by a rule."""


class IQuantizeLayer(ILayer):
    """Quantisation."""


class IDequantizeLayer(ILayer):
    """Dequantisation."""


class IEinsumLayer(ILayer):
    """Einstein's summation."""


class IAssertionLayer(ILayer):
    """Assertion."""


class IOneHotLayer(ILayer):
    """One-hot encoding."""


class INonZeroLayer(ILayer):
    """Search for what is not zero."""


class IGridSampleLayer(ILayer):
    """Sampling by a grid."""


class INMSLayer(ILayer):
    """Non-maximum suppression."""


class IReverseSequenceLayer(ILayer):
    """Reversal of sequences."""


class INormalizationLayer(ILayer):
    """Normalisation."""


class ISqueezeLayer(ILayer):
    """Removal of dimensions of 1."""


class IUnsqueezeLayer(ILayer):
    """Insertion of dimensions of 1."""


class ICumulativeLayer(ILayer):
    """Cumulative operation."""


class IRotaryEmbeddingLayer(ILayer):
    """Rotary position embedding."""


class IPluginV2Layer(ILayer):
    """Plugin, IPluginV2."""


class IPluginV3Layer(ILayer):
    """Plugin, IPluginV3."""


class IAttention(ILayer):
    """Attention: `mask` may be set to a tensor."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "mask":
            self.set_input(3, value)
        super().__setattr__(name, value)


class IAttentionInputLayer(ILayer):
    """An attention, as `network[i]` gives it; `attention` is the whole of it."""

    @property
    def attention(self) -> IAttention:
        """The attention."""
        whole = IAttention.__new__(IAttention)
        object.__setattr__(whole, "__dict__", self.__dict__)
        return whole


#: The class of each kind.
CLASSES: dict[str, type[ILayer]] = {
    "Convolution": IConvolutionLayer,
    "Deconvolution": IDeconvolutionLayer,
    "Activation": IActivationLayer,
    "Pooling": IPoolingLayer,
    "LRN": ILRNLayer,
    "Scale": IScaleLayer,
    "SoftMax": ISoftMaxLayer,
    "Concatenation": IConcatenationLayer,
    "ElementWise": IElementWiseLayer,
    "Unary": IUnaryLayer,
    "Padding": IPaddingLayer,
    "Shuffle": IShuffleLayer,
    "Reduce": IReduceLayer,
    "TopK": ITopKLayer,
    "Gather": IGatherLayer,
    "Scatter": IScatterLayer,
    "MatrixMultiply": IMatrixMultiplyLayer,
    "RaggedSoftMax": IRaggedSoftMaxLayer,
    "Constant": IConstantLayer,
    "Identity": IIdentityLayer,
    "Cast": ICastLayer,
    "Slice": ISliceLayer,
    "Shape": IShapeLayer,
    "ParametricReLU": IParametricReLULayer,
    "Resize": IResizeLayer,
    "Select": ISelectLayer,
    "Fill": IFillLayer,
    "Quantize": IQuantizeLayer,
    "Dequantize": IDequantizeLayer,
    "Einsum": IEinsumLayer,
    "Assertion": IAssertionLayer,
    "OneHot": IOneHotLayer,
    "NonZero": INonZeroLayer,
    "GridSample": IGridSampleLayer,
    "NMS": INMSLayer,
    "ReverseSequence": IReverseSequenceLayer,
    "Normalization": INormalizationLayer,
    "Squeeze": ISqueezeLayer,
    "Unsqueeze": IUnsqueezeLayer,
    "Cumulative": ICumulativeLayer,
    "Attention": IAttention,
    "RotaryEmbedding": IRotaryEmbeddingLayer,
    "TripLimit": ITripLimitLayer,
    "Recurrence": IRecurrenceLayer,
    "Iterator": IIteratorLayer,
    "LoopOutput": ILoopOutputLayer,
    "Condition": IConditionLayer,
    "ConditionalInput": IIfConditionalInputLayer,
    "ConditionalOutput": IIfConditionalOutputLayer,
    "PluginV2": IPluginV2Layer,
    "PluginV3": IPluginV3Layer,
}
