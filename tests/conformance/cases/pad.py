"""Pad."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, Array, case, ints, normal, scalar
from tests.optional import torch


def padded(x: Array, pads: Array, value: Array | float = 0.0) -> Array:
    """torch's, because ONNX's evaluator takes no negative padding."""
    rank = x.ndim
    backwards = [int(pads[a + side]) for a in reversed(range(rank)) for side in (0, rank)]
    return torch.nn.functional.pad(torch.from_numpy(x), backwards, value=float(value)).numpy()


OP = "Pad"
CASES = [
    case("zeros", normal(2, 3), ints(1, 0, 0, 2)),
    case("spatial", normal(1, 17, 4, 5), ints(0, 0, 1, 2, 0, 0, 3, 0)),
    case("a_number", normal(2, 3), ints(1, 1, 1, 1), scalar(2.5)),
    case("negative", normal(4, 5), ints(-1, 0, 0, -2), dynamic=False, reference=padded),
    case("grows_and_shrinks", normal(4, 5), ints(1, -1, -2, 2), scalar(1.0), dynamic=False, reference=padded),
    case("axes", normal(2, 3, 4), ints(1, 2), scalar(0.0), ints(2)),
    case("negative_axes", normal(2, 3, 4), ints(1, 2, 0, 1), scalar(0.0), ints(-1, 0)),
    case("reflect", normal(1, 2, 4, 5), ints(0, 0, 1, 2, 0, 0, 2, 1), mode="reflect"),
    case("reflect_all", normal(4), ints(3, 3), mode="reflect"),
    case("edge", normal(1, 2, 4, 5), ints(0, 0, 1, 2, 0, 0, 2, 1), mode="edge"),
    case("wrap", normal(3, 4), ints(1, 2, 2, 1), mode="wrap"),
    case("nothing", normal(2, 3), ints(0, 0, 0, 0)),
    case("empty_becomes_full", normal(0, 2), ints(1, 0, 1, 0), scalar(3.0)),
    case("any_dtype", normal(2, 3), ints(1, 0, 0, 2), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
    case("attribute", normal(2, 3), dtypes=["float32"], opset=10, pads=[0, 1, 0, 1], value=1.5),
]
