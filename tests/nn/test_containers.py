"""Modules that hold others, and the lists of weights and buffers, are as PyTorch's."""

import copy
from typing import Any

import numpy as np

from neurenix import nn
from tests.optional import torch


def test_containers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert [name for name, _ in model[1:].named_children()] == ["1", "2"] and model[-1] is model[2]
    parts = nn.ModuleList([nn.ReLU()])
    parts.insert(0, nn.Tanh())
    parts[1] = nn.Linear(2, 3)
    assert [type(part).__name__ for part in parts] == ["Tanh", "Linear"] and parts[1] is parts[-1]
    named = nn.ModuleDict({"a": nn.ReLU()})
    named["b"] = nn.Linear(2, 3)
    assert list(named) == ["a", "b"] and "b" in named and list(named.keys()) == ["a", "b"]

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = nn.ParameterList([np.ones(2, np.float32), torch.ones(2)])
            self.named = nn.ParameterDict({"shift": np.zeros(2, np.float32)})
            self.register_buffer("seen", np.zeros(2, np.float32), persistent=False)

        def forward(self, x: Any) -> Any:
            for scale in self.scales:
                x = x * scale
            return x + self.named["shift"] + self.seen

    scaled = Scaled()
    assert list(scaled.state_dict()) == ["scales.0", "scales.1", "named.shift"]
    told = scaled.load_state_dict({"scales.0": np.full(2, 3.0), "more": np.zeros(1)}, strict=False)
    assert told == (["scales.1", "named.shift"], ["more"])
    assert nn.trace(scaled, (2,)).evaluate({"input": np.ones(2, np.float32)})["output"].tolist() == [3, 3]
    twin = copy.deepcopy(scaled)
    twin.load_state_dict({"scales.0": np.full(2, 5.0)}, strict=False)
    assert scaled.scales[0].tolist() == [3, 3] and twin.scales[0].tolist() == [5, 5]


def edited(library: Any) -> list[Any]:
    """What becomes of a Sequential in either library."""
    model = library.Sequential(library.ReLU(), library.Tanh(), library.Linear(2, 2))
    seen = [type(model.pop(1)).__name__]

    def look() -> None:
        seen.append([(name, type(part).__name__) for name, part in model.named_children()])

    look()
    model.insert(0, library.ELU())
    model.append(library.GELU())
    look()
    del model[-1]
    look()
    model.extend([library.SELU(), library.Mish()])
    model += library.Sequential(library.Sigmoid())
    model = model + library.Sequential(library.Softsign())
    look()
    del model[1:3]
    look()
    return seen


def test_modules_are_taken_out_and_put_in_as_in_pytorch() -> None:
    assert edited(nn) == edited(torch.nn)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    delattr(model, "0")
    assert list(model.state_dict()) == ["1.weight", "1.bias"]


def test_weights_and_buffers_are_listed_apart() -> None:
    def listed(library: Any) -> list[Any]:
        shared = library.Linear(2, 2)
        model = library.Sequential(shared, library.BatchNorm1d(2), shared)
        return [
            [name for name, _ in model.named_parameters("all")],
            [name for name, _ in model.named_parameters(recurse=False)],
            [name for name, _ in model[1].named_parameters(remove_duplicate=False)],
            [name for name, _ in model.named_buffers() if "tracked" not in name],
            list(model.state_dict())[-2:],
            tuple(model.get_parameter("1.weight").shape),
            tuple(model.get_buffer("1.running_mean").shape),
            len(list(model.parameters())),
        ]

    assert listed(nn) == listed(torch.nn)
    assert len(list(nn.BatchNorm1d(2).buffers())) == 2
