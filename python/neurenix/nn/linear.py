"""Matrix products: Linear, Embedding, MultiheadAttention."""

from __future__ import annotations

from typing import Any

from neurenix import random
from neurenix.errors import InvalidArgumentError
from neurenix.nn import functional as F
from neurenix.nn.module import Module, Parameter
from neurenix.nn.tracing import Traced


class Linear(Module):
    """x @ weight.T + bias over the last dimension; flattens trailing dimensions when only that fits."""

    bias: Any

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = Parameter(random.kaiming_uniform((out_features, in_features), in_features))
        self.register_parameter("bias", random.kaiming_uniform((out_features,), in_features) if bias else None)

    def forward(self, x: Traced) -> Traced:
        """x [..., in_features]."""
        return F.linear(x, self.weight, self.bias)

    def _describe(self) -> str:
        return f"{self.weight.shape[1]} -> {self.weight.shape[0]}"


class Embedding(Module):
    """Rows of a table by number: integers [...] to [..., embedding_dim]."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = Parameter(random.randn(num_embeddings, embedding_dim))

    def forward(self, x: Traced) -> Traced:
        """x: integers."""
        return F.embedding(x, self.weight)


class MultiheadAttention(Module):
    """Attention with several heads; `forward(query, key, value)` gives (result, None) as PyTorch's without weights."""

    def __init__(self, embed_dim: int, num_heads: int, bias: bool = True, batch_first: bool = False) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise InvalidArgumentError(
                "the features do not divide into the heads", got=f"{embed_dim} features, {num_heads} heads"
            )
        self.num_heads, self.batch_first, self.embed_dim = num_heads, batch_first, embed_dim
        self.in_proj_weight = Parameter(random.kaiming_uniform((3 * embed_dim, embed_dim), embed_dim))
        self.register_parameter("in_proj_bias", random.kaiming_uniform((3 * embed_dim,), embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias)

    in_proj_bias: Any

    def forward(self, query: Traced, key: Traced, value: Traced, attn_mask: Any = None) -> tuple[Traced, None]:
        """Each [length, batch, features], or [batch, length, features] with `batch_first`."""
        if not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = (self._heads(i, t) for i, t in enumerate((query, key, value)))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask).transpose(1, 2)
        result = self.out_proj(mixed.reshape(mixed.shape[0], mixed.shape[1], self.embed_dim))
        return (result if self.batch_first else result.transpose(0, 1)), None

    def _heads(self, number: int, x: Traced) -> Traced:
        rows = slice(number * self.embed_dim, (number + 1) * self.embed_dim)
        bias = None if self.in_proj_bias is None else x.trace.constant(self.in_proj_bias)[rows]
        weight = x.trace.constant(self.in_proj_weight)[rows]
        projected = F.linear(x, weight, bias)
        parts = (x.shape[0], x.shape[1], self.num_heads, self.embed_dim // self.num_heads)
        return projected.reshape(*parts).transpose(1, 2)
