"""MatMul."""

from tests.conformance.case import INTS, case, constant, exact, normal

OP = "MatMul"
CASES = [
    case("plain", normal(5, 7), normal(7, 3), sums=True),
    case("constant", normal(5, 64), constant(normal(64, 33)), sums=True),
    case("batch", normal(2, 5, 7), normal(2, 7, 3), sums=True),
    case("batch_constant", normal(2, 9, 32), constant(normal(32, 48)), sums=True),
    case("broadcast_right", normal(2, 3, 5, 7), normal(7, 4), sums=True),
    case("broadcast_left", normal(5, 7), normal(2, 3, 7, 4), sums=True),
    case("broadcast_both", normal(2, 1, 5, 7), normal(1, 3, 7, 4), sums=True),
    case("vector_left", normal(7), normal(7, 3), sums=True),
    case("vector_right", normal(5, 7), normal(7), sums=True),
    case("vectors", normal(7), normal(7), sums=True),
    case("vector_left_batch", normal(7), normal(2, 7, 3), sums=True),
    case("vector_right_batch", normal(2, 5, 7), normal(7), sums=True),
    case("heads", normal(2, 4, 9, 16), normal(2, 4, 16, 9), sums=True),
    case("one_row", normal(1, 128), constant(normal(128, 10)), sums=True),
    case("inner_one", normal(5, 1), normal(1, 4), sums=True),
    case("inner_zero", normal(5, 0), normal(0, 4), sums=True),
    case("no_rows", normal(0, 7), normal(7, 4), sums=True),
    case("not_finite", exact([[1.0, float("inf")], [float("nan"), 1.0]]), exact([[1.0, 2.0], [3.0, 4.0]])),
    case("ints", normal(3, 5), normal(5, 4), dtypes=INTS),
]
