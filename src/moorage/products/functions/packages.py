"""Packages: turn an uploaded archive into deployable code.

An archive is validated and unpacked, its main file located, and its dependencies are installed unless it contains them.
The result is packed again deterministically, so that equal code has an equal digest with any archiver, and stored as
an artifact: a restore runs the deployed dependencies, not versions that an installer would fetch later.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from moorage.core import disk
from moorage.core.artifacts import service as artifact_service
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.kit import zips, zips_writer
from moorage.core.kit.records import dataclass
from moorage.products.functions import code
from moorage.products.functions.contents import BadPackage, find_main, needs_install
from moorage.products.functions.dependencies.failures import InstallFailed
from moorage.runtime.sandbox.heavy import HeavyWork
from moorage.runtime.scan.folders import FolderScans
from moorage.runtime.scan.service import Purpose

T = TypeVar("T")

MB = 2**20
PACKED_BYTES = 10 * MB
UPLOADED = zips.Caps(packed_bytes=PACKED_BYTES, unpacked_bytes=100 * MB, entries=20_000)
PACKING_THREADS = 2  # Packing and unpacking are CPU-bound; functions need the other cores.


class Installer(Protocol):
    """Installs the dependencies of a package into its folder, in isolation."""

    async def install(self, org_id: int, folder: Path, runtime: str) -> None:
        """Install the dependencies; raises InstallFailed. May run again in a new folder."""
        ...


@dataclass(frozen=True, slots=True)
class Package:
    """Stored and unpacked code without a version yet."""

    digest: str
    main: str
    owner: str  # of the artifact reference that keeps the code until a version has its own


class Packages:
    def __init__(
        self, db: Database, artifacts: ArtifactStore, installer: Installer | None, heavy: HeavyWork | None = None
    ) -> None:
        """`heavy` has the processes that scan; None for own ones."""
        self._db = db
        self._artifacts = artifacts
        self._installer = installer
        self._scans = FolderScans(db.env.settings.clamd, heavy or HeavyWork())
        self._threads = ThreadPoolExecutor(PACKING_THREADS, thread_name_prefix="packages")

    @contextlib.asynccontextmanager
    async def ready(self, org_id: int, archive: Path, runtime: str) -> AsyncIterator[Package]:
        """Prepare an archive; a version created inside the block takes over its reference.

        Raises BadPackage. If the block raises, only an unpacked folder remains, which `code.collect` removes.
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
        """Unpack, scan, install and pack; return the main file and the new archive."""
        folder, packed = scratch / "package", scratch / "package.zip"
        unpacked_bytes = await self._in_thread(_unpacked_size, archive)
        disk.check_room(scratch, unpacked_bytes, self._db.env.settings.disk_reserve_mb)
        main = await self._in_thread(_unpack, archive, folder, runtime)
        finding = await self._scans.check(org_id, folder, Purpose.SOURCE)
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


def pack(folder: Path, target: Path) -> None:
    """Write a deterministic archive of a folder's names, bytes and executable bits."""
    zips_writer.pack(folder, target)
    _read_archive(zips.inspect, target, code.STORED)
    code.harden(folder)


def _unpacked_size(archive: Path) -> int:
    return sum(entry.size for entry in _read_archive(zips.inspect, archive, UPLOADED))


def _unpack(archive: Path, folder: Path, runtime: str) -> str:
    _read_archive(partial(zips.extract, strip_top=True), archive, folder, UPLOADED)
    return find_main(folder, runtime)


def _read_archive(read: Callable[..., list[zips.Entry]], *args: object) -> list[zips.Entry]:
    try:
        return read(*args)
    except zips.BadArchive as error:
        raise BadPackage(str(error)) from error


def _check_installed(folder: Path) -> None:
    """Remove files that an archive must not contain, and check the size.

    npm, for example, creates symbolic links to programs.
    """
    for path in list(code.walk(folder)):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            path.unlink()
    files = [path for path in code.walk(folder) if path.is_file()]
    if len(files) > code.STORED.entries or sum(path.stat().st_size for path in files) > code.STORED.unpacked_bytes:
        raise BadPackage(
            f"with its dependencies has more than {code.STORED.entries} files or {code.STORED.unpacked_bytes // MB} MB"
        )
