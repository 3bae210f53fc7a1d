"""Modules with several inputs or outputs: attention, transformers, recurrent layers, tables and distances."""

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import nn
from tests.nn.compared import both
from tests.optional import torch


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


#: 5 queries and 7 keys of two sequences, as [length, batch, features].
Q, K, V = numbers(5, 2, 8), numbers(7, 2, 8, seed=1), numbers(7, 2, 8, seed=2)
HIDDEN = np.array([[False] * 4 + [True] * 3, [False] * 7])
LATER = np.triu(np.ones((5, 7), bool), 3)


def masks(**given: Any) -> dict[str, Any]:
    """Masks as both libraries take them."""
    return {name: torch.from_numpy(mask) if isinstance(mask, np.ndarray) else mask for name, mask in given.items()}


def attention(**arguments: Any) -> dict[str, Any]:
    return {"embed_dim": 8, "num_heads": 2} | arguments


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (attention(), {}),
        (attention(bias=False), {"average_attn_weights": False}),
        (attention(), {"need_weights": False}),
        (attention(), {"attn_mask": LATER}),
        (attention(), {"attn_mask": LATER, "is_causal": True}),
        (attention(), {"attn_mask": numbers(5, 7), "key_padding_mask": np.where(HIDDEN, -1e9, 0).astype(np.float32)}),
        (attention(), {"attn_mask": numbers(4, 5, 7), "need_weights": False}),
        (attention(), {"key_padding_mask": HIDDEN}),
        (attention(add_bias_kv=True, add_zero_attn=True), {"attn_mask": LATER, "key_padding_mask": HIDDEN}),
    ],
)
def test_attention(arguments: dict[str, Any], options: dict[str, Any]) -> None:
    both("MultiheadAttention", arguments, Q, K, V, **masks(**options))


def test_attention_of_other_shapes() -> None:
    both("MultiheadAttention", attention(batch_first=True), *(x.swapaxes(0, 1).copy() for x in (Q, K, V)))
    both("MultiheadAttention", attention(kdim=6, vdim=3), Q, K[..., :6].copy(), V[..., :3].copy())
    both("MultiheadAttention", attention(), Q[:, 0].copy(), K[:, 0].copy(), V[:, 0].copy())


def test_attention_with_a_dynamic_length() -> None:
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    ours = nn.MultiheadAttention(8, 2, batch_first=True)
    ours.load_state_dict(theirs.state_dict())

    class Itself(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ours

        def forward(self, x: Any) -> Any:
            return self.inner(x, x, x)[0]

    network = nn.trace(Itself(), nx.Shape((1, 2, 8), (2, 5, 8), (4, 9, 8)))
    assert network.outputs["output"].shape == ("batch", "input_1", 8)
    x = numbers(3, 4, 8)
    with torch.no_grad():
        want = theirs(torch.from_numpy(x), torch.from_numpy(x), torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(network.evaluate({"input": x})["output"], want, atol=1e-5)


LAYER = {"d_model": 8, "nhead": 2, "dim_feedforward": 12}


@pytest.mark.parametrize("more", [{}, {"norm_first": True, "bias": False}, {"activation": "gelu", "batch_first": True}])
def test_transformer_layers(more: dict[str, Any]) -> None:
    both("TransformerEncoderLayer", LAYER | more, K)
    both("TransformerDecoderLayer", LAYER | more, K, V)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_transformers() -> None:
    stack = {"num_encoder_layers": 2, "num_decoder_layers": 1}
    later = torch.nn.Transformer.generate_square_subsequent_mask(5)
    assert np.array_equal(nn.Transformer.generate_square_subsequent_mask(5), later.numpy())
    both("Transformer", LAYER | stack, K, Q, tgt_mask=later, src_key_padding_mask=torch.from_numpy(HIDDEN))
    both("TransformerEncoderLayer", LAYER, K, src_key_padding_mask=torch.from_numpy(HIDDEN))


def recurrent(**arguments: Any) -> dict[str, Any]:
    return {"input_size": 8, "hidden_size": 3} | arguments


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(
    "more",
    [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "bidirectional": True}, {"batch_first": True}],
)
def test_recurrent_layers(name: str, more: dict[str, Any]) -> None:
    both(name, recurrent(**more), K)
    if not more:
        both(name, recurrent(), K[:, 0].copy())


def test_recurrent_layers_with_states() -> None:
    states = numbers(4, 2, 3)
    both("RNN", recurrent(num_layers=2, bidirectional=True, nonlinearity="relu"), K, states)
    both("GRU", recurrent(num_layers=2, bidirectional=True), K, states)
    theirs, ours = torch.nn.LSTM(8, 3, 2, bidirectional=True), nn.LSTM(8, 3, 2, bidirectional=True)
    ours.load_state_dict(theirs.state_dict())

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ours

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            outputs, (last_h, last_c) = self.inner(x, (h, c))
            return outputs, last_h, last_c

    given = {"x": K, "h": states, "c": 2 * states}
    got = list(nn.trace(Pair(), given).evaluate(given).values())
    with torch.no_grad():
        outputs, last = theirs(torch.from_numpy(K), (torch.from_numpy(states), torch.from_numpy(2 * states)))
    for array, want in zip(got, (outputs, *last), strict=True):
        np.testing.assert_allclose(array, want.numpy(), atol=1e-5)


def test_cells() -> None:
    x, h = numbers(2, 8), numbers(2, 3)
    for name, more in (("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"}), ("GRUCell", {}), ("LSTMCell", {})):
        both(name, recurrent(**more), x)
        both(name, recurrent(bias=False, **more), x)
        if name != "LSTMCell":
            both(name, recurrent(**more), x, h)


def test_tables() -> None:
    ids = np.array([[1, 2, 9], [0, 3, 3]], np.int64)
    table = {"num_embeddings": 10, "embedding_dim": 4}
    both("Embedding", table | {"padding_idx": 3}, ids)
    for mode in ("sum", "mean", "max"):
        both("EmbeddingBag", table | {"mode": mode}, ids)
        both("EmbeddingBag", table | {"mode": mode, "padding_idx": 3}, ids)
    both("EmbeddingBag", table | {"mode": "sum"}, ids, per_sample_weights=torch.ones(2, 3))
    assert not nn.Embedding(10, 4, padding_idx=-1).weight[9].any()
    rows = torch.randn(3, 2)
    assert np.array_equal(nn.Embedding.from_pretrained(rows).state_dict()["weight"], rows.numpy())


def test_pairs() -> None:
    a, b = numbers(3, 5), numbers(3, 5, seed=1)
    both("Bilinear", {"in1_features": 5, "in2_features": 4, "out_features": 6}, a, numbers(3, 4))
    both("Bilinear", {"in1_features": 5, "in2_features": 5, "out_features": 2, "bias": False}, a, b)
    both("CosineSimilarity", {}, a, b)
    both("CosineSimilarity", {"dim": 0}, a, b)
    both("PairwiseDistance", {}, a, b)
    both("PairwiseDistance", {"p": 3.0, "keepdim": True}, a, b)
    both("PairwiseDistance", {"p": float("inf")}, a, b)


def test_unpooling() -> None:
    x = numbers(2, 3, 6, 7)
    pooled, places = torch.nn.functional.max_pool2d(torch.from_numpy(x), 2, return_indices=True)
    both("MaxUnpool2d", {"kernel_size": 2}, pooled.numpy(), places.numpy(), output_size=(6, 7))
    wide = torch.from_numpy(x[..., :6].copy())
    both(
        "MaxUnpool2d",
        {"kernel_size": 2},
        *(t.numpy() for t in torch.nn.functional.max_pool2d(wide, 2, return_indices=True)),
    )
    pooled, places = torch.nn.functional.max_pool1d(torch.from_numpy(x[0]), 3, 2, 1, return_indices=True)
    both("MaxUnpool1d", {"kernel_size": 3, "stride": 2, "padding": 1}, pooled.numpy(), places.numpy())
