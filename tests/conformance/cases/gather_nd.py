"""GatherND."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, indices, normal

OP = "GatherND"
CASES = [
    case("elements", normal(4, 5), indices(0, 4, 3, 2), dynamic=False),
    case("rows", normal(4, 5), indices(0, 4, 3, 1)),
    case("matrix_of_rows", normal(4, 5), indices(0, 4, 2, 3, 1)),
    case("negative", normal(4, 5), indices(-4, 4, 3, 1)),
    case("batch", normal(2, 4, 5), indices(0, 4, 2, 3, 1), batch_dims=1),
    case("batch_elements", normal(2, 4, 5), indices(0, 4, 2, 2), batch_dims=1, dynamic=False),
    case("no_indices", normal(4, 5), indices(0, 4, 0, 1)),
    case("any_dtype", normal(4, 5), indices(0, 4, 3, 2), dtypes=[*INTS, *NARROW_INTS, *BOOL], dynamic=False),
]
