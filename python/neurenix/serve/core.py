"""What HTTP and gRPC do alike: health, metadata, statistics, control of the repository, the token."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Coroutine
from typing import Any

from neurenix import __version__
from neurenix.errors import Error
from neurenix.serve import config as configs
from neurenix.serve.registry import Registry
from neurenix.serve.served import Served
from neurenix.serve.settings import Settings
from neurenix.serve.spec import TensorSpec
from neurenix.serve.status import Refused, Status, refusal
from neurenix.serve.tracing import Tracer

#: What the server calls itself, and the extensions of the protocol that it has.
NAME = "neurenix"
EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "schedule_policy", "statistics")


class Core:
    """The server behind both protocols."""

    def __init__(self, registry: Registry, settings: Settings, tracer: Tracer) -> None:
        self.registry = registry
        self.settings = settings
        self.tracer = tracer
        self.loaded = False
        self.draining = False

    @property
    def ready(self) -> bool:
        """Whether requests are taken: all was loaded, something is served, and the server does not end.

        With `strict_readiness`, nothing may have failed to load.
        """
        if not self.loaded or self.draining:
            return False
        models = [model for model in self.registry.models.values() if model.is_wanted]
        served = [model for model in models if model.versions]
        if self.settings.strict_readiness:
            return len(served) == len(models)
        return bool(served) or self.settings.control != "none"

    def authorize(self, authorization: str | None, control: bool = False) -> None:
        """Raises `Refused` where a request needs the token and does not bring it."""
        settings = self.settings
        if control and settings.control != "explicit":
            raise Refused(
                Status.FORBIDDEN, "models can't be loaded and unloaded by request on this server",
                hint="start it with --control explicit",
            )  # fmt: skip
        if settings.token is None or not (control or settings.protect == "all"):
            return
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), settings.token.encode()):
            raise Refused(
                Status.UNAUTHENTICATED, "this needs the server's token", expected="Authorization: Bearer TOKEN"
            )

    def admit(self) -> None:
        """Raises `Refused` where the server takes no more requests for inference."""
        if not self.loaded:
            raise Refused(Status.UNAVAILABLE, "the server is loading its models", retry_after=1)

    async def load(self, name: str, parameters: dict[str, Any]) -> None:
        """Loads a model, or with the parameter `rollback` goes back to what it was; raises `Refused`."""
        if self.draining:
            raise Refused(Status.UNAVAILABLE, "the server is shutting down")
        files = [key for key in parameters if key.startswith("file:")]
        if files:
            raise Refused(
                Status.INVALID, "models do not come by request", got=files[0][:80],
                hint="put the file into the model repository, and load the model then",
            )  # fmt: skip
        override = parameters.get("config")
        if override is not None and not isinstance(override, str):
            raise Refused(Status.INVALID, "the config is no text", got=type(override).__name__)
        try:
            if parameters.get("rollback") is True:
                await finished(self.registry.rollback(name))
            else:
                await finished(self.registry.load(name, override))
        except Refused:
            raise
        except Error as error:
            answer = refusal(error)
            raise Refused(answer.status, f"model {name!r} can't be loaded: {answer}") from error

    async def unload(self, name: str) -> None:
        """Unloads a model; raises `Refused`."""
        await finished(self.registry.unload(name))

    def metadata(self) -> dict[str, Any]:
        """What the server is."""
        return {"name": NAME, "version": __version__, "extensions": list(EXTENSIONS)}

    def model_metadata(self, served: Served) -> dict[str, Any]:
        """What a model takes and gives."""
        versions = self.registry.models[served.name].versions
        return {
            "name": served.name,
            "versions": [str(version) for version in sorted(versions)],
            "platform": configs.PLATFORM,
            "inputs": [_tensor(tensor, served.spec.max_batch) for tensor in served.spec.inputs],
            "outputs": [_tensor(tensor, served.spec.max_batch) for tensor in served.spec.outputs],
        }

    def chosen(self, name: str, version: str) -> list[Served]:
        """The versions of one model, or of all; raises `Refused` for an unknown name."""
        if not name:
            return list(self.registry.served())
        found = self.registry.find(name, version)
        return [found] if version else list(self.registry.models[name].versions.values())

    def statistics(self, served: Served) -> dict[str, Any]:
        """The counts of a version of a model."""
        counts = served.statistics
        durations = {
            "success": counts.success, "fail": counts.fail, "queue": counts.queue,
            "compute_input": counts.compute_input, "compute_infer": counts.compute_infer,
            "compute_output": counts.compute_output,
        }  # fmt: skip
        return {
            "name": served.name,
            "version": str(served.version),
            "last_inference": counts.last_inference_ms,
            "inference_count": counts.inferences,
            "execution_count": counts.executions,
            "inference_stats": {name: vars(duration) for name, duration in durations.items()},
            "batch_stats": [
                {"batch_size": rows} | {name: vars(duration) for name, duration in vars(batch).items()}
                for rows, batch in sorted(counts.batches.items())
            ],
        }


async def finished(work: Coroutine[Any, Any, None]) -> None:
    """Waits for work that goes on to its end even if the client that asked for it leaves."""
    await asyncio.shield(asyncio.ensure_future(work))


def _tensor(tensor: TensorSpec, max_batch: int) -> dict[str, Any]:
    shape = [-1, *tensor.shape[1:]] if max_batch else list(tensor.shape)
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": shape}
