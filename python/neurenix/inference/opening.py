"""What an inference engine is made of: a file or a model, and the device that it runs on."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from neurenix import shapes
from neurenix.errors import FileError, FormatError, InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware import get_backend, probe
from neurenix.hardware.backend import Backend
from neurenix.hardware.optimized import OptimizedModel
from neurenix.hardware.options import KEPT, check
from neurenix.importers.files import ENGINES, WITH_ENGINES, has_engine
from neurenix.inference.layers import Around
from neurenix.log import LOG
from neurenix.packages import need
from neurenix.shapes import Shape

#: The batch that an engine is made for besides those that `input_shape` says: 1 to this.
MOST_BATCH = 16

#: Metadata in front of an engine is no longer than this.
MOST_METADATA = 1 << 20

#: Options that say how an engine is built, and that an engine file keeps.
BUILD_ONLY = ("precision", "io_dtype", "sample", "refittable", "deterministic", "verify")


@dataclass(frozen=True)
class Device:
    """A device as users name it, and where the work goes instead if it can't be had."""

    name: str
    backend: Backend
    #: Why the work is not done where it was asked for; None where it is.
    fallback: str | None = None

    @classmethod
    def of(cls, given: Any) -> Device:
        """The device of a name: "auto", "cuda", "cuda:1", "cpu", or a torch.device.

        Without a usable GPU the processor does the work, which is told with the reason. Raises `InvalidArgumentError`
        for another name, and for the number of a GPU that is not there where others are.
        """
        text = str(given)
        if text == "auto":
            backend = get_backend("tensorrt")
            return cls("cuda:0" if _has_gpu(backend) else "cpu", backend)
        if text == "cpu":
            return cls("cpu", get_backend("cpu"))
        match = re.fullmatch(r"cuda(?::(\d+))?", text)
        if match is None:
            raise InvalidArgumentError(
                "there is no such device", expected='"auto", "cuda", "cuda:1" or "cpu"', got=repr(given)
            )
        index = int(match[1] or 0)
        if _has_gpu(get_backend("tensorrt")):
            backend = get_backend("tensorrt", device=index)
            backend.get_device_info(index)
            return cls(f"cuda:{index}", backend)
        reason = f"there is no GPU that can be used: {probe.state('cuda').cause}"
        LOG.warning("device %r: %s; the processor does the work", text, reason)
        return cls("cpu", get_backend("cpu"), reason)


def _has_gpu(backend: Backend) -> bool:
    return bool(backend.get_device_info().provider != "cpu")


def open_model(
    model: Any,
    input_shape: Any,
    device: Device,
    half_precision: bool | None,
    options: Mapping[str, Any],
    around: Around | None = None,
) -> OptimizedModel:
    """The model of a file, or a model, made ready for the device, with layers in front of it and behind it.

    Raises as `Backend.optimize_model` and `Backend.load`, `FileError` for a path where nothing is, and
    `InvalidArgumentError` for what contradicts an engine that is built already.
    """
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.exists():
            raise FileError("there is no such file", expected="an .engine, .onnx, .pt2 or .ts file", got=str(path))
        if path.suffix in ENGINES or _holds_engine(path):
            return _engine_file(path, input_shape, device, half_precision, options, around is not None)
        # Files are refused there, each kind with its way out.
        from neurenix.cli.models import load_model

        model = load_model(str(path))
    if isinstance(model, OptimizedModel):
        _refuse_built("an OptimizedModel", options, around is not None)
        return checked(model, input_shape, half_precision)
    precision = _precision(half_precision, options)
    given = {name: value for name, value in options.items() if name != "precision"}
    wanted = with_batches(input_shape)
    try:
        return _built(device.backend, model, wanted, precision, given, around)
    except (ShapeError, UnsupportedError) as error:
        if wanted is input_shape:
            raise
        built = _built(device.backend, model, input_shape, precision, given, around)
        LOG.warning(
            "the model is built for the shape %s alone, because it does not take other batches: %s",
            input_shape, error.message,
        )  # fmt: skip
        return built


def _holds_engine(path: Path) -> bool:
    """Whether this is a file of torch's with an engine of ours in it."""
    if path.suffix not in WITH_ENGINES or not path.is_file():
        return False
    need("torch", f"reading a {path.suffix} file")
    return has_engine(path)


def _built(
    backend: Backend,
    model: Any,
    wanted: Any,
    precision: str,
    options: Mapping[str, Any],
    around: Around | None,
) -> OptimizedModel:
    if around is not None:
        model, wanted = around.network(model, wanted)
    return backend.optimize_model(model, wanted, precision, **options)


def _precision(half_precision: bool | None, options: Mapping[str, Any]) -> str:
    asked = options.get("precision")
    if asked is not None and half_precision is not None:
        raise InvalidArgumentError("the precision is given twice", expected="half_precision= or precision=, not both")
    return str(check("precision", asked)) if asked is not None else "fp16" if half_precision else "fp32"


def with_batches(input_shape: Any) -> Any:
    """The shapes with a range of batches in place of the one that is given; what has ranges stays as it is."""
    if shapes.is_by_name(input_shape):
        found = {name: _with_batches(value, name) for name, value in input_shape.items()}
        return found if any(found[name] is not input_shape[name] for name in found) else input_shape
    if input_shape is None or isinstance(input_shape, (str, list)):
        return input_shape
    return _with_batches(input_shape, "")


def _with_batches(value: Any, name: str) -> Any:
    wanted = shapes.shape(value, name)
    if not wanted.is_fixed or len(wanted.opt) < 2 or wanted.opt[0] < 1:
        return value
    batch, *rest = wanted.opt
    return Shape((1, *rest), wanted.opt, (max(batch, MOST_BATCH), *rest))


def _engine_file(
    path: Path,
    input_shape: Any,
    device: Device,
    half_precision: bool | None,
    options: Mapping[str, Any],
    has_layers: bool,
) -> OptimizedModel:
    kept = {name: value for name, value in options.items() if name not in ("precision",)}
    _refuse_built("an engine file", options, has_layers)
    model = load_engine(device.backend, path, kept)
    return checked(model, input_shape, half_precision)


def metadata_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What Ultralytics' exports say of a model beside it, such as the names of its classes; empty for other files."""
    if not os.path.isfile(path):
        return {}
    if Path(path).suffix == ".onnx":
        onnx = need("onnx", "reading the metadata of a model")
        return {entry.key: entry.value for entry in onnx.load(path, load_external_data=False).metadata_props}
    with open(path, "rb") as file:
        return _header(file)[0]


def _header(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """The JSON in front of an engine in Ultralytics' files, and how many bytes it takes; nothing in other files."""
    begin = file.read(5)
    length = int.from_bytes(begin[:4], "little")
    if len(begin) < 5 or begin[4:] != b"{" or not 1 < length < MOST_METADATA:
        return {}, 0
    try:
        found = json.loads(b"{" + file.read(length - 1))
    except ValueError:
        return {}, 0
    return found, 4 + length


def load_engine(backend: Backend, path: Path, options: Mapping[str, Any]) -> OptimizedModel:
    """Opens an engine file; the JSON that Ultralytics puts in front of one is passed over."""
    with open(path, "rb") as file:
        _, begin = _header(file)
        if not begin:
            return backend.load(path, **options)
        with tempfile.NamedTemporaryFile(suffix=".engine") as bare:
            file.seek(begin)
            shutil.copyfileobj(file, bare)
            bare.flush()
            try:
                # The file is mapped: what is open stays there when its name is gone.
                return backend.load(bare.name, **options)
            except FormatError as error:
                raise FormatError(
                    "behind Ultralytics' header there is no engine of ours", got=str(path),
                    hint='export it as format="onnx", and give that file: its names of classes are kept too',
                ) from error  # fmt: skip


def _refuse_built(what: str, options: Mapping[str, Any], has_layers: bool) -> None:
    """Refuses what only a build could do."""
    if has_layers:
        raise InvalidArgumentError(
            f"preprocess=dict(...) and postprocess=dict(...) become layers of the network, and {what} is built already",
            hint="give the model that it was made of, or a function: preprocess=lambda x: ...",
        )
    late = [name for name in options if name in BUILD_ONLY]
    if late:
        raise InvalidArgumentError(
            f"{what} is built already, and keeps what it was built with",
            expected=f"options of an opening: {', '.join(KEPT)}",
            got=", ".join(late),
            hint="give the model that it was made of",
        )


def checked(model: OptimizedModel, input_shape: Any, half_precision: bool | None) -> OptimizedModel:
    """An engine that is built, where it is of the shape and precision that are expected of it.

    Raises `ShapeError` where its inputs can't have that shape, and `InvalidArgumentError` where float32 is expected
    and the engine computes in less. That it computes in more than fp16 where that is expected is told.
    """
    precision = model.report()["precision"]
    if half_precision is False and precision not in ("fp32", "tf32"):
        raise InvalidArgumentError(
            "the engine does not compute in float32", expected="half_precision=None or True", got=precision
        )
    if half_precision and precision not in ("fp16", "bf16"):
        LOG.warning("half_precision=True: the engine was built for %s, and goes on in that", precision)
    for profile in shapes.profiles(input_shape, [port.name for port in model.inputs]):
        for port in model.inputs:
            if port.name in profile and not _fits(profile[port.name].opt, port.shape):
                raise ShapeError(
                    "the engine was built for another shape",
                    tensor=port.name,
                    expected=str(list(port.shape)),
                    got=str(list(profile[port.name].opt)),
                )
    return model


def _fits(wanted: tuple[int, ...], shape: tuple[int | str, ...]) -> bool:
    """Whether an input takes a shape; the batch is cut and filled up by `Rows`."""
    return len(wanted) == len(shape) and all(
        isinstance(d, str) or d == w for w, d in zip(wanted[1:], shape[1:], strict=True)
    )
