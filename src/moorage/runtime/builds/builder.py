"""Build a checked-out repository into a folder that can be published.

A build detects a plan, installs the dependencies and runs the build command, each step in its own sandbox without
access to the platform; then it collects the output. Projects and cronjobs use it.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from moorage.core.kit import folders
from moorage.core.kit.processes.deletions import Deletions
from moorage.runtime.builds import (
    caches,
    collect,
    diagnosis,
    environment,
    install,
    outputs,
)
from moorage.runtime.builds.detection import detect, managers, node_versions, preview, reading, table, workspaces
from moorage.runtime.builds.detection.values import own_address
from moorage.runtime.builds.dockerfiles import building as image_builds
from moorage.runtime.builds.node import assets, fonts, openssl, prune, registries, sharp, versions, warnings
from moorage.runtime.builds.ports import (
    BuildDatabases,
    BuildFailed,
    BuildRequest,
    Built,
    NeedsNode,
    NeedsPython,
    Plan,
    Sink,
)
from moorage.runtime.builds.python import finish, hugo
from moorage.runtime.builds.python import install as python_install
from moorage.runtime.builds.slots import Slots
from moorage.runtime.builds.toolchain import toolchains, tools
from moorage.runtime.images.building import threads
from moorage.runtime.sandbox.heavy import HeavyWork
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.settings import Settings

if TYPE_CHECKING:
    from moorage.runtime.images.building.executor import ImageBuilder

T = TypeVar("T")
Say = Callable[[str], None]
OpenDatabases = Callable[[Plan], Awaitable[BuildDatabases]]
MakeImageBuilder = Callable[[], "ImageBuilder"]

FIRST_UID = 191_000  # where the platform runs as root, a build runs as FIRST_UID + number of its slot
MB = 2**20
MAX_BUILDS = 3  # of one request, each with another version of a language
TAIL_CHARS = 64 * 1024
SHELL = ["/bin/sh", "-c"]
# Value of keys that only the running app gets: settings that a build reads may require one.
BUILD_KEY = "only-for-builds-0123456789-0123456789"
COMMAND_CHARS = 80  # of a command in a message


class Builder:
    def __init__(self, settings: Settings, *, is_sandboxed: bool, images: MakeImageBuilder | None = None) -> None:
        """`images` makes the builder of Dockerfiles; None in a process that builds none."""
        self._settings = settings
        self._images = images
        self._is_sandboxed = is_sandboxed
        self._slots = Slots(settings)
        self._caches = settings.folder("build-cache")
        self.deletions = Deletions()
        # For detection and packing, which would take the interpreter lock and memory of this process. In the idle class
        # of the scheduler, a deployment would wait for builds of the same organization.
        self.work = HeavyWork(has_credits=False)

    async def build(self, request: BuildRequest, sink: Sink, databases: OpenDatabases | None = None) -> Built:
        """Build a repository; raises BuildFailed. Cancellation kills its processes.

        `databases` returns those that the commands may use, once the plan is known.
        """
        folder, plan = await preview.plan_of(self.work, request)
        for line in detect.describe(plan, request.health_path):
            _say(sink, line)
        _check_env(request)
        if plan.language == "docker":
            return await self._build_image(request, folder, plan, sink)
        if place := assets.place_of(plan, folder):
            say = partial(_say, sink)
            node = await versions.choose(self._settings, place, say, is_sandboxed=self._is_sandboxed)
            plan = replace(plan, node=node)
        before = set(folder.names())
        if databases is not None and plan.build:
            opened = await databases(plan)
            request = replace(request, env={**opened.env, **request.env}, egress=opened.egress)
        if plan.install or plan.build:
            self._check_room(request)
            async with self._slots.one(lambda line: _say(sink, line)) as slot:
                loop = asyncio.get_running_loop()

                def later(line: str) -> None:
                    loop.call_soon_threadsafe(_say, sink, line)

                try:
                    plan = await self._make(request, folder, plan, sink, slot, later)
                except BuildFailed as error:
                    request = await _with_database(request, plan, error, databases)
                    _say(sink, "note: the build is repeated with the new database")
                    plan = await self._make(request, folder, plan, sink, slot, later)
        lines: list[str] = []
        try:
            built = await threads.to_end(_collect, request, folder, plan, before, lines.append)
            if plan.install and plan.language == "python" and not self._is_sandboxed:
                # Without a sandbox the release runs at another path than it was built at.
                await threads.to_end(finish.make_movable, built.folder)
            return built
        finally:
            self.deletions.run(self._trim_caches)
            for line in lines:
                _say(sink, line)

    async def _make(
        self, request: BuildRequest, folder: reading.Folder, plan: Plan, sink: Sink, slot: int, later: Say
    ) -> Plan:
        """Run a build, and again with the version of a language that it needs; returns the plan with that version."""
        toolset = await threads.to_end(toolchains.find, self._settings, folder, plan, later)
        is_last = False
        for left in reversed(range(MAX_BUILDS)):
            is_last = is_last or not left
            build = _Build(self._settings, request, folder, plan, sink, self._is_sandboxed, toolset, is_last=is_last)
            try:
                await build.run(slot, self._caches)
                break
            except NeedsNode as error:
                node = await versions.choose(
                    self._settings, folder, later, is_sandboxed=self._is_sandboxed, older=error.older
                )
                is_last, plan = not node, replace(plan, node=node or plan.node)
            except NeedsPython as error:
                newer = await threads.to_end(
                    toolchains.find_newer, self._settings, folder, toolset, error.specifier, later
                )
                if newer is None:
                    raise
                toolset = newer
        return plan

    async def _build_image(self, request: BuildRequest, folder: reading.Folder, plan: Plan, sink: Sink) -> Built:
        """Build a Dockerfile; the result is an image in the artifact store."""
        if self._images is None or not self._is_sandboxed:
            raise BuildFailed("images are built in sandboxes, and this machine has none: `moorage doctor` says why")
        say = partial(_say, sink)
        source = await asyncio.to_thread(image_builds.read, request, folder)
        for line in source.describe():
            say(line)
        self._check_room(request)
        async with self._slots.one(say) as slot:
            output = _Output(sink)
            build = image_builds.ImageBuild(self._settings, request, source, self._images(), say, output.take)
            try:
                digest = await build.run(slot, self._caches)
            finally:
                output.finish()
                self.deletions.run(self._trim_caches)
        return Built(replace(plan, image=digest), request.source)

    def _trim_caches(self) -> None:
        if not self._caches.is_dir():
            return  # No build has needed a cache yet.
        disk = shutil.disk_usage(self._caches)
        caches.trim(self._caches, caches.limit(disk.total, disk.free))

    def _check_room(self, request: BuildRequest) -> None:
        free_mb = shutil.disk_usage(request.source).free // MB
        if free_mb < self._settings.disk_reserve_mb:
            raise BuildFailed(
                f"the disk of this machine is nearly full: {free_mb:,} MB are free, and builds start only while "
                f"{self._settings.disk_reserve_mb:,} MB are"
            )


def _node_options(folder: reading.Folder, version: str) -> str:
    """Return the option with which old bundlers run; Node.js before version 17 needs none and refuses it."""
    major = (node_versions.parse(version) or versions.machine_version() or (0,))[0]
    return openssl.OPTION if major >= 17 and node_versions.needs_old_digests(folder) else ""


async def _with_database(
    request: BuildRequest, plan: Plan, error: BuildFailed, databases: OpenDatabases | None
) -> BuildRequest:
    """Return the request with a database that is created for a build which failed without one, else raise its error."""
    is_lacking = diagnosis.lacks_database(str(error), dict(plan.parts))
    if databases is None or not (is_lacking and plan.database and plan.build) or plan.migrates_in_build:
        raise error
    opened = await databases(replace(plan, migrates_in_build=True))
    if opened.egress == request.egress:
        raise error
    return replace(request, env={**opened.env, **request.env}, egress=opened.egress)


class _Build:
    """One build that holds a slot."""

    def __init__(
        self,
        settings: Settings,
        request: BuildRequest,
        folder: reading.Folder,
        plan: Plan,
        sink: Sink,
        is_sandboxed: bool,
        toolset: toolchains.Toolchains,
        *,
        is_last: bool,  # no other version of a language is tried after it
    ) -> None:
        self._is_last = is_last
        self._settings = settings
        self._request = request
        self._folder = folder
        self._plan = plan
        self._sink = sink
        place = assets.place_of(plan, folder)
        used = {folder.base, plan.base, place.base if place else ""}
        self._real_folders = sorted(name for name in used if not folders.has_links(folder.root, folder.root / name))
        manager = managers.node_manager(place) if place else None
        self._environment = environment.BuildEnvironment(
            settings,
            is_sandboxed=is_sandboxed,
            python=toolset.python,
            uv=toolset.uv,
            go=toolset.go,
            jekyll=toolset.jekyll,
            node=versions.find(settings, plan.node),
            node_options=_node_options(place, plan.node) if place else "",
            has_pnpm=manager is not None and manager.name == "pnpm",
            has_own_gyp=place is not None and managers.has_own_gyp(place),
        )
        self._has_own_user = is_sandboxed and os.getuid() == 0
        own = own_address.fill(plan.own_addresses, request.url)
        values = {**dict(plan.values), **own, **dict.fromkeys(plan.keys, BUILD_KEY)}
        self._env = {**tools.choice(manager), **values, **request.env}
        self._deadline = time.monotonic() + settings.build_minutes * 60

    async def run(self, slot: int, cache_root: Path) -> None:
        uid = FIRST_UID + slot if self._has_own_user else 0
        scratch = cache_root / f".build-{slot}"
        with contextlib.ExitStack() as stack:
            cache = stack.enter_context(caches.held(cache_root, self._request.cache))
            if cache is None:
                _say(self._sink, "another build uses this project's cache: this one builds without it")
            cache_path = cache.files if cache else scratch / "cache"
            root = self._plan.base if self._plan.workdir else None
            paths = environment.BuildPaths(self._request.source, self._folder.base, cache_path, scratch, root)
            async with self._prepared(paths, cache, uid):
                await self._install(paths, cache, uid)
                await self._build_assets(paths, uid)
                if self._plan.build:
                    await self._build(paths, cache, uid)
                for step in finish.steps(self._plan, self._folder, self._environment.layout(paths), self._request.env):
                    await self._run(paths, step, uid)
                if self._plan.assets is not None:
                    await threads.to_end(assets.clear, self._plan.assets, self._folder)

    @contextlib.asynccontextmanager
    async def _prepared(
        self, paths: environment.BuildPaths, cache: caches.Cache | None, uid: int
    ) -> AsyncIterator[None]:
        """Create the folders of a build, and clean them up after it."""
        try:
            await threads.to_end(self._open, paths, cache, uid)
            yield
        finally:
            await threads.to_end(self._close, paths, cache)

    def _open(self, paths: environment.BuildPaths, cache: caches.Cache | None, uid: int) -> None:
        folders.remove(paths.scratch)  # of a build that was killed
        paths.make()
        if cache is not None:
            cache.open(is_clean=not self._request.use_caches)
        else:
            paths.cache.mkdir(mode=0o755)
        self._environment.write_tools(paths)
        if self._plan.language == "python":
            python_install.write_requirements(self._folder, paths.bin, self._environment.layout(paths).base)
        if uid:
            for path in (paths.source, paths.tmp):
                folders.change_owner(path, uid)
            cache.give(uid) if cache is not None else folders.change_owner(paths.cache, uid)

    def _close(self, paths: environment.BuildPaths, cache: caches.Cache | None) -> None:
        if self._has_own_user:
            folders.change_owner(paths.source, 0)
        if cache is not None:
            cache.take(self._folder)
            if self._has_own_user:
                cache.give(0)
            cache.note_size()
        folders.remove(paths.scratch)

    async def _install(self, paths: environment.BuildPaths, cache: caches.Cache | None, uid: int) -> None:
        commands = install.steps(self._plan, self._folder, self._environment.layout(paths))
        if not commands:
            return
        name = install.cached_folder(self._plan)
        key = install.cache_key(self._plan, self._folder, commands, self._environment.identity(self._env))
        dependencies = [step for step in commands if step.is_cached]
        is_restored = False
        if cache and key:
            is_restored = await threads.to_end(cache.restore, key, self._folder, name, uid)
        if is_restored:
            _say(self._sink, "dependencies: unchanged, taken from the cache")
            dependencies = []
        if dependencies and self._plan.language == "nodejs":
            await self._mend_lock(paths, uid)
        for step in dependencies:
            await self._run(paths, step, uid)
        if dependencies and self._plan.language == "nodejs":
            await self._repair(paths, uid)
        if cache and key and dependencies:
            await threads.to_end(cache.keep, key, self._folder, name)
        for step in commands:
            if not step.is_cached:
                await self._run(paths, step, uid)

    async def _mend_lock(self, paths: environment.BuildPaths, uid: int) -> None:
        """Replace registries of the lock file that do not exist any more."""
        place = workspaces.install_folder(self._folder)
        step = await asyncio.to_thread(registries.repair, place, self._environment.layout(paths))
        if step is not None:
            await self._run(paths, step, uid)

    async def _repair(self, paths: environment.BuildPaths, uid: int) -> None:
        """Replace packages whose install scripts could not download their libraries."""
        folder = reading.Folder(paths.source, paths.base if paths.root is None else paths.root)
        step = await asyncio.to_thread(sharp.repair, folder, self._environment.layout(paths))
        if step is not None:
            _say(self._sink, f"note: {sharp.NOTE}")
            await self._run(paths, step, uid)

    async def _build_assets(self, paths: environment.BuildPaths, uid: int) -> None:
        if self._plan.assets is None:
            return
        for step in assets.steps(self._plan.assets, self._folder, self._environment.layout(paths)):
            if not await self._run(paths, step, uid):
                break

    async def _build(self, paths: environment.BuildPaths, cache: caches.Cache | None, uid: int) -> None:
        if cache is not None:
            await threads.to_end(cache.put_back, self._folder, uid)
        command = self._plan.build
        layout = self._environment.layout(paths)
        retries: tuple[environment.Retry, ...] = (
            warnings.RETRY,
            warnings.VUE_RETRY,
            sharp.retry(layout),
            openssl.RETRY,
        )
        if self._plan.framework == table.sites.HUGO_SITE:
            retries = (hugo.RETRY,)
        elif self._plan.framework.startswith("Next.js"):
            retries = (fonts.retry(layout), *retries)
        elif self._plan.framework.startswith("Angular"):
            retries = (fonts.angular_retry(), *retries)
        if self._plan.language == "nodejs":
            retries = (*retries, fonts.any_retry(layout))
        step = environment.Step(f"the build command {_shortened(command)}", [*SHELL, command], retries=retries)
        await self._run(paths, step, uid)

    async def _run(self, paths: environment.BuildPaths, step: environment.Step, uid: int) -> bool:
        """Run a command, and again as its retries say; return False for an optional one that failed."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise BuildFailed(f"{step.what} was not started: {diagnosis.timeout(self._settings.build_minutes)}")
        if not step.is_quiet:
            _say(self._sink, f"$ {self._plan.build if step.argv[:2] == SHELL else step.what}")
        output = _Output(self._sink)
        job = self._environment.job(paths, step, self._env, uid=uid, timeout_s=left_s)
        job = replace(job, doors=list(self._request.egress))
        done = await sandbox.run(job, output.take)
        output.finish()
        self._check_folders(paths, step)
        if done.code == 0:
            return True
        if step.is_cached and (older := self._older_node(output.tail)):
            raise NeedsNode(f"{step.what} failed", older)
        retry = next((each for each in step.retries if each.pattern.search(output.tail)), None)
        if retry is not None:
            _say(self._sink, f"note: {retry.note}")
            for name, text in (retry.files(output.tail) if retry.files else {}).items():
                (paths.bin / name).write_text(text)
            others = (*retry.more, *(each for each in step.retries if each is not retry))
            argv = [*step.argv[:-1], f"{retry.prepare} && {step.argv[-1]}"] if retry.prepare else retry.argv
            return await self._run(paths, replace(step, what=retry.what, argv=argv, retries=others), uid)
        # Of an installation, only variables that its error names would help.
        unset = [name for name in self._plan.variables if name not in self._env] if step.argv[:2] == SHELL else []
        why = diagnosis.reason(done, output.tail, self._settings.build_minutes, self._request.project, unset)
        failure = f"{step.what} failed: {why}"
        is_python = self._plan.language == "python" and not self._is_last
        needed = diagnosis.needed_python(output.tail) if is_python else ""
        if not step.is_optional:
            raise NeedsPython(failure, needed) if needed else BuildFailed(failure)
        if not step.is_quiet:
            _say(self._sink, f"{failure}; the app is deployed without")
        return False

    def _check_folders(self, paths: environment.BuildPaths, step: environment.Step) -> None:
        """Raise BuildFailed if a command has put a link in the place of a folder that the platform uses after it."""
        for name in self._real_folders:
            if folders.has_links(paths.source, paths.source / name):
                raise BuildFailed(f"{step.what} replaced the folder {name} by a link: let it write into the folder")

    def _older_node(self, output: str) -> str:
        """Return the older version of Node.js for a module that was not compiled, or ""."""
        if self._plan.language != "nodejs" or self._is_last:
            return ""
        current = node_versions.parse(self._plan.node) or versions.machine_version()
        return node_versions.older(self._folder, current, output) if current else ""


class _Output:
    """Decodes the output of a program; a character may be split between two reads."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.tail = ""  # for the diagnosis of a failure
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def take(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        if text := self._decoders[stream].decode(data):
            self._sink.write(stream, text)
            self.tail = (self.tail + text)[-TAIL_CHARS:]

    def finish(self) -> None:
        for stream in ("stdout", "stderr"):
            if text := self._decoders[stream].decode(b"", final=True):
                self._sink.write(stream, text)


def _shortened(command: str) -> str:
    first, *more = command.splitlines() or [""]
    return f"`{first[:COMMAND_CHARS]}{'…' if more or len(first) > COMMAND_CHARS else ''}`"


def _say(sink: Sink, line: str) -> None:
    sink.write("system", f"{line}\n")


def _check_env(request: BuildRequest) -> None:
    for name, value in request.env.items():
        if not name or "=" in name or "\x00" in name + value:
            raise BuildFailed(
                f"the variable {name!r} cannot be set: its name is empty or has `=`, or it has a NUL character"
            )


def _collect(request: BuildRequest, folder: reading.Folder, plan: Plan, before: set[str], say: Say) -> Built:
    """Find the output folder and reduce it to regular files."""
    if plan.kind == "static":
        plan = replace(plan, output_dir=outputs.find(request, folder, plan, before, say))
    else:
        outputs.check_start(request, folder, plan)
    is_package = plan.kind == "container" and bool(plan.workdir)
    output = Path(os.path.realpath(request.source / plan.base if is_package else folder.path / plan.output_dir))
    if reading.is_outside(request.source, output):
        raise BuildFailed(f"buildDir {plan.output_dir!r} is a link that leads out of the repository")
    if is_package:
        prune.prune(reading.Folder(output, ""), plan.workdir)
    is_whole_base = plan.kind == "static" and output == Path(os.path.realpath(folder.path))
    if is_whole_base and (removed := collect.leave_out(output, has_sources=outputs.is_guess(request))):
        say(f"left out: {', '.join(removed)}")
    files = collect.collect(output, plan.kind, root=request.source, say=say)
    if files == 0:
        raise BuildFailed(f"there is no file in {plan.output_dir or folder.base or 'the repository'} to publish")
    say(f"collected {files:,} file{'' if files == 1 else 's'}")
    return Built(plan, request.source / output.relative_to(os.path.realpath(request.source)))
