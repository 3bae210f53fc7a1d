"""Gather."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, constant, indices, ints, normal

OP = "Gather"
CASES = [
    case("rows", normal(5, 3), indices(0, 5, 7)),
    case("columns", normal(3, 5), indices(0, 5, 2), axis=1),
    case("negative_axis", normal(3, 4, 5), indices(0, 5, 2), axis=-1),
    case("negative_indices", normal(5, 3), indices(-5, 5, 4)),
    case("matrix_of_indices", normal(5, 3), indices(0, 5, 2, 3)),
    case("one_index", normal(5, 3), indices(0, 5)),
    case("one_index_middle", normal(2, 5, 3), constant(indices(1, 2)), axis=1),
    case("constant_indices", normal(5, 33), ints(4, 0, 0, -1)),
    case("from_a_vector", normal(9), indices(0, 9, 3)),
    case("constant_table", constant(normal(20, 6)), indices(0, 20, 2, 4)),
    case("int32_indices", normal(5, 3), indices(0, 5, 4, dtype="int32")),
    case("no_indices", normal(5, 3), indices(0, 5, 0)),
    case("any_dtype", normal(5, 3), indices(0, 5, 4), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
