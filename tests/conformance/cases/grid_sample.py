"""GridSample."""

from typing import Any

from tests.conformance.case import F32, SINGLE, Array, Case, Given, case, exact, normal, uniform
from tests.optional import torch

MODES = {"linear": "bilinear", "cubic": "bicubic"}


def sampled(x: Array, grid: Array, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0) -> Array:
    """torch's, in double precision."""
    return torch.nn.functional.grid_sample(
        torch.from_numpy(x),
        torch.from_numpy(grid),
        MODES.get(mode, mode),
        padding_mode,
        bool(align_corners),
    ).numpy()


def sample(name: str, *inputs: Given, **options: Any) -> Case:
    defaults = {"reference": sampled, "dtypes": F32, "sums": True, "slack": 4.0, "dynamic": False}
    return case(name, *inputs, **{**defaults, **options})


OP = "GridSample"
X, GRID = normal(2, 3, 5, 6), uniform(-1.6, 1.6, 2, 4, 7, 2)
VOLUME, PLACES = normal(1, 2, 3, 4, 5), uniform(-1.6, 1.6, 1, 2, 3, 4, 3)
CASES = [
    sample("plain", X, GRID, dtypes=["float32", "float64"]),
    # What a grid in low precision names is the same place in any.
    sample("halves", X, exact([[[[0.5, -0.25]]], [[[-1.25, 0.125]]]]), dtypes=SINGLE),
    *(
        sample(f"{mode}_{padding}_{align}", X, GRID, mode=mode, padding_mode=padding, align_corners=align)
        for mode in ("linear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for align in (0, 1)
    ),
    *(sample(f"cubic_zeros_{align}", X, GRID, mode="cubic", align_corners=align) for align in (0, 1)),
    # torch moves the neighbours inside, ONNX the place itself.
    *(
        sample(
            f"cubic_{padding}_{align}", X, GRID, mode="cubic", padding_mode=padding, align_corners=align, reference=None
        )
        for padding in ("border", "reflection")
        for align in (0, 1)
    ),
    *(
        sample(f"volume_{mode}_{padding}", VOLUME, PLACES, mode=mode, padding_mode=padding)
        for mode in ("linear", "nearest")
        for padding in ("zeros", "border", "reflection")
    ),
    sample("volume_aligned", VOLUME, PLACES, align_corners=1, padding_mode="reflection"),
    sample("line", normal(2, 3, 7), uniform(-1.5, 1.5, 2, 9, 1), reference=None, slack=64.0),
    sample("old", X, GRID, mode="bilinear", opset=16),
    sample("old_cubic", X, GRID, mode="bicubic", opset=16, reference=lambda x, g, mode: sampled(x, g, "cubic")),
    sample("no_places", X, uniform(-1, 1, 2, 0, 7, 2)),
]
