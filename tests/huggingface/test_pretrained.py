"""`NeurenixModelForXxx.from_pretrained` and pipelines, against transformers, on models made from configurations."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

import torch
import transformers

import neurenix as nx
from neurenix import huggingface
from neurenix.huggingface import (
    NeurenixModelForFeatureExtraction,
    NeurenixModelForImageClassification,
    NeurenixModelForMaskedLM,
    NeurenixModelForQuestionAnswering,
    NeurenixModelForSequenceClassification,
    NeurenixModelForTokenClassification,
)

CHEAP: dict[str, Any] = {"optimization_level": 0, "timing_cache": False, "threads": 1, "device": "cpu"}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcde", *"good bad film who made it anna".split()]
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
BERT = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, num_labels=3, **SMALL)
ROBERTA = transformers.RobertaConfig(
    vocab_size=50, max_position_embeddings=66, type_vocab_size=1, num_labels=4, **SMALL
)
DISTILBERT = transformers.DistilBertConfig(
    vocab_size=len(WORDS), dim=32, n_layers=1, n_heads=2, hidden_dim=64, max_position_embeddings=64
)
Built = Callable[[Any, Any], tuple[Any, Any]]
VIT = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=5, **SMALL)

CASES = [
    (BERT, NeurenixModelForFeatureExtraction),
    (BERT, NeurenixModelForMaskedLM),
    (ROBERTA, NeurenixModelForTokenClassification),
    (DISTILBERT, NeurenixModelForQuestionAnswering),
    (VIT, NeurenixModelForImageClassification),
]


def saved(folder: Path, config: Any, kind: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, kind._auto).from_config(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Gives transformers' model of a configuration, and ours of its folder: exports take PyTorch most of a test."""
    made: dict[tuple[str, Any], tuple[Any, Any]] = {}

    def of(config: Any, kind: Any) -> tuple[Any, Any]:
        key = (config.model_type, kind)
        if key not in made:
            folder = tmp_path_factory.mktemp("model")
            model = saved(folder, config, kind)
            made[key] = model, kind.from_pretrained(folder, **CHEAP)
        return made[key]

    return of


def inputs(config: Any, batch: int, length: int) -> dict[str, torch.Tensor]:
    if config is VIT:
        return {"pixel_values": torch.randn(batch, 3, 32, 32)}
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[batch // 2 :, length - 2 :] = 0
    return {"input_ids": torch.randint(5, config.vocab_size, (batch, length)), "attention_mask": mask}


def same(found: Any, wanted: Any) -> None:
    assert list(found.keys()) == list(wanted.keys())
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("config", "kind"), CASES, ids=lambda one: getattr(one, "__name__", type(one).__name__))
def test_outputs_are_those_of_transformers(built: Built, config: Any, kind: Any) -> None:
    model, made = built(config, kind)
    with torch.no_grad():
        for batch, length in ((1, 7), (3, 64), (16, 5)):
            given = inputs(config, batch, length)
            same(made(**given), model(**given))


def test_an_engine_is_saved_and_opened(built: Built, tmp_path: Path) -> None:
    model, exported = built(BERT, NeurenixModelForSequenceClassification)
    exported.save_pretrained(tmp_path / "engine")
    assert sorted(path.name for path in (tmp_path / "engine").iterdir()) == [
        "config.json", "model.engine", "neurenix.json"
    ]  # fmt: skip
    made = NeurenixModelForSequenceClassification.from_pretrained(tmp_path / "engine", export=False, device="cpu")
    assert made.config.num_labels == 3
    given = inputs(BERT, 2, 9)
    same(made(**given), model(**given))
    with pytest.raises(nx.InvalidArgumentError, match="another task"):
        NeurenixModelForMaskedLM.from_pretrained(tmp_path / "engine", device="cpu")
    with pytest.raises(nx.InvalidArgumentError, match="built already"):
        NeurenixModelForSequenceClassification.from_pretrained(tmp_path / "engine", precision="bf16")
    (tmp_path / "engine" / "neurenix.json").write_text(json.dumps({"outputs": 3}))
    with pytest.raises(nx.FormatError, match="does not tell"):
        NeurenixModelForSequenceClassification.from_pretrained(tmp_path / "engine", device="cpu")


def test_pipelines_for_texts(built: Built, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, made = built(BERT, NeurenixModelForSequenceClassification)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    texts = ["good film", "who made it", "a bad b c d e film"]
    with caplog.at_level(logging.WARNING):
        ours = transformers.pipeline("text-classification", model=made, tokenizer=tokenizer)
    assert "not supported" not in caplog.text
    theirs = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    for batch in (1, 3):
        for one, other in zip(ours(texts, batch_size=batch), theirs(texts, batch_size=batch), strict=True):
            assert one["label"] == other["label"] and one["score"] == pytest.approx(other["score"], abs=1e-5)


def test_pipelines_for_answers_and_words(built: Built, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    for kind, task, given in (
        (NeurenixModelForTokenClassification, "token-classification", "anna made a film"),
        (NeurenixModelForMaskedLM, "fill-mask", "anna made [MASK] film"),
    ):
        model, made = built(BERT, kind)
        ours, theirs = (transformers.pipeline(task, model=m, tokenizer=tokenizer)(given) for m in (made, model))
        for one, other in zip(ours, theirs, strict=True):
            assert one["score"] == pytest.approx(other["score"], abs=1e-5)


def test_a_pipeline_for_pictures(built: Built) -> None:
    image = pytest.importorskip("PIL.Image")
    model, made = built(VIT, NeurenixModelForImageClassification)
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    picture = image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 40, 3), dtype=np.uint8))
    ours, theirs = (
        transformers.pipeline("image-classification", model=m, image_processor=processor)(picture)
        for m in (made, model)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert one["label"] == other["label"] and one["score"] == pytest.approx(other["score"], abs=1e-5)


def test_what_is_left_out_is_filled_in(built: Built) -> None:
    model, made = built(BERT, NeurenixModelForFeatureExtraction)
    ids = torch.randint(5, len(WORDS), (2, 6))
    with torch.no_grad():
        same(made(ids), model(ids))
        kinds = torch.ones_like(ids)
        same(made(input_ids=ids, token_type_ids=kinds), model(input_ids=ids, token_type_ids=kinds))
    assert isinstance(made(input_ids=ids.numpy()).last_hidden_state, np.ndarray)
    assert isinstance(made(ids, return_dict=False), tuple)
    with pytest.raises(nx.InvalidArgumentError, match="an input is missing"):
        made(attention_mask=kinds)
    with pytest.raises(nx.InvalidArgumentError, match="does not take this"):
        made(input_ids=ids, position_ids=kinds)
    with pytest.raises(nx.ShapeError):
        made(torch.ones(1, 65, dtype=torch.int64))


def test_shapes_that_are_given(tmp_path: Path) -> None:
    saved(tmp_path, BERT, NeurenixModelForFeatureExtraction)
    given = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (2, 8))
    made = NeurenixModelForFeatureExtraction.from_pretrained(tmp_path, shapes=given, **CHEAP)
    assert [port.shape for port in made.model.inputs] == [(2, 8)] * 3


def test_nothing_is_downloaded_and_no_code_of_a_folder_runs(tmp_path: Path) -> None:
    with pytest.raises(nx.FileError, match=r"(?s)nothing is downloaded.*hf download bert-base-uncased"):
        huggingface.NeurenixModel.from_pretrained("bert-base-uncased")
    with pytest.raises(nx.FileError, match="can't read the model"):
        NeurenixModelForMaskedLM.from_pretrained(tmp_path)
    with pytest.raises(nx.FileError, match="no engine"):
        NeurenixModelForMaskedLM.from_pretrained(tmp_path, export=False)
    (tmp_path / "code.py").write_text("raise SystemExit('executed')")
    about = {"model_type": "odd", "auto_map": {"AutoConfig": "code.C", "AutoModelForMaskedLM": "code.M"}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(nx.FileError, match="can't read the model"):
        NeurenixModelForMaskedLM.from_pretrained(tmp_path)


def test_models_of_other_inputs_are_refused() -> None:
    model = transformers.Wav2Vec2Model(
        transformers.Wav2Vec2Config(conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3), **SMALL)
    )
    with pytest.raises(nx.InvalidArgumentError, match="other inputs than text or pictures"):
        NeurenixModelForFeatureExtraction.from_model(model)
