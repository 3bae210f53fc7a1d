"""Shrink."""

from tests.conformance.case import INTS, case, exact, normal, unary

OP = "Shrink"
CASES = [
    *unary(),
    case("drawn_towards_zero", normal(3, 5), lambd=0.25, bias=0.1),
    case("ints", normal(3, 7), dtypes=[*INTS, "int8"], lambd=1.5, bias=1.0),
    case("ints_by_a_fraction", normal(3, 7), dtypes=[*INTS, "int16"], lambd=0.5, bias=-1.5),
    case("at_the_bounds", exact([-0.5, 0.5, 0.0, 0.75]), lambd=0.5, bias=0.5),
]
