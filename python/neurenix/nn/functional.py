"""Functions on traced tensors, with PyTorch's names and arguments."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.nn.tracing import Traced, current

LOG = logging.getLogger("neurenix")

Ints = int | Sequence[int]


def spread(value: Ints, rank: int) -> list[int]:
    """One integer for every spatial dimension, or as many as there are."""
    values = [value] * rank if isinstance(value, int) else [int(v) for v in value]
    if len(values) != rank:
        raise InvalidArgumentError("a list has another length than there are spatial dimensions",
                                   expected=str(rank), got=str(values))  # fmt: skip
    return values


def _traced(*values: Any) -> list[Any]:
    """Weights become constants of the network; None stays."""
    return [v if isinstance(v, Traced) or v is None else current().constant(v) for v in values]


def window_padding(padding: Ints | str, rank: int) -> dict[str, Any]:
    """The attributes of a window's padding.

    Raises `InvalidArgumentError` for an unknown word, or a list of another length than there are spatial dimensions.
    """
    if isinstance(padding, str):
        words = {"same": "SAME_UPPER", "valid": "VALID"}
        if padding not in words:
            raise InvalidArgumentError("padding is unknown", expected="integers, 'same' or 'valid'", got=repr(padding))
        return {"auto_pad": words[padding]}
    return {"pads": spread(padding, rank) * 2}


def conv(
    x: Traced,
    weight: Any,
    bias: Any = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Traced:
    """Convolution over 1 to 3 spatial dimensions: x [N, C, spatial...], weight [M, C / groups, kernel...]."""
    weight, bias = _traced(weight, bias)
    rank = weight.ndim - 2
    return x.trace.add(
        "Conv",
        x,
        weight,
        bias,
        strides=spread(stride, rank),
        dilations=spread(dilation, rank),
        group=groups,
        **window_padding(padding, rank),
    )


conv1d = conv2d = conv3d = conv


def conv_transpose(
    x: Traced,
    weight: Any,
    bias: Any = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Traced:
    """Transposed convolution: x [N, C, spatial...], weight [C, M / groups, kernel...]."""
    weight, bias = _traced(weight, bias)
    rank = weight.ndim - 2
    return x.trace.add(
        "ConvTranspose",
        x,
        weight,
        bias,
        strides=spread(stride, rank),
        dilations=spread(dilation, rank),
        pads=spread(padding, rank) * 2,
        output_padding=spread(output_padding, rank),
        group=groups,
    )


conv_transpose1d = conv_transpose2d = conv_transpose3d = conv_transpose

_flattened: set[str] = set()


def linear(x: Traced, weight: Any, bias: Any = None) -> Traced:
    """x @ weight.T + bias; trailing dimensions of x are flattened when only that fits, which the log says once."""
    weight, bias = _traced(weight, bias)
    features = weight.shape[1]
    if x.ndim > 2 and x.shape[-1] != features:
        x = _fitted(x, int(features))
    if x.ndim == 2:
        return x.trace.add("Gemm", x, weight, bias, transB=1)
    product = x.trace.add("MatMul", x, weight, transB=1)
    return product if bias is None else product + bias


def _fitted(x: Traced, features: int) -> Traced:
    for first in range(x.ndim - 1, 0, -1):
        tail = x.shape[first:]
        sizes = [d for d in tail if isinstance(d, int)]
        if len(sizes) == len(tail) and math.prod(sizes) == features:
            layer = x.trace.path[-1]
            if layer not in _flattened:
                _flattened.add(layer)
                LOG.info("Linear %r: its input %s is flattened to %d features", layer, list(x.shape), features)
            return x.flatten(first)
    raise ShapeError(
        "the input of a Linear does not have its features",
        layer=x.trace.path[-1] or None,
        tensor=x.tensor.name,
        expected=f"{features} features in the last dimension, or in the last ones together",
        got=str(list(x.shape)),
    )


def batch_norm(x: Traced, running_mean: Any, running_var: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Traced:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel."""
    mean, var, weight, bias = _traced(running_mean, running_var, weight, bias)
    return x.trace.add("BatchNormalization", x, weight, bias, mean, var, epsilon=eps)


def layer_norm(
    x: Traced, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Traced:
    """Normalisation over the last dimensions, `normalized_shape` of them."""
    if weight is None:
        weight = np.ones(tuple(normalized_shape), x.dtype)
    weight, bias = _traced(weight, bias)
    return x.trace.add("LayerNormalization", x, weight, bias, axis=-len(normalized_shape), epsilon=eps)


def rms_norm(x: Traced, normalized_shape: Sequence[int], weight: Any = None, eps: float = 1e-6) -> Traced:
    """x / sqrt(mean(x * x) + eps) * weight over the last dimensions."""
    (weight,) = _traced(np.ones(tuple(normalized_shape), x.dtype) if weight is None else weight)
    return x.trace.add("RMSNormalization", x, weight, axis=-len(normalized_shape), epsilon=eps)


def group_norm(x: Traced, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Traced:
    """Normalisation over groups of channels and all spatial dimensions."""
    channels = x.shape[1]
    weight = np.ones(channels, x.dtype) if weight is None else weight
    bias = np.zeros(channels, x.dtype) if bias is None else bias
    weight, bias = _traced(weight, bias)
    return x.trace.add("GroupNormalization", x, weight, bias, num_groups=num_groups, epsilon=eps)


def instance_norm(x: Traced, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Traced:
    """Normalisation over the spatial dimensions of each channel."""
    channels = x.shape[1]
    weight = np.ones(channels, x.dtype) if weight is None else weight
    bias = np.zeros(channels, x.dtype) if bias is None else bias
    weight, bias = _traced(weight, bias)
    return x.trace.add("InstanceNormalization", x, weight, bias, epsilon=eps)


def max_pool(
    x: Traced,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
) -> Traced:
    """The greatest element of each window."""
    rank = x.ndim - 2
    return x.trace.add(
        "MaxPool",
        x,
        kernel_shape=spread(kernel_size, rank),
        strides=spread(kernel_size if stride is None else stride, rank),
        pads=spread(padding, rank) * 2,
        dilations=spread(dilation, rank),
        ceil_mode=int(ceil_mode),
    )


def avg_pool(
    x: Traced,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Traced:
    """The mean of each window."""
    rank = x.ndim - 2
    return x.trace.add(
        "AveragePool",
        x,
        kernel_shape=spread(kernel_size, rank),
        strides=spread(kernel_size if stride is None else stride, rank),
        pads=spread(padding, rank) * 2,
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad),
    )


max_pool1d = max_pool2d = max_pool3d = max_pool
avg_pool1d = avg_pool2d = avg_pool3d = avg_pool


def adaptive_avg_pool(x: Traced, output_size: int | Sequence[int | None]) -> Traced:
    """The mean of equal parts of each spatial dimension, as many parts as `output_size` says."""
    return _adaptive(x, output_size, "GlobalAveragePool", "AveragePool")


def adaptive_max_pool(x: Traced, output_size: int | Sequence[int | None]) -> Traced:
    """The greatest element of equal parts of each spatial dimension, as many parts as `output_size` says."""
    return _adaptive(x, output_size, "GlobalMaxPool", "MaxPool")


adaptive_avg_pool1d = adaptive_avg_pool2d = adaptive_avg_pool3d = adaptive_avg_pool
adaptive_max_pool1d = adaptive_max_pool2d = adaptive_max_pool3d = adaptive_max_pool


def _adaptive(x: Traced, output_size: int | Sequence[int | None], whole: str, parts: str) -> Traced:
    spatial = x.shape[2:]
    sizes = [output_size] * len(spatial) if isinstance(output_size, int) else list(output_size)
    if all(size == 1 for size in sizes):
        return x.trace.add(whole, x)
    kernel = []
    for have, want in zip(spatial, sizes, strict=True):
        if want is None or have == want:
            kernel.append(1)
        elif isinstance(have, int) and have % want == 0:
            kernel.append(have // want)
        else:
            raise UnsupportedError(
                "adaptive pooling into unequal parts is not supported", expected=f"a multiple of {want}", got=str(have)
            )
    return x.trace.add(parts, x, kernel_shape=kernel, strides=kernel)


def interpolate(
    x: Traced,
    size: Ints | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Traced:
    """Resampling of the spatial dimensions to `size` or by `scale_factor`."""
    rank = x.ndim - 2
    words = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
    if mode not in words:
        raise InvalidArgumentError("the mode is unknown", expected=", ".join(words), got=repr(mode))
    if (size is None) == (scale_factor is None):
        raise InvalidArgumentError("give either size or scale_factor", got=f"size={size}, scale_factor={scale_factor}")
    place = "align_corners" if align_corners else "asymmetric" if mode == "nearest" else "pytorch_half_pixel"
    scales = sizes = None
    if size is not None:
        sizes = x.trace.constant(np.array(spread(size, rank), np.int64))
    else:
        assert scale_factor is not None
        factors = [scale_factor] * rank if isinstance(scale_factor, (int, float)) else list(scale_factor)
        scales = x.trace.constant(np.array(factors, np.float32))
    return x.trace.add(
        "Resize",
        x,
        None,
        scales,
        sizes,
        mode=words[mode],
        axes=list(range(2, x.ndim)),
        coordinate_transformation_mode=place,
        nearest_mode="floor",
    )


def pixel_shuffle(x: Traced, upscale_factor: int) -> Traced:
    """Channels to blocks of pixels: [N, C r r, H, W] to [N, C, H r, W r]."""
    return x.trace.add("DepthToSpace", x, blocksize=upscale_factor, mode="CRD")


def pad(x: Traced, padding: Sequence[int], mode: str = "constant", value: float = 0.0) -> Traced:
    """Padding of the last dimensions, last first: (left, right, top, bottom, ...)."""
    words = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in words or len(padding) % 2:
        raise InvalidArgumentError("the padding is not understood", expected=f"pairs, and a mode of {', '.join(words)}",
                                   got=f"{list(padding)}, {mode!r}")  # fmt: skip
    pads = np.zeros((2, x.ndim), np.int64)
    for place, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        pads[:, -1 - place] = before, after
    fill = x.trace.constant(np.array(value, x.dtype)) if mode == "constant" else None
    return x.trace.add("Pad", x, x.trace.constant(pads.reshape(-1)), fill, mode=words[mode])


def cat(tensors: Sequence[Traced], dim: int = 0) -> Traced:
    """Tensors one after another along a dimension."""
    return tensors[0].trace.add("Concat", *tensors, axis=dim)


def stack(tensors: Sequence[Traced], dim: int = 0) -> Traced:
    """Tensors along a new dimension."""
    return cat([t.unsqueeze(dim) for t in tensors], dim)


def split(x: Traced, split_size: int | Sequence[int], dim: int = 0) -> list[Traced]:
    """Parts of these sizes along a dimension."""
    return x.split(split_size, dim)


def chunk(x: Traced, chunks: int, dim: int = 0) -> list[Traced]:
    """Up to `chunks` equal parts along a dimension."""
    return x.chunk(chunks, dim)


def flatten(x: Traced, start_dim: int = 0, end_dim: int = -1) -> Traced:
    """Dimensions from `start_dim` to `end_dim` as one."""
    return x.flatten(start_dim, end_dim)


def matmul(a: Traced, b: Any) -> Traced:
    """The matrix product."""
    return a.__matmul__(b)


def where(condition: Traced, a: Any, b: Any) -> Traced:
    """a where the condition holds, b elsewhere."""
    kind = next((v for v in (a, b) if isinstance(v, Traced)), None)
    dtype = np.float32 if kind is None else kind.dtype
    sides = [v if isinstance(v, Traced) else condition.trace.constant(np.asarray(v, dtype)) for v in (a, b)]
    return condition.trace.add("Where", condition, *sides)


def embedding(indices: Traced, weight: Any) -> Traced:
    """Rows of `weight` by number."""
    if indices.dtype.kind not in "iu":
        raise InvalidArgumentError(
            "an Embedding takes integers",
            tensor=indices.tensor.name,
            got=str(indices.dtype),
            hint="say the dtype by an example: input_shapes={'ids': numpy.zeros((1, 128), numpy.int64)}",
        )
    (weight,) = _traced(weight)
    return indices.trace.add("Gather", weight, indices, axis=0)


def scaled_dot_product_attention(query: Traced, key: Traced, value: Traced, attn_mask: Any = None) -> Traced:
    """softmax(query @ key.T / sqrt(features) + mask) @ value."""
    features = query.shape[-1]
    if not isinstance(features, int):
        raise ShapeError("the number of features must be fixed", tensor=query.tensor.name, got=features)
    scores = query.trace.add("MatMul", query * features**-0.5, key, transB=1)
    if attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1).__matmul__(value)


def softmax(x: Traced, dim: int) -> Traced:
    """exp(x) / sum(exp(x)) along a dimension."""
    return x.softmax(dim)


def log_softmax(x: Traced, dim: int) -> Traced:
    """log(softmax(x)) along a dimension."""
    return x.trace.add("LogSoftmax", x, axis=dim)


def relu(x: Traced) -> Traced:
    """max(x, 0)."""
    return x.relu()


def hardtanh(x: Traced, min_val: float = -1.0, max_val: float = 1.0) -> Traced:
    """min(max(x, min_val), max_val)."""
    low, high = (x.trace.constant(np.array(v, x.dtype)) for v in (min_val, max_val))
    return x.trace.add("Clip", x, low, high)


def relu6(x: Traced) -> Traced:
    """min(max(x, 0), 6)."""
    return hardtanh(x, 0.0, 6.0)


def leaky_relu(x: Traced, negative_slope: float = 0.01) -> Traced:
    """x above 0, negative_slope * x below."""
    return x.trace.add("LeakyRelu", x, alpha=negative_slope)


def prelu(x: Traced, weight: Any) -> Traced:
    """x above 0, weight * x below, one weight for all or one per channel."""
    (slope,) = _traced(weight)
    if slope.shape != (1,) and x.ndim > 2:
        slope = slope.reshape(*slope.shape, *[1] * (x.ndim - 2))
    return x.trace.add("PRelu", x, slope)


def elu(x: Traced, alpha: float = 1.0) -> Traced:
    """x above 0, alpha * (exp(x) - 1) below."""
    return x.trace.add("Elu", x, alpha=alpha)


def selu(x: Traced) -> Traced:
    """ELU, scaled so that networks normalise themselves."""
    return x.trace.add("Selu", x)


def celu(x: Traced, alpha: float = 1.0) -> Traced:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return x.trace.add("Celu", x, alpha=alpha)


def gelu(x: Traced, approximate: str = "none") -> Traced:
    """x * Phi(x), or its approximation by tanh."""
    return x.trace.add("Gelu", x, approximate=approximate)


def silu(x: Traced) -> Traced:
    """x * sigmoid(x)."""
    return x.trace.add("Silu", x)


def mish(x: Traced) -> Traced:
    """x * tanh(softplus(x))."""
    return x.trace.add("Mish", x)


def sigmoid(x: Traced) -> Traced:
    """1 / (1 + exp(-x))."""
    return x.sigmoid()


def tanh(x: Traced) -> Traced:
    """The hyperbolic tangent."""
    return x.tanh()


def softplus(x: Traced) -> Traced:
    """log(1 + exp(x))."""
    return x.trace.add("Softplus", x)


def softsign(x: Traced) -> Traced:
    """x / (1 + |x|)."""
    return x.trace.add("Softsign", x)


def hardswish(x: Traced) -> Traced:
    """x * relu6(x + 3) / 6."""
    return x.trace.add("HardSwish", x)


def hardsigmoid(x: Traced) -> Traced:
    """relu6(x + 3) / 6."""
    return x.trace.add("HardSigmoid", x, alpha=1 / 6, beta=0.5)


def dropout(x: Traced, p: float = 0.5) -> Traced:
    """The input: inference drops nothing."""
    return x
