"""Which of torch's operators our importer reads, and how the others are taken apart."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from neurenix import _native
from neurenix.errors import FileError, UnsupportedError
from neurenix.files import replacing
from neurenix.importers.torch.translations import translations
from neurenix.log import LOG
from neurenix.packages import need
from neurenix.torch.settings import operator_name

#: Operators that torch would take apart and our engine knows whole, as the importer reads them.
KEPT_WHOLE = (
    "aten.avg_pool1d.default",
    "aten.conv1d.default",
    "aten.conv2d.default",
    "aten.conv3d.default",
    "aten.group_norm.default",
    "aten.gru.input",
    "aten.instance_norm.default",
    "aten.layer_norm.default",
    "aten.linear.default",
    "aten.log_softmax.int",
    "aten.lstm.input",
    "aten.matmul.default",
    "aten.max_pool2d.default",
    "aten.max_pool3d.default",
    "aten.pad.default",
    "aten.prelu.default",
    "aten.relu6.default",
    "aten.scaled_dot_product_attention.default",
    "aten.softmax.int",
    "aten.upsample_bicubic2d.vec",
    "aten.upsample_bilinear2d.vec",
    "aten.upsample_nearest1d.vec",
    "aten.upsample_nearest2d.vec",
    "aten.upsample_nearest3d.vec",
    "aten.upsample_trilinear3d.vec",
)

#: Operators that torch's exporter knows, but whose results would not be torch's.
LEFT_TO_TORCH = frozenset(
    {
        "aten.as_strided.default",  # reads memory that is laid out otherwise here
        "aten.empty.memory_format",  # has no value to agree with
        "aten.empty_like.default",
        "aten.empty_strided.default",
        "aten.new_empty.default",
        "aten.new_empty_strided.default",
    }
)


@functools.cache
def exportable() -> frozenset[str]:
    """The operators that torch's ONNX exporter writes, by name.

    Reading them takes its libraries seconds, so that the names are kept in the cache directory, by the versions.
    """
    kept = _kept_names()
    if kept is not None:
        try:
            found = json.loads(kept.read_text(encoding="utf-8"))
            if isinstance(found, list) and all(isinstance(name, str) for name in found):
                return frozenset(found)
        except (OSError, ValueError):
            # The file only spares time.
            pass
    # Some forms are for complex numbers alone.
    forms = (form for forms in registry().functions.values() for form in forms if not form.is_complex)
    registered = (form.fx_target for form in forms)
    names = frozenset(operator_name(one) for one in registered if isinstance(one, torch._ops.OpOverload))
    if not names:
        raise UnsupportedError("the operators of torch's ONNX exporter are not known in this version of torch")
    if kept is not None:
        with contextlib.suppress(FileError, OSError):
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(kept, "the list of operators") as file:
                file.write(json.dumps(sorted(names)).encode())
    return names


@functools.cache
def registry() -> Any:
    """What torch's ONNX exporter knows of operators.

    Raises `MissingPackageError` where one of its libraries is not installed.
    """
    need("onnxscript", "torch.compile with this backend", ("onnx", "onnxscript"))
    from torch.onnx._internal.exporter import _registration

    found = _registration.ONNXRegistry.from_torchlib()
    for target, function in translations().items():
        found.register_op(target, function)
    return found


def _kept_names() -> Path | None:
    import importlib.metadata

    folder = _native.cache_dir()
    if folder is None:
        return None
    try:
        version = importlib.metadata.version("onnxscript")
    except importlib.metadata.PackageNotFoundError:
        version = need("onnxscript", "torch.compile with this backend", ("onnx", "onnxscript")).__version__
    return Path(folder) / f"operators-{torch.__version__}-{version}.json"


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """What takes operators apart that the exporter does not write."""
    from torch._decomp import core_aten_decompositions

    from neurenix.torch.rewrites import encoder_layer

    table: dict[Any, Callable[..., Any]] = {
        target: function
        for target, function in dict(core_aten_decompositions()).items()
        if isinstance(target, torch._ops.OpOverload) and operator_name(target) not in exportable()
    }
    table[torch.ops.aten._transformer_encoder_layer_fwd.default] = encoder_layer
    return table


@contextlib.contextmanager
def kept_whole() -> Iterator[None]:
    """Lets torch trace the operators of `KEPT_WHOLE` as they are."""
    try:
        from torch._export.utils import _special_op_to_preserve_cia
        from torch.export.exported_program import _override_composite_implicit_decomp
    except ImportError as error:
        LOG.debug("this torch takes all composite operators apart", exc_info=error)
        yield
        return
    whole: dict[Any, Callable[..., Any]] = dict.fromkeys(_composites(), _special_op_to_preserve_cia)
    if _INSTANCE_NORM in whole:
        whole[_INSTANCE_NORM] = _instance_norm
    with _override_composite_implicit_decomp(whole):
        yield


_INSTANCE_NORM = torch.ops.aten.instance_norm.default


def _instance_norm(*args: Any, **kwargs: Any) -> Any:
    """Taken apart where it writes into running statistics, which its schema does not say."""
    given = {argument.name: one for argument, one in zip(_INSTANCE_NORM._schema.arguments, args, strict=False)} | kwargs
    if given.get("running_mean") is None or not given.get("use_input_stats"):
        return NotImplemented
    return _INSTANCE_NORM._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


@functools.cache
def _composites() -> tuple[Any, ...]:
    from torch._export.utils import _is_preservable_cia_op

    found = []
    for name in KEPT_WHOLE:
        namespace, packet, overload = name.split(".")
        operator = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if operator is not None and name in exportable() and _is_preservable_cia_op(operator):
            found.append(operator)
    return tuple(found)
