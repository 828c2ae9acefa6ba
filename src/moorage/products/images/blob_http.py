"""Blobs over HTTP: uploads in one request or in chunks, mounts, and downloads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from moorage.core import disk
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import Answer, Stream
from moorage.core.kit.texts import size_text
from moorage.products.images import deploying, service
from moorage.products.images.failures import Refused, bad_digest, unknown_blob
from moorage.products.images.tables import Part, Repository
from moorage.products.images.target import Target, head_only, header_list, located
from moorage.products.images.uploads import Uploads, digest_of
from moorage.runtime.images.references import is_digest
from moorage.runtime.images.store import Limits

MAX_BLOB_BYTES = Limits().packed_bytes
_RANGE = re.compile(r"bytes=([0-9]{1,15})-([0-9]{0,15})")
_CONTENT_RANGE = re.compile(r"(?:bytes )?([0-9]{1,15})-([0-9]{1,15})(?:/.*)?")
_READ_BYTES = 256 * 1024


class Blobs:
    def __init__(self, db: Database, artifacts: ArtifactStore, uploads: Uploads) -> None:
        self._db = db
        self._artifacts = artifacts
        self._uploads = uploads

    async def answer(self, target: Target, digest: str) -> Answer | Stream:
        """Answer HEAD and GET of a blob."""
        if target.request.method not in ("GET", "HEAD"):
            raise target.wrong_method()
        part = await self._db.peek(partial(_find, org_id=target.caller.org_id, name=target.name, digest=digest))
        if part is None or part.is_manifest:
            raise unknown_blob(digest)
        headers = {
            "content-type": "application/octet-stream",
            "docker_content_digest": digest,
            "accept-ranges": "bytes",
        }
        if target.request.method == "HEAD":
            return head_only(header_list({**headers, "content-length": str(part.size)}))
        return await self._send(target, part, headers)

    async def answer_upload(self, target: Target, upload_id: str) -> Answer:
        """Begin, continue, complete, show or cancel an upload."""
        method = target.request.method
        if not upload_id:
            if method != "POST":
                raise target.wrong_method()
            return await self._begin(target)
        repository = await self._db.peek(partial(_repository, org_id=target.caller.org_id, name=target.name))
        if method == "PATCH":
            return await self._continue(target, repository, upload_id)
        if method == "PUT":
            return await self._complete(target, repository, upload_id)
        if method == "GET":
            return _progress(target, upload_id, self._uploads.size(repository, upload_id), 204)
        if method == "DELETE":
            with self._uploads.hold(repository, upload_id) as path:
                path.unlink()
            return Answer(204, b"")
        raise target.wrong_method()

    async def _begin(self, target: Target) -> Answer:
        org_id, request = target.caller.org_id, target.request
        mounted, digest = request.from_query("mount"), request.from_query("digest")
        begin = partial(_begin, org_id=org_id, name=target.name, mounted=mounted)
        repository, is_mounted = await self._db.write(begin)
        if mounted and is_mounted:
            return _created(target, mounted)
        upload_id = self._uploads.begin(repository)
        if not digest:
            return _progress(target, upload_id, 0, 202)
        return await self._complete(target, repository, upload_id)

    async def _continue(self, target: Target, repository: Repository, upload_id: str) -> Answer:
        with self._uploads.hold(repository, upload_id) as path:
            size = self._uploads.size(repository, upload_id)
            announced = target.request.header(b"content-range")
            match = _CONTENT_RANGE.fullmatch(announced.strip()) if announced else None
            if announced and (match is None or int(match[1]) != size):
                raise Refused(416, "BLOB_UPLOAD_INVALID", f"the next chunk of this upload starts at {size}")
            size = await self._receive(target, repository, path, size)
        return _progress(target, upload_id, size, 202)

    async def _complete(self, target: Target, repository: Repository, upload_id: str) -> Answer:
        digest = target.request.from_query("digest") or ""
        if not is_digest(digest):
            raise bad_digest("the digest of a blob is sha256: and 64 hexadecimal digits")
        with self._uploads.hold(repository, upload_id) as path:
            await self._receive(target, repository, path, path.stat().st_size)
            try:
                if await asyncio.to_thread(digest_of, path) != digest:
                    raise bad_digest("the content of the blob does not match its digest")
                await self._store(repository, path, digest)
            finally:
                path.unlink()
        return _created(target, digest)

    async def _store(self, repository: Repository, path: Path, digest: str) -> None:
        """Store a blob; a crash leaves at most a pending row, which is collected."""
        org_id = repository.org_id
        known: dict[str, Any] = {"org_id": org_id, "repository": repository, "digest": digest}
        await self._db.write(partial(service.begin_part, **known, size=path.stat().st_size))
        await self._artifacts.put_file(org_id, path, owner=service.owner_of(repository.id, digest))
        await self._db.write(partial(service.finish_part, **known))

    async def _receive(self, target: Target, repository: Repository, path: Path, size: int) -> int:
        """Append the body of a request; return the new size. Quota and disk are checked every few MB."""
        request = target.request
        if request.consumed:
            return size
        checked = size
        await self._check_room(repository, request.announced_bytes)
        if size + request.announced_bytes > MAX_BLOB_BYTES:
            raise _too_large()
        with path.open("ab") as file:
            async for chunk in request.chunks(MAX_BLOB_BYTES - size):
                file.write(chunk)
                size += len(chunk)
                if size - checked >= disk.CHECK_INTERVAL_BYTES:
                    checked = size
                    await self._check_room(repository, 0)
        return size

    async def _check_room(self, repository: Repository, more_bytes: int) -> None:
        self._uploads.check_room()
        open_bytes = self._uploads.open_bytes(repository) + more_bytes
        await self._db.peek(partial(service.check_quota, org_id=repository.org_id, more_bytes=open_bytes))

    async def _send(self, target: Target, part: Part, headers: dict[str, str]) -> Stream:
        """Send a blob or a range of it, from a verified copy."""
        start, end = _range(target.request.header(b"range"), part.size)
        async with self._uploads.copied(target.caller.org_id, part.size) as (copy, keep):
            await self._artifacts.fetch(target.caller.org_id, service.hex_of(part.digest), copy)
            file = copy.open("rb")
            keep(file)
        status = 200
        if (start, end) != (0, part.size):
            status, headers = 206, {**headers, "content-range": f"bytes {start}-{end - 1}/{part.size}"}
        headers = {**headers, "content-length": str(end - start)}
        return Stream(_chunks(file, start, end), header_list(headers), status)


async def _chunks(file: IO[bytes], start: int, end: int) -> AsyncIterator[bytes]:
    with file:
        file.seek(start)
        while start < end and (chunk := await asyncio.to_thread(file.read, min(_READ_BYTES, end - start))):
            start += len(chunk)
            yield chunk


def _range(header: str | None, size: int) -> tuple[int, int]:
    """Return start and end of the requested bytes; raises Refused for an impossible range."""
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None:
        return 0, size
    start, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    if not start < end:
        raise Refused(416, "SIZE_INVALID", f"the blob has {size} bytes")
    return start, end


def _find(tx: Tx, org_id: int, name: str, digest: str) -> Part | None:
    repository = service.find(tx, org_id, name)
    return service.find_part(tx, org_id, repository, digest) if repository is not None else None


def _repository(tx: Tx, org_id: int, name: str) -> Repository:
    repository = service.find(tx, org_id, name)
    if repository is None:
        raise Refused(404, "NAME_UNKNOWN", "there is no such repository")
    return repository


def _begin(tx: Tx, org_id: int, name: str, mounted: str | None) -> tuple[Repository, bool]:
    """Return the repository of a push, and whether it has the mounted blob now."""
    deploying.check_may_push(tx, org_id, name)
    repository = service.ensure(tx, org_id, name)
    is_mounted = mounted is not None and is_digest(mounted) and service.mount(tx, org_id, repository, mounted)
    return repository, is_mounted


def _progress(target: Target, upload_id: str, size: int, status: int) -> Answer:
    location = f"{target.path}/blobs/uploads/{upload_id}"
    return located(status, location, docker_upload_uuid=upload_id, range=f"0-{max(size - 1, 0)}")


def _created(target: Target, digest: str) -> Answer:
    return located(201, f"{target.path}/blobs/{digest}", docker_content_digest=digest)


def _too_large() -> Refused:
    return Refused(413, "SIZE_INVALID", f"a blob has at most {size_text(MAX_BLOB_BYTES)}")
