"""`trt_compile`, in the shape of MONAI's: a module whose first call builds engines, and keeps them in a file."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from neurenix import _native, names
from neurenix.errors import Error, FileError, InvalidArgumentError, UnsupportedError
from neurenix.importers.torch.silence import first_line
from neurenix.log import LOG
from neurenix.torch import stats
from neurenix.torch.compiled import CompiledModule
from neurenix.torch.files import read_program
from neurenix.torch.programs import compile_program
from neurenix.torch.settings import Settings

#: What `args` may have, and its defaults.
_DEFAULTS: dict[str, Any] = {
    "precision": "fp16",
    "method": "onnx",
    "input_names": None,
    "output_names": None,
    "output_lists": None,
    "export_args": None,
    "build_args": None,
    "input_profiles": None,
    "dynamic_batchsize": None,
    "use_cuda_graph": False,
    "timestamp": None,
    "fallback": False,
}
#: What is done anyway, or by itself.
_WITHOUT_EFFECT = ("method", "output_lists", "export_args", "use_cuda_graph")


def trt_compile(
    model: torch.nn.Module,
    base_path: str | os.PathLike[str],
    args: Mapping[str, Any] | None = None,
    submodule: str | Sequence[str] | None = None,
    logger: Any = None,
) -> torch.nn.Module:
    """Has the first call of a module, or of some of its submodules, build engines; gives the module back.

    They are kept in `f"{base_path}[.{submodule}].pt2"`, and built anew where what torch exports (the first call of each
    process does so), weights, `args` or versions are others. Hooks of the module run in torch, around its engines.
    `args`: "precision" ("fp16"), "dynamic_batchsize" ([min, opt, max]), "input_profiles" ([{name: [min, opt, max]}]),
    "input_names" (those of forward), "output_names" (calls then give a dict), "build_args" (options of
    `optimize_model`), "timestamp" (an older file is built anew), "fallback" (what an engine refuses runs in torch, with
    one warning).

    Raises `InvalidArgumentError` for an unknown name, and an input or a submodule that is not there; the first call
    raises as `torch_tensorrt.compile`.
    """
    given = dict(args or {})
    for name in given:
        if name not in _DEFAULTS:
            raise InvalidArgumentError(
                f"there is no argument {name!r}", expected=", ".join(_DEFAULTS), hint=names.hint(name, list(_DEFAULTS))
            )
    wanted = {**_DEFAULTS, **given}
    settings = Settings.of({"precision": wanted["precision"], "freeze": True, **(wanted["build_args"] or {})})
    chosen = [submodule] if isinstance(submodule, str) else list(submodule or [])
    for name in chosen or [""]:
        try:
            found = model.get_submodule(name)
        except AttributeError as error:
            known = [one for one, _ in model.named_modules()]
            raise InvalidArgumentError(f"there is no submodule {name!r}", hint=names.hint(name, known)) from error
        path = Path(f"{os.fspath(base_path)}{'.' + name if name else ''}.pt2")
        _Lazy(found, path, wanted, settings, _time_of(base_path, wanted["timestamp"])).put()
    return model


def _time_of(path: str | os.PathLike[str], timestamp: float | None) -> float:
    """When what engines are made of was changed: the file at the path is the checkpoint, where there is one."""
    there = os.path.getmtime(path) if os.path.isfile(path) else 0.0
    return max(there, float(timestamp or 0.0))


class _Lazy:
    """What runs in place of a module's forward."""

    def __init__(
        self, module: torch.nn.Module, path: Path, args: Mapping[str, Any], settings: Settings, changed: float
    ) -> None:
        self._module, self._path, self._args, self._settings, self._changed = module, path, args, settings, changed
        self._forward = module.forward
        self._signature = inspect.signature(module.forward)
        _check_names(args["input_names"] or (), self._signature)
        self._lock = threading.Lock()
        self._run: Any = None
        self._compiled_for: list[str] = []
        self._failed = False
        self._warned = False

    def __reduce__(self) -> Any:
        """A copy reads the engines from the file, or builds its own."""
        return _Lazy, (self._module, self._path, self._args, self._settings, self._changed)

    def put(self) -> None:
        """Takes the place of the module's forward, once."""
        if not hasattr(self._module, "_neurenix_lazy"):
            self._module.__dict__["_neurenix_lazy"] = self
            self._module.__dict__["forward"] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._failed:
            return self._forward(*args, **kwargs)
        # As torch does, this refuses what the module does not take.
        bound = self._signature.bind(*args, **kwargs)
        try:
            given = self._given(bound)
            if self._run is None:
                with self._lock:
                    self._run = self._run or self._prepared(given)
            if list(given) != self._compiled_for:
                raise InvalidArgumentError(
                    "the engines are those of other arguments",
                    expected=", ".join(self._compiled_for),
                    got=", ".join(given),
                    hint='call with the same arguments, or give "fallback": True, which runs others in torch',
                )
            with torch.no_grad():
                results = self._run(**given)
        except Error as error:
            if not self._args["fallback"]:
                raise
            self._failed = self._run is None
            self._tell(error)
            results = self._forward(*args, **kwargs)
        return self._named(results)

    def _given(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """The arguments by name, without those that are what they are by default."""
        given: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            parameter = self._signature.parameters[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                given.update(value)
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise UnsupportedError(
                    f"the argument {name!r} has no name", hint="give the module a forward whose arguments have names"
                )
            elif value is not parameter.default:
                given[name] = value
        return given

    def _tell(self, error: Error) -> None:
        stats.count("fallbacks")
        if not self._warned:
            self._warned = True
            LOG.warning("%s runs in torch: %s", type(self._module).__name__, first_line(error))

    def _named(self, results: Any) -> Any:
        wanted = self._args["output_names"]
        if not wanted or isinstance(results, dict):
            return results
        given = results if isinstance(results, (tuple, list)) else [results]
        if len(given) != len(wanted):
            raise InvalidArgumentError(
                "output_names has another length than the outputs", expected=str(len(given)), got=", ".join(wanted)
            )
        return dict(zip(wanted, given, strict=True))

    def _prepared(self, given: Mapping[str, Any]) -> Any:
        from neurenix.torch_tensorrt import dynamo

        self._compiled_for = list(given)
        inputs = {name: self._input(name, value) for name, value in given.items()}
        with self._bare():
            program = dynamo.trace(self._module, kwarg_inputs=inputs)
        digest = self._digest(program, given)
        kept = self._kept(digest)
        if kept is not None:
            return kept
        made = compile_program(program, (), dynamo.examples(self._module, inputs), self._settings)
        self._keep(made, digest)
        return made

    @contextlib.contextmanager
    def _bare(self) -> Iterator[None]:
        """The module with its own forward, and without its hooks, which torch runs around what takes its place."""
        own = self._module.__dict__
        hooks = ("_forward_hooks", "_forward_pre_hooks")
        before = {name: own[name] for name in ("forward", *hooks)}
        del own["forward"]
        own.update((name, OrderedDict()) for name in hooks)
        try:
            yield
        finally:
            own.update(before)

    def _input(self, name: str, value: Any) -> Any:
        from neurenix.torch_tensorrt.inputs import Input

        found = [profile[name] for profile in self._args["input_profiles"] or () if name in profile]
        batch = self._args["dynamic_batchsize"]
        if not isinstance(value, torch.Tensor) or not (found or (batch and value.ndim)):
            return value
        if not found:
            if len(batch) != 3:
                raise InvalidArgumentError(
                    "dynamic_batchsize has three numbers", expected="[min, opt, max]", got=repr(batch)
                )
            found = [[(extent, *value.shape[1:]) for extent in batch]]
        # One engine for all of the profiles.
        low, high = (
            [bound(one[place][axis] for one in found) for axis in range(value.ndim)]
            for place, bound in ((0, min), (2, max))
        )
        return Input(min_shape=low, opt_shape=found[0][1], max_shape=high, dtype=value.dtype)

    def _digest(self, program: torch.export.ExportedProgram, given: Mapping[str, Any]) -> str:
        """All that the engines depend on: what torch exports, so that whatever the module reads elsewhere is seen."""
        digest = hashlib.sha256()
        left_out = (*_WITHOUT_EFFECT, "timestamp", "fallback")
        shapes = {name: self._described(name, one) for name, one in given.items()}
        args = {name: one for name, one in self._args.items() if name not in left_out}
        code = [one.code for one in program.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
        about = [torch.__version__, _native.__version__, code, str(program.graph_signature), shapes, args]
        digest.update(json.dumps(about, default=str).encode())
        for name, tensor in [*program.state_dict.items(), *program.constants.items()]:
            if isinstance(tensor, torch.Tensor):
                digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _described(self, name: str, value: Any) -> str:
        found = self._input(name, value)
        return f"{value.dtype}{list(value.shape)}" if isinstance(found, torch.Tensor) else repr(found)

    def _kept(self, digest: str) -> Any:
        if not self._path.is_file() or self._path.stat().st_mtime < self._changed:
            return None
        try:
            extra = {_ABOUT: ""}
            program = read_program(self._path, extra)
        except Error as error:
            LOG.warning("%s is built anew: %s", self._path, first_line(error))
            return None
        if extra[_ABOUT] != digest:
            LOG.info("%s is built anew: the weights, the arguments or a version are others", self._path)
            return None
        return program.module()

    def _keep(self, made: CompiledModule, digest: str) -> None:
        whole = self._path.with_name(f".{os.getpid()}.{self._path.name}")
        try:
            torch.export.save(made.exported(), str(whole), extra_files={_ABOUT: digest})
            os.replace(whole, self._path)
        except UnsupportedError as error:
            LOG.warning("the engines are not kept: %s", first_line(error))
        except (OSError, RuntimeError) as error:
            raise FileError(f"the engines can't be written: {first_line(error)}", got=str(self._path)) from error
        finally:
            whole.unlink(missing_ok=True)


def _check_names(given: Sequence[str], signature: inspect.Signature) -> None:
    parameters = list(signature.parameters)
    takes_any = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    for name in given:
        if name not in parameters and not takes_any:
            raise InvalidArgumentError(
                f"the module has no input {name!r}", expected=", ".join(parameters), hint=names.hint(name, parameters)
            )


#: The entry of the file that says what it was made of.
_ABOUT = "neurenix.txt"
