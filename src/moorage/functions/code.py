"""The code of functions as it runs: one folder per digest, made once, never changed, shared by all who run the same.

A folder appears under its name at once and whole, or not at all. Who puts one in place or takes one away holds the
lock meanwhile, and who takes one away looks for its users under that lock. So a folder that was there when a version
of it was committed, and whoever publishes the version looks afterwards, is there for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from pathlib import Path

from moorage.artifacts import service as artifact_service
from moorage.artifacts.store import ArtifactStore
from moorage.db.scope import across_organizations
from moorage.db.store import Database
from moorage.db.tx import Tx
from moorage.functions import tables
from moorage.kit import zips
from moorage.kit.clock import HOUR_MS
from moorage.settings import Settings

MB = 2**20
# What we packed ourselves, dependencies included; `packages` sees to it that nothing larger is stored.
STORED = zips.Caps(packed_bytes=256 * MB, unpacked_bytes=256 * MB, entries=50_000, path_chars=1024, depth=64)
# What nobody refers to stays this long: a deployment places its folder some moments before its version is committed.
YOUNG_MS = HOUR_MS
LOCK = ".lock"
RETRY_S = 0.005
_DIGEST = re.compile("[0-9a-f]{64}")


def folder_of(settings: Settings, digest: str) -> Path:
    return settings.folder("code") / digest


def new_folder(settings: Settings) -> Path:
    """Make a folder to prepare something in; it can be moved to its place because it is on the same file system."""
    made = _root(settings) / f".new-{secrets.token_hex(8)}"
    made.mkdir(mode=0o700)
    return made


async def remove(folder: Path) -> None:
    """Remove a folder that nobody looks at any more; what cannot be removed now is found by collection."""
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def harden(folder: Path) -> None:
    """Let everybody read what is in a folder, and nobody write to its files."""
    for path in (folder, *walk(folder)):
        if path.is_dir():
            path.chmod(0o755)
        else:
            path.chmod(0o555 if path.stat().st_mode & stat.S_IXUSR else 0o444)


def walk(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder; links are not followed."""
    for above, folders, files in os.walk(folder):
        yield from (Path(above, name) for name in (*folders, *files))


async def place(settings: Settings, digest: str, prepared: Path) -> Path:
    """Put a prepared folder where the code of its digest runs, unless some is there already. Safe to repeat."""
    target = folder_of(settings, digest)
    async with _alone(settings):
        if not target.is_dir():
            prepared.rename(target)
        # Whatever is used now is young again, however long ago it was made.
        os.utime(target)
    return target


async def ensure_unpacked(settings: Settings, artifacts: ArtifactStore, org_id: int, digest: str) -> Path:
    """Return the folder of a digest, unpacked from its artifact where it is missing. Safe to repeat and to race."""
    target = folder_of(settings, digest)
    async with _alone(settings):
        if target.is_dir():
            return target
    scratch = new_folder(settings)
    try:
        await artifacts.fetch(org_id, digest, scratch / "package.zip")
        await asyncio.to_thread(_unpack, scratch / "package.zip", scratch / "package")
        return await place(settings, digest, scratch / "package")
    finally:
        await remove(scratch)


async def remove_unused(db: Database, digests: Iterable[str]) -> int:
    """Remove the folders of those digests that no version runs; return how many were there. Safe to repeat."""
    removed = 0
    for digest in sorted(set(digests)):
        removed += await _remove_one(db, digest)
    return removed


async def collect(db: Database, settings: Settings) -> int:
    """Remove what crashes and deleted functions left behind, once it is old; return how many folders that were."""
    before = db.env.clock.now() - YOUNG_MS
    await db.write(partial(_drop_abandoned, before=before))
    old = [path for path in _root(settings).iterdir() if path.is_dir() and _changed_at(path) < before]
    for path in old:
        if path.name.startswith("."):
            await remove(path)
    return await remove_unused(db, (path.name for path in old if _DIGEST.fullmatch(path.name)))


async def _remove_one(db: Database, digest: str) -> bool:
    settings = db.env.settings
    target, doomed = folder_of(settings, digest), _root(settings) / f".old-{secrets.token_hex(8)}"
    async with _alone(settings):
        if not target.is_dir() or await db.read(partial(_is_run, digest=digest)):
            return False
        target.rename(doomed)
    await remove(doomed)
    return True


@across_organizations("equal code has one folder, whoever runs it")
def _is_run(tx: Tx, digest: str) -> bool:
    return tx.find(tables.IS_RUN_BY_ANY, digest=digest) is not None


@across_organizations("a deployment of any organization may have died")
def _drop_abandoned(tx: Tx, before: int) -> None:
    """Take back the references of deployments that ended without a version, because their process did."""
    for org_id, owner in tx.all(tables.UNDER_WAY):
        if int(owner.split(":")[1]) < before:
            artifact_service.unrefer(tx, org_id, owner)


@contextlib.asynccontextmanager
async def _alone(settings: Settings) -> AsyncIterator[None]:
    """Hold the lock of the folder, against other processes too. Waiting takes no thread: the holder may need one."""
    handle = os.open(_root(settings) / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _lock(handle):  # noqa: ASYNC110 - the holder may be another process
            await asyncio.sleep(RETRY_S)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unpack(archive: Path, target: Path) -> None:
    zips.extract(archive, target, STORED)
    harden(target)


def _root(settings: Settings) -> Path:
    root = settings.folder("code")
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    return root


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime * 1000
    except FileNotFoundError:  # Somebody else has just moved it away.
        return float("inf")
