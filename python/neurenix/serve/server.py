"""The server: both protocols in one event loop, from the first model to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from neurenix.errors import FileError, InvalidArgumentError
from neurenix.log import LOG
from neurenix.packages import need
from neurenix.serve.config import ServeOptions
from neurenix.serve.core import Core
from neurenix.serve.grpc_service import GrpcService
from neurenix.serve.http_app import HttpApp
from neurenix.serve.http_protocol import limited
from neurenix.serve.registry import Registry
from neurenix.serve.repository import Repository
from neurenix.serve.settings import Settings
from neurenix.serve.status import line
from neurenix.serve.tracing import Tracer

#: After the time to answer what was taken, refusals of the rest have so long to go out.
_REFUSALS_S = 2.0


class Server:
    """Serves models by Open Inference Protocol v2, over HTTP and gRPC.

    `models`: paths of files, NAME=PATH, package.module:factory, or folders of models in the shape of Triton's model
    repositories. `run()` serves until the process is told to end. `with Server(...) as server:` serves on a thread of
    its own; `server.http` and `server.grpc` are then its addresses.

    Raises `FileError` and `InvalidArgumentError` for models that are not there, and `MissingPackageError` without the
    packages of the extra `serve`.
    """

    def __init__(
        self, models: Sequence[str], settings: Settings | None = None, options: ServeOptions | None = None
    ) -> None:
        self.settings = settings or Settings()
        self._options = options or ServeOptions()
        self._repository = Repository(list(models))
        self._tracer = Tracer(self.settings.trace)
        if self.settings.http_port is not None:
            need("uvicorn", "serving by HTTP", ["httptools", "uvloop"])
            need("httptools", "serving by HTTP", ["uvloop"])
        need("uvloop", "serving")
        if self.settings.grpc_port is not None:
            need("grpc", "serving by gRPC", ["google"])
        need("google.protobuf", "serving")
        self.http: str | None = None
        self.grpc: str | None = None
        self.core: Core | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._started: Future[None] = Future()
        self._thread: threading.Thread | None = None
        self.clean = True

    def run(self) -> bool:
        """Serves until SIGTERM or SIGINT, then answers what was taken; gives whether all of it was.

        Raises `FileError` where a port is taken.
        """
        loop = _new_loop()
        try:
            loop.run_until_complete(self._serve(signals=True))
        finally:
            loop.close()
        return self.clean

    def start(self) -> None:
        """Serves on a thread of its own; returns when the models are loaded. Raises as `run`."""
        self._thread = threading.Thread(target=self._run_in_thread, name="neurenix-serve", daemon=True)
        self._thread.start()
        self._started.result()

    def stop(self) -> bool:
        """Ends what `start` began, after what was taken is answered; gives whether all of it was."""
        if self._loop is not None and self._end is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end.set)
        if self._thread is not None:
            self._thread.join()
        return self.clean

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run_in_thread(self) -> None:
        loop = _new_loop()
        try:
            loop.run_until_complete(self._serve(signals=False))
        except BaseException as error:
            if self._started.done():
                LOG.error("the server ended: %s", error)
            else:
                self._started.set_exception(error)
        finally:
            loop.close()

    async def _serve(self, signals: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._signalled)
        registry = Registry(self._repository, self._options, self.settings.keep_previous)
        core = self.core = Core(registry, self.settings, self._tracer)
        http = await self._start_http(core) if self.settings.http_port is not None else None
        grpc = await self._start_grpc(core) if self.settings.grpc_port is not None else None
        loading = asyncio.create_task(registry.load_all())
        ended = asyncio.create_task(self._end.wait())
        await asyncio.wait([loading, ended], return_when=asyncio.FIRST_COMPLETED)
        core.loaded = loading.done()
        nothing = core.loaded and self.settings.control == "none" and not list(registry.served())
        if core.loaded and not nothing:
            self._tell(core)
            self._started.set_result(None)
        if nothing:
            self._end.set()
        polling = asyncio.create_task(self._poll(registry)) if self.settings.control == "poll" else None
        await ended
        core.draining = True
        for task in (loading, polling):
            if task is not None:
                task.cancel()
        await self._drain(core, http, grpc)
        if nothing:
            reasons = [f"{row['name']}: {row['reason']}" for row in registry.index() if row["reason"]]
            raise InvalidArgumentError("no model could be loaded", got="; ".join(reasons) or "no models")
        if not self._started.done():
            self._started.set_result(None)

    def _signalled(self) -> None:
        assert self._end is not None
        if self._end.is_set():
            LOG.warning("a second signal: requests that are not answered yet are dropped")
            raise SystemExit(1)
        LOG.info("ending: requests that were taken are answered first")
        self._end.set()

    def _tell(self, core: Core) -> None:
        names = [f"{one.name} version {one.version}" for one in core.registry.served()]
        where = " and ".join(filter(None, [self.http, self.grpc and f"gRPC {self.grpc}"]))
        LOG.info("serving %s at %s", ", ".join(names) or "no model", where)

    async def _poll(self, registry: Registry) -> None:
        while True:
            await asyncio.sleep(self.settings.poll_s)
            try:
                await registry.poll()
            except Exception as error:  # The next look may find them.
                LOG.error("the models can't be looked at: %s", line(error))

    async def _start_http(self, core: Core) -> tuple[Any, asyncio.Task[None]]:
        uvicorn = need("uvicorn", "serving by HTTP")
        listening = _listen(self.settings.host, self.settings.http_port or 0)
        host, port = listening.getsockname()[:2]
        self.http = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        config = uvicorn.Config(
            HttpApp(core), http=limited(self.settings.body_timeout_s), loop="none", lifespan="off", log_config=None,
            access_log=False,
            server_header=False, date_header=False, ws="none", limit_concurrency=self.settings.max_connections,
            backlog=self.settings.max_connections, timeout_keep_alive=75,
            timeout_graceful_shutdown=math.ceil(self.settings.drain_s + _REFUSALS_S),
        )  # fmt: skip
        server = uvicorn.Server(config)
        # The process's signals are ours.
        server.capture_signals = contextlib.nullcontext
        task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.005)
        return server, task

    async def _start_grpc(self, core: Core) -> Any:
        server = GrpcService(core).server()
        host = self.settings.host
        address = f"[{host}]" if ":" in host else host
        try:
            port = server.add_insecure_port(f"{address}:{self.settings.grpc_port or 0}")
        except RuntimeError:
            port = 0
        if port == 0:
            raise FileError("the port is taken, or is none of this machine", got=f"{host}:{self.settings.grpc_port}")
        await server.start()
        self.grpc = f"{address}:{port}"
        return server

    async def _drain(self, core: Core, http: tuple[Any, asyncio.Task[None]] | None, grpc: Any) -> None:
        """No new connections; answers what was taken, for as long as the settings say; ends everything."""
        if http is not None:
            http[0].should_exit = True
        stopping = [asyncio.ensure_future(grpc.stop(self.settings.drain_s + _REFUSALS_S))] if grpc is not None else []
        if http is not None:
            stopping.append(http[1])
        if stopping:
            await asyncio.wait(stopping, timeout=self.settings.drain_s)
        # Refuses what is not answered by now.
        self.clean = await core.registry.close(0.1)
        await asyncio.gather(*stopping)
        if not self.clean:
            LOG.warning("not every request was answered within %g s", self.settings.drain_s)


def _new_loop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = need("uvloop", "serving").new_event_loop()
    return loop


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise FileError(f"the port can't be used: {error.strerror}", got=f"{host}:{port}") from error
    return found
