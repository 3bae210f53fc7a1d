"""Positions to 1,023, times to 999 and masks in bf16 and fp16: no further from double precision than PyTorch is."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import Network, Shape
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")

from benchmarks.zoo import unlogged  # noqa: E402

#: Times PyTorch's own error, relative root mean square against double precision.
SHARE = 1.1
LENGTH = 1024
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
SMALL: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 500,
    "max_position_embeddings": LENGTH, "initializer_range": 0.2,
}  # fmt: skip


class Language(torch.nn.Module):
    """A model of transformers that takes ids and a mask."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        make = getattr(transformers, kind)
        self.inner = make(make.config_class(**SMALL | options, attn_implementation="eager"))

    def forward(self, ids: Any, mask: Any) -> Any:
        return self.inner(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state


class Speech(torch.nn.Module):
    """Whisper: convolutions and positions of the sound, then tokens."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.WhisperConfig(
            d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=500, num_mel_bins=16, max_source_positions=100,
            max_target_positions=LENGTH, pad_token_id=1, bos_token_id=0, eos_token_id=1, decoder_start_token_id=1,
            attn_implementation="eager", init_std=0.2,
        )  # fmt: skip
        self.inner = transformers.WhisperModel(config)

    def forward(self, sound: Any, ids: Any) -> Any:
        seen = torch.ones_like(ids)
        found = self.inner(sound, decoder_input_ids=ids, decoder_attention_mask=seen, use_cache=False)
        return found.last_hidden_state


class Diffusion(torch.nn.Module):
    """A step of a denoiser: the time as waves, which scale the features of a picture."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.half = width
        self.time = torch.nn.Sequential(
            torch.nn.Linear(2 * width, 2 * width), torch.nn.SiLU(), torch.nn.Linear(2 * width, width)
        )
        self.into = torch.nn.Conv2d(4, width, 3, padding=1)
        self.norm = torch.nn.GroupNorm(8, width)
        self.out = torch.nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, picture: Any, time: Any) -> Any:
        places = torch.arange(self.half, dtype=torch.float32)
        waves = torch.exp(-math.log(10000.0) * places / self.half)
        angles = time[:, None].float() * waves[None, :]
        # As diffusers does: in float32, then as the weights are.
        embedded = torch.cat([angles.sin(), angles.cos()], -1).to(self.time[0].weight.dtype)
        scale = self.time(embedded)[:, :, None, None]
        x = self.into(picture)
        return self.out(torch.nn.functional.silu(self.norm(x) * (1 + scale)))


def ids(batch: int, length: int) -> Any:
    return torch.randint(2, 500, (batch, length))


def padded(batch: int, length: int) -> Any:
    """The first is whole; the others end earlier and earlier."""
    ends = length - torch.arange(batch) * length // (2 * batch)
    return (torch.arange(length) < ends[:, None]).to(torch.int64)


def times(batch: int) -> Any:
    return torch.tensor([999, 1, 500, 257, 998, 750][:batch])


#: The model, its inputs at a size, the names of the inputs and their dynamic axes.
MODELS: dict[str, tuple[Any, Any, dict[str, dict[int, str]]]] = {
    "llama": (
        lambda: Language("LlamaModel", num_key_value_heads=2),
        lambda n: (ids(2, n), padded(2, n)),
        {"ids": {0: "b", 1: "s"}, "mask": {0: "b", 1: "s"}},
    ),
    "bert": (
        lambda: Language("BertModel"),
        lambda n: (ids(2, n), padded(2, n)),
        {"ids": {0: "b", 1: "s"}, "mask": {0: "b", 1: "s"}},
    ),
    "whisper": (Speech, lambda n: (torch.randn(2, 16, 200), ids(2, n)), {"sound": {0: "b"}, "ids": {0: "b", 1: "s"}}),
    "diffusion": (
        Diffusion,
        lambda n: (torch.randn(max(2, n // 200), 4, 16, 16), times(max(2, n // 200))),
        {"picture": {0: "b"}, "time": {0: "b"}},
    ),
}


def exported(name: str, folder: Path) -> tuple[Any, Path]:
    make, inputs, axes = MODELS[name]
    torch.manual_seed(0)
    module, path = make().eval(), folder / f"{name}.onnx"
    with unlogged():
        torch.onnx.export(
            module, inputs(12), path, input_names=list(axes), dynamic_axes=axes, opset_version=17, dynamo=False
        )
    return module, path


def error(got: Any, want: Any) -> float:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.sqrt(((got - want) ** 2).sum() / (want**2).sum()))


def in_precision(module: Any, given: tuple[Any, ...], dtype: Any) -> Any:
    module = copy.deepcopy(module).to(dtype)
    with torch.inference_mode():
        return module(*(x.to(dtype) if x.is_floating_point() else x for x in given)).double().numpy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lowered")


@pytest.mark.parametrize("name", MODELS)
def test_no_further_off_than_pytorch(name: str, folder: Path) -> None:
    """At two lengths by one engine; whatever this machine computes the precision in."""
    module, path = exported(name, folder)
    inputs, axes = MODELS[name][1:]
    for precision, dtype in PRECISIONS.items():
        optimized = TensorRTBackend(verify=False, optimization_level=0, timing_cache=False).optimize_model(
            path, shapes(inputs, axes), precision=precision
        )
        for length in (37, LENGTH):
            torch.manual_seed(length)
            given = inputs(length)
            want = in_precision(module, given, torch.float64)
            theirs = error(in_precision(module, given, dtype), want)
            ours = error(optimized.run({k: x.numpy() for k, x in zip(axes, given, strict=True)}).popitem()[1], want)
            assert ours <= SHARE * theirs, f"{precision}, {length}: {ours:.2e}, PyTorch {theirs:.2e}"


def shapes(inputs: Any, axes: Any) -> dict[str, Shape]:
    """From the least sizes to the greatest."""
    low, high = inputs(2), inputs(LENGTH)
    ends = zip(low, high, strict=True)
    return {
        k: Shape(min=(1, *lo.shape[1:]), opt=tuple(hi.shape), max=tuple(hi.shape))
        for k, (lo, hi) in zip(axes, ends, strict=True)
    }


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", MODELS)
def test_each_layer_as_the_graph_says(name: str, precision: str, folder: Path) -> None:
    """Every tensor rounded to the dtype that the passes gave it, also where this machine computes in a wider one."""
    module, path = exported(name, folder)
    inputs, axes = MODELS[name][1:]
    torch.manual_seed(3)
    given = inputs(300 if name != "diffusion" else LENGTH)
    want = in_precision(module, given, torch.float64)
    theirs = error(in_precision(module, given, PRECISIONS[precision]), want)
    network: Network = from_onnx(path)
    network.simplify({"bf16": "bfloat16", "fp16": "float16"}[precision])
    got = network.evaluate({k: x.numpy() for k, x in zip(axes, given, strict=True)}).popitem()[1]
    ours = error(got, want)
    lowered = sum(layer.outputs[0].dtype.name != "float32" for layer in network.layers if layer.op == "MatMul")
    assert lowered > 4 or name == "diffusion", "nothing was lowered"
    assert ours <= SHARE * theirs, f"{ours:.2e}, PyTorch {theirs:.2e}"
