"""`torch_tensorrt.dynamo`: programs of `torch.export` with engines in them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.importers.torch.silence import eval_mode, first_line
from neurenix.torch.compiled import CompiledModule, copied
from neurenix.torch.graphs import is_open
from neurenix.torch.programs import compile_program, refitted
from neurenix.torch.settings import Settings
from neurenix.torch.tracing import beside_others
from neurenix.torch_tensorrt.inputs import Input


def trace(
    mod: torch.nn.Module | torch.export.ExportedProgram,
    inputs: Any = None,
    *,
    arg_inputs: Any = None,
    kwarg_inputs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> torch.export.ExportedProgram:
    """The program of a module for inputs: `Input`s and tensors, or sequences and dicts of such.

    Raises `InvalidArgumentError` where there are no inputs, `ShapeError` where the module fixes a dimension that should
    vary, `UnsupportedError` where torch can't export it.
    """
    if isinstance(mod, torch.export.ExportedProgram):
        return mod
    args, keywords = _inputs(inputs, arg_inputs, kwarg_inputs)
    positional, dynamic = examples(mod, args), _axes(args)
    named, axes = examples(mod, keywords), _axes(keywords)
    module = _cast(mod, args, keywords)
    try:
        with torch.no_grad(), eval_mode(module), beside_others():
            program = torch.export.export(
                module,
                positional,
                named,
                dynamic_shapes=_by_name(module, dynamic, axes),
                strict=bool(kwargs.get("strict", False)),
            )
    except Exception as error:
        raise UnsupportedError(
            f"torch can't export the module: {first_line(error)}", hint='ir="torch_compile" runs around what it can\'t'
        ) from error
    _check_dynamic(program, args, keywords)
    return program


def compile(
    exported_program: torch.export.ExportedProgram,
    inputs: Any = None,
    *,
    arg_inputs: Any = None,
    kwarg_inputs: Mapping[str, Any] | None = None,
    immutable_weights: bool = True,
    **settings: Any,
) -> CompiledModule:
    """A module that does what a program does, in engines as far as they can.

    `settings` are those of `torch.compile`'s backend "neurenix", Torch-TensorRT's names among them. With
    `immutable_weights=False`, `refit_module_weights` takes it. Raises as `Settings.of` and `compile_program`.
    """
    if not isinstance(exported_program, torch.export.ExportedProgram):
        raise InvalidArgumentError(
            "this is no program", expected="torch.export.ExportedProgram", got=type(exported_program).__name__
        )
    if settings.pop("make_refittable", False) or settings.pop("make_refitable", False):
        immutable_weights = False
    wanted = Settings.of({"freeze": immutable_weights, **settings})
    if inputs is None and arg_inputs is None and kwarg_inputs is None:
        args, keywords = exported_program.example_inputs or ((), {})
        return compile_program(exported_program, tuple(args), dict(keywords), wanted)
    given, named = _inputs(inputs, arg_inputs, kwarg_inputs)
    module = exported_program.module()
    return compile_program(exported_program, examples(module, given), examples(module, named), wanted)


def refit_module_weights(
    compiled_module: CompiledModule,
    new_weight_module: torch.export.ExportedProgram,
    arg_inputs: Any = None,
    kwarg_inputs: Any = None,
    verify_output: bool = False,
    use_weight_map_cache: bool = True,
    in_place: bool = False,
) -> CompiledModule:
    """The compiled module with the weights of another program of the same model; `compiled_module` stays as it is.

    Raises `UnsupportedError` where it was compiled with `immutable_weights=True`, or for `in_place=True`.
    """
    if not isinstance(compiled_module, CompiledModule):
        raise InvalidArgumentError(
            "this is no compiled module", expected="what compile gave", got=type(compiled_module).__name__
        )
    if in_place:
        raise UnsupportedError("weights are replaced in a copy", hint="take what refit_module_weights returns")
    state = {**new_weight_module.state_dict, **new_weight_module.constants}
    made = refitted(compiled_module, state)
    if verify_output:
        _verify(made, new_weight_module, arg_inputs, kwarg_inputs)
    return made


def convert_exported_program_to_serialized_trt_engine(
    exported_program: torch.export.ExportedProgram, inputs: Any = None, **settings: Any
) -> bytes:
    """The engine of a program as bytes, which `trt.Runtime` opens.

    Raises `UnsupportedError` where it takes more than one engine.
    """
    made = compile(exported_program, inputs, **{**settings, "require_full_compilation": True})
    if len(made.engines) != 1:
        raise UnsupportedError("the program takes more than one engine", got=str(len(made.engines)))
    return made.engines[0].engine.numpy().tobytes()


def _verify(made: CompiledModule, program: torch.export.ExportedProgram, args: Any, kwargs: Any) -> None:
    module: Any = program.module()
    given, named = made._examples
    if args is not None:
        given = examples(module, tuple(args))
    if kwargs:
        named = examples(module, dict(kwargs))
    with torch.no_grad():
        found, wanted = (call(*copied(given), **copied(named)) for call in (made, module))
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True)
    if not all(_alike(one, other) for one, other in pairs):
        raise InvalidArgumentError("the outputs differ after the refit", hint="compile the new module")


def _alike(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return bool(one == other)
    return torch.allclose(one, other, rtol=1e-2, atol=1e-2, equal_nan=True)


def _inputs(inputs: Any, arg_inputs: Any, kwarg_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inputs is not None and arg_inputs is not None:
        raise InvalidArgumentError("inputs and arg_inputs mean the same", hint="give one of them")
    given = arg_inputs if inputs is None else inputs
    if given is None and not kwarg_inputs:
        raise InvalidArgumentError(
            "the inputs must be known to compile a module", hint="give inputs=[Input(shape=[...])] or tensors"
        )
    args = () if given is None else tuple(given) if isinstance(given, (list, tuple)) else (given,)
    return tuple(map(_as_input, args)), {name: _as_input(one) for name, one in dict(kwarg_inputs or {}).items()}


def _as_input(given: Any) -> Any:
    def one(leaf: Any) -> Any:
        if isinstance(leaf, (Input, bool, int, float, str, type(None))):
            return leaf
        if isinstance(leaf, torch.Tensor):
            return Input.from_tensor(leaf)
        raise InvalidArgumentError("this is no input", expected="Input or torch.Tensor", got=type(leaf).__name__)

    return pytree.tree_map(one, given)


def examples(module: torch.nn.Module, given: Any) -> Any:
    """Tensors of the shapes to optimise for, in place of `Input`s."""
    weights = next(iter(module.parameters()), None)
    device = weights.device if weights is not None else torch.device("cpu")

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Input):
            return leaf
        if leaf.torch_tensor is not None:
            return leaf.torch_tensor
        example = leaf.example_tensor()
        small = [axis for axis in leaf.dynamic_axes if example.shape[axis] < 2 <= leaf.max_shape[axis]]
        # torch takes a dimension of 0 or 1 for a fixed one.
        if small:
            dims = [2 if axis in small else extent for axis, extent in enumerate(example.shape)]
            example = torch.zeros(dims, dtype=example.dtype)
        return example.to(device)

    return pytree.tree_map(one, given)


def _axes(given: Any) -> Any:
    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Input) or not leaf.dynamic_axes:
            return None
        return dict.fromkeys(leaf.dynamic_axes, torch.export.Dim.AUTO)

    return pytree.tree_map(one, given)


def _by_name(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The dynamic axes by the names of forward's arguments."""
    return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)


class _Cast(torch.nn.Module):
    """A module in one floating-point dtype, for inputs in another."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module
        self._dtype = dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""

        def one(leaf: Any) -> Any:
            floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
            return leaf.to(self._dtype) if floating else leaf

        given, named = pytree.tree_map(one, (args, kwargs))
        return self.module(*given, **named)


def _cast(module: torch.nn.Module, args: Any, kwargs: Any) -> torch.nn.Module:
    """The module, with its inputs converted where `Input`s say another floating-point dtype than its weights have."""
    weights = {one.dtype for one in module.parameters() if one.is_floating_point()}
    given = {one.dtype for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, Input)}
    floating = {one for one in given if one.is_floating_point}
    if len(weights) != 1 or not floating or floating == weights:
        return module
    return _Cast(module, next(iter(weights)))


def _check_dynamic(program: torch.export.ExportedProgram, args: Any, kwargs: Any) -> None:
    wanted = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, Input)]
    names = set(program.graph_signature.user_inputs)
    found = [
        (node.name, node.meta["val"])
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names and isinstance(node.meta.get("val"), torch.Tensor)
    ]
    for (name, tensor), given in zip(found, wanted, strict=False):
        fixed = [axis for axis in given.dynamic_axes if not is_open(tensor.shape[axis])]
        if fixed:
            raise ShapeError(
                "the module fixes a dimension that should vary",
                tensor=name,
                expected=repr(given),
                got=f"axes {fixed} of {list(tensor.shape)}",
            )
