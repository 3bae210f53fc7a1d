"""AffineGrid."""

from tests.conformance.case import F32, Array, case, ints, normal
from tests.optional import torch


def grid(theta: Array, size: Array, align_corners: int = 0) -> Array:
    """torch's, in double precision."""
    of = torch.from_numpy(theta)
    return torch.nn.functional.affine_grid(of, size.tolist(), align_corners=bool(align_corners)).numpy()


OP = "AffineGrid"
OPTIONS = {"reference": grid, "sums": True, "dynamic": False}
CASES = [
    case("images", normal(2, 2, 3), ints(2, 3, 5, 6), **OPTIONS),
    case("images_aligned", normal(2, 2, 3), ints(2, 3, 5, 6), align_corners=1, **OPTIONS),
    case("volumes", normal(2, 3, 4), ints(2, 3, 4, 5, 6), dtypes=F32, **OPTIONS),
    case("volumes_aligned", normal(2, 3, 4), ints(2, 3, 4, 5, 6), dtypes=F32, align_corners=1, **OPTIONS),
    case("one_wide", normal(1, 2, 3), ints(1, 1, 3, 1), dtypes=F32, align_corners=1, **OPTIONS),
]
