"""Attention, each case in a process of its own; `agree` compares with torch itself."""

from __future__ import annotations

import torch
from torch import nn

from neurenix.torch import counters
from tests.torch_compile.agree import agree, compiled
from tests.torch_compile.cases import all_in_engines


@torch.no_grad()
def attention_without_batch() -> None:
    """Of two and three dimensions, with and without a mask."""
    attention = nn.functional.scaled_dot_product_attention
    q, k, v = (torch.randn(3, length, 16) for length in (5, 7, 7))
    mask = torch.randn(5, 7)
    for given in ((q, k, v), (q[0], k[0], v[0])):
        agree(compiled(attention)(*given), attention(*given), 2e-6)
        all_in_engines()
        function = lambda *given: attention(*given, attn_mask=mask, scale=0.3) + 1  # noqa: E731
        agree(compiled(function)(*given), function(*given), 2e-6)
        all_in_engines()
    seen = torch.rand(3, 5, 7) > 0.3
    agree(compiled(attention)(q, k, v, seen), attention(q, k, v, seen), 2e-6)
    all_in_engines()


@torch.no_grad()
def attention_of_windows() -> None:
    """With windows between the batch and the heads, as NesT has them."""
    attention = nn.functional.scaled_dot_product_attention
    for dynamic in (None, True):
        ours = compiled(lambda x, mask=None: attention(x @ x.mT @ x, x, x, mask) + 1, dynamic=dynamic)
        for batch in (2, 3):
            x = torch.randn(batch, 4, 2, 5, 8)
            if dynamic:
                torch._dynamo.mark_static(x)
                torch._dynamo.mark_dynamic(x, 0)
            agree(ours(x), attention(x @ x.mT @ x, x, x) + 1, 2e-6)
        mask = torch.eye(5, dtype=torch.bool)
        agree(ours(x, mask), attention(x @ x.mT @ x, x, x, mask) + 1, 2e-6)
    all_in_engines(2)


@torch.no_grad()
def queries_that_see_nothing() -> None:
    """torch gives zeros for them, whether a mask has truth values or numbers, as for the padding in front of a text."""
    attention = nn.functional.scaled_dot_product_attention
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 6)
    seen = torch.rand(5, 7) > 0.3
    seen[2] = False
    for scale in (None, 0.7, -0.4):
        function = lambda *given, scale=scale: attention(*given, scale=scale, enable_gqa=True) + 1  # noqa: E731
        ours = compiled(function)
        for mask in (torch.ones(5, 7, dtype=torch.bool), seen, torch.zeros(5, 7, dtype=torch.bool)):
            agree(ours(q, k, v, mask), function(q, k, v, mask), 2e-6)
            numbers = torch.zeros(2, 1, 5, 7).masked_fill(~mask, -torch.inf)
            agree(ours(q, k, v, numbers), function(q, k, v, numbers), 2e-6)
        all_in_engines(2)
    ours = compiled(attention, dynamic=True)
    for length in (5, 6):
        q, mask = torch.randn(2, 4, length, 8), torch.eye(length, dtype=torch.bool)
        mask[3] = False
        agree(ours(q, q, q, mask), attention(q, q, q, mask), 2e-6)


@torch.no_grad()
def encoder_layer_that_sees_nothing() -> None:
    """torch's fast path gives NaN for a sequence that is all padding, and nothing else does."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    x, padding = torch.randn(2, 6, 32), torch.tensor([[False] * 4 + [True] * 2, [True] * 6])
    found, wanted = (one(x, src_key_padding_mask=padding) for one in (compiled(layer), layer))
    assert wanted[1].isnan().all() and found[1].isnan().all()
    agree(found[0], wanted[0], 2e-6)
    assert "fallbacks" not in counters()
