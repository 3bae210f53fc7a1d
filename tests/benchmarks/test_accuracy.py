"""`benchmarks.accuracy_cuda`: what is judged right, what a run resumes, and a small run on the processor."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("transformers")
accuracy = pytest.importorskip("benchmarks.accuracy_cuda")
more = pytest.importorskip("benchmarks.more_models")

LIFT = "output departs by 9 %: 1 of 5 layers (a) stay float32"


def side(*sizes: float | None, **more: Any) -> dict[str, Any]:
    """An error at each size."""
    worst = None if None in sizes else max(size for size in sizes if size is not None)
    return {"rms": worst, "sizes": list(sizes), **more}


@pytest.mark.parametrize(
    ("precision", "ours", "theirs", "right"),
    [
        ("fp32", side(4e-6), side(1e-7), True),
        ("fp32", side(8e-6), side(6e-6), True),
        ("fp32", side(8e-6), side(5e-6), False),
        ("bf16", side(1.1e-2), side(1e-2), True),
        ("bf16", side(1.2e-2), side(1e-2), False),
        ("tf32", side(2e-6), side(1e-6), True),
        ("tf32", side(2e-4), side(1e-4), False),
        # Another size than the one with the greatest error.
        ("fp16", side(1e-2, 3e-3), side(1e-2, 2e-3), False),
        ("fp16", side(None), side(None), None),
        ("fp16", side(None), side(1e-3), False),
        ("fp16", side(1e-3), side(None), True),
        ("fp16", side(1e-1), side(None), False),
        ("fp16", side(1e-3), {"failed": "no"}, None),
        ("fp16", {"failed": "no"}, side(1e-3), False),
    ],
)
def test_what_is_right(precision: str, ours: Any, theirs: Any, right: bool | None) -> None:
    assert accuracy.right(precision, ours, theirs) is right


def test_a_false_alarm_is_a_fall_back_that_was_not_needed() -> None:
    ours = side(1e-6, notes=[LIFT])
    found = accuracy.judged("bf16", ours | {"unverified": side(1e-2)}, side(1e-2))
    assert found["lifted"] and found["false_alarm"] and found["right"]
    assert not accuracy.judged("bf16", ours | {"unverified": side(2e-2)}, side(1e-2))["false_alarm"]
    assert "false_alarm" not in accuracy.judged("bf16", side(1e-2, notes=[]), side(1e-2))
    assert accuracy.alarmed(ours) and not accuracy.alarmed(side(1e-2, notes=["planned in 2 stages"]))


def test_what_verification_changed_is_measured_without_it_too() -> None:
    def of_ours(precision: str, level: int, verify: bool) -> dict[str, Any]:
        return side(1e-6, notes=[LIFT]) if verify else side(1e-2, notes=[])

    subject = accuracy.Subject.__new__(accuracy.Subject)
    subject.of_ours = of_ours
    assert subject.of_unit("3/bf16")["unverified"] == {"rms": 1e-2, "sizes": [1e-2]}
    assert "unverified" not in subject.of_unit("3/bf16/unverified")


def test_ratios_of_one_model_are_averaged_over_the_orders_of_its_weights() -> None:
    results = accuracy.Results(None, {})
    for name, mine in [("levit", 2e-3), ("levit@1", 5e-4), ("resnet18", 1e-3)]:
        results.add(name, accuracy.TORCH, {"tf32": side(1e-3)}, "1+a")
        results.add(name, "0/tf32", side(mine), "1+a")
    (line,) = results.over_orders()
    assert line.split()[:3] == ["levit", "0/tf32", "1.00"]
    torch = pytest.importorskip("torch")
    module, other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    other.load_state_dict(module.state_dict())
    accuracy.reordered(other, 1)
    assert not torch.equal(other.weight, module.weight) and torch.equal(other.bias, module.bias)
    assert torch.equal(other.weight.flatten().sort().values, module.weight.flatten().sort().values)


def test_units_that_have_a_result_of_this_version_are_left_out() -> None:
    found = {
        "0/fp32": {"version": "1+a"},
        "0/bf16": {"version": "1+b"},
        "3/fp32": {"version": "1+a", "failed": "no"},
    }
    options = argparse.Namespace(levels=[0, 3], precisions=["fp32", "bf16"], verify=True, again=None, version="1+a")
    results = {"resnet18": {"neurenix": found}}
    assert accuracy.left_of(results, "resnet18", options) == ["0/bf16", "3/bf16"]
    assert len(accuracy.left_of(results, "resnet50", options)) == 4
    options.again = "failed"
    assert accuracy.left_of(results, "resnet18", options) == ["0/bf16", "3/fp32", "3/bf16"]
    options.again, options.verify = None, False
    assert accuracy.left_of(results, "resnet18", options)[0] == "0/fp32/unverified"
    assert accuracy.parts_of("0/fp32/unverified") == (0, "fp32", False)


def test_names_of_models() -> None:
    tables = accuracy.groups()
    names = [name for table in tables.values() for name in table]
    assert len(names) == len(set(names)) and len(tables["more"]) >= 40
    assert set(more.PACKAGES) <= set(names)
    assert accuracy.chosen(["long", "resnet18", "bert_long"]) == [*tables["long"], "resnet18"]
    assert accuracy.chosen(["more"]) == [name for name in more.MORE if name not in more.REFUSED]
    assert accuracy.chosen([*more.REFUSED]) == [*more.REFUSED]
    with pytest.raises(ValueError, match="dla3: there are zoo, more, long, resnet18"):
        accuracy.chosen(["dla3"])


def test_packages_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(more.importlib.util, "find_spec", lambda name: None if name == "timm" else object())
    assert more.missing(["dla34", "albert", "resnet18", "repvgg_a0"]) == {"timm": ["dla34", "repvgg_a0"]}


def test_a_run_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--device", "cpu", "--small", "--models", "lstm_tagger", "diffusion_long", "--seeds", "1", "--commit", "a"]
    given += ["--output", str(tmp_path / "found"), "--levels", "0", "--precisions"]
    assert accuracy.main([*given, "fp32"]) == 0
    assert "2 of 2 right, 0 wrong" in capsys.readouterr().out
    assert accuracy.main([*given, "fp32", "bf16"]) == 0
    assert "2 units of 2 models" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())["results"]["diffusion_long"]
    assert set(found["neurenix"]) == {"0/fp32", "0/bf16"} and set(found["torch_eager"]) == {"version", "fp32", "bf16"}
    assert len(found["torch_eager"]["bf16"]["sizes"]) == len(more.LONG["diffusion_long"].sizes)
    assert accuracy.main([*given, "fp32", "--budget", "0", "--again"]) == 0
    assert "no time for 2 models: lstm_tagger (1) diffusion_long (1)" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="give another --output"):
        accuracy.main([*given, "fp32", "--seeds", "2"])
