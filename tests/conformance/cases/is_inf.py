"""IsInf."""

from tests.conformance.case import case, special

OP = "IsInf"
CASES = [
    case("either", special(), dtypes=["float32", "float64"]),
    case("halves", special(), dtypes=["float16", "bfloat16"]),
    case("positive", special(), dtypes=["float32"], detect_negative=0),
    case("negative", special(), dtypes=["float32"], detect_positive=0),
    case("neither", special(), dtypes=["float32"], detect_positive=0, detect_negative=0),
]
