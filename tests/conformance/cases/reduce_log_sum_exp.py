"""ReduceLogSumExp."""

from tests.conformance.case import case, exact, ints, normal, reduction, uniform

OP = "ReduceLogSumExp"
CASES = [
    *reduction(sums=True, empty=False, rank_0=False),
    case("rank_0", normal(), reference=lambda x: x),
    case("large", uniform(80, 100, 3, 9), ints(1), sums=True),
    case("very_negative", uniform(-1000, -900, 3, 9), ints(1), sums=True),
    case("masked", exact([[1.0, float("-inf"), 2.0]]), ints(1), sums=True),
]
