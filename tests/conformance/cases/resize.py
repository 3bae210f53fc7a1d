"""Resize."""

from typing import Any

from tests.conformance.case import F32, SINGLE, Array, Case, Given, case, exact, floats, ints, normal


def resized(name: str, mode: str, at: str, *inputs: Given | None, **options: Any) -> Case:
    """A case with the coordinate transformation `at`."""
    options = {"dtypes": SINGLE, "sums": mode == "cubic", **options}
    return case(name, *inputs, mode=mode, coordinate_transformation_mode=at, **options)


def doubled(x: Array, *_: Array | None, **attrs: object) -> Array:
    """Nearest by two, without arithmetic."""
    return x.repeat(2, -1)


OP = "Resize"
X = normal(1, 2, 4, 5)
FIXED = {"dtypes": F32, "dynamic": False}
NAN = exact([[[[1.0, float("nan"), 3.0]]]])
CROP = floats(0, 0, 0.2, 0.1, 1, 1, 0.7, 1.2)
CASES = [
    resized("doubles", "nearest", "asymmetric", normal(2, 17, 4, 5), None, floats(1, 1, 2, 2), nearest_mode="floor"),
    resized("nearest", "nearest", "half_pixel", X, None, floats(1, 1, 2, 2)),
    resized("nearest_ceil", "nearest", "half_pixel", X, None, floats(1, 1, 1.5, 0.75), nearest_mode="ceil"),
    resized("prefer_ceil", "nearest", "half_pixel", X, None, floats(1, 1, 0.5, 0.6), nearest_mode="round_prefer_ceil"),
    resized("nearest_sizes", "nearest", "half_pixel", X, None, None, ints(1, 2, 7, 3), **FIXED),
    resized("nearest_keeps_nan", "nearest", "half_pixel", NAN, None, floats(1, 1, 1, 2), reference=doubled),
    resized("bytes", "nearest", "half_pixel", X, None, floats(1, 1, 2, 2), dtypes=["uint8", "int8", "int32"]),
    resized("linear", "linear", "half_pixel", X, None, floats(1, 1, 2, 2)),
    resized("linear_corners", "linear", "align_corners", X, None, floats(1, 1, 2, 2)),
    resized("linear_torch", "linear", "pytorch_half_pixel", X, None, floats(1, 1, 1.6, 0.6)),
    resized("linear_asymmetric", "linear", "asymmetric", X, None, floats(1, 1, 2, 2)),
    resized("linear_symmetric", "linear", "half_pixel_symmetric", X, None, floats(1, 1, 1.3, 1.3)),
    resized(
        "symmetric_ceil",
        "nearest",
        "half_pixel_symmetric",
        normal(1, 2, 7, 9),
        None,
        floats(1, 1, 0.5, 0.5),
        nearest_mode="ceil",
    ),
    resized("linear_sizes", "linear", "half_pixel", X, None, None, ints(1, 2, 9, 3), **FIXED),
    resized("linear_shrinks", "linear", "half_pixel", normal(1, 3, 9, 9), None, floats(1, 1, 0.5, 0.5)),
    resized("linear_1d", "linear", "half_pixel", normal(2, 3, 5), None, floats(1, 1, 2)),
    resized("linear_3d", "linear", "half_pixel", normal(1, 2, 3, 4, 3), None, floats(1, 1, 2, 2, 2)),
    resized("linear_axes", "linear", "half_pixel", X, None, floats(2, 2), axes=[2, 3]),
    resized("same_size", "linear", "half_pixel", X, None, floats(1, 1, 1, 1)),
    resized("cubic", "cubic", "half_pixel", X, None, floats(1, 1, 2, 2)),
    resized("cubic_a", "cubic", "half_pixel", X, None, floats(1, 1, 2, 2), cubic_coeff_a=-0.5),
    resized("cubic_corners", "cubic", "align_corners", X, None, floats(1, 1, 1.75, 1.6)),
    resized("cubic_exclude_outside", "cubic", "half_pixel", X, None, floats(1, 1, 2, 2), exclude_outside=1),
    resized("crop", "linear", "tf_crop_and_resize", X, CROP, None, ints(1, 2, 3, 4), extrapolation_value=9.0, **FIXED),
    resized(
        "antialias", "linear", "half_pixel", normal(1, 2, 9, 8), None, floats(1, 1, 0.6, 0.4), antialias=1, slack=2.0
    ),
    resized(
        "antialias_cubic",
        "cubic",
        "half_pixel",
        normal(1, 2, 9, 8),
        None,
        floats(1, 1, 0.6, 0.4),
        antialias=1,
        slack=2.0,
    ),
    resized(
        "antialias_sizes",
        "linear",
        "half_pixel",
        normal(1, 2, 9, 8),
        None,
        None,
        ints(1, 2, 3, 9),
        antialias=1,
        **FIXED,
    ),
    resized(
        "antialias_exclude_outside",
        "cubic",
        "half_pixel",
        normal(1, 2, 9, 8),
        None,
        floats(1, 1, 0.6, 1.5),
        antialias=1,
        exclude_outside=1,
        dtypes=F32,
    ),
    *(
        resized(
            f"{mode}_{policy}",
            mode,
            "half_pixel",
            X,
            None,
            None,
            ints(7, 13),
            axes=[2, 3],
            keep_aspect_ratio_policy=policy,
            dtypes=F32,
        )
        for mode in ("nearest", "linear")
        for policy in ("not_larger", "not_smaller")
    ),
    resized(
        "not_larger",
        "nearest",
        "half_pixel",
        X,
        None,
        None,
        ints(7, 8),
        axes=[2, 3],
        keep_aspect_ratio_policy="not_larger",
        **FIXED,
    ),
]
