"""Det."""

import numpy as np

from tests.conformance.case import case, exact, normal

OP = "Det"
CASES = [
    case("matrix", normal(3, 3), reference=np.linalg.det, slack=8),
    case("batch", normal(2, 5, 4, 4), reference=np.linalg.det, slack=8, sums=True),
    case("one_by_one", normal(7, 1, 1), reference=np.linalg.det),
    case("singular", exact([[1.0, 2.0], [2.0, 4.0]]), reference=np.linalg.det),
    case("exchanged_rows", exact([[0.0, 1.0], [1.0, 0.0]]), reference=np.linalg.det),
    case("no_matrices", normal(0, 3, 3), reference=np.linalg.det),
]
