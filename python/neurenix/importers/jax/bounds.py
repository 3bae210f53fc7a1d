"""Indices out of bounds mean to JAX what they do not mean to ONNX: what jax2onnx writes is told so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from neurenix.errors import UnsupportedError

Lower = Callable[[Any, Any], Any]
#: Primitives between constants and indices: JAX counts negative ones from the end, and gives them another axis.
FOLDED = ("add", "broadcast_in_dim", "concatenate", "convert_element_type", "lt", "reshape", "select_n")


def unleaked() -> None:
    """Gives JAX back its cumsum, in whose place jax2onnx leaves one that takes no axis by position."""
    import jax.numpy as jnp
    from jax2onnx.plugins import plugin_system

    plugin_system.import_all_plugins()
    from jax2onnx.plugins.jax.numpy import cumsum

    if jnp.cumsum is getattr(cumsum, "_runtime_cumsum", None):
        jnp.cumsum = cumsum._ORIGINAL_JNP_CUMSUM


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Lets jax2onnx write look-ups, slices, scatters and one-hot vectors that mean what JAX's do."""
    from jax2onnx.plugins import plugin_system
    from jax2onnx.plugins.jax.lax import scatter_utils

    unleaked()
    found = {name: plugin_system.PLUGIN_REGISTRY[name] for name in OWN if name in plugin_system.PLUGIN_REGISTRY}
    flattened = scatter_utils._flatten_updates_after_permute
    try:
        scatter_utils._flatten_updates_after_permute = partial(_flattened, flattened)
        for name, plugin in found.items():
            # The attribute of the object hides the method of its class.
            plugin.lower = partial(OWN[name], plugin.lower)
        yield
    finally:
        scatter_utils._flatten_updates_after_permute = flattened
        for plugin in found.values():
            vars(plugin).pop("lower", None)


def _dynamic_slice(lower: Lower, ctx: Any, eqn: Any) -> Any:
    """dynamic_slice moves a start until the slice lies inside, where ONNX's Slice gives what is there of it."""
    array, *starts = eqn.invars
    extents = zip(array.aval.shape, eqn.params["slice_sizes"], strict=True)
    moved = [_start(ctx, start, size - wanted) for start, (size, wanted) in zip(starts, extents, strict=True)]
    return lower(ctx, _changed(eqn, invars=[array, *moved]))


def _start(ctx: Any, start: Any, last: Any) -> Any:
    """What stands for a start in [0, last]."""
    known = _known(ctx, start)
    if known is not None and _is_fixed(last):
        inside = int(np.clip(int(known), 0, int(last)))
        return start if inside == int(known) else _bound(ctx, _integers(ctx, inside), start)
    if _is_fixed(last) and int(last) == 0:
        return _bound(ctx, _integers(ctx, 0), start)
    limit = _integers(ctx, int(last)) if _is_fixed(last) else _op(ctx, "Squeeze", [_sizes(ctx, [last])], ())
    return _bound(ctx, _clamped(ctx, _int64(ctx, start), limit, start.aval.shape), start)


def _one_hot(lower: Lower, ctx: Any, eqn: Any) -> Any:
    """one_hot of a negative class is all zeros, where ONNX's OneHot counts it from the end."""
    (given,) = eqn.invars
    shape, classes = given.aval.shape, _int64(ctx, given)
    negative = _op(ctx, "Less", [classes, _integers(ctx, 0)], shape, "BOOL")
    inside = _op(ctx, "Where", [negative, _integers(ctx, int(eqn.params["num_classes"])), classes], shape)
    return lower(ctx, _changed(eqn, invars=[_bound(ctx, inside, given)]))


def _gather(lower: Lower, ctx: Any, eqn: Any) -> Any:
    """gather moves indices until what they look up lies inside, or fills something in for those that do not."""
    from jax.lax import GatherScatterMode

    array, indices = eqn.invars
    axes = eqn.params["dimension_numbers"].start_index_map
    last = [array.aval.shape[axis] - eqn.params["slice_sizes"][axis] for axis in axes]
    inside = _changed(eqn, params={**eqn.params, "mode": GatherScatterMode.PROMISE_IN_BOUNDS, "fill_value": None})
    known = _known(ctx, indices)
    if not axes or (known is not None and _are_inside(known, last)):
        return lower(ctx, inside)
    given = _int64(ctx, indices)
    clamped = _clamped(ctx, given, _sizes(ctx, last), indices.aval.shape)
    moved = _changed(inside, invars=[array, _bound(ctx, clamped, indices)])
    if "FILL" not in str(eqn.params.get("mode")):
        return lower(ctx, moved)
    (out,) = eqn.outvars
    found = _Variable(out.aval.shape, out.aval.dtype)
    lower(ctx, _changed(moved, outvars=[found]))
    return ctx.bind_value_for_var(out, _filled(ctx, eqn, ctx.get_value_for_var(found), given, clamped))


def _filled(ctx: Any, eqn: Any, found: Any, given: Any, clamped: Any) -> Any:
    """What was looked up, and what gather fills in where an index was moved."""
    from jax2onnx.plugins.jax.lax import gather

    (out,), shape = eqn.outvars, eqn.invars[1].aval.shape
    same = _op(ctx, "Cast", [_op(ctx, "Equal", [given, clamped], shape, "BOOL")], shape, to=7)
    inside = _op(ctx, "ReduceMin", [same, _integers(ctx, [-1])], shape[:-1], keepdims=0)
    # Along the axes of the slices all are alike.
    offsets = eqn.params["dimension_numbers"].offset_dims
    aligned = tuple(1 if axis in offsets else size for axis, size in enumerate(out.aval.shape))
    inside = _op(ctx, "Unsqueeze", [inside, _integers(ctx, offsets)], aligned) if offsets else inside
    mask, dtype = _op(ctx, "Cast", [inside], aligned, "BOOL", to=9), found.type.dtype
    value = gather._fill_value_array(eqn.params.get("fill_value"), dtype)
    fill = ctx.builder.add_initializer_from_array(name=ctx.fresh_name("fill"), array=value)
    return _op(ctx, "Where", [mask, found, fill], out.aval.shape, dtype.name)


def _take(lower: Lower, ctx: Any, eqn: Any) -> Any:
    """take fills in NaN for what lies outside, which no op of ONNX's does: such constants are refused."""
    array, indices = eqn.invars
    known, size = _known(ctx, indices), array.aval.shape[eqn.params["axis"]]
    if known is not None and _is_fixed(size):
        outside = known[(known < -int(size)) | (known >= int(size))]
        if outside.size:
            raise UnsupportedError(
                "an index of jnp.take is out of bounds, where JAX fills in NaN",
                expected=f"{-int(size)} to {int(size) - 1}",
                got=str(int(outside[0])),
                hint="keep the indices in bounds, or say mode='clip' or mode='fill'",
            )
    return lower(ctx, eqn)


def _flattened(flatten: Callable[..., Any], ctx: Any, updates: Any, *sizes: Any, gather_idx: Any = None) -> Any:
    """The updates of a scatter, of which jax2onnx takes those that lie inside after it has counted on their number."""
    if gather_idx is None:
        return flatten(ctx, updates, *sizes)
    dtype, window = updates.type.dtype.name, sizes[-1]
    shape = _op(ctx, "Concat", [_integers(ctx, [-1]), window], (2,), axis=0)
    rows = _op(ctx, "Reshape", [updates, shape], (None, None), dtype)
    return flatten(ctx, _op(ctx, "Gather", [rows, gather_idx], (None, None), dtype, axis=0), *sizes)


def _known(ctx: Any, indices: Any) -> np.ndarray[Any, Any] | None:
    """The elements of indices that are constant, though arithmetic may lie before them."""
    import jax

    # A folder of jax2onnx's of our own: what it knows more would have other plugins write other ops.
    theirs = ctx._const_folder
    folder = type(theirs)()
    folder._known, folder._producer = dict(theirs._known), theirs._producer
    for name in FOLDED:
        folder.register_handler(name, getattr(jax.lax, f"{name}_p").bind)
    found = folder.try_evaluate(indices)
    return None if found is None else np.asarray(found)


def _are_inside(known: np.ndarray[Any, Any], last: list[Any]) -> bool:
    """Whether constant indices lie in [0, last]."""
    return all(map(_is_fixed, last)) and bool(((known >= 0) & (known <= [int(one) for one in last])).all())


def _is_fixed(size: Any) -> bool:
    from jax2onnx.utils.shape_poly import dim_expr_constant_value

    return isinstance(size, (int, np.integer)) or dim_expr_constant_value(size) is not None


def _clamped(ctx: Any, given: Any, last: Any, shape: Any) -> Any:
    """Integers moved into [0, last]."""
    return _op(ctx, "Max", [_op(ctx, "Min", [given, last], shape), _integers(ctx, 0)], shape)


def _int64(ctx: Any, variable: Any) -> Any:
    return _op(ctx, "Cast", [ctx.get_value_for_var(variable)], variable.aval.shape, to=7)


def _sizes(ctx: Any, sizes: list[Any]) -> Any:
    """Sizes as a list, of which open dimensions may be a part."""
    from jax2onnx.plugins.jax.lax._index_utils import _lower_i64_vector

    return _lower_i64_vector(ctx, sizes, "sizes")


def _integers(ctx: Any, value: Any) -> Any:
    from jax2onnx.plugins.jax.lax._index_utils import _const_i64

    return _const_i64(ctx, np.asarray(value, np.int64), "bound")


def _op(ctx: Any, op: str, inputs: list[Any], shape: Any, dtype: str = "INT64", **attrs: Any) -> Any:
    """A node with one output of a dtype and a shape."""
    import onnx_ir
    from jax2onnx.plugins.jax.lax._index_utils import _builder_op

    kind = onnx_ir.DataType[dtype]
    return _builder_op(ctx, op, inputs, name_hint="inside", dtype=kind, shape=tuple(shape), attributes=attrs)


class _Variable:
    """What jax2onnx asks of a variable of a jaxpr."""

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.aval = SimpleNamespace(shape=shape, dtype=np.dtype(dtype))


def _bound(ctx: Any, value: Any, like: Any) -> Any:
    """A variable of int64 that stands for a value, in the place of another one."""
    variable = _Variable(like.aval.shape, np.int64)
    ctx.bind_value_for_var(variable, value)
    return variable


def _changed(eqn: Any, **parts: Any) -> Any:
    """An equation of a jaxpr with other parts."""
    own = {name: getattr(eqn, name) for name in ("primitive", "invars", "outvars", "params")}
    return SimpleNamespace(**{**own, **parts})


#: What is told to the plugins of jax2onnx's, by their primitives.
OWN: dict[str, Callable[[Lower, Any, Any], Any]] = {
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "jax.nn.one_hot": _one_hot,
    "jax.numpy.take": _take,
}
