"""torch.export programs keep their names, dtypes and ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.cli.models import load_model
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_exported_program
from neurenix.shapes import Shape

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

BACKEND = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)


class Words(torch.nn.Module):  # type: ignore[misc]
    """Inputs of three dtypes, one of them by name alone, and results in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, *, scale: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        assert attention_mask is not None
        found = self.table(input_ids) * attention_mask[..., None] * scale
        return {"states": found, "pooled": found.sum(1)}


def words(batch: Any, length: Any) -> Any:
    given = {"attention_mask": torch.ones(2, 6, dtype=torch.bool), "scale": torch.tensor(2.0)}
    open_ones = {0: batch, 1: length}
    return torch.export.export(
        Words().eval(),
        (torch.zeros(2, 6, dtype=torch.int32),),
        given,
        dynamic_shapes={"input_ids": open_ones, "attention_mask": open_ones, "scale": None},
    )


@pytest.fixture(scope="module")
def program() -> Any:
    return words(torch.export.Dim("batch", min=1, max=16), torch.export.Dim("length", min=3, max=64))


def test_names_dtypes_and_ranges_are_kept(program: Any) -> None:
    network = from_exported_program(program)
    found = [(t.name, str(t.dtype), t.shape) for t in network.inputs]
    assert found == [
        ("input_ids", "int32", ("batch", "length")),
        ("attention_mask", "bool", ("batch", "length")),
        ("scale", "float32", ()),
    ]
    assert list(network.outputs) == ["output", "output_1"]
    assert network.symbols == {"batch": (1, 2, 16), "length": (3, 6, 64)}
    assert BACKEND.optimize_model(program).profiles == [network.symbols]


def test_a_file_keeps_what_torch_writes_into_it(program: Any, tmp_path: Path) -> None:
    """torch.export.save writes the ranges, but not what the user called them."""
    path = tmp_path / "words.pt2"
    torch.export.save(program, path)
    network = from_exported_program(load_model(str(path)))
    assert [(t.name, str(t.dtype)) for t in network.inputs] == [
        ("input_ids", "int32"),
        ("attention_mask", "bool"),
        ("scale", "float32"),
    ]
    assert list(network.symbols.values()) == [(1, 2, 16), (3, 6, 64)]


def test_results_at_the_ends_of_the_ranges_are_torch_s(program: Any) -> None:
    model = BACKEND.optimize_model(program)
    for batch, length in ((1, 3), (16, 64), (5, 7)):
        ids = torch.randint(0, 10, (batch, length), dtype=torch.int32)
        mask, scale = torch.rand(batch, length) > 0.5, torch.tensor(3.0)
        want = program.module()(ids, attention_mask=mask, scale=scale)
        got = model.run({"input_ids": ids, "attention_mask": mask, "scale": scale})
        torch.testing.assert_close(list(got.values()), [value.detach() for value in want.values()])


def test_a_profile_above_the_range_is_refused(program: Any) -> None:
    shapes = {name: Shape((1, 3), (2, 6), (32, 6)) for name in ("input_ids", "attention_mask")}
    with pytest.raises(nx.ShapeError, match="a greater size than the model states") as caught:
        BACKEND.optimize_model(program, shapes)
    assert caught.value.tensor is not None and caught.value.tensor.endswith(" dimension 0")
    assert caught.value.expected == "batch at most 16"


def test_dimensions_without_ranges_are_open_and_tuned_for_the_example() -> None:
    program = words(torch.export.Dim.AUTO, torch.export.Dim.DYNAMIC)
    ranges = list(from_exported_program(program).symbols.values())
    assert ranges == [(0, 2, 2**31 - 1), (0, 6, 2**31 - 1)]
    # torch states a minimum of 2 where nobody does, and runs the program at 1.
    ids, mask = torch.ones(1, 1, dtype=torch.int32), torch.ones(1, 1, dtype=torch.bool)
    given = {"input_ids": ids, "attention_mask": mask, "scale": torch.tensor(1.0)}
    got = BACKEND.optimize_model(program, given).run(given)["output"]
    torch.testing.assert_close(got, program.module()(ids, attention_mask=mask, scale=given["scale"])["states"].detach())


class Nested(torch.nn.Module):  # type: ignore[misc]
    """Inputs in a list and a dict, and a number that is no input."""

    def forward(self, pair: list[torch.Tensor], more: dict[str, torch.Tensor], factor: int) -> torch.Tensor:
        return pair[0] + pair[1] * more["key"] * factor


def test_inputs_in_containers_have_the_program_s_names() -> None:
    half = torch.export.Dim("half", min=1, max=9)
    # One tensor three times would be one input for torch.
    a, b, c = (torch.ones(2, 8) for _ in range(3))
    axes = {1: 2 * half}
    program = torch.export.export(Nested(), ([a, b], {"key": c}, 3), dynamic_shapes=([axes, axes], {"key": axes}, None))
    network = from_exported_program(program)
    assert [t.name for t in network.inputs] == list(program.graph_signature.user_inputs[:3])
    assert list(network.symbols.values()) == [(2, 8, 18)]
    given = {t.name: np.full((2, 4), value, np.float32) for value, t in enumerate(network.inputs, 1)}
    np.testing.assert_array_equal(BACKEND.optimize_model(program, given).run(given)["output"], np.full((2, 4), 19.0))


class Image(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(image))


def test_a_program_runs_at_every_shape_of_a_profile() -> None:
    batch, height = torch.export.Dim("batch", min=2, max=8), torch.export.Dim("height", min=4, max=64)
    module = Image().eval()
    program = torch.export.export(module, (torch.zeros(2, 3, 8, 8),), dynamic_shapes=({0: batch, 2: height},))
    model = BACKEND.optimize_model(program, {"image": Shape((2, 3, 4, 8), (2, 3, 8, 8), (8, 3, 64, 8))})
    for dims in ((2, 3, 8, 8), (8, 3, 64, 8), (3, 3, 5, 8)):
        x = torch.randn(dims)
        with torch.no_grad():
            np.testing.assert_allclose(model.run({"image": x.numpy()})["output"], module(x).numpy(), atol=1e-4)


class Unwritable(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x)[0].abs()


def test_what_torch_can_t_write_is_one_error_without_its_internals() -> None:
    program = torch.export.export(Unwritable(), (torch.eye(3),))
    with pytest.raises(nx.UnsupportedError, match="torch can't write the program as ONNX") as caught:
        from_exported_program(program)
    assert caught.value.__suppress_context__ and caught.value.__cause__ is None
