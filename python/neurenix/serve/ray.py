"""Models on Ray Serve: replicas that speak Open Inference Protocol v2 over Ray's HTTP, and batch as the server does.

Needs Ray (`pip install "ray[serve]>=2.40"`), which stands in an environment of its own where other packages mind its
versions.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from neurenix.errors import InvalidArgumentError
from neurenix.packages import need
from neurenix.serve import http_format
from neurenix.serve.config import ServeOptions
from neurenix.serve.registry import Registry
from neurenix.serve.repository import Repository
from neurenix.serve.served import Served
from neurenix.serve.spec import Array, Request, complete, tensor_of, wanted_outputs
from neurenix.serve.status import Refused, Status, refusal


class Replica:
    """What runs in each of Ray's replicas: models, which requests name in their path or by `multiplexed_model_id`.

    With `resident`, models are loaded when a request first wants them, and the one that was not asked for the longest
    goes when there are more than so many. Otherwise all are loaded at the start.
    """

    def __init__(self, models: Sequence[str], options: ServeOptions, resident: int | None) -> None:
        self._registry = Registry(Repository(list(models)), options, keep_previous=False)
        self._resident = resident
        self._used: dict[str, None] = {}
        self._loading: asyncio.Lock | None = None

    async def __call__(self, request: Any) -> Any:
        """A request of HTTP, as Ray gives it: /v2/models/NAME/infer, /v2/models/NAME/ready and /v2/health/..."""
        responses = need("starlette.responses", "serving by Ray")
        status, headers, body = await self.answer(request.url.path, dict(request.headers), await request.body())
        return responses.Response(body, status, headers)

    async def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a request of HTTP, whose headers have small letters.

        For deployments in front of this one, which pass on what they were asked: `handle.answer.remote(...)`. What is
        refused is a status and JSON as by HTTP, and raises nothing.
        """
        try:
            found, content = await self._answer(path, headers, body)
        except Exception as error:
            refused = refusal(error)
            more = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
            text = json.dumps({"error": str(refused)}).encode()
            return refused.status.http, {"content-type": "application/json"} | more, text
        return 200, {key.decode(): value.decode() for key, value in found}, content

    async def _answer(
        self, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[list[tuple[bytes, bytes]], bytes]:
        words = path.strip("/").split("/")
        words = words[words.index("v2") :] if "v2" in words else words
        if words[:2] == ["v2", "health"]:
            return [], b""
        if len(words) != 4 or words[:2] != ["v2", "models"] or words[3] not in ("infer", "ready"):
            raise Refused(Status.NOT_FOUND, "there is nothing at this path", got=path[:200])
        served = await self._served(words[2])
        if words[3] == "ready":
            return [], b""
        decoded = http_format.decode(served, body, headers.get(http_format.LENGTH_HEADER.decode()))
        return http_format.encode(served, decoded, await served.infer(decoded))

    async def infer(self, inputs: Mapping[str, Array], model: str = "") -> dict[str, Array]:
        """The outputs of a model by name, for calls by a handle of Ray's; without a name the only one is asked.

        Raises `Refused` for arrays that do not fit.
        """
        served = await self._served(model or self._only())
        spec = served.spec
        arrays = dict(inputs)
        for name, array in arrays.items():
            tensor = spec.by_name.get(name)
            datatype = tensor.datatype if tensor is not None and tensor.dtype == array.dtype else str(array.dtype)
            tensor_of(spec, name, datatype, array.shape)
        return await served.infer(Request("", arrays, complete(spec, arrays), wanted_outputs(spec, []), priority=5))

    def _only(self) -> str:
        names = self._registry.repository.names()
        if len(names) != 1:
            raise InvalidArgumentError("which model is asked must be said", expected=", ".join(names), got="none")
        return names[0]

    async def _served(self, name: str) -> Served:
        """A version that answers, loaded first where it is not."""
        if self._loading is None:
            self._loading = asyncio.Lock()
        if name not in self._used:
            async with self._loading:
                if name not in self._used:
                    await self._registry.load(name)
                    self._used[name] = None
                    await self._drop_oldest()
        # The last one that was asked stands at the end.
        self._used.pop(name, None)
        self._used[name] = None
        return self._registry.find(name)

    async def _drop_oldest(self) -> None:
        while self._resident is not None and len(self._used) > self._resident:
            oldest = next(iter(self._used))
            del self._used[oldest]
            await self._registry.unload(oldest)

    async def check_health(self) -> None:
        """What Ray asks a replica from time to time; at first it loads all models, and Ray waits for that."""
        if self._resident is None:
            for name in self._registry.repository.names():
                await self._served(name)


def application(
    models: Sequence[str] | str,
    *,
    options: ServeOptions | None = None,
    resident: int | None = None,
    replicas: int | tuple[int, int] = 1,
    target_ongoing_requests: float = 16,
    max_ongoing_requests: int = 64,
    cpus: float = 1,
    gpus: float = 0,
    startup_timeout_s: float = 600,
    name: str = "neurenix",
) -> Any:
    """An application for `ray.serve.run`.

    `models` as `neurenix.serve.Server` takes them. `resident`: how many of them a replica holds at most, loaded when
    they are wanted; None: all, from the start. `replicas`: a number, or the least and the greatest, between which Ray
    scales so that each has `target_ongoing_requests`. `gpus` may be a fraction, for replicas that share one.
    `startup_timeout_s`: how long loading and warming up may take.

    Raises `MissingPackageError` without Ray, and `InvalidArgumentError` and `FileError` as `Server`.
    """
    serve = need("ray.serve", "neurenix.serve.ray")
    given = [models] if isinstance(models, str) else list(models)
    Repository(given)
    if options is None:
        options = ServeOptions(device="auto" if gpus else "cpu", optimize={"threads": max(1, round(cpus))})
    settings: dict[str, Any] = {
        "name": name,
        "ray_actor_options": {"num_cpus": cpus, "num_gpus": gpus},
        "max_ongoing_requests": max_ongoing_requests,
        "health_check_timeout_s": startup_timeout_s,
        "graceful_shutdown_timeout_s": 30,
    }
    if isinstance(replicas, tuple):
        settings["autoscaling_config"] = {
            "min_replicas": replicas[0], "max_replicas": replicas[1],
            "target_ongoing_requests": target_ongoing_requests,
        }  # fmt: skip
    else:
        settings["num_replicas"] = replicas
    return serve.deployment(**settings)(Replica).bind(given, options, resident)


def build(arguments: dict[str, Any]) -> Any:
    """`application` for configurations of Ray, whose `args` are its arguments: `import_path: neurenix.serve.ray:build`.

    `replicas` may be a list of two. Raises as `application`, and `InvalidArgumentError` for arguments that it has not.
    """
    known = set(inspect.signature(application).parameters) - {"options"}
    if unknown := set(arguments) - known:
        raise InvalidArgumentError(
            "there is no such argument", expected=", ".join(sorted(known)), got=", ".join(map(str, unknown))
        )
    given = dict(arguments)
    if isinstance(given.get("replicas"), list):
        given["replicas"] = tuple(given["replicas"])
    return application(**given)
