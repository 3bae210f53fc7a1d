"""Transformers: attention and products of each position in turns, with normalisation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.nn import checks
from neurenix.nn import functional as F
from neurenix.nn.attention import MultiheadAttention
from neurenix.nn.containers import ModuleList
from neurenix.nn.dropout import Dropout
from neurenix.nn.linear import Linear
from neurenix.nn.module import Module
from neurenix.nn.norm import LayerNorm
from neurenix.nn.traced import Traced

Activation = str | Callable[[Any], Any]


class _Layer(Module):
    """The products of each position, and sums with what came in."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        super().__init__()
        words: dict[str, Callable[[Any], Any]] = {"relu": F.relu, "gelu": F.gelu}
        if isinstance(activation, str) and activation not in words:
            raise InvalidArgumentError(
                "the activation is unknown", expected="relu, gelu or a function", got=repr(activation)
            )
        self.activation = words[activation] if isinstance(activation, str) else activation
        self.norm_first, self.batch_first = norm_first, batch_first
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)

    def _feed(self, x: Traced) -> Traced:
        return self.linear2(self.activation(self.linear1(x)))  # type: ignore[no-any-return]

    def _beside(self, x: Traced, norm: Module, part: Callable[[Traced], Traced]) -> Traced:
        """x with what a part makes of it, normalised before or after."""
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two products of each position."""

    def forward(
        self, src: Traced, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Traced:
        """src as `MultiheadAttention` takes it, masks too."""

        def attend(x: Traced) -> Traced:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask)[0]  # type: ignore[no-any-return]

        return self._beside(self._beside(src, self.norm1, attend), self.norm2, self._feed)


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, to the memory of an encoder, then two products of each position."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
            device,
            dtype,
        )
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)

    def forward(
        self,
        tgt: Traced,
        memory: Traced,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Traced:
        """tgt and memory as `MultiheadAttention` takes them, masks too."""

        def attend(x: Traced) -> Traced:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask)[0]  # type: ignore[no-any-return]

        def remember(x: Traced) -> Traced:
            found = self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask)
            return found[0]  # type: ignore[no-any-return]

        x = self._beside(tgt, self.norm1, attend)
        return self._beside(self._beside(x, self.norm2, remember), self.norm3, self._feed)


class _Stack(Module):
    """Copies of a layer, one after another, and a normalisation where there is one."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def _run(self, x: Traced, *others: Any) -> Traced:
        for layer in self.layers:
            x = layer(x, *others)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Several encoder layers; each starts from the weights of the one that is given."""

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self, src: Traced, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Traced:
        """As a layer."""
        return self._run(src, mask, src_key_padding_mask)


class TransformerDecoder(_Stack):
    """Several decoder layers; each starts from the weights of the one that is given."""

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Traced,
        memory: Traced,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Traced:
        """As a layer."""
        return self._run(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)


class Transformer(Module):
    """An encoder and a decoder that attends to what it gives."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        super().__init__()
        given = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias) for _ in range(2)]
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*given), num_encoder_layers, norms[0]
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*given), num_decoder_layers, norms[1]
        )

    def forward(
        self,
        src: Traced,
        tgt: Traced,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Traced:
        """src and tgt as `MultiheadAttention` takes them, masks too."""
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks)  # type: ignore[no-any-return]

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> np.ndarray[Any, Any]:
        """A mask [sz, sz] to add: 0 up to each position, minus infinity after it."""
        return np.triu(np.full((sz, sz), -np.inf, np.float32), 1)
