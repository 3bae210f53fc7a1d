"""Products, reductions, softmax and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware.tensorrt import layer_enums as e
from neurenix.hardware.tensorrt.enums import DataType, as_dtype
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, Scope
from neurenix.hardware.tensorrt.layers.common import axes_of, member, one_axis, rank_of


def _of_channels(scope: Scope, given: Tensor, channels: Any, groups: int) -> Tensor:
    """A number for each channel, [channels], from one for each, or one for each group."""
    flat = scope.add("Reshape", given, scope.constant([-1], np.int64))
    if flat.shape[0] != groups or channels == groups:
        return flat
    if not isinstance(channels, int) or channels % groups:
        raise ShapeError(
            "channels do not divide into the groups", expected=f"a multiple of {groups}", got=f"{channels} channels"
        )
    column = scope.add("Reshape", flat, scope.constant([groups, 1], np.int64))
    spread = scope.add("Expand", column, scope.constant([groups, channels // groups], np.int64))
    return scope.add("Reshape", spread, scope.constant([-1], np.int64))


def _rotary_embedding(layer: ILayer, scope: Scope) -> list[Tensor]:
    """Pairs of numbers turned by the angles of their places: the rotary embedding of ONNX's RotaryEmbedding."""
    x, rank = scope[0], rank_of(scope[0])
    size, dim = x.shape[-1], int(layer.rotary_embedding_dim)
    if rank != 4 or not isinstance(size, int):
        raise ShapeError(
            "a rotary embedding reads [batch, heads, length, size]", expected="4 dimensions, the last one known",
            got=str(list(x.shape)),
        )  # fmt: skip
    dim = dim or size
    if dim % 2 or not 0 < dim <= size:
        raise InvalidArgumentError(
            "rotary_embedding_dim is no even number within a head", expected=f"0, or 2 to {size}", got=str(dim)
        )

    def part(start: int, stop: int, step: int = 1) -> Tensor:
        return scope.add("Slice", x, *(scope.constant([v], np.int64) for v in (start, stop, 3, step)))

    caches = [scope[index] for index in (1, 2)]
    if scope.get(3) is not None:
        caches = [scope.add("Gather", cache, scope[3], axis=0) for cache in caches]
    cos, sin = (scope.add("Unsqueeze", cache, axes=[1]) for cache in caches)
    halves = [(0, dim, 2), (1, dim, 2)] if layer.interleaved else [(0, dim // 2), (dim // 2, dim)]
    first, second = (part(*half) for half in halves)
    turned = [
        scope.add("Sub", scope.add("Mul", first, cos), scope.add("Mul", second, sin)),
        scope.add("Add", scope.add("Mul", first, sin), scope.add("Mul", second, cos)),
    ]
    if layer.interleaved:
        pairs = scope.add("Concat", *(scope.add("Unsqueeze", one, axes=[4]) for one in turned), axis=4)
        turned = [scope.add("Reshape", pairs, scope.constant([0, 0, 0, dim], np.int64))]
    rest = [part(dim, size)] if dim < size else []
    parts = [*turned, *rest]
    return [parts[0] if len(parts) == 1 else scope.add("Concat", *parts, axis=3)]


class AlgebraLayers(Definition):
    """Products, reductions, softmax and normalisation."""

    def add_matrix_multiply(self, input0: Any, op0: e.MatrixOperation, input1: Any, op1: e.MatrixOperation) -> ILayer:
        """The matrix product. Properties: op0, op1."""
        for op in (op0, op1):
            member(op, e.MatrixOperation, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            a, b = scope[0], scope[1]
            left, right = layer.op0, layer.op1
            if left is e.MatrixOperation.VECTOR:
                a = scope.add("Unsqueeze", a, axes=[-2])
            if right is e.MatrixOperation.VECTOR:
                b = scope.add("Unsqueeze", b, axes=[-1])
            transposed = e.MatrixOperation.TRANSPOSE
            y = scope.add("MatMul", a, b, transA=int(left is transposed), transB=int(right is transposed))
            gone = [axis for axis, op in ((-2, left), (-1, right)) if op is e.MatrixOperation.VECTOR]
            return [scope.add("Squeeze", y, axes=gone) if gone else y]

        return self._append("MatrixMultiply", [input0, input1], {"op0": op0, "op1": op1}, emit)

    def add_softmax(self, input: Any) -> ILayer:
        """Softmax. Properties: axes, one bit (at first axis 1, or 0 of a vector)."""
        x = self._resolve(input)

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            return [scope.add("Softmax", scope[0], axis=one_axis(layer.axes, rank_of(scope[0]), "a softmax"))]

        return self._append("SoftMax", [x], {"axes": 1 << min(1, max(0, rank_of(x) - 1))}, emit)

    def add_reduce(self, input: Any, op: e.ReduceOperation, axes: int, keep_dims: bool = False) -> ILayer:
        """A reduction. Properties: op, axes (bits), keep_dims."""
        member(op, e.ReduceOperation, "the operation")
        if op is e.ReduceOperation.NONE:
            raise InvalidArgumentError("a reduction has an operation", got=str(op))

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            found = axes_of(layer.axes, rank_of(scope[0]))
            return [scope.add(layer.op.op, scope[0], axes=found, keepdims=int(layer.keep_dims))]

        return self._append("Reduce", [input], {"op": op, "axes": int(axes), "keep_dims": keep_dims}, emit)

    def add_topk(self, input: Any, op: e.TopKOperation, k: int, axes: int, indices_type: Any = np.int32) -> ILayer:
        """The k greatest or least elements along an axis, and (second output, of `indices_type`) where they were.

        Properties: op, k, axes (one bit), indices_type; `set_input(1, k)` takes k from a tensor.
        """
        member(op, e.TopKOperation, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            axis = one_axis(layer.axes, rank_of(scope[0]), "TopK")
            count = scope.constant([layer.k], np.int64)
            if scope.get(1) is not None:
                count = scope.add(
                    "Reshape", scope.add("Cast", scope[1], to=np.dtype(np.int64)), scope.constant([1], np.int64)
                )
            values, places = scope.add_all(
                "TopK", [scope[0], count], axis=axis, largest=int(layer.op is e.TopKOperation.MAX)
            )
            return [values, scope.add("Cast", places, to=as_dtype(layer.indices_type))]

        properties = {"op": op, "k": int(k), "axes": int(axes), "indices_type": indices_type}
        return self._append("TopK", [input], properties, emit, outputs=2, takes=2)

    def add_normalization(self, input: Any, scale: Any, bias: Any, axesMask: int) -> ILayer:
        """(x - mean) / sqrt(var + epsilon) * scale + bias over axes (bits), or over num_groups groups of channels.

        In groups scale and bias have one number for each group, [1, num_groups, 1, ...], or for each channel.

        Properties: axes, epsilon, num_groups (1: the axes count), compute_precision (of no effect: sums are float32).
        """
        return self._normalization(input, scale, bias, axesMask)

    def add_normalization_v2(self, input: Any, scale: Any, bias: Any, axesMask: int) -> ILayer:
        """As `add_normalization`, with a scale and a bias for each channel in groups too, [1, channels, 1, ...]."""
        return self._normalization(input, scale, bias, axesMask)

    def _normalization(self, input: Any, scale: Any, bias: Any, axes: int) -> ILayer:
        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            x, rank = scope[0], rank_of(scope[0])
            if layer.num_groups != 1:
                terms = [_of_channels(scope, scope[i], x.shape[1], int(layer.num_groups)) for i in (1, 2)]
                return [
                    scope.add(
                        "GroupNormalization", x, *terms, num_groups=layer.num_groups, epsilon=float(layer.epsilon)
                    )
                ]
            over = axes_of(layer.axes, rank)
            away = scope.add("Sub", x, scope.add("ReduceMean", x, axes=over))
            variance = scope.add("ReduceMean", scope.add("Mul", away, away), axes=over)
            deviation = scope.add("Sqrt", scope.add("Add", variance, scope.constant(layer.epsilon, x.dtype)))
            y = scope.add("Mul", scope.add("Div", away, deviation), scope[1])
            return [scope.add("Add", y, scope[2])]

        properties = {"axes": int(axes), "epsilon": 1e-5, "num_groups": 1, "compute_precision": DataType.FLOAT}
        # How many groups there are is said behind this.
        return self._append("Normalization", [input, scale, bias], properties, emit, late=True)

    def add_lrn(self, input: Any, window: int, alpha: float, beta: float, k: float) -> ILayer:
        """Local response normalisation across channels. Properties: window_size, alpha, beta, k."""
        return self._append(
            "LRN",
            [input],
            {"window_size": int(window), "alpha": alpha, "beta": beta, "k": k},
            lambda layer, scope: [
                scope.add(
                    "LRN",
                    scope[0],
                    size=layer.window_size,
                    alpha=float(layer.alpha),
                    beta=float(layer.beta),
                    bias=float(layer.k),
                )
            ],
        )

    def add_einsum(self, inputs: Sequence[Any], equation: str) -> ILayer:
        """Einstein's summation. Properties: equation."""
        return self._append(
            "Einsum",
            inputs,
            {"equation": equation},
            lambda layer, scope: [scope.add("Einsum", *scope.inputs, equation=layer.equation)],
        )

    def add_cumulative(
        self, input: Any, axis: Any, op: e.CumulativeOperation, exclusive: bool, reverse: bool
    ) -> ILayer:
        """The sum of what stands before along an axis (a constant tensor). Properties: op, exclusive, reverse."""
        member(op, e.CumulativeOperation, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            flags = {"exclusive": int(layer.exclusive), "reverse": int(layer.reverse)}
            return [scope.add(layer.op.op, scope[0], scope.integers(1, None), **flags)]

        properties = {"op": op, "exclusive": exclusive, "reverse": reverse}
        return self._append("Cumulative", [input, axis], properties, emit)

    def add_rotary_embedding(
        self, input: Any, cos_cache: Any, sin_cache: Any, interleaved: bool, rotary_embedding_dim: int
    ) -> ILayer:
        """Rotary position embedding of [batch, heads, length, size].

        The caches are [batch, length, dim / 2]; with `set_input(3, position_ids)`, [batch, length], they are tables
        [positions, dim / 2]. Properties: interleaved (pairs are neighbours), rotary_embedding_dim (0: all of a head).
        """
        properties = {"interleaved": bool(interleaved), "rotary_embedding_dim": int(rotary_embedding_dim)}
        given = [input, cos_cache, sin_cache]
        return self._append("RotaryEmbedding", given, properties, _rotary_embedding, late=True, takes=4)

    def add_attention(
        self, query: Any, key: Any, value: Any, norm_op: e.AttentionNormalizationOp, causal: bool
    ) -> ILayer:
        """Attention of [batch, heads, length, size]: norm_op(query x key^T + mask) x value; scale the query before.

        Properties: norm_op, causal, mask (a tensor of bool, or one to add), decomposable.
        """
        member(norm_op, e.AttentionNormalizationOp, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            if layer.norm_op is e.AttentionNormalizationOp.NONE:
                if layer.causal or scope.get(3) is not None:
                    raise UnsupportedError("an attention without softmax takes no mask")
                scores = scope.add("MatMul", scope[0], scope[1], transB=1)
                return [scope.add("MatMul", scores, scope[2])]
            blind = {"is_causal": int(layer.causal), "scale": 1.0}
            return [scope.add("Attention", *(scope[i] for i in range(3)), scope.get(3), **blind)]

        properties = {"norm_op": norm_op, "causal": causal, "mask": None, "decomposable": False}
        return self._append("Attention", [query, key, value], properties, emit, takes=4)
