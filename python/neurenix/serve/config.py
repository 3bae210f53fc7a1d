"""How a model is served: what config.pbtxt and the command line say, and what the engine knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from neurenix.errors import FormatError, InvalidArgumentError, UnsupportedError
from neurenix.packages import need
from neurenix.serve import messages
from neurenix.serve.batcher import Limits
from neurenix.serve.spec import NAMES, Spec, TensorSpec

#: The greatest batch where nothing else says one.
MAX_BATCH = 16
#: Each instance is a thread.
MOST_INSTANCES = 1024
#: What an engine of ours is called in metadata and config.
BACKEND = "neurenix"
PLATFORM = "neurenix_engine"

#: Backends of config.pbtxt whose files this server runs too.
_BACKENDS = ("", BACKEND, "onnxruntime", "tensorrt", "python")


@dataclass(frozen=True)
class ServeOptions:
    """What holds for every model whose config.pbtxt does not say otherwise.

    `max_batch` None: what the engine's profiles say, else 16; 0: no batching. `tune`: whether it is measured how many
    rows are put together at best. `optimize`: options of `optimize_model`.

    Raises `InvalidArgumentError` for a number of instances that no machine has threads for, and a queue of none.
    """

    max_batch: int | None = None
    max_queue: int = 256
    max_delay_us: int = 0
    default_timeout_us: int = 0
    instances: int = 1
    precision: str = "fp32"
    device: str = "auto"
    warmup: bool = True
    tune: bool = True
    optimize: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.instances <= MOST_INSTANCES:
            raise InvalidArgumentError(
                "a model can't have so many instances", expected=f"1 to {MOST_INSTANCES}", got=str(self.instances)
            )
        if self.max_queue < 1:
            raise InvalidArgumentError(
                "the queue of a model holds one request", expected="max_queue of 1 or more", got=str(self.max_queue)
            )


@dataclass(frozen=True)
class ModelOptions:
    """How one model is served. `config` is the message of its config.pbtxt, or None."""

    options: ServeOptions
    config: Any = None

    @classmethod
    def of(cls, options: ServeOptions, config: Any) -> ModelOptions:
        """Options with what a config says in their place.

        Raises `UnsupportedError` for what this server lacks, `FormatError` and `InvalidArgumentError` for instances
        that can't be.
        """
        if config is None:
            return cls(options)
        _check(config)
        changes: dict[str, Any] = {"max_batch": config.max_batch_size}
        if config.HasField("dynamic_batching"):
            batching = config.dynamic_batching
            changes["max_delay_us"] = batching.max_queue_delay_microseconds
            policy = batching.default_queue_policy
            if policy.max_queue_size:
                changes["max_queue"] = policy.max_queue_size
            changes["default_timeout_us"] = policy.default_timeout_microseconds
        counts = [group.count or 1 for group in config.instance_group]
        if min(counts, default=1) < 1:
            raise FormatError("config.pbtxt has an instance_group of fewer than no instances", got=str(min(counts)))
        if counts:
            changes["instances"] = sum(counts)
            kinds = messages.load().enums["Kind"]
            if all(group.kind == kinds["KIND_CPU"] for group in config.instance_group):
                changes["device"] = "cpu"
        if "precision" in config.parameters:
            changes["precision"] = config.parameters["precision"].string_value
        return cls(replace(options, **changes), config)

    @property
    def limits(self) -> Limits:
        """How its requests wait."""
        given = self.options
        return Limits(
            instances=given.instances, max_queue=given.max_queue, max_delay_s=given.max_delay_us / 1e6,
            default_timeout_us=given.default_timeout_us,
        )  # fmt: skip

    def versions(self, found: list[int]) -> list[int]:
        """Of the versions that are there, those to be served: the latest, unless the config says otherwise."""
        ordered = sorted(found)
        choice = self.config.version_policy.WhichOneof("policy_choice") if self.config is not None else None
        if choice == "all":
            return ordered
        if choice == "specific":
            return [version for version in ordered if version in self.config.version_policy.specific.versions]
        count = self.config.version_policy.latest.num_versions if choice == "latest" else 1
        return ordered[-max(1, count) :]


def _check(config: Any) -> None:
    choice = config.WhichOneof("scheduling_choice")
    if choice in ("sequence_batching", "ensemble_scheduling"):
        raise UnsupportedError(
            f"{choice} is not done by this server", tensor=None, expected="dynamic_batching", got=choice,
            hint="Triton does both, with our backend",
        )  # fmt: skip
    if config.backend not in _BACKENDS:
        raise UnsupportedError(
            "this server runs no models of such a backend", expected=", ".join(_BACKENDS[1:]), got=config.backend
        )


def parse(text: str) -> Any:
    """The message of a config.pbtxt; fields that this server does not know are skipped.

    Raises `FormatError` with the line that can't be read.
    """
    kind = messages.load().ModelConfig
    text_format = need("google.protobuf.text_format", "config.pbtxt")
    try:
        return text_format.Parse(text, kind(), allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise FormatError(f"config.pbtxt can't be read: {error}") from error


def parse_json(text: str) -> Any:
    """The message of a config as the load request brings it; raises `FormatError`."""
    kind = messages.load().ModelConfig
    json_format = need("google.protobuf.json_format", "a model's config")
    try:
        return json_format.Parse(text, kind(), ignore_unknown_fields=True, max_recursion_depth=20)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise FormatError(f"the config of the request can't be read: {error}") from error


def to_text(config: Any) -> str:
    """A config as config.pbtxt has it."""
    text_format = need("google.protobuf.text_format", "config.pbtxt")
    return str(text_format.MessageToString(config))


def to_dict(config: Any) -> dict[str, Any]:
    """A config as HTTP gives it: fields with the names of the message, and integers of 64 bits as numbers."""
    json_format = need("google.protobuf.json_format", "a model's config")
    text = json_format.MessageToJson(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    found: dict[str, Any] = _with_numbers(json.loads(text), config.DESCRIPTOR)
    return found


def _with_numbers(content: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The JSON form of a message, in which integers of 64 bits are texts, with numbers in their place."""
    found = dict(content)
    for name, value in content.items():
        field = kind.fields_by_name[name]
        many = value if isinstance(value, list) else [value]
        if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            many = [int(one) for one in many]
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            many = [_with_numbers(one, field.message_type) for one in many]
        found[name] = many if isinstance(value, list) else many[0]
    return found


def describe(name: str, spec: Spec, options: ServeOptions) -> Any:
    """The config of a model as it is served."""
    loaded = messages.load()
    config = loaded.ModelConfig(name=name, backend=BACKEND, platform=PLATFORM, max_batch_size=spec.max_batch)
    types = loaded.enums["DataType"]
    for target, tensors in ((config.input, spec.inputs), (config.output, spec.outputs)):
        for tensor in tensors:
            target.add(name=tensor.name, data_type=types[f"TYPE_{tensor.datatype}"], dims=dims(tensor, spec.max_batch))
    kind = loaded.enums["Kind"]["KIND_CPU" if options.device == "cpu" else "KIND_AUTO"]
    config.instance_group.add(name=f"{name}_0", count=options.instances, kind=kind)
    if spec.max_batch:
        batching = config.dynamic_batching
        batching.max_queue_delay_microseconds = options.max_delay_us
        batching.default_queue_policy.max_queue_size = options.max_queue
        batching.default_queue_policy.allow_timeout_override = True
        batching.default_queue_policy.default_timeout_microseconds = options.default_timeout_us
    return config


def dims(tensor: TensorSpec, max_batch: int) -> tuple[int, ...]:
    """The extents that a config has: without the batch, where the model has one."""
    return tensor.shape[1:] if max_batch else tensor.shape


def check_tensors(config: Any, spec: Spec) -> None:
    """Raises `FormatError` where config.pbtxt describes other inputs or outputs than the model has."""
    types = {number: name for name, number in messages.load().enums["DataType"].items()}
    for what, entries, tensors in (("input", config.input, spec.inputs), ("output", config.output, spec.outputs)):
        known = {tensor.name: tensor for tensor in tensors}
        for entry in entries:
            if entry.name not in known:
                raise FormatError(
                    f"config.pbtxt has an {what} that the model has not", expected=", ".join(known), got=entry.name
                )
            wanted = f"TYPE_{NAMES[known[entry.name].dtype]}"
            if types.get(entry.data_type) != wanted:
                raise FormatError(
                    f"config.pbtxt gives {what} {entry.name!r} another dtype", expected=wanted,
                    got=str(types.get(entry.data_type)),
                )  # fmt: skip
            own = dims(known[entry.name], spec.max_batch)
            if len(own) != len(entry.dims) or any(
                -1 not in (a, b) and a != b for a, b in zip(own, entry.dims, strict=True)
            ):
                raise FormatError(
                    f"config.pbtxt gives {what} {entry.name!r} other dims", expected=str(list(own)),
                    got=str(list(entry.dims)),
                )  # fmt: skip
