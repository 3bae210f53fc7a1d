"""TfIdfVectorizer."""

from typing import Any

from tests.conformance.case import Case, case, exact, normal

OP = "TfIdfVectorizer"
#: Four of one token, two of two, one of three.
POOL = {
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 1, 2, 3],
    "ngram_counts": [0, 4, 10],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6, 7],
}
ROW = [1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8]


def of(name: str, shortest: int, longest: int, skips: int, mode: str = "TF", given: Any = None, **more: Any) -> Case:
    """A case on integers, in both widths."""
    how = {"mode": mode, "min_gram_length": shortest, "max_gram_length": longest, "max_skip_count": skips, **POOL}
    x = exact(ROW) if given is None else given
    return case(name, x, dtypes=("int32", "int64"), result="float32", **{**how, **more})


WEIGHTS = [0.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
CASES = [
    of("single_tokens", 1, 1, 0),
    of("single_tokens_count_once", 1, 1, 5),
    of("pairs", 2, 2, 0),
    of("pairs_with_gaps", 2, 2, 5),
    of("up_to_three", 1, 3, 2),
    of("rows", 1, 3, 1, given=normal(40, 31)),
    of("inverse_frequencies", 1, 2, 3, "IDF", weights=WEIGHTS),
    of("weighted", 1, 2, 3, "TFIDF", weights=WEIGHTS),
    of("places_in_another_order", 1, 2, 1, "TFIDF", ngram_indexes=[3, 2, 7, 0, 1, 4, 6, 5], weights=WEIGHTS),
]
