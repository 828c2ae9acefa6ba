"""Content-addressed store of uploads and build results, verified on every read.

`objects` stores the bytes in a folder or a bucket, `service` the rows and references. An object is stored and verified
before its row is written, and a row is marked before its object is deleted. A process may therefore die between any two
steps: the next garbage collection removes the leftovers.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from moorage.core import disk
from moorage.core.artifacts import service
from moorage.core.artifacts.objects import ArtifactDamaged, Objects, key_of
from moorage.core.artifacts.service import GRACE_MS, Upload
from moorage.core.artifacts.tables import Artifact
from moorage.core.db.store import Database

T = TypeVar("T")

MAX_CONCURRENT_TRANSFERS = 4  # Each uses a thread and at most 32 MB.


class ArtifactStore:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._objects = Objects(db.env.settings)
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_TRANSFERS, thread_name_prefix="artifacts")

    async def put_file(self, org_id: int, path: Path, *, owner: str) -> Artifact:
        """Store a file for an owner. Safe to repeat; uploads only new content."""
        digest, size = await self._in_thread(_digest_of_file, path)
        return await self._put(org_id, path, digest, size, owner)

    async def put_bytes(self, org_id: int, data: bytes, *, owner: str) -> Artifact:
        """Store bytes for an owner. Safe to repeat."""
        return await self._put(org_id, data, hashlib.sha256(data).hexdigest(), len(data), owner)

    async def fetch(self, org_id: int, digest: str, target: Path) -> None:
        """Write an artifact to a file, atomically and verified.

        Raises NotFound if the organization has no reference to it, ArtifactDamaged if the bytes do not match.
        """
        find = partial(service.get, org_id=org_id, digest=digest)
        stored = await self._db.peek(find)
        while True:
            try:
                return await self._download(stored, target)
            except ArtifactDamaged:
                await self._db.write(partial(service.report_damage, artifact=stored))
                current = await self._db.peek(find)
                if current.copy == stored.copy:
                    raise
                stored = current  # A put replaced the damaged copy.

    async def collect(self) -> int:
        """Delete unreferenced blobs and leftovers of crashes; return their number."""
        return await self._collect_unreferenced() + await self._collect_strays()

    async def check_room(self, more_bytes: int) -> None:
        """Raise DiskFull if storing this much would use the disk reserve."""
        if self._objects.folder is not None:
            disk.check_room(self._objects.folder, more_bytes, self._db.env.settings.disk_reserve_mb)

    async def _put(self, org_id: int, source: Path | bytes, digest: str, size: int, owner: str) -> Artifact:
        known = await self._db.peek(partial(service.find_intact, digest=digest))
        if known is not None:
            if await self._in_thread(self._objects.size, known.key) != size:
                await self._db.write(partial(service.report_damage, artifact=known))
            existing = await self._db.write(partial(service.refer_to_known, org_id=org_id, known=known, owner=owner))
            if existing is not None:
                return existing
        await self.check_room(size)
        upload = await self._in_thread(self._upload, source, digest, size)
        artifact, spare = await self._db.write(partial(service.record, org_id=org_id, upload=upload, owner=owner))
        if spare is not None:
            await self._in_thread(self._objects.delete, spare)
        return artifact

    def _upload(self, source: Path | bytes, digest: str, size: int) -> Upload:
        """Store and verify a new copy, in a thread."""
        upload = Upload(digest, size, secrets.token_hex(8), self._db.env.clock.now())
        key = key_of(digest, upload.copy)
        self._objects.put(key, source, size)
        try:
            self._objects.verify(key, digest, size)
        except ArtifactDamaged:
            self._objects.delete(key)
            raise
        return upload

    async def _download(self, stored: Artifact, target: Path) -> None:
        cancelled = threading.Event()
        try:
            await self._in_thread(self._write_to, stored, target, cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def _write_to(self, stored: Artifact, target: Path, cancelled: threading.Event) -> None:
        """Write a verified copy to the target, in a thread; stop when cancelled."""
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        sha256 = hashlib.sha256()
        try:
            with part.open("xb") as file:
                for chunk in self._objects.chunks(stored.key, stored.size):
                    if cancelled.is_set():
                        return
                    file.write(chunk)
                    sha256.update(chunk)
                file.flush()
                os.fsync(file.fileno())
            if sha256.hexdigest() != stored.digest:
                raise ArtifactDamaged(f"{stored.key}: the stored bytes have the digest {sha256.hexdigest()}")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    async def _collect_unreferenced(self) -> int:
        deleted = after = 0
        while batch := await self._db.read(partial(service.next_collectable, after=after)):
            for candidate in batch:
                deleted += await self._collect_one(candidate)
            after = batch[-1].id
        return deleted

    async def _collect_one(self, candidate: Artifact) -> bool:
        condemned = await self._db.write(partial(service.condemn, candidate=candidate))
        if condemned is None:
            return False
        await self._in_thread(self._objects.delete, condemned.key)
        return await self._db.write(partial(service.forget, condemned=condemned))

    async def _collect_strays(self) -> int:
        """Delete old objects without a row: their process died before it recorded them."""
        before = self._db.env.clock.trusted_now() - GRACE_MS
        deleted = await self._in_thread(self._objects.drop_staged, before)
        pages = self._objects.older_than(before)
        while (keys := await self._in_thread(next, pages, None)) is not None:
            # The rows are read after the listing, so every listed object that gets a row already has it.
            for key in await self._db.read(partial(service.strays, keys=keys)):
                await self._in_thread(self._objects.delete, key)
                deleted += 1
        return deleted

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args))


def _digest_of_file(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
