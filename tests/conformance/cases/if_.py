"""If."""

from onnx import parser

from tests.conformance.case import F32, case, exact

OP = "If"
BRANCHES = {
    "then_branch": parser.parse_graph("t () => (float[2] y) { y = Constant <value_floats = [1.0, 2.0]> () }"),
    "else_branch": parser.parse_graph("e () => (float[3] y) { y = Constant <value_floats = [3.0, 4.0, 5.0]> () }"),
}
CASES = [
    case("then", exact(True, bool), dtypes=F32, **BRANCHES),
    case("otherwise", exact(False, bool), dtypes=F32, **BRANCHES),
]
