"""Layers that work element by element."""

from __future__ import annotations

from typing import Any

from neurenix._native import Tensor
from neurenix.hardware.tensorrt import layer_enums as e
from neurenix.hardware.tensorrt.enums import as_dtype
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, Scope
from neurenix.hardware.tensorrt.layers.common import member, rank_of
from neurenix.hardware.tensorrt.weights import weights as weights_of


class PointwiseLayers(Definition):
    """Layers that work element by element."""

    def add_activation(self, input: Any, type: e.ActivationType) -> ILayer:
        """Activation. Properties: type, alpha, beta."""
        member(type, e.ActivationType, "the type")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            x, kind = scope[0], layer.type
            alpha, beta = layer.alpha, layer.beta
            given = {} if alpha is None else {"alpha": float(alpha)}
            if kind is e.ActivationType.CLIP:
                bounds = (-1.0 if alpha is None else alpha, 1.0 if beta is None else beta)
                low, high = (scope.constant(bound, x.dtype) for bound in bounds)
                return [scope.add("Clip", x, low, high)]
            if kind in (e.ActivationType.SCALED_TANH, e.ActivationType.SOFTPLUS):
                inner = x if beta is None else scope.add("Mul", x, scope.constant(beta, x.dtype))
                outer = scope.add("Softplus" if kind is e.ActivationType.SOFTPLUS else "Tanh", inner)
                return [outer if alpha is None else scope.add("Mul", outer, scope.constant(alpha, x.dtype))]
            if kind is e.ActivationType.GELU_TANH:
                return [scope.add("Gelu", x, approximate="tanh")]
            if kind is e.ActivationType.HARD_SIGMOID:
                return [scope.add("HardSigmoid", x, **given, **({} if beta is None else {"beta": float(beta)}))]
            if kind is e.ActivationType.SELU and beta is not None:
                given["gamma"] = float(beta)
            takes = {
                e.ActivationType.LEAKY_RELU,
                e.ActivationType.ELU,
                e.ActivationType.SELU,
                e.ActivationType.THRESHOLDED_RELU,
            }
            return [scope.add(kind.op, x, **(given if kind in takes else {}))]

        return self._append("Activation", [input], {"type": type, "alpha": None, "beta": None}, emit)

    def add_elementwise(self, input1: Any, input2: Any, op: e.ElementWiseOperation) -> ILayer:
        """An operation on two tensors of one rank. Properties: op."""
        member(op, e.ElementWiseOperation, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            a, b = scope[0], scope[1]
            if layer.op is e.ElementWiseOperation.FLOOR_DIV:
                if a.dtype.kind in "iu":
                    # Division truncates towards zero; the remainder tells where the floor is one below.
                    rest = scope.add("Mod", a, b)
                    return [scope.add("Div", scope.add("Sub", a, rest), b)]
                return [scope.add("Floor", scope.add("Div", a, b))]
            return [scope.add(layer.op.op, a, b)]

        return self._append("ElementWise", [input1, input2], {"op": op}, emit)

    def add_unary(self, input: Any, op: e.UnaryOperation) -> ILayer:
        """An operation on one tensor. Properties: op."""
        member(op, e.UnaryOperation, "the operation")
        return self._append("Unary", [input], {"op": op}, lambda layer, scope: [scope.add(layer.op.op, scope[0])])

    def add_scale(
        self, input: Any, mode: e.ScaleMode, shift: Any = None, scale: Any = None, power: Any = None
    ) -> ILayer:
        """(x * scale + shift) ** power, channels being axis 1. Properties: mode, shift, scale, power, channel_axis."""
        return self.add_scale_nd(input, mode, shift, scale, power, 1)

    def add_scale_nd(
        self,
        input: Any,
        mode: e.ScaleMode,
        shift: Any = None,
        scale: Any = None,
        power: Any = None,
        channel_axis: int = 1,
    ) -> ILayer:
        """(x * scale + shift) ** power. Properties: mode, shift, scale, power, channel_axis."""
        member(mode, e.ScaleMode, "the mode")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            y = scope[0]
            rank = rank_of(y)
            shape: list[Any] = [1] * rank
            if layer.mode is e.ScaleMode.CHANNEL:
                shape[layer.channel_axis] = y.shape[layer.channel_axis]
            elif layer.mode is e.ScaleMode.ELEMENTWISE:
                shape[layer.channel_axis :] = y.shape[layer.channel_axis :]
            for op, what in (("Mul", "scale"), ("Add", "shift"), ("Pow", "power")):
                given = weights_of(layer._properties[what], shape, y.dtype, what)
                if given is not None:
                    y = scope.add(op, y, scope.constant(given, what=what))
            return [scope.add("Identity", y) if y is scope[0] else y]

        properties = {"mode": mode, "shift": shift, "scale": scale, "power": power, "channel_axis": channel_axis}
        # Which axis is the channels' may be said behind this.
        return self._append("Scale", [input], properties, emit, late=True)

    def add_parametric_relu(self, input: Any, slopes: Any) -> ILayer:
        """x above 0, slopes * x below."""
        return self._append(
            "ParametricReLU", [input, slopes], {}, lambda layer, scope: [scope.add("PRelu", scope[0], scope[1])]
        )

    def add_cast(self, input: Any, to_type: Any) -> ILayer:
        """The same values as another element type. Properties: to_type."""
        as_dtype(to_type)
        return self._append(
            "Cast",
            [input],
            {"to_type": to_type},
            lambda layer, scope: [scope.add("Cast", scope[0], to=as_dtype(layer.to_type))],
        )

    def add_identity(self, input: Any) -> ILayer:
        """The same tensor."""
        return self._append("Identity", [input], {}, lambda layer, scope: [scope.add("Identity", scope[0])])

    def add_select(self, condition: Any, then_input: Any, else_input: Any) -> ILayer:
        """`then_input` where the condition holds, `else_input` elsewhere."""
        return self._append(
            "Select", [condition, then_input, else_input], {}, lambda layer, scope: [scope.add("Where", *scope.inputs)]
        )
