"""SavedModels: looked through before TensorFlow opens them, then one of their signatures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from neurenix import files
from neurenix import names as naming
from neurenix.errors import FileError, FormatError, InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow import threats
from neurenix.importers.tensorflow.kinds import SAVED_MODEL
from neurenix.importers.tensorflow.libraries import quiet, tensorflow

#: The signature that is taken where nobody names one.
DEFAULT = "serving_default"
#: Signatures and collections whose outputs TensorFlow computes when it opens a SavedModel of TensorFlow 1.
INITIAL = ("__saved_model_init_op", "saved_model_main_op", "legacy_init_op")


def load(path: Path, name: str | None) -> tuple[Any, Any]:
    """The concrete function of a signature of a folder, and what keeps its variables.

    Raises `UnsupportedError` where opening it would run what calls Python or touches files, `FormatError` where it is
    damaged, and `InvalidArgumentError` where there is no such signature.
    """
    tf = tensorflow("reading a SavedModel")
    check(path)
    try:
        with quiet(), tf.device("/cpu:0"):
            loaded = tf.saved_model.load(path)
    except Exception as error:
        raise FormatError(f"the SavedModel can't be opened: {_line(error)}", got=str(path)) from error
    return signature(loaded, name), loaded


def signature(loaded: Any, name: str | None) -> Any:
    """One of the signatures of an object: that of the name, the default, or the only one.

    Raises `InvalidArgumentError` where the choice is open or there is none.
    """
    found: Mapping[str, Any] = getattr(loaded, "signatures", None) or {}
    if not found:
        raise InvalidArgumentError(
            "there is no signature to import",
            got=type(loaded).__name__,
            hint="save it with one: tf.saved_model.save(model, folder, signatures=function.get_concrete_function(...))",
        )
    chosen = name or (DEFAULT if DEFAULT in found else next(iter(found)) if len(found) == 1 else None)
    if chosen is not None and chosen in found:
        return found[chosen]
    raise InvalidArgumentError(
        f"there is no signature {name!r}" if name else "the model has several signatures",
        expected=", ".join(found),
        hint=naming.hint(name, found) if name else f"from_tensorflow(model, signature={next(iter(found))!r})",
    )


def check(path: Path) -> None:
    """Raises `UnsupportedError` for a SavedModel that would run more than arithmetic when it is opened."""
    for meta in _read(path).meta_graphs:
        threats.check_functions(meta.graph_def, _functions(meta))
        threats.check_behind(meta.graph_def, _outputs(meta))


def _read(path: Path) -> Any:
    from google.protobuf import text_format  # type: ignore[import-untyped]
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel()
    file = next((path / name for name in SAVED_MODEL if (path / name).is_file()), None)
    if file is None:
        raise FileError("the folder is no SavedModel", expected=" or ".join(SAVED_MODEL), got=str(path))
    data = files.read(file, "the model")
    try:
        if file.suffix == ".pb":
            model.ParseFromString(data)
        else:
            text_format.Parse(data, model)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise FormatError(f"the SavedModel is damaged: {_line(error)}", got=str(file)) from error
    if not model.meta_graphs:
        raise FormatError("the SavedModel has no graph", got=str(file))
    return model


def _functions(meta: Any) -> Iterator[str]:
    """The functions of a SavedModel's objects, which TensorFlow may call when it opens it."""
    for node in meta.object_graph_def.nodes:
        yield from node.function.concrete_functions
        yield node.bare_concrete_function.concrete_function_name
        for saveable in node.saveable_objects.values():
            functions = meta.object_graph_def.nodes
            if 0 < saveable.restore_function < len(functions):
                yield from functions[saveable.restore_function].function.concrete_functions
    yield from meta.object_graph_def.concrete_functions


def _outputs(meta: Any) -> Iterator[str]:
    """The outputs of the graph that are computed: those of signatures, and of what initialises it."""
    for name, wanted in meta.signature_def.items():
        yield from (info.name for info in wanted.outputs.values())
        if name not in INITIAL and any(not info.name for info in wanted.outputs.values()):
            raise UnsupportedError("a signature gives what is no dense tensor", layer=name)
    for name in INITIAL:
        yield from meta.collection_def[name].node_list.value if name in meta.collection_def else ()


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
