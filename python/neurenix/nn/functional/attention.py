"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.nn.functional.common import fixed, traced
from neurenix.nn.traced import Traced


def scaled_dot_product_attention(
    query: Traced,
    key: Traced,
    value: Traced,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Traced:
    """softmax(query @ key.T * scale + mask) @ value; `scale` is 1 / sqrt(features) unless given.

    query [..., L, E], key [..., S, E], value [..., S, V]. A mask of bool keeps where it is true, one of numbers is
    added. `enable_gqa`: keys and values have fewer heads, each for a group of the queries'.
    """
    if is_causal and attn_mask is not None:
        raise InvalidArgumentError("give either attn_mask or is_causal")
    features = fixed(query, -1, "the number of features must be known")
    scale = features**-0.5 if scale is None else scale
    (mask,) = traced(attn_mask)
    if query.ndim == key.ndim == value.ndim == 4:
        if not enable_gqa and key.shape[1] != query.shape[1] and key.shape[1] != 1:
            raise InvalidArgumentError(
                "the heads of queries and keys differ", expected=str(query.shape[1]), got=str(key.shape[1]),
                hint="enable_gqa=True shares keys and values among groups of heads",
            )  # fmt: skip
        return query.trace.add("Attention", query, key, value, mask, scale=scale, is_causal=int(is_causal))
    return attention_weights(query, key, causal(query, key) if is_causal else mask, scale) @ value


def causal(query: Traced, key: Traced) -> Traced:
    """A mask that is true where a key does not come after its query."""
    sizes = [fixed(t, -2, "the lengths must be known for a causal mask of other than four dimensions")
             for t in (query, key)]  # fmt: skip
    return query.trace.constant(np.tri(*sizes, dtype=np.bool_))


def attention_weights(query: Traced, key: Traced, mask: Traced | None, scale: float) -> Traced:
    """softmax(query @ key.T * scale + mask), with masks as `scaled_dot_product_attention` has them."""
    scores = query.trace.add("MatMul", query * scale, key, transB=1)
    return masked(scores, mask).softmax(-1)


def masked(scores: Traced, mask: Traced | None) -> Traced:
    """Scores with a mask: of bool, true is kept; of numbers, it is added."""
    if mask is None:
        return scores
    return scores.masked_fill(mask.logical_not(), float("-inf")) if mask.dtype == np.bool_ else scores + mask
