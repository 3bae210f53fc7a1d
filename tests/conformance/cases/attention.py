"""Attention."""

from typing import Any

import numpy as np

from tests.conformance.case import Array, case, exact, normal, truths
from tests.optional import torch

OP = "Attention"


def by_torch(q: Array, k: Array, v: Array, mask: Array | None = None, **attrs: Any) -> Array:
    """torch's own, in double precision; a query that sees nothing gives zeros or NaN."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (torch.from_numpy(np.asarray(t)) for t in (q, k.repeat(group, 1), v.repeat(group, 1)))
    bias = torch.zeros(q.shape[2], k.shape[2], dtype=torch.float64)
    if attrs.get("is_causal"):
        bias = bias.masked_fill(~torch.ones_like(bias, dtype=torch.bool).tril(), -torch.inf)
    if mask is not None:
        given = torch.from_numpy(mask)
        bias = bias.masked_fill(~given, -torch.inf) if given.dtype == torch.bool else bias + given
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, scale=attrs.get("scale"))
    blind = torch.isneginf(bias).all(-1, keepdim=True).expand(*y.shape[:-1], 1)
    return torch.where(blind, torch.nan if attrs.get("nan_if_blind") else 0.0, y).numpy()


def capped(q: Array, k: Array, v: Array, softcap: float) -> Array:
    """Scores that do not leave -softcap..softcap."""
    scores = softcap * np.tanh(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]) / softcap)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def qkv(heads: int, shared: int, queries: int, keys: int, size: int, batch: int = 2) -> tuple[Any, Any, Any]:
    """Queries, keys and values."""
    of = normal(batch, shared, keys, size)
    return normal(batch, heads, queries, size), of, of


HIDDEN = exact([[-np.inf] * 5, [0.0, -np.inf, 1.0, 0.0, -2.0], [0.0] * 5])
ALL_HIDDEN = exact(np.arange(3).reshape(3, 1, 1, 1) * np.ones((1, 1, 1, 200)) > 0, np.bool_)
OPTIONS: dict[str, Any] = {"reference": by_torch, "opset": 0, "sums": True, "slack": 2}
CASES = [
    case("plain", *qkv(3, 3, 5, 7, 8), **OPTIONS),
    case("long", *qkv(1, 1, 70, 600, 64, batch=1), **OPTIONS),
    case("shared_keys", *qkv(6, 2, 5, 7, 16), **OPTIONS),
    case("causal", *qkv(2, 2, 30, 30, 33), is_causal=1, **OPTIONS),
    case("more_queries_than_keys", *qkv(2, 1, 30, 3, 4), is_causal=1, **OPTIONS),
    case("scale", *qkv(2, 2, 5, 7, 4), scale=1.0, **OPTIONS),
    case("bias_per_head", *qkv(4, 2, 3, 5, 8), normal(4, 3, 5), **OPTIONS),
    case("truths_per_key", *qkv(2, 2, 3, 17, 8), truths(2, 1, 1, 17), **OPTIONS),
    case("causal_and_bias", *qkv(2, 2, 5, 5, 8), normal(2, 1, 1, 5), is_causal=1, **OPTIONS),
    case("sees_nothing", *qkv(2, 2, 3, 5, 8), HIDDEN, **OPTIONS),
    case("nan_where_nothing_is_seen", *qkv(2, 2, 3, 5, 8), HIDDEN, nan_if_blind=1, **OPTIONS),
    case("a_batch_sees_nothing", *qkv(2, 2, 130, 200, 64, batch=3), ALL_HIDDEN, **OPTIONS),
    case("no_keys", *qkv(4, 2, 70, 0, 64), **OPTIONS),
    case("single_query", *qkv(4, 4, 1, 40, 64), **OPTIONS),
    *(case(f"heads_of_{size}", *qkv(2, 2, 130, 150, size, batch=1), **OPTIONS) for size in (80, 96, 128, 160, 256)),
    *(case(f"batches_of_heads_of_{size}", *qkv(2, 2, 33, 40, size), **OPTIONS) for size in (80, 96, 160, 256)),
    case("causal_heads_of_96", *qkv(4, 2, 70, 70, 96), is_causal=1, **OPTIONS),
    case("truths_and_heads_of_128", *qkv(2, 1, 65, 200, 128, batch=3), truths(3, 1, 1, 200), **OPTIONS),
    case("bias_and_odd_heads", *qkv(2, 2, 66, 70, 99), normal(2, 66, 70), **OPTIONS),
    case("values_wider_than_keys", normal(2, 2, 70, 40), normal(2, 2, 90, 40), normal(2, 2, 90, 120), **OPTIONS),
    case("values_narrower_than_keys", normal(2, 2, 70, 192), normal(2, 2, 90, 192), normal(2, 2, 90, 128), **OPTIONS),
    case("empty_batch", *qkv(2, 2, 3, 5, 8, batch=0), **OPTIONS),
    case("softcap", *qkv(2, 2, 5, 7, 8), reference=capped, opset=0, sums=True, slack=2, softcap=1.5),
]
