"""Attention with several heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix import random
from neurenix.errors import InvalidArgumentError
from neurenix.nn import checks
from neurenix.nn import functional as F
from neurenix.nn.functional.attention import attention_weights
from neurenix.nn.functional.common import traced
from neurenix.nn.linear import Linear
from neurenix.nn.module import Module
from neurenix.nn.traced import Traced


class MultiheadAttention(Module):
    """Attention with several heads: `forward(query, key, value)` gives the result and the weights of attention.

    Raises `InvalidArgumentError` where the features do not divide into the heads.
    """

    in_proj_weight: Any
    in_proj_bias: Any
    bias_k: Any
    bias_v: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        super().__init__()
        if embed_dim % num_heads:
            raise InvalidArgumentError(
                "the features do not divide into the heads", got=f"{embed_dim} features, {num_heads} heads"
            )
        self.num_heads, self.batch_first, self.embed_dim = num_heads, batch_first, embed_dim
        self.add_zero_attn = add_zero_attn
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        alike = self.kdim == self.vdim == embed_dim
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if alike else None,
            "q_proj_weight": None if alike else (embed_dim, embed_dim),
            "k_proj_weight": None if alike else (embed_dim, self.kdim),
            "v_proj_weight": None if alike else (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else random.kaiming_uniform(shape, embed_dim))
        self.out_proj = Linear(embed_dim, embed_dim, bias)

    def forward(
        self,
        query: Traced,
        key: Traced,
        value: Traced,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Traced, Traced | None]:
        """Each [length, batch, features], or [batch, length, features] with `batch_first`, or [length, features].

        `key_padding_mask` [batch, S] and `attn_mask` [L, S] or [batch * heads, L, S] leave out where they are true, or
        are added. Weights come as [batch, L, S], or [batch, heads, L, S] without `average_attn_weights`.
        """
        if is_causal and attn_mask is None:
            raise InvalidArgumentError("is_causal only says what attn_mask is", hint="give attn_mask too")
        single = query.ndim == 2
        if single:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
            (key_padding_mask,) = traced(key_padding_mask)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = self._heads(query, key, value)
        mask = self._mask(query, k, attn_mask, key_padding_mask)
        mixed = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2)
        result = self.out_proj(mixed.flatten(2))
        # What nobody reads of it is left out of the network.
        weights = attention_weights(q, k, mask, q.shape[-1] ** -0.5) if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if single:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return (result if self.batch_first else result.transpose(0, 1)), weights

    def _heads(self, *inputs: Traced) -> list[Traced]:
        """Queries, keys and values as [batch, heads, length, size], with what is added to keys and values."""
        projected = [F.linear(x, *self._projection(i, x)) for i, x in enumerate(inputs)]
        for i, added in ((1, self.bias_k), (2, self.bias_v)):
            if added is not None:
                row = traced(added)[0].expand(inputs[i].shape[0], 1, self.embed_dim)
                projected[i] = F.cat([projected[i], row], 1)
        size = self.embed_dim // self.num_heads
        heads = [x.unflatten(2, (self.num_heads, size)).transpose(1, 2) for x in projected]
        if self.add_zero_attn:
            heads[1:] = [F.pad(x, (0, 0, 0, 1)) for x in heads[1:]]
        return heads

    def _projection(self, number: int, x: Traced) -> tuple[Traced, Traced | None]:
        """The weight and the bias of queries, keys or values."""
        rows = slice(number * self.embed_dim, (number + 1) * self.embed_dim)
        bias = None if self.in_proj_bias is None else x.trace.constant(self.in_proj_bias)[rows]
        if self.in_proj_weight is not None:
            return x.trace.constant(self.in_proj_weight)[rows], bias
        return x.trace.constant(getattr(self, f"{'qkv'[number]}_proj_weight")), bias

    def _mask(self, query: Traced, keys: Traced, attn_mask: Any, padding: Any) -> Traced | None:
        """Both masks as numbers to add to [batch, heads, L, S]; none where there are none."""
        more = int(self.bias_k is not None) + int(self.add_zero_attn)
        parts = []
        for mask, of_batch in ((attn_mask, False), (padding, True)):
            if mask is None:
                continue
            added = _added(traced(mask)[0], query.dtype)
            added = F.pad(added, (0, more)) if more else added
            if of_batch:
                added = added.unsqueeze(1).unsqueeze(1)
            elif added.ndim == 3:
                added = added.reshape(-1, self.num_heads, *added.shape[1:])
            parts.append(added)
        return sum(parts[1:], start=parts[0]) if parts else None


def _added(mask: Traced, dtype: np.dtype[Any]) -> Traced:
    """A mask of bool, which leaves out where it is true, as numbers to add."""
    if mask.dtype != np.bool_:
        return mask
    return F.where(mask, *(mask.trace.constant(np.array(value, dtype)) for value in (float("-inf"), 0.0)))
