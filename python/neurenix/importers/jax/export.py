"""jax2onnx, and the names and shapes of what it converts."""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from neurenix import shapes
from neurenix._native import Network
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.jax import bounds, kinds
from neurenix.importers.muted import muted
from neurenix.importers.onnx.graph import import_model
from neurenix.importers.tensorflow.ports import unique
from neurenix.log import LOG
from neurenix.packages import need

#: The first opset that has all normalizations as ops.
OPSET = 23
#: The symbol of the first dimension of inputs that are given as ranges.
BATCH = "batch"
#: jax2onnx changes JAX, and we change jax2onnx, while a function is converted.
LOCK = threading.Lock()
#: What an open dimension is tried at.
SIZE = 4


def export_function(function: Any, inputs: Any, given: Any, variables: Any) -> Network:
    """See `from_jax`."""
    purpose = "importing a function of JAX's"
    need("jax", purpose, ("jax", "jax2onnx", "onnx"))
    need("jax2onnx", purpose, ("jax2onnx", "onnx"))
    call, names = _called(function, variables)
    specs = _specs(inputs, given, names)
    with LOCK:
        outputs = _outputs(call, specs)
        model = converted(call, list(specs.values()))
    renamed = {port.name: name for port, name in zip(model.graph.input, specs, strict=True)}
    if len(outputs) != len(model.graph.output):
        outputs = unique("output" for _ in model.graph.output)
    renamed |= {port.name: name for port, name in zip(model.graph.output, outputs, strict=True)}
    return import_model(model, None, {}, renamed)


def _called(function: Any, variables: Any) -> tuple[Callable[..., Any], list[str]]:
    """What is called with arrays alone, and the names of its arguments."""
    if kinds.is_linen(function):
        if variables is None:
            raise InvalidArgumentError(
                "a module of Flax's Linen does not have its weights",
                got=type(function).__name__,
                hint="give them: from_jax(module, variables=variables, ...), or a function of arrays that calls "
                "module.apply",
            )
        return lambda *args: function.apply(variables, *args), _arguments(function.__call__)
    if not callable(function):
        raise InvalidArgumentError("this is no function", expected="a function of arrays", got=type(function).__name__)
    if kinds.is_module(function):
        return function, _arguments(function.__call__)
    return function, _arguments(function)


def _arguments(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _specs(inputs: Any, given: Any, names: Sequence[str]) -> dict[str, Any]:
    """A `jax.ShapeDtypeStruct`, or a shape with names for open dimensions, for each argument by name."""
    if inputs is None and given is None:
        raise InvalidArgumentError(
            "the shapes of the arguments must be known", hint="give inputs=[...], or input_shapes={'x': (1, ...)}"
        )
    if inputs is None:
        return _of_shapes(given, names)
    if isinstance(inputs, Mapping):
        ordered = [name for name in names if name in inputs]
        if len(ordered) != len(inputs):
            wrong = next(name for name in inputs if name not in names)
            raise InvalidArgumentError(f"the function has no argument {wrong!r}", expected=", ".join(names))
        return {name: _spec(inputs[name]) for name in ordered}
    own = [*names, *(f"input_{i}" for i in range(len(names), len(inputs)))]
    return {name: _spec(example) for name, example in zip(own, inputs, strict=False)}


def _of_shapes(given: Any, names: Sequence[str]) -> dict[str, Any]:
    if isinstance(given, Mapping) and any(_is_symbolic(shape) for shape in given.values()):
        return _specs(given, None, names)
    found = shapes.profiles(given, names if not isinstance(given, Mapping) else list(given))
    ranges = {name: shape for profile in found for name, shape in profile.items()}
    return _specs({name: _open(name, shape) for name, shape in ranges.items()}, None, names)


def _is_symbolic(shape: Any) -> bool:
    return isinstance(shape, (tuple, list)) and any(isinstance(dim, str) for dim in shape)


def _open(name: str, shape: shapes.Shape) -> tuple[int | str, ...]:
    """A shape with symbols for the dimensions that vary."""
    sizes = zip(shape.min, shape.max, strict=True)
    return tuple(low if low == high else f"{name}_{axis}" if axis else BATCH for axis, (low, high) in enumerate(sizes))


def _spec(example: Any) -> Any:
    import jax

    if isinstance(example, (tuple, list)) and all(isinstance(dim, (int, str)) for dim in example):
        return tuple(example)
    if not hasattr(example, "shape") or not hasattr(example, "dtype"):
        raise InvalidArgumentError(
            "an argument can't be imported", expected="an array, a jax.ShapeDtypeStruct or a shape", got=repr(example)
        )
    return jax.ShapeDtypeStruct(example.shape, jax.dtypes.canonicalize_dtype(example.dtype))


def _outputs(call: Callable[..., Any], specs: Mapping[str, Any]) -> list[str]:
    """What the outputs are called; raises `InvalidArgumentError` where the function fails."""
    import jax

    symbols: dict[str, int] = {}
    examples = []
    for spec in specs.values():
        if isinstance(spec, tuple):
            sizes = [symbols.setdefault(dim, SIZE + len(symbols)) if isinstance(dim, str) else dim for dim in spec]
            spec = jax.ShapeDtypeStruct(tuple(sizes), "float32")
        examples.append(spec)
    try:
        with _quiet():
            bounds.unleaked()
            given = jax.eval_shape(call, *examples)
    except Exception as error:
        raise InvalidArgumentError(
            f"the function fails on such inputs: {_line(error)}",
            got=", ".join(f"{name}: {one.dtype}{list(one.shape)}" for name, one in zip(specs, examples, strict=True)),
        ) from error
    keys = [path for path, _ in jax.tree_util.tree_leaves_with_path(given)]
    return unique(next((str(key.key) for key in reversed(path) if hasattr(key, "key")), "output") for path in keys)


def converted(call: Callable[..., Any], specs: Sequence[Any]) -> Any:
    """The ONNX model that jax2onnx makes of a function; raises `UnsupportedError` where it can't."""
    import jax2onnx
    import onnx

    try:
        with _quiet(), bounds.bounded():
            model = jax2onnx.to_onnx(call, specs, model_name="jax", opset=OPSET, normalization_mode="prefer_native")
        onnx.checker.check_model(model)
    except UnsupportedError:
        raise
    except Exception as error:
        LOG.debug("jax2onnx failed", exc_info=error)
        raise UnsupportedError(
            f"jax2onnx can't convert the function: {_line(error)}", hint=_hint(error, specs)
        ) from error
    return model


def _hint(error: BaseException, specs: Sequence[Any]) -> str:
    symbols = sorted({dim for spec in specs if isinstance(spec, tuple) for dim in spec if isinstance(dim, str)})
    text = _line(error)
    if symbols and ("InconclusiveDimensionOperation" in text or "Symbolic dimension" in text):
        return (
            f"give numbers for the open dimensions ({', '.join(symbols)}): the function can't be written for any size"
        )
    return "write that part in other primitives of JAX's, or leave it out and compute it outside"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps jax2onnx from printing."""
    with warnings.catch_warnings(), muted(("jax2onnx", "jax", "onnx_ir"), "jax2onnx"):
        warnings.simplefilter("ignore")
        yield


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
