"""PyTorch modules of which only shapes are given: ids and masks by their names, and errors that say what to write."""

from __future__ import annotations

import logging
import os
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_torch
from neurenix.shapes import Shape

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
transformers = pytest.importorskip("transformers")

BACKEND = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def bert() -> Any:
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(vocab_size=50, max_position_embeddings=32, **SIZES)).eval()


def dtypes(network: Any) -> dict[str, str]:
    return {tensor.name: str(tensor.dtype) for tensor in network.inputs}


def test_bert_given_shapes_alone() -> None:
    module = bert()
    shape = Shape((1, 2), (2, 8), (4, 32))
    model = BACKEND.optimize_model(module, {"input_ids": shape, "attention_mask": shape})
    assert [(port.name, port.dtype) for port in model.inputs] == [("input_ids", np.int64), ("attention_mask", np.int64)]
    for dims in ((2, 8), (4, 32), (1, 5)):
        ids, mask = torch.randint(1, 50, dims), torch.ones(dims, dtype=torch.int64)
        mask[:, -1] = 0
        with torch.no_grad():
            want = module(input_ids=ids, attention_mask=mask)
        got = model.run({"input_ids": ids, "attention_mask": mask})
        torch.testing.assert_close(got["output"], want.last_hidden_state, rtol=1e-4, atol=1e-5)


class Three(torch.nn.Module):  # type: ignore[misc]
    def forward(self, a: torch.Tensor, b: torch.Tensor | None = None, c: torch.Tensor | None = None) -> torch.Tensor:
        return a - (0 if b is None else 10 * b) - (0 if c is None else c)


@pytest.mark.parametrize("dynamo", [True, False])
def test_an_input_behind_one_that_is_left_out_goes_to_the_argument_of_its_name(dynamo: bool) -> None:
    shape = Shape((1, 3), (2, 3), (4, 3))
    network = from_torch(Three(), input_shapes={"c": shape, "a": shape}, dynamo=dynamo)
    assert [(t.name, t.shape) for t in network.inputs] == [("a", ("batch", 3)), ("c", ("batch", 3))]
    a, c = np.full((2, 3), 5, np.float32), np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(network.evaluate({"a": a, "c": c})["output"], np.full((2, 3), 4.0))


class Lookup(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(7, 3)

    def forward(self, item_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.where(mask[..., None], self.table(item_ids), 0.0)


def test_a_mask_that_must_be_bool_is_so() -> None:
    found = from_torch(Lookup(), input_shapes={"item_ids": (2, 4), "mask": (2, 4)})
    assert dtypes(found) == {"item_ids": "int64", "mask": "bool"}
    # Names of the user's own stand for the arguments in their order.
    assert dtypes(from_torch(Lookup(), input_shapes={"a": (2, 4), "b": (2, 4)})) == {"a": "int64", "b": "bool"}


class Added(torch.nn.Module):  # type: ignore[misc]
    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (scores + mask).softmax(-1)


def test_a_mask_that_may_be_numbers_is_so() -> None:
    found = from_torch(Added(), input_shapes={"scores": (2, 4), "mask": (2, 4)})
    assert dtypes(found) == {"scores": "float32", "mask": "float32"}


class Nameless(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(7, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.table(x).sum(-1) * y


def test_names_that_say_nothing_lead_to_the_line_to_write() -> None:
    shape = Shape((1, 4), (2, 4), (8, 4))
    with pytest.raises(nx.InvalidArgumentError, match="the module fails on inputs of these shapes") as caught:
        from_torch(Nameless(), input_shapes={"x": shape, "y": shape})
    hint = caught.value.hint
    assert hint is not None
    line = hint.partition("give them: ")[2]
    network = eval(line, {"neurenix": nx, "torch": torch, "module": Nameless()})
    assert dtypes(network) == {"x": "int64", "y": "float32"}
    assert [tensor.shape for tensor in network.inputs] == [("batch", 4), ("batch", 4)]


def test_a_wrong_shape_is_one_short_error(caplog: pytest.LogCaptureFixture) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    with caplog.at_level(logging.DEBUG, "neurenix"), pytest.raises(nx.InvalidArgumentError) as caught:
        BACKEND.optimize_model(module, {"input": (2, 9)})
    got = caught.value.got
    assert got is not None and got.startswith("input float32[2, 9]: RuntimeError: ")
    assert "mat1 and mat2 shapes cannot be multiplied (2x9 and 8x4)" in got
    assert caught.value.hint is None
    text = "".join(traceback.format_exception(caught.value))
    assert len(text.splitlines()) < 30
    assert f"site-packages{os.sep}torch" not in text
    # What torch raised is in the log, for who asks.
    assert any("mat1 and mat2" in str(record.exc_info[1]) for record in caplog.records if record.exc_info)


def test_a_wrong_shape_of_ids_names_what_was_tried_first() -> None:
    with pytest.raises(nx.InvalidArgumentError) as caught:
        from_torch(bert(), input_shapes={"input_ids": (1, 40)})
    assert caught.value.got is not None and caught.value.got.startswith("input_ids int64[1, 40]: RuntimeError: ")
    assert caught.value.hint is None


class KeyCache:
    """What torch knows no form for, as the caches of transformers."""


class Caching(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, parts: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(use_cache=True)
        self.part = Caching(parts - 1) if parts else torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> Any:
        found = self.part(x)
        return (found, KeyCache()) if self.config.use_cache else found


def test_a_module_that_gives_its_cache_is_refused_with_the_way_out() -> None:
    module = Caching(1)
    with pytest.raises(nx.UnsupportedError) as caught:
        from_torch(module, input_shapes={"x": (1, 4)}, dynamo=False)
    hint = caught.value.hint
    assert hint is not None
    for line in hint.rpartition(": ")[2].split("; "):
        exec(line, {"module": module})
    assert from_torch(module, input_shapes={"x": (1, 4)}, dynamo=False).outputs["output"].shape == (1, 4)


def test_weights_and_examples_on_the_meta_device_are_refused() -> None:
    with torch.device("meta"):
        module = torch.nn.Linear(3, 2)
    with pytest.raises(nx.InvalidArgumentError, match="weights of the module have no elements") as caught:
        from_torch(module, input_shapes={"x": (1, 3)})
    assert caught.value.tensor == "weight, bias"
    with pytest.raises(nx.InvalidArgumentError, match="the tensor has no elements") as caught:
        from_torch(torch.nn.Linear(3, 2), {"input": torch.zeros(1, 3, device="meta")})
    assert caught.value.tensor == "input"
