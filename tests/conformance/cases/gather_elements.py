"""GatherElements."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, Array, case, indices, normal
from tests.optional import torch


def gathered(x: Array, places: Array, axis: int = 0) -> Array:
    """torch's, because ONNX's evaluator wants all other extents to be equal."""
    counted = torch.from_numpy(places.astype("int64")) % x.shape[axis]
    return torch.gather(torch.from_numpy(x), axis, counted).numpy()


OP = "GatherElements"
CASES = [
    case("rows", normal(5, 4), indices(0, 5, 3, 4)),
    case("columns", normal(5, 4), indices(0, 4, 5, 6), axis=1),
    case("negative_axis", normal(2, 3, 4), indices(0, 4, 2, 3, 2), axis=-1, reference=gathered),
    case("negative_indices", normal(5, 4), indices(-5, 5, 3, 4)),
    case("fewer_rows", normal(5, 4), indices(0, 4, 2, 3), axis=1, reference=gathered),
    case("int32_indices", normal(5, 4), indices(0, 5, 3, 4, dtype="int32")),
    case("no_indices", normal(5, 4), indices(0, 5, 0, 4)),
    case("any_dtype", normal(5, 4), indices(0, 5, 3, 4), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
