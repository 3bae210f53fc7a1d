"""Tensors while `forward` is traced: operators and methods add layers."""

from neurenix.nn.traced.elements import Elements, Reductions
from neurenix.nn.traced.operators import Operators
from neurenix.nn.traced.ordering import Ordering
from neurenix.nn.traced.shaping import Shaping


class Traced(Operators, Shaping, Elements, Reductions, Ordering):
    """A tensor while `forward` is traced: operators and methods add layers.

    `shape` holds integers, and names where a dimension is dynamic: arithmetic with these gives traced numbers, which
    `reshape`, `expand` and slices take.
    """

    __slots__ = ()
