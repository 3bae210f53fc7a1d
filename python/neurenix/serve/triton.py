"""Writes models into Triton model repositories."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from neurenix import files
from neurenix.errors import FileError
from neurenix.hardware import get_backend
from neurenix.hardware.optimized import OptimizedModel
from neurenix.inference.rows import ANY_SIZE
from neurenix.serve import config as configs
from neurenix.serve import messages
from neurenix.serve.loading import greatest_batch
from neurenix.serve.repository import check_name
from neurenix.serve.spec import Spec, TensorSpec
from neurenix.shapes import sized

#: The release whose backend API and images are meant.
IMAGE = "nvcr.io/nvidia/tritonserver:23.10-py3"

BACKENDS = ("neurenix", "python")

#: How engine files of ours begin; what else ends with .plan or .trt is TensorRT's.
_OURS = b"NRNXENG"

#: How the names of folders begin that are no versions yet: servers look for numbers.
_DRAFT = ".tmp-"


@dataclass(frozen=True)
class Written:
    """What was written: the model's folder, its file, and the command that serves it."""

    folder: Path
    model: Path
    config_kept: bool
    command: str


@dataclass(frozen=True)
class Draft:
    """A version that is being written: the folder with its files, config.pbtxt among them, and what that becomes."""

    folder: Path
    version: Path

    def publish(self) -> None:
        """Makes it a version of the model, by a name alone: who looks sees all of it or nothing.

        Raises `FileError` where that can't be, and leaves the model as it was.
        """
        written, config = self.folder / "config.pbtxt", self.version.parent / "config.pbtxt"
        described = written.exists()
        try:
            # First: a version without it would be read in another way.
            if described:
                written.replace(config)
            self.folder.rename(self.version)
        except OSError as error:
            if described:
                config.unlink(missing_ok=True)
            raise _unwritten(error, self.version) from error


@contextmanager
def new_version(repository: Path, name: str) -> Iterator[Draft]:
    """The next version of a model, to be written inside the block; it is published behind it, and gone if it fails.

    Raises `Refused`, which is an `Error`, for a name that is none, and `FileError` where it can't be made.
    """
    model = repository / check_name(name)
    is_new = not model.exists()
    draft = _draft(model)
    try:
        yield draft
        draft.publish()
    except BaseException:
        shutil.rmtree(draft.folder, ignore_errors=True)
        if is_new:
            with suppress(OSError):
                model.rmdir()
        raise


def _draft(model: Path) -> Draft:
    """An empty one, of a number that no version and no other draft has."""
    try:
        model.mkdir(parents=True, exist_ok=True)
        while True:
            names = [entry.name.removeprefix(_DRAFT) for entry in model.iterdir()]
            number = 1 + max((int(name) for name in names if name.isdecimal()), default=0)
            draft = Draft(model / f"{_DRAFT}{number}", model / str(number))
            # Another export may have taken the number since.
            with suppress(FileExistsError):
                draft.folder.mkdir()
                return draft
    except OSError as error:
        raise _unwritten(error, model) from error


def _unwritten(error: OSError, path: Path) -> FileError:
    return FileError(f"the model repository can't be written: {error.strerror}", got=str(path))


def is_plan(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a plan of TensorRT's, and no engine of ours."""
    with open(path, "rb") as file:
        return Path(path).suffix in (".plan", ".trt") and file.read(len(_OURS)) != _OURS


def write(model: OptimizedModel, draft: Draft, backend: str, instances: int, delay_us: int) -> Written:
    """Describes the engine file of a version for Triton: config.pbtxt, unless the model has one, and model.py.

    Raises `FileError` where it can't be written.
    """
    folder = draft.version.parent
    batch = greatest_batch(model, None, folder.name, declared=False)
    spec = Spec.of(model.inputs, model.outputs, batch)
    config = configs.describe(folder.name, spec, configs.ServeOptions(instances=instances, max_delay_us=delay_us))
    config.ClearField("platform")
    config.backend = backend
    del config.instance_group[:]
    config.instance_group.add(count=instances, kind=messages.load().enums["Kind"]["KIND_AUTO"])
    if batch:
        config.dynamic_batching.ClearField("default_queue_policy")
    if backend == "python":
        config.parameters["engine"].string_value = "model.engine"
        _copy(str(resources("neurenix.serve").joinpath("triton_python.py")), draft.folder / "model.py", "model.py")
        # Its own choice of memory is the GPU's, where there is one; the file reads the processor's.
        config.parameters["FORCE_CPU_ONLY_INPUT_TENSORS"].string_value = "yes"
    else:
        config.default_model_filename = "model.engine"
    _add_warm_up(config, model, spec)
    kept = _write_config(draft, config)
    return Written(folder, draft.version / "model.engine", kept, command(folder.parent, backend, model))


def write_plan(path: str, draft: Draft, instances: int) -> Written:
    """A plan of TensorRT's for Triton's own backend, which reads names and dims from the plan.

    Raises `FileError` where it can't be written.
    """
    folder = draft.version.parent
    _copy(path, draft.folder / "model.plan", "the plan")
    loaded = messages.load()
    config = loaded.ModelConfig(name=folder.name, platform="tensorrt_plan", default_model_filename="model.plan")
    config.instance_group.add(count=instances, kind=loaded.enums["Kind"]["KIND_GPU"])
    kept = _write_config(draft, config)
    return Written(folder, draft.version / "model.plan", kept, command(folder.parent, "tensorrt", None))


def copy_engine(path: str, draft: Draft) -> OptimizedModel:
    """Opens an engine file of ours, and copies it into a version. Raises as `Backend.load`, and `FileError`."""
    model = get_backend().load(path)
    _copy(path, draft.folder / "model.engine", "the engine")
    return model


def _copy(path: str, target: Path, what: str) -> None:
    try:
        shutil.copyfile(path, target)
    except OSError as error:
        raise FileError(f"{what} can't be copied: {error.strerror}", got=path) from error


def _write_config(draft: Draft, config: Any) -> bool:
    """Writes config.pbtxt, unless the model has one, which may have been edited; gives whether that is so."""
    if (draft.version.parent / "config.pbtxt").exists():
        return True
    files.write(draft.folder / "config.pbtxt", configs.to_text(config), "config.pbtxt")
    return False


def _add_warm_up(config: Any, model: OptimizedModel, spec: Spec) -> None:
    """A request for each size that the engine's profiles name."""
    types = messages.load().enums["DataType"]
    seen = set()
    for profile in model.profiles:
        for position in range(3):
            sizes = {name: limits[position] for name, limits in profile.items()}
            shapes = {p.name: sized(p.shape, sizes) for p in model.inputs}
            key = tuple(tuple(shape) for shape in shapes.values())
            if key in seen or any(not 0 < extent < ANY_SIZE for shape in key for extent in shape):
                continue
            seen.add(key)
            batch = key[0][0] if spec.max_batch else 0
            entry = config.model_warmup.add(name=f"warmup_{len(seen)}", batch_size=batch, count=1)
            for tensor in spec.inputs:
                _fill(entry.inputs[tensor.name], tensor, shapes[tensor.name][bool(spec.max_batch) :], types)


def _fill(target: Any, tensor: TensorSpec, dims: list[int], types: dict[str, int]) -> None:
    target.data_type = types[f"TYPE_{tensor.datatype}"]
    target.dims.extend(dims)
    if tensor.dtype.kind == "f":
        target.random_data = True
    else:
        # Random integers may be no indices.
        target.zero_data = True


def command(repository: Path, backend: str, model: OptimizedModel | None) -> str:
    """The command that serves a repository in Triton's container."""
    gpu = backend == "tensorrt" or (model is not None and set(dict(model.report()["providers"])) - {"cpu"})
    words = ["docker run --rm"]
    words += ["--gpus all"] if gpu else []
    words += ["-p 8000:8000 -p 8001:8001 -p 8002:8002", f"-v {repository.resolve()}:/models:ro"]
    start = "tritonserver --model-repository=/models"
    if backend == "neurenix":
        words.append("-v $BACKEND:/opt/tritonserver/backends/neurenix:ro")
    if backend == "python":
        words.append("-v $WHEELS:/wheels:ro")
        start = f"sh -c 'pip install /wheels/*.whl && {start}'"
    return " ".join([*words, IMAGE, start])
