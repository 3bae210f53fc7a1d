"""Models for `torch.compile` with random weights: timm's, drawn by a seed, and architectures of transformers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

#: Larger models of timm are not drawn: each takes minutes.
MOST_PARAMETERS = 40_000_000
#: Classes of transformers for text.
TEXT = (
    "AlbertModel", "BartModel", "BertModel", "BigBirdModel", "BloomForCausalLM", "CamembertModel", "ConvBertModel",
    "DebertaModel", "DebertaV2Model", "DistilBertModel", "ElectraModel", "ErnieModel", "FNetModel", "GPT2LMHeadModel",
    "GPTNeoXForCausalLM", "GemmaForCausalLM", "LayoutLMModel", "LlamaForCausalLM", "MPNetModel", "MistralForCausalLM",
    "MobileBertModel", "ModernBertModel", "NystromformerModel", "OPTForCausalLM", "PhiForCausalLM", "Qwen2ForCausalLM",
    "RemBertModel", "RoFormerModel", "RobertaModel", "SqueezeBertModel", "T5EncoderModel", "XLMRobertaModel",
)  # fmt: skip
#: Those for pictures.
PICTURES = ("BeitModel", "ConvNextModel", "DeiTModel", "Dinov2Model", "ResNetModel", "SegformerModel", "ViTModel")
#: What makes a configuration small, where it has these.
SMALL: dict[str, Any] = {
    "hidden_size": 128, "d_model": 128, "n_embd": 128, "dim": 128, "embedding_size": 128, "embed_dim": 128,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "num_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256, "hidden_dim": 256,
    "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "d_ff": 256, "vocab_size": 1000, "pad_token_id": 0, "ffn_dim": 256,
    "true_hidden_size": 128, "intra_bottleneck_size": 128, "word_embed_proj_dim": 128, "d_kv": 32,
    "bos_token_id": 1, "eos_token_id": 2, "input_embedding_size": 128, "output_embedding_size": 128,
}  # fmt: skip
#: Configurations whose sizes belong together otherwise.
KEPT = {
    "SegformerModel": ("num_attention_heads", "hidden_size"),
    "ConvNextModel": (),
    "ResNetModel": ("embedding_size",),
    "MobileBertModel": ("embedding_size",),
}

#: A model, and what makes its inputs of a batch and a length.
Made = tuple[nn.Module, Callable[[int, int], tuple[Tensor, ...]]]


def names_of_timm(seed: int, count: int) -> list[str]:
    """Models of timm in the order in which a seed draws them."""
    import timm

    known = sorted(timm.list_models())
    random.Random(seed).shuffle(known)
    found = []
    for name in known:
        if len(found) == count:
            break
        with torch.device("meta"):
            try:
                parameters = sum(one.numel() for one in timm.create_model(name).parameters())
            except Exception:
                continue
        if parameters <= MOST_PARAMETERS:
            found.append(name)
    return found


def names_of_transformers(seed: int, count: int) -> list[str]:
    """Classes of transformers in the order in which a seed draws them."""
    known = [*TEXT, *PICTURES]
    random.Random(seed).shuffle(known)
    return known[:count]


def made(name: str, kind: str) -> Made:
    """A model in eval mode; the same weights for the same name."""
    torch.manual_seed(0)
    return _of_timm(name) if kind == "timm" else _of_transformers(name)


def _of_timm(name: str) -> Made:
    import timm

    model = settled(timm.create_model(name))
    size = timm.data.resolve_model_data_config(model)["input_size"]
    return model, lambda batch, _: (torch.randn(batch, *size),)


def _of_transformers(name: str) -> Made:
    import transformers

    cls = getattr(transformers, name)
    own = cls.config_class()
    left = KEPT.get(name, ())
    given = {one: value for one, value in SMALL.items() if hasattr(own, one) and one not in left}
    if name in ("ConvNextModel", "ResNetModel"):
        given = {}
    config = cls.config_class(**given)
    model = Outputs(settled(cls(config)), name)
    if name in PICTURES:
        size = getattr(config, "image_size", 224)
        return model, lambda batch, _: (torch.randn(batch, 3, size, size),)
    return model, lambda batch, length: (torch.randint(3, config.vocab_size, (batch, length)),)


class Outputs(nn.Module):
    """A model of transformers whose result is its first output."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = model
        self.fixed = {"use_cache": False} if "CausalLM" in name or "LMHead" in name else {}

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states, or logits."""
        found: Tensor = self.model(x, return_dict=True, **self.fixed)[0]
        return found


def settled(model: nn.Module) -> nn.Module:
    """The model with weights that are no constants, so that results say something, in eval mode."""
    with torch.no_grad():
        for name, one in [*model.named_parameters(), *model.named_buffers()]:
            if not one.is_floating_point() or one.numel() < 2 or one.std() > 1e-6:
                continue
            if name.endswith("running_var"):
                one.uniform_(0.5, 1.5)
            else:
                one.add_(torch.randn_like(one) * 0.1)
    return model.eval()
