"""Prediction of a LightningModule in engines, and what scripts do: `model.model = torch.jit.load(...)`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("lightning")

import torch
from lightning import pytorch as pl

import neurenix as nx
import neurenix.torch_tensorrt as torch_tensorrt
from neurenix.lightning import NeurenixCallback
from neurenix.torch import counters
from tests.torch_tensorrt.models import QUICK, net, pictures


class Module(pl.LightningModule):
    """Predicts with a network."""

    def __init__(self) -> None:
        super().__init__()
        self.model = net()

    def forward(self, x: Any) -> Any:
        """The network's logits."""
        return self.model(x)

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        """The same."""
        return self(batch)

    test_step = validation_step = predict_step


def trainer(folder: Path, *callbacks: Any) -> Any:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return pl.Trainer(
        accelerator="auto", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=list(callbacks), default_root_dir=folder,
    )  # fmt: skip


def loader(rows: Any) -> Any:
    return torch.utils.data.DataLoader(rows, batch_size=2)


def same(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("submodules", [(), "model", ["model.conv", "model.out"]], ids=str)
def test_prediction_runs_in_engines(tmp_path: Path, submodules: Any) -> None:
    torch._dynamo.reset()
    module, data = Module(), loader(pictures(6))
    wanted = trainer(tmp_path).predict(module, data)
    before = counters().get("engines_built", 0)
    callback = NeurenixCallback(submodules, **QUICK)
    same(trainer(tmp_path, callback).predict(module, data), wanted)
    assert counters()["engines_built"] == before + (2 if isinstance(submodules, list) else 1)
    assert all(one._compiled_call_impl is None for one in module.modules())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_stages_that_are_not_asked_for_stay_in_torch(tmp_path: Path) -> None:
    torch._dynamo.reset()
    before = counters().get("graphs", 0)
    callback = NeurenixCallback(stages=["test"], **QUICK)
    trainer(tmp_path, callback).predict(Module(), loader(pictures()))
    assert counters().get("graphs", 0) == before
    trainer(tmp_path, callback).test(Module(), loader(pictures()), verbose=False)
    assert counters()["graphs"] == before + 1


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(nx.InvalidArgumentError, match="no stage 'predct'"):
        NeurenixCallback(stages=["predct"])
    with pytest.raises(nx.InvalidArgumentError, match="no option 'precison'"):
        NeurenixCallback(precison="fp16")
    with pytest.raises(nx.InvalidArgumentError, match=r"(?s)no submodule 'modl'.*model"):
        trainer(tmp_path, NeurenixCallback("modl", **QUICK)).predict(Module(), loader(pictures()))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_model_that_is_replaced_by_a_file(tmp_path: Path) -> None:
    module, data = Module(), loader(pictures(4))
    wanted = trainer(tmp_path).predict(module, data)
    torch.jit.save(torch_tensorrt.compile(net(), inputs=[pictures()], **QUICK), tmp_path / "m.ts")
    module.model = torch.jit.load(tmp_path / "m.ts")
    same(trainer(tmp_path).predict(module, data), wanted)
