"""The models that are served: loading, unloading, updates beside running requests, and the way back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from neurenix.errors import FileError
from neurenix.log import LOG
from neurenix.serve.config import ModelOptions, ServeOptions
from neurenix.serve.repository import Plan, Repository, check_name
from neurenix.serve.served import Files, Ready, Served, Stamp, prepare, refitted
from neurenix.serve.spec import listed
from neurenix.serve.status import Refused, Status, line

#: An update waits so long for requests to the version before it.
DRAIN_S = 60.0


@dataclass
class Model:
    """A model by name.

    `reasons`: why versions are not served; `previous`: what was served before the last update; `is_wanted`: not once
    it was unloaded.
    """

    name: str
    versions: dict[int, Served] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    state: str = "UNAVAILABLE"
    is_wanted: bool = True
    previous: dict[int, Ready] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def latest(self) -> Served | None:
        """The version that a request without one gets."""
        return self.versions[max(self.versions)] if self.versions else None


class Registry:
    """Everything that is served. All but the making of engines happens in the event loop."""

    def __init__(self, repository: Repository, options: ServeOptions, keep_previous: bool = True) -> None:
        self.repository = repository
        self.options = options
        self._keep_previous = keep_previous
        self.models: dict[str, Model] = {}
        self._building = asyncio.Lock()
        #: Models that could not be loaded, and what their files were like.
        self._failed: dict[str, object] = {}

    def find(self, name: str, version: str = "") -> Served:
        """The version of a model that a request names, or the latest; raises `Refused` where there is none."""
        model = self.models.get(name)
        if model is None:
            check_name(name)
            raise Refused(
                Status.NOT_FOUND, "there is no such model", expected=listed(self.models) or "none is loaded",
                got=repr(name),
            )  # fmt: skip
        found = model.latest if version == "" else self._version(model, version)
        if found is None:
            of_version = model.reasons.get(int(version)) if version else None
            reason = of_version or "; ".join(model.reasons.values()) or model.state.lower()
            raise Refused(Status.UNAVAILABLE, f"model {name!r} is not ready: {reason}", retry_after=1)
        return found

    def _version(self, model: Model, version: str) -> Served | None:
        number = int(version) if version.isascii() and version.isdecimal() and len(version) < 19 else -1
        if number not in model.versions and number not in model.reasons:
            raise Refused(
                Status.NOT_FOUND, f"model {model.name!r} has no such version",
                expected=", ".join(map(str, model.versions)) or "none is ready", got=repr(version[:40]),
            )  # fmt: skip
        return model.versions.get(number)

    def served(self) -> Iterator[Served]:
        """Every version that is ready."""
        for model in self.models.values():
            yield from model.versions.values()

    async def load_all(self) -> None:
        """Loads every model of the repository; those that fail are told and left out."""
        for name in self.repository.names():
            try:
                await self.load(name)
            except Exception as error:  # Whatever is wrong with one model, the others are served.
                LOG.error("model %s is not served: %s", name, line(error))

    async def load(self, name: str, override: str | None = None, polled: bool = False) -> None:
        """Serves a model as its files are now. What is served goes on until the new one is warmed up; then all requests
        get that, at once. An engine whose weights alone are new takes them in place of a second engine.

        Returns when nothing of before is running any more. Raises what making the engine raises, and `Refused` for an
        unknown name: then everything is as it was before, but that of several versions those are served that could be
        made. `polled`: nobody asked for it, and what has no file that could change stays as it is.
        """
        source = self.repository.source(name)
        model = self.models.setdefault(name, Model(name))
        async with model.lock:
            model.is_wanted = True
            if not model.versions:
                model.state = "LOADING"
            failed: dict[int, Exception] = {}
            try:
                plan = source.plan(self.options, override)
                made, failed = await self._make(model, plan, polled)
                if failed and failed.keys() == plan.versions.keys():
                    raise next(iter(failed.values()))
            except BaseException as error:
                if not model.versions:
                    model.state = "UNAVAILABLE"
                    model.reasons = {version: line(each) for version, each in failed.items()} or {1: line(error)}
                raise
            # A version that can't be made anew is served as it was.
            made |= {version: model.versions[version].ready for version in failed if version in model.versions}
            await self._switch(model, made)
            model.reasons |= {version: line(each) for version, each in failed.items()}
            if failed:
                raise next(iter(failed.values()))

    async def _make(self, model: Model, plan: Plan, polled: bool) -> tuple[dict[int, Ready], dict[int, Exception]]:
        """Every version of a plan, ready, or why not; those that are served and have not changed stay as they are."""
        made: dict[int, Ready] = {}
        failed: dict[int, Exception] = {}
        for version, files in plan.versions.items():
            current = model.versions.get(version)
            before = current.ready if current else None
            # One at a time: a build takes all threads.
            async with self._building:
                try:
                    made[version] = await _in_thread(partial(_made, model.name, files, plan.options, before, polled))
                except Exception as error:
                    failed[version] = error
        return made, failed

    async def _switch(self, model: Model, made: dict[int, Ready]) -> None:
        """Serves these versions from now on, and waits until what is replaced has answered."""
        before = dict(model.versions)
        kept = {version: one for version, one in before.items() if made.get(version) is one.ready}
        fresh = {
            version: Served(model.name, version, ready, before[version].statistics if version in before else None)
            for version, ready in made.items()
            if version not in kept
        }
        if not fresh and len(kept) == len(before) and before:
            return
        model.versions = kept | fresh
        model.reasons = {}
        model.state = "READY"
        if before:
            model.previous = {v: one.ready for v, one in before.items()} if self._keep_previous else None
        gone = [one for version, one in before.items() if version not in kept]
        await asyncio.gather(*(one.batcher.close(DRAIN_S) for one in gone))
        LOG.info("model %s: serving %s", model.name, ", ".join(f"version {v}" for v in model.versions))

    async def rollback(self, name: str) -> None:
        """Serves what was served before the last update of a model; raises `Refused` where there is nothing."""
        check_name(name)
        model = self.models.get(name)
        if model is None or model.previous is None:
            raise Refused(
                Status.INVALID, f"there is nothing to go back to for model {name!r}",
                expected="a model that was updated while it was served",
            )  # fmt: skip
        async with model.lock:
            previous = model.previous
            if previous is not None:
                await self._switch(model, previous)

    async def unload(self, name: str) -> None:
        """Serves a model no more, when it has answered what it took; its memory is given back.

        Raises `Refused` for an unknown name.
        """
        check_name(name)
        model = self.models.get(name)
        if model is None:
            raise Refused(Status.NOT_FOUND, "there is no such model", got=repr(name), expected=listed(self.models))
        async with model.lock:
            gone = list(model.versions.values())
            model.is_wanted = False
            model.reasons = {one.version: "unloaded" for one in gone}
            model.versions = {}
            model.previous = None
            model.state = "UNAVAILABLE"
            await asyncio.gather(*(one.batcher.close(DRAIN_S) for one in gone))

    async def poll(self) -> None:
        """Loads models that came or changed, and unloads those whose files are gone."""
        names = self.repository.names()
        for name in [name for name in self.models if name not in names]:
            if self.models[name].versions:
                await self.unload(name)
        for name in names:
            mark = self._mark(name)
            # What failed is tried again when its files change.
            if self._failed.get(name) == mark:
                continue
            try:
                await self.load(name, polled=True)
                self._failed.pop(name, None)
            except Exception as error:  # As in `load_all`.
                self._failed[name] = mark
                LOG.error("model %s stays as it is: %s", name, line(error))

    def _mark(self, name: str) -> object:
        """What changes when the files of a model do."""
        try:
            plan = self.repository.source(name).plan(self.options)
            return {version: files.stamps for version, files in plan.versions.items()}, plan.options
        except Exception as error:
            return line(error)

    def index(self, ready: bool = False) -> list[dict[str, str]]:
        """Name, version, state and reason of every model that is served or could be."""
        found = self.states()
        # Where the folder can't be read, what is served goes on.
        with contextlib.suppress(FileError):
            for name in self.repository.names():
                if name not in self.models:
                    found.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": "not loaded"})
        return [row for row in found if row["state"] == "READY" or not ready]

    def states(self) -> list[dict[str, str]]:
        """As `index`, of those models that were ever loaded; no file is looked at."""
        found = []
        for name, model in self.models.items():
            rows = {version: ("READY", "") for version in model.versions}
            rows |= {
                version: ("UNAVAILABLE", reason) for version, reason in model.reasons.items() if version not in rows
            }
            if not rows:
                found.append({"name": name, "version": "", "state": model.state, "reason": ""})
            for version, (state, reason) in sorted(rows.items()):
                found.append({"name": name, "version": str(version), "state": state, "reason": reason})
        return found

    async def close(self, timeout: float) -> bool:
        """Ends everything, after what was taken is answered; gives whether that was done in time."""
        gone = list(self.served())
        clean = await asyncio.gather(*(one.batcher.close(timeout) for one in gone))
        return all(clean)


async def _in_thread(work: Callable[[], Ready]) -> Ready:
    """What a function gives, from a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Ready] = loop.create_future()

    def settle(result: Ready | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        elif result is not None:
            done.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="neurenix-serve-load", daemon=True).start()
    return await done


def _made(name: str, files: Files, options: ModelOptions, current: Ready | None, polled: bool) -> Ready:
    """A version: as it is where its files have not changed, refitted where its weights alone have, else anew.

    What a function makes has no file, and is made anew where that was asked for.
    """
    if current is not None and current.options == options and current.files.model == files.model:
        now: tuple[Stamp, Stamp] = files.stamps
        if now == current.stamps and (polled or os.path.exists(files.model)):
            return current
        if now[0] == current.stamps[0] and files.weights and current.stamps[1] is not None:
            LOG.info("model %s: taking the weights of %s", name, files.weights)
            return refitted(name, current, files)
    return prepare(name, files, options)
