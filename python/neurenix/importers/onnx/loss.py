"""Losses: exported with a model, they run as the gathers and sums that they stand for."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError
from neurenix.importers.onnx.node import Node, Rule


def negative_log_likelihood(node: Node) -> Tensor:
    """NegativeLogLikelihoodLoss."""
    return _likelihood(node, node[0], node[1], node.get(2))


def softmax_cross_entropy(node: Node) -> list[Tensor]:
    """SoftmaxCrossEntropyLoss: the second output is the logarithm of the softmax."""
    log_prob = node.add("LogSoftmax", node[0], axis=1)
    return [_likelihood(node, log_prob, node[1], node.get(2)), log_prob]


def _likelihood(node: Node, log_prob: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Minus the entries of [N, C, ...] that a target [N, ...] picks, weighted by class and reduced."""
    reduction, ignored = node.attr("reduction", "mean"), node.attrs.get("ignore_index")
    if reduction not in ("none", "sum", "mean"):
        raise InvalidArgumentError(
            "attribute 'reduction' is unknown", expected="'none', 'sum' or 'mean'", got=repr(reduction)
        )
    zero, one = node.like(0, log_prob), node.like(1, log_prob)
    skipped = None
    if ignored is not None:
        # What is ignored may be no class: it reads class 0 and counts as nothing.
        skipped = node.add("Equal", target, node.like(ignored, target))
        target = node.add("Where", skipped, node.like(0, target), target)
    picked = node.add("GatherElements", log_prob, node.add("Unsqueeze", target, axes=[1]), axis=1)
    loss = node.add("Neg", node.add("Squeeze", picked, axes=[1]))
    weights = None
    if weight is not None:
        weights = node.add("Gather", weight, target, axis=0)
        loss = node.add("Mul", loss, weights)
    if skipped is not None:
        loss = node.add("Where", skipped, zero, loss)
        weights = node.add("Where", skipped, zero, one if weights is None else weights)
    if reduction == "none":
        return loss
    if reduction == "mean" and weights is None:
        return node.add("ReduceMean", loss, axes=[], keepdims=0)
    total = node.add("ReduceSum", loss, axes=[], keepdims=0)
    if reduction == "sum" or weights is None:
        return total
    return node.add("Div", total, node.add("ReduceSum", weights, axes=[], keepdims=0))


RULES: dict[str, Rule] = {
    "NegativeLogLikelihoodLoss": negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy,
}
