"""Packages: from the archive that somebody uploads to the code that runs.

An archive is checked and unpacked, its main file found, its dependencies installed where it brings none. What comes of
that is packed again in one fixed way, so that equal code has an equal digest whichever tool made the archive, and is
kept as an artifact: what runs after a restore is what was deployed, and not what an installer would fetch that day.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar

from moorage.core import disk
from moorage.core.artifacts import service as artifact_service
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.kit import zips, zips_writer
from moorage.products.functions import code
from moorage.products.functions.dependencies.failures import InstallFailed
from moorage.runtime.scan.service import Purpose, Scanner
from moorage.runtime.workers.runtimes import LANGUAGES, MAIN_FILES

T = TypeVar("T")

MB = 2**20
PACKED_BYTES = 10 * MB
UPLOADED = zips.Caps(packed_bytes=PACKED_BYTES, unpacked_bytes=100 * MB, entries=20_000)
AT_ONCE = 2  # Packing and unpacking keep a core busy, and functions need the others.
LABELS = {"nodejs": "Node.js", "python": "Python"}
# Where a Python package may bring its dependencies, other than beside its main file.
VENDORED = ("packages", "virtualenv", ".venv", "lib/python*")


class BadPackage(Exception):
    """The package cannot be deployed; the text says why, to its author."""


class Installer(Protocol):
    """Installs the dependencies of a package into its folder, away from everything else."""

    async def install(self, org_id: int, folder: Path, runtime: str) -> None:
        """Add what an organization's package asks for; raises InstallFailed. It may run again in a fresh folder."""
        ...


@dataclass(frozen=True, slots=True)
class Package:
    """Code that is stored and unpacked, and that no version runs yet."""

    digest: str
    main: str
    owner: str  # of the reference that keeps it until a version has its own


class Packages:
    def __init__(self, db: Database, artifacts: ArtifactStore, installer: Installer | None) -> None:
        self._db = db
        self._artifacts = artifacts
        self._installer = installer
        self._scanner = Scanner(db.env.settings.clamd)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="packages")

    @contextlib.asynccontextmanager
    async def ready(self, org_id: int, archive: Path, runtime: str) -> AsyncIterator[Package]:
        """Prepare an archive; whoever makes a version of it inside the block takes over its reference.

        Raises BadPackage. A block that raises leaves nothing behind but a folder, which collection finds.
        """
        settings = self._db.env.settings
        scratch = code.new_folder(settings)
        try:
            main, packed = await self._prepare(org_id, archive, scratch, runtime)
            owner = f"deploy:{self._db.env.clock.now()}:{secrets.token_hex(8)}"
            stored = await self._artifacts.put_file(org_id, packed, owner=owner)
            await code.place(settings, stored.digest, scratch / "package")
        finally:
            await code.remove(scratch)
        try:
            yield Package(stored.digest, main, owner)
        except BaseException:
            await self._db.write(partial(artifact_service.unrefer, org_id=org_id, owner=owner))
            raise

    async def _prepare(self, org_id: int, archive: Path, scratch: Path, runtime: str) -> tuple[str, Path]:
        """Return the main file, and the archive of what is now in the folder `package`."""
        folder, packed = scratch / "package", scratch / "package.zip"
        unpacked_bytes = await self._in_thread(_unpacked_size, archive)
        disk.check_room(scratch, unpacked_bytes, self._db.env.settings.disk_reserve_mb)
        main = await self._in_thread(_unpack, archive, folder, runtime)
        finding = await self._in_thread(self._scanner.check, folder, Purpose.SOURCE)
        if finding is not None:
            raise BadPackage(f"was refused by the scan: {finding.file} {finding.why} ({finding.rule})")
        if await self._in_thread(needs_install, folder, runtime):
            await self._install(org_id, folder, runtime)
            await self._in_thread(_check_installed, folder)
        await self._in_thread(pack, folder, packed)
        return main, packed

    async def _install(self, org_id: int, folder: Path, runtime: str) -> None:
        if self._installer is None:
            raise BadPackage("asks for dependencies, which cannot be installed here; put them into the archive")
        try:
            await self._installer.install(org_id, folder, runtime)
        except InstallFailed as error:
            raise BadPackage(f"asks for dependencies that could not be installed: {error.tail}") from error

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args))


def find_main(folder: Path, runtime: str) -> str:
    """Return the main file of a package, relative to its folder; raises BadPackage."""
    language = _language(runtime)
    found = _main_of(folder, language)
    if found is not None:
        return found
    for other in LANGUAGES:
        if other != language and (theirs := _main_of(folder, other)) is not None:
            raise BadPackage(f"is a {LABELS[other]} package ({theirs}), and the function's runtime is {runtime}")
    raise BadPackage(f"has no main file: {MAIN_FILES[language][0]} should be at its root, or in its only top folder")


def needs_install(folder: Path, runtime: str) -> bool:
    """Tell whether a package names dependencies and does not bring them; raises BadPackage."""
    if _language(runtime) == "nodejs":
        return bool(_manifest(folder).get("dependencies")) and not (folder / "node_modules").is_dir()
    asked = _requirements(folder)
    return bool(asked) and not _brings_environment(folder) and not all(_is_beside(folder, name) for name in asked)


def pack(folder: Path, target: Path) -> None:
    """Write a folder as an archive that depends on nothing but names, bytes and executable bits, and seal it."""
    zips_writer.pack(folder, target)
    _refuse_bad(zips.inspect, target, code.STORED)
    code.harden(folder)


def _unpacked_size(archive: Path) -> int:
    return sum(entry.size for entry in _refuse_bad(zips.inspect, archive, UPLOADED))


def _unpack(archive: Path, folder: Path, runtime: str) -> str:
    _refuse_bad(partial(zips.extract, strip_top=True), archive, folder, UPLOADED)
    return find_main(folder, runtime)


def _refuse_bad(read: Callable[..., list[zips.Entry]], *args: object) -> list[zips.Entry]:
    try:
        return read(*args)
    except zips.BadArchive as error:
        raise BadPackage(str(error)) from error


def _language(runtime: str) -> str:
    return runtime.partition(":")[0]


def _main_of(folder: Path, language: str) -> str | None:
    candidates = [*_named_mains(folder)] if language == "nodejs" else []
    for name in (*candidates, *MAIN_FILES[language]):
        if (folder / name).is_file():
            return name
    return None


def _named_mains(folder: Path) -> list[str]:
    """Return the files that `main` of a package.json can mean, as Node.js would try them."""
    named = _manifest(folder).get("main")
    if not isinstance(named, str) or "\x00" in named or "\\" in named:
        return []
    name = os.path.normpath(named)
    if name == "." or PurePosixPath(name).is_absolute() or name.split("/")[0] == "..":
        return []
    return [name, *(name + ending for ending in (".js", ".cjs", ".mjs", "/index.js"))]


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "package.json"
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise BadPackage("has a package.json that is not valid JSON") from None
    if not isinstance(read, dict) or not isinstance(read.get("dependencies", {}), dict):
        raise BadPackage("has a package.json that is not an object, or whose `dependencies` are not one")
    return read


def _requirements(folder: Path) -> list[str]:
    """Return what a requirements.txt asks for, each by its name, or as it is where it has none."""
    path = folder / "requirements.txt"
    lines = path.read_bytes().decode("utf-8-sig", "replace").splitlines() if path.is_file() else []
    asked = [re.sub(r"(^|\s)#.*", "", line).strip() for line in lines]
    return [_name_in(line) for line in asked if line and not re.match(r"-(?!r|e|-req|-edit)", line)]


def _name_in(requirement: str) -> str:
    match = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*($|[\[<>=!~;@(\\ ])", requirement)
    return match[1] if match else requirement


def _brings_environment(folder: Path) -> bool:
    patterns = (*VENDORED, "*.dist-info", "*.egg-info")
    return any(path.is_dir() for pattern in patterns for path in folder.glob(pattern))


def _is_beside(folder: Path, requirement: str) -> bool:
    """Tell whether a package or module of a requirement's name lies at the root, as `pip install --target` puts it."""
    wanted = re.sub(r"[-_.]+", "_", requirement).lower()
    beside = (path for path in folder.iterdir() if path.is_dir() or path.suffix in (".py", ".so"))
    return any(re.sub(r"[-_.]+", "_", path.name.partition(".")[0]).lower() == wanted for path in beside)


def _check_installed(folder: Path) -> None:
    """Take out what an archive must not hold, such as the links that npm makes to programs, and check the size."""
    for path in list(code.walk(folder)):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            path.unlink()
    files = [path for path in code.walk(folder) if path.is_file()]
    if len(files) > code.STORED.entries or sum(path.stat().st_size for path in files) > code.STORED.unpacked_bytes:
        raise BadPackage(
            f"with its dependencies has more than {code.STORED.entries} files or {code.STORED.unpacked_bytes // MB} MB"
        )
