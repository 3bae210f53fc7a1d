"""The export script: Lightning checkpoints, Hydra configurations, each row of its table, and the function."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import InvalidArgumentError
from neurenix.cli import main
from neurenix.hardware import get_backend, probe
from neurenix.inference import InferenceEngine, export_to_tensorrt
from tests.inference import project
from tests.inference.conftest import by_torch, convolutions
from tests.machine import needs_int8

torch = pytest.importorskip("torch")
pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")
pytest.importorskip("hydra", reason="Hydra is not installed: pip install hydra-core")
SCRIPT = Path(__file__).parents[2] / "scripts/export_to_tensorrt.py"
QUICK = ["--optimization-level", "0", "--threads", "2", "--timing-cache", "none"]
ALLOWED = ["--allow", "cells", "--allow", "torch"]
PRECISIONS = get_backend().get_device_info().precisions
HAS_FP16 = "fp16" in PRECISIONS
#: The floats of 16 bits that this machine computes in; none on older ones.
LOWER = next((precision for precision in ("fp16", "bf16") if precision in PRECISIONS), None)

OF_INT8 = [
    ("--config C --calibration-data calibration_data", "--calibration-data is for a precision of 8 bits"),
    ("--config C --num-calibration-samples 100", "--num-calibration-samples is for a precision of 8 bits"),
    ("--config C --precision int8 --num-calibration-samples 9", "counts files of --calibration-data"),
    pytest.param(
        "--config C --precision int8 --calibration-data nowhere",
        "there is no such file or folder to calibrate on",
        marks=needs_int8,
    ),
]

Export = Callable[..., int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def trained(folder: Path) -> Any:
    return project.write(folder)


@pytest.fixture
def export(folder: Path, trained: Any, monkeypatch: pytest.MonkeyPatch) -> Export:
    monkeypatch.chdir(folder)

    def call(line: str, *more: str) -> int:
        return main(["export", *shlex.split(line), *QUICK, *ALLOWED, *more])

    return call


def test_the_script_is_the_command(folder: Path, trained: Any) -> None:
    """A project's own line, but for the engine's ending and the packages that are allowed."""
    line = (
        "--config configs/experiment/im2im/labelfree.yaml --ckpt labelfree.ckpt --output models-labelfree.engine "
        "--input-shape 1 1 256 256 --precision fp32 --benchmark --benchmark-iterations 5"
    )
    command = [sys.executable, str(SCRIPT), *shlex.split(line), *QUICK, *ALLOWED]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| PyTorch (FP32) |" in done.stdout and "| Neurenix FP32 |" in done.stdout
    x = np.random.default_rng().standard_normal((1, 1, 256, 256)).astype(np.float32)
    engine = InferenceEngine(folder / "models-labelfree.engine", (1, 1, 256, 256), device="cuda")
    np.testing.assert_allclose(engine(x), by_torch(trained["labelfree"], x), rtol=0, atol=1e-5)


@pytest.mark.skipif(LOWER is None, reason="this machine computes in no floats of 16 bits")
def test_dynamic_batches_in_three_dimensions(export: Export, folder: Path, trained: Any) -> None:
    line = (
        "--config configs/experiment/im2im/segmentation.yaml --ckpt segmentation.ckpt --output s.engine "
        f"--input-shape 1 1 24 24 24 --precision {LOWER} --dynamic-shapes --min-batch 1 --max-batch 16 --opt-batch 4"
    )
    assert export(line) == 0
    engine = InferenceEngine(folder / "s.engine", half_precision=True)
    assert engine.model.profiles == [{"batch": (1, 4, 16)}]
    x = np.random.default_rng().standard_normal((3, 1, 24, 24, 24)).astype(np.float32)
    expected = by_torch(trained["segmentation"], x)
    assert np.abs(engine(x) - expected).max() < 0.05 * np.abs(expected).max()


def test_a_composed_experiment_and_a_part_of_its_model(export: Export, folder: Path, trained: Any) -> None:
    config = "--config configs/experiment/im2im/composed.yaml --ckpt labelfree.ckpt --input-shape 1 1 16 16"
    assert export(f"{config} --precision fp32 -o c.engine --submodule net") == 0
    x = np.random.default_rng().standard_normal((1, 1, 16, 16)).astype(np.float32)
    found = InferenceEngine(folder / "c.engine")(x)
    np.testing.assert_allclose(found, by_torch(trained["labelfree"], x), rtol=0, atol=1e-5)


HEADS = "--config configs/experiment/im2im/heads.yaml --ckpt labelfree.ckpt --input-shape 1 1 16 16 --precision fp32"
OF_HEADS = ["--resolver", "listed=cells.models.listed", "--forward-arguments", '{"run_heads": ["signal", "mask"]}']


def test_a_config_of_a_toolkit(export: Export, trained: Any) -> None:
    """Interpolations of a run and of the project's own, helpers beside arguments, and a call with more than inputs."""
    assert export(f"{HEADS} -o heads.engine", *OF_HEADS) == 0
    x = np.random.default_rng().standard_normal((1, 1, 16, 16)).astype(np.float32)
    wanted = by_torch(trained["labelfree"], x)
    for found, scale in zip(InferenceEngine("heads.engine")(x), (2, 3), strict=True):
        np.testing.assert_allclose(found, scale * wanted, rtol=0, atol=3e-5)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (OF_HEADS[2:], "--resolver listed=PACKAGE.FUNCTION"),
        (["--resolver", "listed=builtins.dict"], "--allow builtins"),
        (["--resolver", "listed=cells.models.LightningModule"], "not of an allowed package"),
        (["--resolver", "oc.env=cells.models.listed"], "a name that is free"),
        ([*OF_HEADS[:3], '{"heads": []}'], "expected: a JSON object of x, run_heads"),
        ([*OF_HEADS[:3], "[1]"], "expected: a JSON object of x, run_heads"),
        ([*OF_HEADS[:3], "{"], "can't be read"),
        (OF_HEADS[:2], "run_heads"),
    ],
)
def test_what_a_config_of_a_toolkit_lacks(
    more: list[str], text: str, export: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(f"{HEADS} -o refused.engine", *more) == 1
    assert text in capsys.readouterr().err


def test_what_is_measured_is_a_table(export: Export, folder: Path) -> None:
    line = "--config configs/experiment/im2im/labelfree.yaml --input-shape 2 1 32 32 --precision fp32 -o b.engine"
    assert export(f"{line} --benchmark --benchmark-iterations 6 --plot b.svg --json b.json") == 0
    content = json.loads((folder / "b.json").read_text())["benchmark"]["configurations"]
    rows = {row["configuration"]: row for row in content["rows"]}
    assert next(iter(rows)) == "PyTorch (FP32)" and rows["PyTorch (FP32)"]["error"] == 0
    assert rows["Neurenix FP32"]["error"] < 1e-5
    if LOWER is not None:
        assert 1e-5 < rows[f"Neurenix {LOWER.upper()}"]["error"] < 0.1
    for row in rows.values():
        assert row["fps"] == pytest.approx(2e3 / row["latency_ms"])
        assert row["speedup"] == pytest.approx(rows["PyTorch (FP32)"]["latency_ms"] / row["latency_ms"])
    assert "PyTorch (FP32)" in (folder / "b.svg").read_text()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--config C --output x.onnx", "an engine file is no .onnx file"),
        *OF_INT8,
        ("--config C --workspace-size -1", "negative size"),
        ("--config C --opt-batch 4", "--dynamic-shapes alone"),
        ("--config missing.yaml", "can't be read"),
        ("", "there is no model"),
        ("--config C --submodule nett", "no attribute 'nett'"),
        ("--config bad.yaml", "the config can't be read"),
        ("--config nothing.yaml", "describes no model"),
        ("--config system.yaml", "--allow os"),
        ("--config function.yaml", "no class of an allowed package"),
        ("--config foreign.yaml", "not of an allowed package"),
        ("--config wrong.yaml", "can't be made: TypeError"),
        ("--config C --ckpt code.ckpt", "could execute code"),
        ("--config C --ckpt segmentation.ckpt", "do not fit the module"),
    ],
)
def test_what_is_refused(
    line: str, text: str, export: Export, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = {
        "system": "os.system", "function": "cells.models.dangerous", "foreign": "cells.models.LightningModule",
        "wrong": "torch.nn.Linear",
    }  # fmt: skip
    for name, target in targets.items():
        (folder / f"{name}.yaml").write_text(f"_target_: {target}\n")
    (folder / "bad.yaml").write_text("model: [1, 2\n")
    (folder / "nothing.yaml").write_text("trainer: 3\n")
    (folder / "code.ckpt").write_bytes(f"cos\nsystem\n(S'touch {folder}/owned'\ntR.".encode())
    line = line.replace("--config C", "--config configs/experiment/im2im/labelfree.yaml")
    assert export(line, "--input-shape", "1", "1", "16", "16") == 1
    assert text in capsys.readouterr().err
    assert not (folder / "owned").exists()


@pytest.mark.skipif(HAS_FP16, reason="this machine computes in fp16")
def test_a_precision_that_can_t_be_had_is_an_error(export: Export, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--config configs/experiment/im2im/labelfree.yaml --input-shape 1 1 16 16 --precision fp16 -o n.engine"
    assert export(line) == 1
    assert "no layer computes in fp16" in capsys.readouterr().err


@needs_int8
def test_the_function(tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator) -> None:
    module, x = convolutions(2), rng.standard_normal((3, 1, 16, 16)).astype(np.float32)
    cheap: dict[str, Any] = {"optimization_level": 0, "timing_cache": False}
    model = export_to_tensorrt(
        module, tmp_path / "m.engine", (1, 1, 16, 16), "fp32", dynamic_shapes=True, max_batch=8, device="cuda:0",
        benchmark=True, benchmark_iterations=3, **cheap,
    )  # fmt: skip
    assert model.profiles == [{"batch": (1, 4, 8)}]
    assert "Throughput:" in capsys.readouterr().out
    np.testing.assert_allclose(InferenceEngine(tmp_path / "m.engine")(x), by_torch(module, x), rtol=0, atol=1e-5)
    default = export_to_tensorrt(module, input_shape=(1, 1, 16, 16), device="cpu", **cheap)
    assert default.report()["precision"] in ("fp16", "fp32")
    batches = [rng.standard_normal((1, 1, 16, 16)).astype(np.float32) for _ in range(3)]
    small = export_to_tensorrt(
        module, input_shape=(1, 1, 16, 16), precision="int8", device="cpu", calibration_data=batches,
        num_calibration_samples=2, **cheap,
    )  # fmt: skip
    assert small.report()["precision"] == "int8" and "int8: the signal" in small.report()["notes"][0]
    for bad in (
        {"calibration_data": "folder"}, {"num_calibration_samples": 5},
        {"precision": "int8", "num_calibration_samples": 5},
    ):  # fmt: skip
        with pytest.raises(InvalidArgumentError):
            export_to_tensorrt(module, input_shape=(1, 1, 16, 16), **bad)
    for bad in ({"output": "m.onnx"}, {"workspace_size": -1}, {"dynamic_shapes": True, "input_shape": None}):
        with pytest.raises(InvalidArgumentError):
            export_to_tensorrt(module, **({"input_shape": (1, 1, 16, 16)} | bad))
    if not probe.has_gpu():
        assert export_to_tensorrt(module, input_shape=(1, 1, 16, 16), precision="fp32", **cheap) is not None


def test_hydra_s_group(tmp_path: Path) -> None:
    import hydra
    from hydra.utils import instantiate

    module = convolutions(2)
    export_to_tensorrt(module, tmp_path / "m.engine", (1, 1, 16, 16), "fp32", device="cpu", optimization_level=0)
    (tmp_path / "train.yaml").write_text("defaults:\n  - _self_\n  - inference: null\nwidth: 3\n")
    with hydra.initialize_config_dir(str(tmp_path), version_base=None):
        path = "hydra.searchpath=[pkg://neurenix.inference.conf]"
        config = hydra.compose("train", [path, "inference=tensorrt_fp16"])
    engine = instantiate(config.inference)(model_path=tmp_path / "m.engine")
    assert isinstance(engine, InferenceEngine) and engine.inputs[0].shape[1:] == (1, 16, 16)


OWN = "the_config_s_own"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (f"_target_: torch.nn.Sequential\n_args_: ['\\${{oc.create:{{_target_: {OWN}.touch}}}}']\n", "hides"),
        (f"_target_: torch.nn.Linear\nin_features: '\\${{oc.decode:\"{{_target_: {OWN}.touch}}\"}}'\n", "hides"),
        (f"defaults: [_self_]\nhydra:\n  searchpath: ['pkg://{OWN}']\nmodel:\n  _target_: torch.nn.ReLU\n",
         f"--allow {OWN}"),
        ("_target_: torch.nn.Linear\n_partial_: true\n", "_partial_"),
    ],
)  # fmt: skip
def test_configs_that_would_execute_what_was_not_looked_at(
    text: str, refusal: str, export: Export, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / f"{OWN}.py").write_text(
        f"from pathlib import Path\nPath({str(folder / 'ran')!r}).touch()\ndef touch(): pass\n"
    )
    (folder / "trap.yaml").write_text(text)
    assert export("--config trap.yaml", "--input-shape", "1", "4") == 1
    assert refusal in capsys.readouterr().err
    assert not (folder / "ran").exists()
