"""Builds: from a checked-out repository to a folder that can be published.

A build is planned, its dependencies are installed and its command is run, each step in a sandbox of its own that knows
nothing of the platform; then what it left is taken. Projects and cronjobs share this, and it knows neither.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from moorage.core.kit import folders
from moorage.runtime.builds import caches, collect, finish, install, tools
from moorage.runtime.builds.detection import detect, managers
from moorage.runtime.builds.detection.frameworks import OUTPUTS
from moorage.runtime.builds.detection.reading import Folder, is_outside
from moorage.runtime.builds.ports import DEFAULT_DIR, BuildFailed, BuildRequest, Built, Plan, Sink
from moorage.runtime.builds.slots import Slots
from moorage.runtime.builds.workshop import Room, Step, Workshop
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.settings import Settings

T = TypeVar("T")
Say = Callable[[str], None]

FIRST_UID = 191_000  # of the users that builds run as, where we are root: one for each place
MB = 2**20


class Builder:
    def __init__(self, settings: Settings, *, is_sandboxed: bool) -> None:
        self._settings = settings
        self._is_sandboxed = is_sandboxed
        self._slots = Slots(settings)
        self._caches = settings.folder("build-cache")

    async def build(self, request: BuildRequest, sink: Sink) -> Built:
        """Build what is asked for; raises BuildFailed. Cancelling it ends the build, and leaves nothing running."""
        folder = detect.open_base(request)
        plan = await asyncio.to_thread(detect.make_plan, request, folder)
        for line in detect.describe(plan):
            _say(sink, line)
        _check_env(request)
        before = set(folder.names())
        if plan.install or plan.build:
            self._check_room(request)
            async with self._slots.one(lambda line: _say(sink, line)) as place:
                await _Build(self._settings, request, folder, plan, sink, self._is_sandboxed).run(place, self._caches)
        said: list[str] = []
        try:
            built = await _to_its_end(_take, request, folder, plan, before, said.append)
            if plan.install and plan.language == "python" and not self._is_sandboxed:
                # It was built elsewhere than it will be: a sandbox has both at one path.
                await _to_its_end(finish.make_movable, built.folder)
            return built
        finally:
            for line in said:
                _say(sink, line)

    def _check_room(self, request: BuildRequest) -> None:
        free_mb = shutil.disk_usage(request.source).free // MB
        if free_mb < self._settings.disk_reserve_mb:
            raise BuildFailed(
                f"the disk of this machine is nearly full: {free_mb:,} MB are free, and builds start only while "
                f"{self._settings.disk_reserve_mb:,} MB are"
            )


class _Build:
    """One build that has its place."""

    def __init__(
        self,
        settings: Settings,
        request: BuildRequest,
        folder: Folder,
        plan: Plan,
        sink: Sink,
        is_sandboxed: bool,
    ) -> None:
        self._settings = settings
        self._request = request
        self._folder = folder
        self._plan = plan
        self._sink = sink
        self._workshop = Workshop(settings, is_sandboxed=is_sandboxed)
        self._has_own_user = is_sandboxed and os.getuid() == 0
        manager = managers.node_manager(folder) if plan.language == "nodejs" else None
        self._env = {**tools.choice(manager), **request.env}
        self._deadline = time.monotonic() + settings.build_minutes * 60

    async def run(self, place: int, root: Path) -> None:
        uid = FIRST_UID + place if self._has_own_user else 0
        scratch = root / f".build-{place}"
        with contextlib.ExitStack() as stack:
            cache = stack.enter_context(caches.held(root, self._request.cache))
            if cache is None:
                _say(self._sink, "another build has this project's cache: this one works without")
            room = Room(self._request.source, self._folder.base, cache.files if cache else scratch / "cache", scratch)
            async with self._prepared(room, cache, uid):
                await self._install(room, uid)
                if self._plan.build:
                    await self._build(room, cache, uid)
                for step in finish.steps(self._plan, self._folder, self._workshop.layout(room), self._request.env):
                    await self._run(room, step, uid)

    @contextlib.asynccontextmanager
    async def _prepared(self, room: Room, cache: caches.Cache | None, uid: int) -> AsyncIterator[None]:
        """Give a build its folders, and take them back whatever becomes of it."""
        try:
            await _to_its_end(self._open, room, cache, uid)
            yield
        finally:
            await _to_its_end(self._close, room, cache)

    def _open(self, room: Room, cache: caches.Cache | None, uid: int) -> None:
        folders.remove(room.scratch)  # A build that was killed may have left it.
        room.make()
        if cache is not None:
            cache.open(is_clean=not self._request.use_caches)
        else:
            room.cache.mkdir(mode=0o755)
        self._workshop.write_tools(room)
        if uid:
            for path in (room.source, room.tmp):
                folders.give(path, uid)
            cache.give(uid) if cache is not None else folders.give(room.cache, uid)

    def _close(self, room: Room, cache: caches.Cache | None) -> None:
        if self._has_own_user:
            folders.give(room.source, 0)
        if cache is not None:
            cache.take(self._folder)
            if self._has_own_user:
                cache.give(0)
            cache.note_size()
            caches.trim(room.scratch.parent)
        folders.remove(room.scratch)

    async def _install(self, room: Room, uid: int) -> None:
        layout = self._workshop.layout(room)
        for step in install.steps(self._plan, self._folder, layout):
            await self._run(room, step, uid)

    async def _build(self, room: Room, cache: caches.Cache | None, uid: int) -> None:
        if cache is not None:
            await _to_its_end(cache.put_back, self._folder, uid)
        await self._run(room, Step("the build command", ["/bin/sh", "-c", self._plan.build]), uid)

    async def _run(self, room: Room, step: Step, uid: int) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise BuildFailed(f"{step.what} was not begun: {self._late()}")
        if not step.is_quiet:
            _say(self._sink, f"$ {self._plan.build if step.argv[:2] == ['/bin/sh', '-c'] else step.what}")
        output = _Output(self._sink)
        job = self._workshop.job(room, step, self._env, uid=uid, timeout_s=left_s)
        done = await sandbox.run(job, output.take)
        output.finish()
        if done.code == 0:
            return
        why = self._late() if done.code == sandbox.TIMED_OUT and done.why else done.why
        said = f"{step.what} failed: {why or f'exit code {done.code}'}"
        if not step.is_optional:
            raise BuildFailed(said)
        if not step.is_quiet:
            _say(self._sink, f"{said}; the app is deployed without")

    def _late(self) -> str:
        minutes = self._settings.build_minutes
        return f"the build took longer than {minutes} minute{'' if minutes == 1 else 's'}"


class _Output:
    """What a program prints, as text: a character may come in two pieces."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def take(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        if text := self._decoders[stream].decode(data):
            self._sink.write(stream, text)

    def finish(self) -> None:
        for stream in ("stdout", "stderr"):
            if text := self._decoders[stream].decode(b"", final=True):
                self._sink.write(stream, text)


def _say(sink: Sink, line: str) -> None:
    sink.write("system", f"{line}\n")


def _check_env(request: BuildRequest) -> None:
    for name, value in request.env.items():
        if not name or "=" in name or "\x00" in name + value:
            raise BuildFailed(
                f"the variable {name!r} cannot be set: its name or value has a character that none may have"
            )


async def _to_its_end(work: Callable[..., T], *args: object) -> T:
    """Run something in a thread to its end, even where the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _take(request: BuildRequest, folder: Folder, plan: Plan, before: set[str], say: Say) -> Built:
    """Find what is to be published and make it plain."""
    if plan.kind == "static":
        plan = replace(plan, output_dir=_output_dir(request, folder, plan, before, say))
    output = Path(os.path.realpath(folder.path / plan.output_dir))
    if is_outside(request.source, output):
        raise BuildFailed(f"buildDir {plan.output_dir!r} is a link that leads out of the repository")
    is_whole = plan.kind == "static" and output == Path(os.path.realpath(folder.path))
    if is_whole and (left := collect.leave_out(output)):
        say(f"left out: {', '.join(left)}")
    files = collect.collect(output, plan.kind, root=request.source, say=say)
    if files == 0:
        raise BuildFailed(f"there is no file in {plan.output_dir or folder.base or 'the repository'} to publish")
    say(f"collected {files:,} file{'' if files == 1 else 's'}")
    return Built(plan, request.source / output.relative_to(os.path.realpath(request.source)))


def _output_dir(request: BuildRequest, folder: Folder, plan: Plan, before: set[str], say: Say) -> str:
    """Return the folder that is published; where the user named none, another that the build has made will do."""
    wanted = plan.output_dir
    if (folder.path / wanted).is_dir():
        return wanted
    is_left = request.is_default_build or request.build_dir.strip() in ("", DEFAULT_DIR)
    made = [name for name in OUTPUTS if name not in before and folder.has_folder(name)]
    if plan.build and is_left and len(made) == 1:
        say(f"there is no folder {wanted}; the build has made {made[0]}, which is published")
        return made[0]
    when = "after the build " if plan.build else ""
    raise BuildFailed(f"{when}there is no folder {wanted} (buildDir); {detect.listed(request, folder.base)}")
