"""Gemm."""

from tests.conformance.case import INTS, case, constant, normal

OP = "Gemm"
CASES = [
    case("plain", normal(5, 7), normal(7, 3), sums=True),
    case("linear", normal(5, 64), constant(normal(33, 64)), constant(normal(33)), sums=True, transB=1),
    case("left_transposed", normal(7, 5), normal(7, 3), sums=True, transA=1),
    case("both_transposed", normal(7, 5), normal(3, 7), sums=True, transA=1, transB=1),
    case("alpha_beta", normal(5, 7), normal(7, 3), normal(3), sums=True, alpha=0.5, beta=2.0),
    case("bias_matrix", normal(5, 7), normal(7, 3), normal(5, 3), sums=True),
    case("bias_column", normal(5, 7), normal(7, 3), normal(5, 1), sums=True),
    case("bias_rank_0", normal(5, 7), normal(7, 3), normal(), sums=True),
    case("beta_zero", normal(5, 7), normal(7, 3), normal(3), sums=True, beta=0.0),
    case("one_row", normal(1, 128), constant(normal(10, 128)), constant(normal(10)), sums=True, transB=1),
    case("ints", normal(5, 7), normal(7, 3), normal(3), dtypes=INTS, alpha=2.0),
    case("ints_by_fractions", normal(5, 7), normal(7, 3), normal(3), dtypes=INTS, alpha=0.5, beta=1.5),
    case("no_rows", normal(0, 7), normal(7, 3), normal(3), sums=True),
    case("inner_zero", normal(4, 0), normal(0, 3), normal(3), sums=True),
]
