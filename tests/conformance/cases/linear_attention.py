"""LinearAttention."""

from typing import Any

import numpy as np

from tests.conformance.case import SINGLE, Array, Given, case, normal, uniform

OP = "LinearAttention"


def recurrence(
    q: Array,
    k: Array,
    v: Array,
    past: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    **_: Any,
) -> tuple[Array, Array]:
    """The definition, in double precision: each token is one affine map of the state."""
    batch, tokens, width = q.shape
    size, v_size = width // q_num_heads, v.shape[2] // kv_num_heads
    q = q.reshape(batch, tokens, kv_num_heads, q_num_heads // kv_num_heads, size)
    k, v = k.reshape(batch, tokens, kv_num_heads, size), v.reshape(batch, tokens, kv_num_heads, v_size)
    state = np.zeros((batch, kv_num_heads, size, v.shape[-1])) if past is None else past
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    for t in range(tokens):
        kept = (
            np.ones((1, 1, 1))
            if decay is None
            else np.exp(decay[:, t].reshape(batch, kv_num_heads, decay.shape[2] // kv_num_heads))
        )
        state = state * kept[..., None]
        weight = np.ones((1, 1)) if beta is None else beta[:, t]
        # (I - weight k k^T) S + weight k v^T
        outer = np.einsum("bhd,bhe->bhde", k[:, t], k[:, t]) * weight[..., None, None]
        forgotten = 0 if beta is None else outer @ state
        state = state - forgotten + weight[..., None, None] * np.einsum("bhd,bhm->bhdm", k[:, t], v[:, t])
        y[:, t] = np.einsum("bhgd,bhdm->bhgm", q[:, t], state)
    return y.reshape(batch, tokens, q_num_heads * v_size) * (scale or size**-0.5), state


def qkv(heads: int, shared: int, tokens: int, size: int, v_size: int, batch: int = 2) -> list[Given | None]:
    """Queries, keys and values."""
    # Short keys, as the normalised ones of models are.
    keys = uniform(-1 / size**0.5, 1 / size**0.5, batch, tokens, shared * size)
    return [normal(batch, tokens, heads * size), keys, normal(batch, tokens, shared * v_size)]


def of(name: str, rule: str, inputs: list[Given | None], heads: int, shared: int, **attrs: Any) -> Any:
    """A case whose y and state are compared."""
    how = {"q_num_heads": heads, "kv_num_heads": shared, "update_rule": rule, **attrs}
    options: dict[str, Any] = {"reference": recurrence, "outputs": 2, "opset": 27, "sums": True, "slack": 4}
    # The widths must be known: they are divided into heads.
    return case(name, *inputs, dtypes=SINGLE, dynamic=False, **options, **how)


PAST = normal(2, 2, 8, 9)
CASES = [
    of("linear", "linear", qkv(2, 2, 5, 8, 9), 2, 2),
    of("linear_with_a_past", "linear", [*qkv(2, 2, 5, 8, 9), PAST], 2, 2, scale=0.5),
    of("gated", "gated", [*qkv(2, 2, 5, 8, 9), None, uniform(-1, 0, 2, 5, 2)], 2, 2),
    of("gated_per_number", "gated", [*qkv(2, 2, 5, 8, 9), PAST, uniform(-1, 0, 2, 5, 16)], 2, 2),
    of("delta", "delta", [*qkv(2, 2, 5, 8, 9), None, None, uniform(0, 1, 2, 5, 2)], 2, 2),
    of("delta_of_one_weight", "delta", [*qkv(4, 2, 5, 8, 9), PAST, None, uniform(0, 1, 2, 5, 1)], 4, 2),
    of(
        "gated_delta",
        "gated_delta",
        [*qkv(6, 3, 21, 16, 70), None, uniform(-1, 0, 2, 21, 3), uniform(0, 1, 2, 21, 3)],
        6,
        3,
        chunk_size=16,
    ),
    of("one_state_for_all", "linear", qkv(4, 1, 3, 4, 130), 4, 1),
    of("a_single_token", "linear", [*qkv(2, 2, 1, 8, 9), PAST], 2, 2),
    of("empty_batch", "linear", qkv(2, 2, 3, 4, 4, batch=0), 2, 2),
]
