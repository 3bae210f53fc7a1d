"""A training project in the shape of Lightning's and Hydra's templates, which tests write into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MODELS = """
import torch
from lightning import LightningModule


class Net(torch.nn.Module):
    def __init__(self, width=4, axes=2, activation=None):
        super().__init__()
        convolution = getattr(torch.nn, f"Conv{axes}d")
        self.first = convolution(1, width, 3, padding=1)
        self.activation = activation or torch.nn.ReLU()
        self.last = convolution(width, 1, 3, padding=1)

    def forward(self, x):
        return self.last(self.activation(self.first(x)))


class LabelFree(LightningModule):
    def __init__(self, net, optimizer=None, loss_weight=1.0):
        super().__init__()
        self.save_hyperparameters(ignore=["net", "optimizer"])
        self.net = net
        self.optimizer = optimizer

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return self(batch).square().mean()

    def configure_optimizers(self):
        return self.optimizer(params=self.parameters())


def listed(pairs):
    return {name: scale for name, scale in pairs}


class Heads(LightningModule):
    def __init__(self, net, scales, save_dir, optimizer=None):
        super().__init__()
        self.net, self.scales = net, scales

    def forward(self, x, run_heads):
        features = self.net(x)
        return {name: features * self.scales[name] for name in run_heads}


def dangerous():
    raise SystemExit("this function ran")
"""

EXPERIMENT = """
model:
  _target_: cells.models.LabelFree
  net:
    _target_: cells.models.Net
    width: ${width}
    axes: %d
    activation:
      _target_: torch.nn.GELU
  optimizer:
    _target_: torch.optim.Adam
    _partial_: true
    lr: 1e-3
width: 6
trainer:
  callbacks: ${oc.env:NOT_SET_ANYWHERE}
"""

#: As toolkits have them: folders that only a run knows, an interpolation of their own, and helpers beside arguments.
HEADS = """
# @package _global_
defaults: []
paths:
  output_dir: ${hydra:runtime.output_dir}
model:
  _target_: cells.models.Heads
  net:
    _target_: cells.models.Net
    width: 6
    activation:
      _target_: torch.nn.GELU
  scales: ${listed:${model._aux.tasks}}
  save_dir: ${paths.output_dir}
  _aux:
    tasks: [[signal, 2.0], [mask, 3.0]]
"""


def write(folder: Path) -> Any:
    """Writes the project, trains a step and keeps a checkpoint of Lightning's; gives the trained module."""
    import sys

    import lightning
    import torch

    (folder / "cells").mkdir()
    (folder / "cells/__init__.py").touch()
    (folder / "cells/models.py").write_text(MODELS)
    experiments = folder / "configs/experiment/im2im"
    experiments.mkdir(parents=True)
    for name, axes in (("labelfree", 2), ("segmentation", 3), ("mae", 3)):
        (experiments / f"{name}.yaml").write_text(EXPERIMENT % axes)
    (folder / "configs/model").mkdir()
    (folder / "configs/model/base.yaml").write_text(EXPERIMENT.partition("width: 6")[0].replace("model:\n", "") % 2)
    root = "defaults:\n  - _self_\n  - model: base\n  - experiment: null\nwidth: 3\n"
    (folder / "configs/train.yaml").write_text(root)
    (experiments / "composed.yaml").write_text("# @package _global_\ndefaults: []\nwidth: 6\n")
    (experiments / "heads.yaml").write_text(HEADS)
    sys.path.insert(0, str(folder))
    try:
        sys.modules.pop("cells", None)
        sys.modules.pop("cells.models", None)
        from cells.models import LabelFree, Net  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(folder))
    torch.manual_seed(0)
    trained = {}
    for name, axes in (("labelfree", 2), ("segmentation", 3)):
        module = LabelFree(Net(6, axes, torch.nn.GELU()), torch.optim.Adam)
        trainer = lightning.Trainer(
            max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
            enable_model_summary=False,
        )  # fmt: skip
        data = torch.utils.data.DataLoader(torch.randn(2, 1, *[16] * axes), batch_size=1)
        trainer.fit(module, data)
        trainer.save_checkpoint(folder / f"{name}.ckpt")
        trained[name] = module.cpu().eval()
    return trained
