"""A model out of a Hydra configuration: a YAML file with `_target_`. Only classes of allowed packages are made."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neurenix.cli import models
from neurenix.errors import Error, FormatError, InvalidArgumentError
from neurenix.files import check as check_file
from neurenix.log import LOG
from neurenix.packages import need

ENDINGS = (".yaml", ".yml")
#: Where programs keep the model beside other things.
PLACES = ("model", "net", "network", "module")
#: The package whose group of configurations others include.
OURS = "neurenix"
#: The file that a folder of experiments is composed with.
ROOTS = ("train.yaml", "eval.yaml", "config.yaml")
#: Keys that mean something to Hydra where an object is made.
HYDRA_KEYS = ("_target_", "_partial_", "_recursive_", "_convert_", "_args_")
#: How OmegaConf says that it does not know an interpolation.
_UNKNOWN = re.compile(r"Unsupported interpolation type (\S+)")
#: The folder of experiments, which say what differs from the root.
EXPERIMENT = "experiment"


def is_config(path: str | None) -> bool:
    """Whether a file is such a configuration rather than the arguments of a factory."""
    return path is not None and Path(path).suffix.lower() in ENDINGS


def build(path: str, allow: Sequence[str], submodule: str | None = None, resolvers: Sequence[str] = ()) -> Any:
    """What the configuration describes: the object under "model" (or "net", ...) or of the whole file.

    A file with a `defaults` list in a folder `experiment` is composed by Hydra with the root configuration
    (`train.yaml`, ...) of the folder around. Keys that begin with an underscore and are none of Hydra's are helpers,
    and left out once interpolations are resolved. `submodule` names an attribute of the object that is taken instead.
    `resolvers`: NAME=PACKAGE.FUNCTION for interpolations `${NAME:...}` of the project's own, of allowed packages.

    Raises `FormatError` for a file that can't be read or composed, `InvalidArgumentError` for a target that is no class
    of an allowed package, for what its constructor refuses, and `MissingPackageError` without OmegaConf and Hydra.
    """
    check_file(path, "the config")
    models.look_here()
    with _registered(resolvers, allow):
        content = _content(Path(path), allow)
    place = next((name for name in PLACES if _is_target(content.get(name))), None)
    node = content if _is_target(content) else content.get(place) if place else None
    if node is None:
        raise FormatError(
            "the config describes no model", expected=f"_target_, at the top or under {', '.join(PLACES)}",
            got=", ".join(map(str, content)) or "nothing", hint="of a factory's arguments: .json or .toml, and MODEL",
        )  # fmt: skip
    node = _without_helpers(node)
    _check_texts(node, path)
    if node.get("_partial_"):
        raise FormatError("the config describes a function that makes a model, and no model", got=f"{path}: _partial_")
    for target in _targets(node):
        _check_target(target, allow)
    hydra = need("hydra.utils", "making the model of a config")
    try:
        found = hydra.instantiate(node)
    except Error:
        raise
    except Exception as error:
        cause = error.__cause__ or error
        raise InvalidArgumentError(
            f"the model of the config can't be made: {type(cause).__name__}: {cause}", got=str(node["_target_"])
        ) from error
    return _attribute(found, submodule) if submodule else found


def call_with(module: Any, text: str) -> None:
    """Lets calls of a module have these arguments, by name, besides their inputs.

    Raises `InvalidArgumentError` for what is no JSON of an object, or names that `forward` does not have.
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"the arguments of forward can't be read: {error}", got=text) from error
    parameters = inspect.signature(module.forward).parameters
    known = [name for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD]
    takes_any = len(known) < len(parameters)
    unknown = [name for name in given if not takes_any and name not in known] if isinstance(given, dict) else [text]
    if unknown:
        raise InvalidArgumentError(
            "forward has no such arguments", expected=f"a JSON object of {', '.join(known)}", got=str(unknown[0])
        )
    module.forward = functools.partial(module.forward, **given)


def _content(path: Path, allow: Sequence[str]) -> dict[str, Any]:
    """The file as plain dicts and lists, interpolations resolved."""
    omegaconf = need("omegaconf", "reading a config", beside=("hydra",))
    try:
        loaded = omegaconf.OmegaConf.load(path)
        if omegaconf.OmegaConf.is_dict(loaded) and "defaults" in loaded:
            loaded = _composed(path, allow)
        with _as_in_a_run(omegaconf, loaded):
            found = _plain(omegaconf, loaded)
    except Error:
        raise
    except Exception as error:
        unknown = _UNKNOWN.search(str(error))
        raise FormatError(
            f"the config can't be read: {error}", got=str(path),
            hint=f"if it is a function of a package that you allow: --resolver {unknown[1]}=PACKAGE.FUNCTION"
            if unknown else None,
        ) from error  # fmt: skip
    if not isinstance(found, dict):
        raise FormatError("the config is no mapping", got=f"{path}: {type(found).__name__}")
    return found


def _plain(omegaconf: Any, loaded: Any) -> Any:
    keep = [name for name in (*PLACES, "_target_") if omegaconf.OmegaConf.is_dict(loaded) and name in loaded]
    if keep and "_target_" not in keep:
        # What stands elsewhere may point to what only a run of the program knows.
        return {name: _resolved(omegaconf, loaded, name) for name in keep}
    return omegaconf.OmegaConf.to_container(loaded, resolve=True)


def _resolved(omegaconf: Any, loaded: Any, name: str) -> Any:
    node = loaded[name]
    return omegaconf.OmegaConf.to_container(node, resolve=True) if omegaconf.OmegaConf.is_config(node) else node


def _composed(path: Path, allow: Sequence[str]) -> Any:
    """A file that builds on others, with them."""
    hydra = need("hydra", "composing a config")
    parts = path.resolve().parts
    if EXPERIMENT in parts:
        at = len(parts) - 1 - parts[::-1].index(EXPERIMENT)
        folder = Path(*parts[:at])
        root = next((name for name in ROOTS if (folder / name).exists()), None)
        if root is None:
            raise FormatError(
                "there is no root configuration to compose the experiment with", expected=", ".join(ROOTS),
                got=str(folder),
            )  # fmt: skip
        name, overrides = root, [f"+{EXPERIMENT}={Path(*parts[at + 1 :]).with_suffix('').as_posix()}"]
        if any(EXPERIMENT in line for line in (folder / root).read_text(encoding="utf-8").splitlines()):
            overrides = [overrides[0].removeprefix("+")]
    else:
        folder, name, overrides = path.resolve().parent, path.name, []
    _check_search_path(folder / name, allow)
    with hydra.initialize_config_dir(str(folder), version_base=None):
        return hydra.compose(name.removesuffix(".yaml"), overrides, return_hydra_config=True)


@contextmanager
def _as_in_a_run(omegaconf: Any, loaded: Any) -> Iterator[None]:
    """Inside of the block interpolations `${hydra:...}` of a composed configuration give what they do in a run here."""
    if not omegaconf.OmegaConf.is_dict(loaded) or omegaconf.OmegaConf.select(loaded, "hydra.runtime") is None:
        yield
        return
    with omegaconf.read_write(loaded), omegaconf.open_dict(loaded):
        loaded.hydra.runtime.cwd = loaded.hydra.runtime.output_dir = str(Path.cwd())
    run = need("hydra.core.hydra_config", "composing a config").HydraConfig.instance()
    # That of a program of Hydra's which calls this one.
    before = run.cfg
    run.set_config(loaded)
    try:
        yield
    finally:
        run.cfg = before


@contextmanager
def _registered(resolvers: Sequence[str], allow: Sequence[str]) -> Iterator[None]:
    """Inside of the block the project's interpolations are known.

    Raises `InvalidArgumentError` for what is no function of an allowed package, or a name that is taken.
    """
    if not resolvers:
        yield
        return
    config = need("omegaconf", "reading a config", beside=("hydra",)).OmegaConf
    names = []
    try:
        for text in resolvers:
            name, _, target = text.partition("=")
            if not name or config.has_resolver(name):
                raise InvalidArgumentError(
                    "a resolver has a name that is free", expected="--resolver NAME=PACKAGE.FUNCTION", got=text
                )
            config.register_new_resolver(name, _allowed(target, allow, "the function of a resolver"))
            names.append(name)
        yield
    finally:
        for name in names:
            config.clear_resolver(name)


def _without_helpers(node: Any) -> Any:
    """A configuration without the keys that are there for others to point to."""
    if isinstance(node, Mapping):
        kept = {key: _without_helpers(value) for key, value in node.items() if not _is_helper(key)}
        for key in filter(_is_helper, node):
            LOG.info("the config's key %r is no argument, and is left out", key)
        return kept
    return [_without_helpers(value) for value in node] if isinstance(node, list) else node


def _is_helper(key: Any) -> bool:
    return isinstance(key, str) and key.startswith("_") and key not in HYDRA_KEYS


def _is_target(node: Any) -> bool:
    return isinstance(node, Mapping) and "_target_" in node


def _targets(node: Any) -> Iterator[Any]:
    """Every `_target_` in a configuration."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield node["_target_"]
        for value in node.values():
            yield from _targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value)


def _check_texts(node: Any, path: str) -> None:
    """Raises `FormatError` for interpolations that resolving left, such as escaped ones: making the object would
    resolve them, and what they stand for, another `_target_` perhaps, was never looked at.
    """
    if isinstance(node, str) and "${" in node:
        raise FormatError("the config hides an interpolation in a text", got=f"{path}: {node}")
    children = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for key, value in children:
        _check_texts(key, path)
        _check_texts(value, path)


def _check_search_path(path: Path, allow: Sequence[str]) -> None:
    """Raises `InvalidArgumentError` for a search path in a package that is not allowed: Hydra would import it."""
    omegaconf = need("omegaconf", "reading a config", beside=("hydra",))
    given = omegaconf.OmegaConf.select(omegaconf.OmegaConf.load(path), "hydra.searchpath")
    for place in given if omegaconf.OmegaConf.is_list(given) else [given]:
        kind, colon, rest = ("" if place is None else str(place)).partition(":")
        package = rest.strip("/").partition(".")[0].partition("/")[0]
        if "$" in kind + rest or (colon and kind != "file" and (kind != "pkg" or package not in (*allow, OURS))):
            raise InvalidArgumentError(
                "the config looks for others in a package that is not allowed, which would be imported",
                expected=f"file://FOLDER, or packages among {', '.join([*allow, OURS])}",
                got=f"{path}: {place}",
                hint=f"if you trust it: --allow {package}",
            )


def _check_target(target: Any, allow: Sequence[str]) -> None:
    """Raises `InvalidArgumentError` for what is no class of an allowed package; nothing of others is imported."""
    found = _allowed(str(target), allow, "an object that the config makes")
    if not isinstance(found, type):
        raise InvalidArgumentError(
            "a target of the config is no class of an allowed package", expected=f"a class of {', '.join(allow)}",
            got=f"{target}: {type(found).__name__}",
        )  # fmt: skip


def _allowed(text: str, allow: Sequence[str], what: str) -> Any:
    """What has this path; raises `InvalidArgumentError` where an allowed package neither has nor made it."""
    package = text.partition(".")[0]
    if package not in allow or "." not in text:
        raise InvalidArgumentError(
            f"{what} is of a package that is not allowed",
            expected=", ".join(allow) or "no package is allowed",
            got=text,
            hint=f"if you trust it: --allow {package}",
        )
    name, _, attribute = text.rpartition(".")
    try:
        found = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"there is no {text!r}: {error}") from error
    # A module of an allowed package may hold what it imported from others.
    module = str(getattr(found, "__module__", None))
    if not callable(found) or module.partition(".")[0] not in allow:
        raise InvalidArgumentError(
            f"{what} is not of an allowed package", expected=f"what {', '.join(allow)} made", got=f"{text}: {module}"
        )
    return found


def _attribute(found: Any, path: str) -> Any:
    for name in path.split("."):
        if not hasattr(found, name):
            raise InvalidArgumentError(f"the model has no attribute {path!r}", got=type(found).__name__)
        found = getattr(found, name)
    return found
