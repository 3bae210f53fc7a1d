"""Random numbers, which are refused: ONNX does not say which numbers a seed gives."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.node import Node, Rule


def random(node: Node) -> Tensor:
    """Refuses: no two engines would give the same numbers, and one that repeats them is not random."""
    raise UnsupportedError(
        f"{node.op} makes random numbers, and ONNX does not say which",
        expected="a model whose outputs its inputs determine",
        hint="make the random numbers outside, and give them to the model as an input",
    )


RULES: dict[str, Rule] = {
    op: random
    for op in (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    )
}
