"""Further models with random weights: those of timm and transformers that the zoo lacks, and exports of any length.

`MORE` has a model of each architecture at one size; `LONG` has models whose lengths, sizes or times are dynamic.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo_models import (
    BERT_SMALL,
    LLAMA,
    LLAMA_SMALL,
    TWO,
    VIT_SMALL,
    Adapter,
    Entry,
    Input,
    configured,
    encoder_of_whisper,
    image_model,
    language,
    mask,
    numbers,
    picture,
    tokens,
)

#: Steps of a diffusion model's schedule.
TIMES = 1000

#: Models of timm: the size of their pictures.
TIMM: dict[str, int] = {
    "beit_base_patch16_224": 224,
    "cait_xxs24_224": 224,
    "coat_lite_tiny": 224,
    "coatnet_0_rw_224": 224,
    "convmixer_768_32": 224,
    "convnextv2_nano": 224,
    "cspdarknet53": 224,
    "davit_tiny": 224,
    "deit3_small_patch16_224": 224,
    "densenet169": 224,
    "dla34": 224,
    "dpn68": 224,
    "edgenext_x_small": 224,
    "eva02_tiny_patch14_224": 224,
    "fastvit_t8": 224,
    "focalnet_tiny_srf": 224,
    "gcvit_xxtiny": 224,
    "ghostnet_100": 224,
    "hrnet_w18_small": 224,
    "inception_v4": 299,
    "levit_128s": 224,
    "maxvit_tiny_tf_224": 224,
    "mixer_b16_224": 224,
    "mobilenetv4_conv_small": 224,
    "mobilevit_xs": 224,
    "mobilevitv2_100": 224,
    "mvitv2_tiny": 224,
    "nfnet_l0": 224,
    "poolformer_s12": 224,
    "pvt_v2_b0": 224,
    "regnety_008": 224,
    "repvgg_a0": 224,
    "res2net50_26w_4s": 224,
    "resnest14d": 224,
    "resnext50_32x4d": 224,
    "rexnet_100": 224,
    "seresnet50": 224,
    "swinv2_tiny_window8_256": 256,
    "tf_efficientnetv2_b0": 224,
    "twins_svt_small": 224,
    "vit_small_patch16_224": 224,
    "volo_d1_224": 224,
    "xcit_nano_12_p16_224": 224,
}


def timm_model(name: str, size: int) -> Entry:
    """A classifier of timm."""

    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False)

    return Entry(make, {"input": picture("batch", 3, size, size)}, TWO)


def encoder_of_bart() -> nn.Module:
    """BART-base's encoder."""
    from transformers import BartConfig
    from transformers.models.bart.modeling_bart import BartEncoder

    config = BartConfig(d_model=768, encoder_layers=6, encoder_attention_heads=12, encoder_ffn_dim=3072)
    return Adapter(BartEncoder(config), "input_ids attention_mask", "last_hidden_state")


def sound(model: str, options: dict[str, Any], small: dict[str, Any]) -> Entry:
    """A model of transformers on half a second of sound."""

    def make(options: dict[str, Any]) -> nn.Module:
        return Adapter(configured(model, options), "input_values", "last_hidden_state")

    wave = {"input_values": numbers("batch", 8000)}
    return Entry(lambda: make(options), wave, TWO, lambda: make(options | small), wave, TWO)


def times(*shape: int | str) -> Input:
    """Steps of a diffusion, the first and the last one among several."""

    def fill(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        drawn = torch.randint(0, TIMES, shape, generator=generator)
        ends = torch.tensor([TIMES - 1, 0])[: shape[0]]
        drawn[: len(ends)] = ends
        return drawn

    return Input(shape, fill)


class Residual(nn.Module):
    """Two convolutions behind GroupNorm and SiLU; the time is added between them."""

    def __init__(self, channels: int, out: int, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(width, out))
        self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.first(x) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.second(hidden)


class Attention(nn.Module):
    """Pixels attend to all pixels, and to the words of a text."""

    def __init__(self, channels: int, context: int, heads: int = 4) -> None:
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, channels), heads
        self.norms = nn.ModuleList([nn.LayerNorm(channels), nn.LayerNorm(channels)])
        self.query = nn.ModuleList([nn.Linear(channels, channels, bias=False) for _ in range(2)])
        self.key_value = nn.ModuleList([nn.Linear(c, 2 * channels, bias=False) for c in (channels, context)])
        self.out = nn.ModuleList([nn.Linear(channels, channels) for _ in range(2)])

    def attend(self, at: int, x: Tensor, context: Tensor) -> Tensor:
        """One of the two attentions."""

        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        key, value = self.key_value[at](context).chunk(2, -1)
        found = nn.functional.scaled_dot_product_attention(split(self.query[at](x)), split(key), split(value))
        return self.out[at](found.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        flat = self.norm(x).flatten(2).transpose(1, 2)
        normed = self.norms[0](flat)
        flat = flat + self.attend(0, normed, normed)
        flat = flat + self.attend(1, self.norms[1](flat), context)
        return x + flat.transpose(1, 2).reshape(x.shape)


class DiffusionUNet(nn.Module):
    """What a latent diffusion model calls in each step: noise, its time and a text -> the noise to take away."""

    def __init__(self, channels: int = 64, stages: int = 3, context: int = 256) -> None:
        super().__init__()
        widths = [channels * 2**stage for stage in range(stages)]
        time = 4 * channels
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, channels, 3, padding=1)
        self.down = nn.ModuleList(Residual(a, b, time) for a, b in zip([channels, *widths[:-1]], widths, strict=True))
        self.shrink = nn.ModuleList(nn.Conv2d(w, w, 3, stride=2, padding=1) for w in widths[:-1])
        self.middle = Residual(widths[-1], widths[-1], time)
        self.attention = nn.ModuleList(Attention(w, context) for w in widths[1:])
        self.up = nn.ModuleList(Residual(w + n, n, time) for w, n in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.last = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1))

    def embedded(self, time: Tensor, like: Tensor) -> Tensor:
        """Sines and cosines of a time, computed in float32 as diffusers does."""
        half = self.channels // 2
        steps = torch.arange(half, dtype=torch.float32, device=time.device)
        angles = time[:, None].float() * torch.exp(steps * (-math.log(10_000) / half))
        return self.time(torch.cat((angles.cos(), angles.sin()), -1).to(like.dtype))

    def forward(self, sample: Tensor, time: Tensor, text: Tensor) -> Tensor:
        embedded = self.embedded(time, sample)
        x = self.first(sample)
        skips = []
        for at, block in enumerate(self.down):
            x = block(x, embedded)
            if at:
                x = self.attention[at - 1](x, text)
            if at < len(self.shrink):
                skips.append(x)
                x = self.shrink[at](x)
        x = self.middle(x, embedded)
        for block in self.up:
            x = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat((x, skips.pop()), 1), embedded)
        return self.last(x)


def diffusion(sizes: list[dict[str, int]], words: int | str, side: tuple[int | str, int | str]) -> Entry:
    """A diffusion model's network."""

    def inputs(context: int) -> dict[str, Input]:
        return {
            "sample": numbers("batch", 4, *side),
            "time": times("batch"),
            "text": numbers("batch", words, context),
        }

    small = [{name: min(size, 16) for name, size in each.items()} for each in sizes]
    return Entry(DiffusionUNet, inputs(256), sizes, lambda: DiffusionUNet(16, 2, 32), inputs(32), small)


def whisper_long(positions: int = 1024, small: int = 16) -> Entry:
    """Whisper's encoder with so many positions, which are half the frames; it takes no other length."""
    little = {"d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 128}
    return Entry(
        lambda: encoder_of_whisper(max_source_positions=positions),
        {"input": numbers("batch", 80, 2 * positions)},
        TWO,
        lambda: encoder_of_whisper(max_source_positions=small, **little),
        {"input": numbers("batch", 80, 2 * small)},
        TWO,
    )


def lengths(entry: Entry, most: int = 1024) -> Entry:
    """A model for text at lengths up to the most that it takes."""
    sizes = [{"batch": 1, "sequence": most}, {"batch": 1, "sequence": 128}, {"batch": 3, "sequence": 37}]
    return replace(entry, sizes=sizes)


def text_model(model: str, options: dict[str, Any], outputs: str = "last_hidden_state", **small: Any) -> Entry:
    """A model of transformers for text and its mask; `small` changes its configuration."""
    return language(model, options, "input_ids attention_mask", outputs, **small)


def vision_model(model: str, outputs: str, **small: Any) -> Entry:
    """A model of transformers for pictures; `small` changes its configuration."""
    return image_model(model, "pixel_values", outputs, {"input": picture("batch", 3, 224, 224)}, **small)


DECODER: dict[str, Any] = {
    "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 8000,
}  # fmt: skip
DECODER_SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BLOOM: dict[str, Any] = {"hidden_size": 512, "n_layer": 6, "n_head": 8, "vocab_size": 8000}
OPT: dict[str, Any] = {
    "hidden_size": 512, "ffn_dim": 2048, "num_hidden_layers": 6, "num_attention_heads": 8, "word_embed_proj_dim": 512,
    "vocab_size": 8000,
}  # fmt: skip
DEBERTA: dict[str, Any] = {
    "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 1536,
    "relative_attention": True, "position_buckets": 64, "max_relative_positions": -1, "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False, "norm_rel_ebd": "layer_norm", "share_att_key": True, "vocab_size": 8000,
}  # fmt: skip
SOUND_SMALL: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}

TRANSFORMERS: dict[str, Entry] = {
    "albert": text_model(
        "AlbertModel",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        **BERT_SMALL,
        embedding_size=16,
    ),
    "bart_encoder": Entry(
        encoder_of_bart,
        {"input_ids": tokens(1000, "batch", "sequence"), "attention_mask": mask("batch", "sequence")},
        [{"batch": 1, "sequence": 128}, {"batch": 3, "sequence": 37}],
    ),
    "bert_small": text_model("BertModel", {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}),
    "bloom": text_model("BloomForCausalLM", BLOOM, "logits"),
    "convbert": text_model("ConvBertModel", {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6}),
    "deberta_v2": text_model("DebertaV2Model", DEBERTA),
    "electra": text_model("ElectraModel", {}, **BERT_SMALL, embedding_size=16),
    "gemma": text_model("GemmaForCausalLM", LLAMA | {"head_dim": 64}, "logits", **LLAMA_SMALL, head_dim=8),
    "gpt_neox": text_model("GPTNeoXForCausalLM", DECODER, "logits", **DECODER_SMALL),
    "mistral": text_model("MistralForCausalLM", LLAMA | {"sliding_window": 64}, "logits", **LLAMA_SMALL),
    "mobilebert": text_model("MobileBertModel", {"num_hidden_layers": 6}),
    "modernbert": text_model(
        "ModernBertModel",
        {"hidden_size": 384, "intermediate_size": 576, "num_hidden_layers": 6, "num_attention_heads": 6},
    ),
    "mpnet": text_model("MPNetModel", {}, **BERT_SMALL),
    "opt": text_model("OPTForCausalLM", OPT, "logits"),
    "phi": text_model("PhiForCausalLM", DECODER, "logits"),
    "qwen2": text_model("Qwen2ForCausalLM", LLAMA, "logits", **LLAMA_SMALL),
    "squeezebert": text_model("SqueezeBertModel", {"num_hidden_layers": 6}),
    "dinov2": vision_model("Dinov2Model", "last_hidden_state"),
    "segformer": vision_model("SegformerForSemanticSegmentation", "logits"),
    "siglip_vision": vision_model("SiglipVisionModel", "last_hidden_state", **VIT_SMALL),
    "swin": vision_model("SwinModel", "last_hidden_state"),
    "vit_msn": vision_model("ViTMSNModel", "last_hidden_state", **VIT_SMALL),
    "yolos": Entry(
        lambda: Adapter(configured("YolosModel", {"image_size": [224, 224]}), "pixel_values", "last_hidden_state"),
        {"input": picture("batch", 3, 224, 224)},
        TWO,
    ),
    "hubert": sound("HubertModel", {"num_hidden_layers": 4}, SOUND_SMALL),
    "wav2vec2": sound("Wav2Vec2Model", {"num_hidden_layers": 4}, SOUND_SMALL),
    "whisper_base_encoder": Entry(
        lambda: encoder_of_whisper(
            d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048, max_source_positions=750
        ),
        {"input": numbers("batch", 80, 1500)},
        TWO,
    ),
}

MORE: dict[str, Entry] = {
    **{name: timm_model(name, size) for name, size in TIMM.items()},
    **TRANSFORMERS,
    "diffusion_unet": diffusion([{"batch": 1}, {"batch": 2}], 77, (32, 32)),
}

LONG: dict[str, Entry] = {
    "bert_long": lengths(text_model("BertModel", {"max_position_embeddings": 1024}, **BERT_SMALL)),
    "llama_long": lengths(text_model("LlamaForCausalLM", LLAMA, "logits", **LLAMA_SMALL)),
    "whisper_long": whisper_long(),
    "diffusion_long": diffusion(
        [
            {"batch": 2, "height": 64, "width": 64, "words": 77},
            {"batch": 1, "height": 32, "width": 32, "words": 1024},
            {"batch": 4, "height": 16, "width": 48, "words": 9},
        ],
        "words",
        ("height", "width"),
    ),
}

#: The package besides PyTorch and torchvision that a model needs.
PACKAGES: dict[str, str] = {
    **dict.fromkeys(TIMM, "timm"),
    **dict.fromkeys([*TRANSFORMERS, "bert_long", "llama_long", "whisper_long"], "transformers"),
    "minilm": "all_minilm_l6_v2",
}

#: Models that ours refuses, and why; they run where they are named.
REFUSED: dict[str, str] = {
    "nfnet_l0": "BatchNormalization with training_mode 1, by which timm standardizes weights",
}


def missing(names: list[str]) -> dict[str, list[str]]:
    """The models among these that can't be made, by the package that is not installed."""
    found: dict[str, list[str]] = {}
    for name in names:
        package = PACKAGES.get(name)
        if package and importlib.util.find_spec(package) is None:
            found.setdefault(package, []).append(name)
    return found
