"""`torch.compile(model, backend="neurenix")`: each case in a process of its own, against torch."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from tests.torch_compile import attention_cases, cases, faults, process_cases, shared, view_cases, weight_cases
from tests.torch_compile.processes import run

ROOT = Path(__file__).parents[2]
CASES: list[tuple[Any, tuple[Any, ...]]] = [
    (cases.static, ()),
    (cases.one_engine_for_a_range, ()),
    (cases.dynamic_from_the_start, ()),
    (cases.transformer, (False,)),
    (cases.transformer, (True,)),
    (cases.transformer_with_masks, ()),
    (cases.graph_breaks, ()),
    (cases.unsupported_operator, ()),
    (cases.complex_numbers, ()),
    (cases.buffer_mutation, ()),
    (cases.input_mutation, ()),
    (cases.aliasing, ()),
    (cases.writes_into_views, ()),
    (cases.autocast, ()),
    (cases.modules_of_16_bits, ()),
    (attention_cases.attention_without_batch, ()),
    (attention_cases.attention_of_windows, ()),
    (attention_cases.queries_that_see_nothing, ()),
    (attention_cases.encoder_layer_that_sees_nothing, ()),
    (view_cases.expanded, ()),
    (view_cases.result_beside_its_view, ()),
    (cases.gradient_modes, ()),
    (cases.results_without_gradients, ()),
    (cases.training, ()),
    (weight_cases.live_parameters, ()),
    (weight_cases.swapped_tensors, ()),
    (weight_cases.lora, ()),
    (weight_cases.written_through_data, ()),
    (weight_cases.weights_that_always_change, ()),
    (weight_cases.tied_weights, ()),
    (weight_cases.weights_of_inference_mode, ()),
    (weight_cases.frozen, ()),
    (weight_cases.begun_again, ()),
    (weight_cases.begun_early, (weight_cases.live_parameters,)),
    (weight_cases.begun_early, (weight_cases.lora,)),
    (weight_cases.begun_early, (weight_cases.weights_that_always_change,)),
    (weight_cases.begun_early, (weight_cases.frozen,)),
    (weight_cases.begun_early, (shared.frozen_blocks_of_a_model,)),
    (weight_cases.begun_early, (shared.modules_of_a_class_in_threads,)),
    (cases.sizes_that_depend_on_data, ()),
    (cases.numbers_among_the_arguments, ()),
    (cases.sizes_as_values, ()),
    (cases.memory_layouts, ()),
    (cases.results_without_inputs, ()),
    (cases.numbers_of_the_graph, ()),
    (cases.empty_and_single_batches, ()),
    (cases.dtypes, ()),
    (cases.dropout_in_train_mode, ()),
    (cases.recurrent, ()),
    (cases.wrong_index, ()),
    (process_cases.beside_the_build, ()),
    (process_cases.threads, ()),
    (shared.frozen_modules_of_a_class, ()),
    (shared.frozen_blocks_of_a_model, ()),
    (shared.modules_of_a_class_in_threads, ()),
    (shared.blocks_of_a_model, ()),
    (weight_cases.begun_early, (shared.blocks_of_a_model,)),
    (shared.more_modules_than_engines, ()),
    (shared.weights_written_during_a_build, ()),
    (shared.strides_of_an_intermediate, ()),
    (shared.gradients_of_autocast, ()),
    (shared.norms_in_train_mode, ()),
    (faults.left_to_torch, ()),
    (faults.integers, ()),
    (faults.means_of_what_is_scattered, ()),
    (faults.greatest_of_all, ()),
    (faults.found_by_comparing, ()),
    (process_cases.profiled, ()),
    (process_cases.many_shapes_and_recompiles, ()),
]


def _id(case: Any, args: tuple[Any, ...]) -> str:
    return "-".join([case.__name__, *(getattr(arg, "__name__", str(arg)) for arg in args)])


@pytest.mark.parametrize(("case", "args"), CASES, ids=[_id(*each) for each in CASES])
def test_case(case: Any, args: tuple[Any, ...]) -> None:
    run(case, *args)


def test_a_build_that_fails_is_told_once() -> None:
    written = run(process_cases.forced_failure)
    assert written.count("runs in torch: it can't be built") == 1


def test_a_dry_run_writes_its_table(tmp_path: Path) -> None:
    run(process_cases.dry_run, str(tmp_path / "table.txt"))


def test_what_torch_expands_lies_in_the_order_of_its_shape() -> None:
    import torch

    from neurenix.torch.conversion import _order

    found = torch.zeros(1, 1, 4, 5).expand(8, 2, 4, 5)
    assert _order(found) is None and _order(found.transpose(2, 3)) == (3, 2, 0, 1)


def test_engines_are_found_by_other_processes(tmp_path: Path) -> None:
    folder = str(tmp_path / "engines")
    run(process_cases.another_process, folder, "engines_built")
    run(process_cases.another_process, folder, "engines_from_cache")
    run(process_cases.cache_of_other_weights, folder)


def test_the_entry_point_names_the_backend() -> None:
    """torch loads what pyproject.toml names in this group; an installed package says the same."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'\[project\.entry-points\.torch_dynamo_backends\]\nneurenix = "(.+)"', text)
    assert found is not None
    declared = found.group(1)
    entry = importlib.metadata.EntryPoint("neurenix", declared, "torch_dynamo_backends")
    from neurenix.torch.dynamo import neurenix

    assert entry.load() is neurenix
    for one in importlib.metadata.entry_points(group="torch_dynamo_backends"):
        if one.name == "neurenix":
            assert one.value == declared
