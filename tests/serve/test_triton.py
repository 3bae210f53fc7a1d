"""`neurenix export --triton`: what is written, and that it is served."""

from __future__ import annotations

import errno
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from neurenix.cli import main
from neurenix.errors import FileError
from neurenix.hardware.optimized import OptimizedModel
from neurenix.serve import ServeOptions, triton
from neurenix.serve.repository import ModelFolder
from tests.serve import models
from tests.serve.conftest import Start, ask, vector


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Exports the model `mlp` into a repository, and gives what the command wrote as JSON."""
    onnx.save(models.mlp(), tmp_path / "mlp.onnx")

    def run(*words: object, model: str = "mlp.onnx", code: int = 0) -> dict[str, Any]:
        given = [tmp_path / model, "--triton", tmp_path / "repository", *words, "--json"]
        assert main(["export", *map(str, given)]) == code
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def config_of(path: Path) -> Any:
    """A config.pbtxt, as Triton's own messages read it."""
    messages = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from google.protobuf import text_format

    return text_format.Parse(path.read_text(), messages.ModelConfig())


DYNAMIC = ("--precision", "fp32", "--dynamic-shapes", "--max-batch", "8", "--backend", "cpu")


def test_a_repository_for_our_backend(export: Any, tmp_path: Path, start: Start) -> None:
    found = export(*DYNAMIC, "--instances", "2", "--max-queue-delay", "300")["triton"]
    folder = tmp_path / "repository" / "mlp"
    assert found["model"] == str(folder / "1" / "model.engine") and "--model-repository=/models" in found["command"]
    assert "23.10" in found["command"] and str(tmp_path / "repository") in found["command"]
    config = config_of(folder / "config.pbtxt")
    assert (config.name, config.backend, config.max_batch_size, config.platform) == ("mlp", "neurenix", 8, "")
    assert (config.default_model_filename, config.instance_group[0].count) == ("model.engine", 2)
    assert config.dynamic_batching.max_queue_delay_microseconds == 300
    assert [(entry.name, list(entry.dims)) for entry in config.input] == [("input", [16])]
    assert [(entry.name, list(entry.dims)) for entry in config.output] == [("output", [4])]
    assert [entry.batch_size for entry in config.model_warmup] == [1, 4, 8]
    server = start(tmp_path / "repository")
    for rows in (1, 8):
        x = np.random.default_rng().standard_normal((rows, 16)).astype(np.float32)
        body = {"inputs": [{"name": "input", "shape": [rows, 16], "datatype": "FP32", "data": x.tolist()}]}
        data = ask(server, "POST", "/v2/models/mlp/infer", body).json["outputs"][0]["data"]
        np.testing.assert_allclose(np.reshape(data, (rows, 4)), models.mlp_reference(x), rtol=1e-4, atol=1e-4)
    assert ask(server, "GET", "/v2/models/mlp/config").json["instance_group"][0]["count"] == 2


def test_another_export_is_another_version(export: Any, tmp_path: Path) -> None:
    export(*DYNAMIC)
    config = tmp_path / "repository" / "mlp" / "config.pbtxt"
    config.write_text(config.read_text() + "# edited\n")
    found = export(*DYNAMIC)["triton"]
    assert found["config_kept"] and found["model"].endswith("/2/model.engine") and "# edited" in config.read_text()
    engine = tmp_path / "copied.engine"
    engine.write_bytes(Path(found["model"]).read_bytes())
    copied = export("--model-name", "other", model="copied.engine")["triton"]
    assert Path(copied["model"]).read_bytes() == engine.read_bytes()
    assert config_of(tmp_path / "repository" / "other" / "config.pbtxt").max_batch_size == 8


def test_a_plan_is_for_triton_s_own_backend(export: Any, tmp_path: Path) -> None:
    (tmp_path / "net.plan").write_bytes(b"ftrt" + bytes(500))
    found = export(model="net.plan")["triton"]
    config = config_of(tmp_path / "repository" / "net" / "config.pbtxt")
    assert (config.platform, config.default_model_filename, config.backend) == ("tensorrt_plan", "model.plan", "")
    assert Path(found["model"]).read_bytes()[:4] == b"ftrt" and "--gpus all" in found["command"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "x.engine"], "--triton or --output"),
        (["--model-name", "../x"], "no name of a model"),
        (["--model-name", ""], "no name of a model"),
    ],
)
def test_what_is_refused(export: Any, tmp_path: Path, words: list[str], message: str) -> None:
    if words == ["--model-name", ""]:
        (tmp_path / ".hidden").write_bytes((tmp_path / "mlp.onnx").read_bytes())
        words = ["--model-name", ".hidden"]
    found = export(*DYNAMIC, *words, code=1)
    assert message in found["error"]["message"] + str(found["error"].get("expected"))
    assert not list(tmp_path.rglob("model.engine"))


@pytest.mark.parametrize("model", ["broken.engine", "gone.plan"])
@pytest.mark.parametrize("name", ["mlp", "fresh"])
def test_what_fails_leaves_the_repository_as_it_was(
    export: Any, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, model: str, name: str
) -> None:
    export(*DYNAMIC)
    repository = tmp_path / "repository"
    (tmp_path / "broken.engine").write_bytes(b"NRNXENG" + bytes(500))
    (tmp_path / "gone.plan").write_bytes(b"ftrt" + bytes(500))
    if model == "gone.plan":
        monkeypatch.setattr(shutil, "copyfile", _fails)
    before = sorted(repository.rglob("*"))
    export("--model-name", name, model=model, code=1)
    assert sorted(repository.rglob("*")) == before
    assert ask(start(repository), "POST", "/v2/models/mlp/infer", vector()).status == 200


def test_a_build_that_can_not_be_saved_leaves_nothing(
    export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(model: OptimizedModel, path: Path) -> None:
        Path(path).write_bytes(b"half of it")
        raise FileError("the engine can't be written")

    monkeypatch.setattr(OptimizedModel, "save", save)
    export(*DYNAMIC, code=1)
    assert not list((tmp_path / "repository").iterdir())


def _fails(*given: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_version_is_there_when_it_is_whole(export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server that polls would find, while files are written."""
    export(*DYNAMIC)
    model = tmp_path / "repository" / "mlp"
    (tmp_path / "net.plan").write_bytes(b"ftrt" + bytes(500))
    (tmp_path / "copied.engine").write_bytes((model / "1" / "model.engine").read_bytes())
    seen = []
    copy = shutil.copyfile

    def watched(source: str, target: Path) -> object:
        seen.append(ModelFolder(str(target.parents[1]), target.parents[1].name).plan(ServeOptions()).versions)
        return copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", watched)
    export("--model-name", "mlp", "--triton-backend", "python", model="copied.engine")
    assert [list(versions) for versions in seen] == [[1], [1]]
    assert sorted(p.name for p in model.iterdir()) == ["1", "2", "config.pbtxt"]
    assert sorted(p.name for p in (model / "2").iterdir()) == ["model.engine", "model.py"]


def test_exports_beside_each_other_have_numbers_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "mlp" / "3").mkdir(parents=True)
    with triton.new_version(tmp_path, "mlp") as one, triton.new_version(tmp_path, "mlp") as other:
        (one.folder / "model.engine").write_bytes(b"one")
        (other.folder / "model.engine").write_bytes(b"other")
    found = {p.parent.name: p.read_bytes() for p in tmp_path.rglob("model.engine")}
    assert found == {"4": b"one", "5": b"other"}


def test_a_number_that_was_taken_is_left_alone(tmp_path: Path) -> None:
    model = tmp_path / "mlp"
    with pytest.raises(FileError, match="can't be written"), triton.new_version(tmp_path, "mlp") as draft:
        (draft.folder / "config.pbtxt").write_text("")
        (model / "1").mkdir()
        (model / "1" / "model.engine").write_bytes(b"another's")
    assert sorted(p.name for p in model.rglob("*")) == ["1", "model.engine"]


class _Tensor:
    """Triton's tensor, as far as the model uses it."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array

    def to_dlpack(self) -> Any:
        return self.array.__dlpack__()

    @classmethod
    def from_dlpack(cls, name: str, value: Any) -> _Tensor:
        return cls(name, np.from_dlpack(value).copy())


def test_the_python_model(export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(*DYNAMIC, "--triton-backend", "python")
    folder = tmp_path / "repository" / "mlp"
    config = config_of(folder / "config.pbtxt")
    assert config.backend == "python" and config.default_model_filename == ""
    utils: Any = ModuleType("triton_python_backend_utils")
    utils.Tensor = _Tensor
    utils.TritonError = str
    utils.InferenceResponse = lambda output_tensors, error=None: (output_tensors, error)
    utils.get_input_tensor_by_name = lambda request, name: request[name]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    spec = importlib.util.spec_from_file_location("model_of_triton", folder / "1" / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    from google.protobuf import json_format

    described = json_format.MessageToJson(config, preserving_proto_field_name=True)
    model.initialize(
        {"model_config": described, "model_repository": str(folder), "model_version": "1",
         "model_instance_kind": "CPU", "model_instance_device_id": "0"}
    )  # fmt: skip
    arrays = [np.random.default_rng(n).standard_normal((n, 16)).astype(np.float32) for n in (1, 3, 2)]
    wrong = np.zeros((1, 15), np.float32)
    requests = [{"input": _Tensor("input", x)} for x in [*arrays, wrong]]
    answers = model.execute(requests)
    for x, (outputs, error) in zip(arrays, answers, strict=False):
        assert error is None and outputs[0].name == "output"
        np.testing.assert_allclose(outputs[0].array, models.mlp_reference(x), rtol=1e-4, atol=1e-4)
    assert answers[3][0] == [] and "15" in answers[3][1]
    model.finalize()


def test_a_folder_under_another_name(export: Any, tmp_path: Path, start: Start) -> None:
    export(*DYNAMIC)
    server = start(f"renamed={tmp_path / 'repository' / 'mlp'}", options=ServeOptions(device="cpu"))
    assert ask(server, "POST", "/v2/models/renamed/infer", vector()).status == 200
