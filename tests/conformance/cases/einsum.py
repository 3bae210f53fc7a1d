"""Einsum."""

import math

from tests.conformance.case import INTS, case, constant, exact, normal

OP = "Einsum"
CASES = [
    case("product", normal(3, 5), normal(5, 4), equation="ij,jk->ik", sums=True),
    case("batch", normal(2, 3, 5), normal(2, 5, 4), equation="bij,bjk->bik", sums=True),
    case("transposed_right", normal(2, 3, 5), normal(2, 4, 5), equation="bid,bjd->bij", sums=True),
    case("attention", normal(2, 7, 4, 8), normal(2, 9, 4, 8), equation="bqhd,bkhd->bhqk", sums=True),
    case("constant", normal(3, 16), constant(normal(16, 33)), equation="ij,jk->ik", sums=True),
    case("implicit", normal(3, 5), normal(5, 4), equation="ij,jk", sums=True),
    case("ellipsis", normal(2, 3, 4, 5), normal(5, 6), equation="...ij,jk->...ik", sums=True),
    case("outer", normal(3), normal(4), equation="i,j->ij"),
    case("inner", normal(7), normal(7), equation="i,i->", sums=True),
    case("elementwise", normal(3, 4), normal(3, 4), equation="ij,ij->ij"),
    case("transpose", normal(3, 4), equation="ij->ji"),
    case("sum", normal(3, 4), equation="ij->i", sums=True),
    case("trace", normal(4, 4), equation="ii->", sums=True),
    case("diagonal", normal(4, 4), equation="ii->i"),
    case("batch_diagonal", normal(2, 4, 4), equation="...ii->...i"),
    case("diagonal_of_a_product", normal(4, 4), normal(4, 3), equation="ii,ij->j", sums=True),
    case(
        "three_times",
        normal(3, 3, 3),
        equation="iii->i",
        reference=lambda x, equation: x[[0, 1, 2], [0, 1, 2], [0, 1, 2]],
    ),
    case("summed_ellipsis", normal(2, 3, 4), equation="...j->j", sums=True),
    case("summed_batch", normal(2, 3, 4), normal(2, 4, 5), equation="...ij,...jk->ik", sums=True),
    case("infinite_off_the_diagonal", exact([[1.0, math.inf], [math.nan, 2.0]]), equation="ii->i"),
    case("three", normal(3, 4), normal(4, 5), normal(5, 2), equation="ij,jk,kl->il", sums=True, slack=2),
    case("ints", normal(3, 5), normal(5, 4), equation="ij,jk->ik", dtypes=INTS),
]
