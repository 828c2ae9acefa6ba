"""Manifests and tags over HTTP. A pushed tag deploys the project of its repository."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import JSON, Answer, Stream, encode
from moorage.core.http.dispatch import LARGE_BODY_BYTES
from moorage.core.kit.texts import whole_number
from moorage.products.images import deploying, documents, service
from moorage.products.images.documents import Document
from moorage.products.images.failures import Refused, bad_digest, unknown_manifest
from moorage.products.images.tables import Part, Repository
from moorage.products.images.target import Target, head_only, header_list, located
from moorage.runtime.images import machine, manifests
from moorage.runtime.images.manifests import BadImage, Index
from moorage.runtime.images.references import is_digest
from moorage.runtime.images.registry import MAX_MANIFEST_BYTES

MAX_PAGE = 1000
T = TypeVar("T")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Manifests:
    def __init__(self, db: Database, artifacts: ArtifactStore) -> None:
        self._db = db
        self._artifacts = artifacts

    async def answer(self, target: Target, reference: str) -> Answer | Stream:
        """Answer requests for the manifest of a tag or digest."""
        if not is_digest(reference) and not _TAG.fullmatch(reference):
            raise Refused(400, "TAG_INVALID", "a tag has 1 to 128 letters, digits, dots, dashes and underscores")
        method, org_id = target.request.method, target.caller.org_id
        if method == "PUT":
            return await self._put(target, reference)
        if method == "DELETE":
            await self._db.write(partial(_delete, org_id=org_id, name=target.name, reference=reference))
            return Answer(202, b"")
        if method not in ("GET", "HEAD"):
            raise target.wrong_method()
        part = await self._db.peek(partial(_find, org_id=org_id, name=target.name, reference=reference))
        if part is None:
            raise unknown_manifest(reference)
        headers = header_list({"content-type": part.media_type, "docker_content_digest": part.digest})
        if method == "HEAD":
            return head_only([*headers, *header_list({"content-length": str(part.size)})])
        return Answer(200, await self.read(part), headers)

    async def list_tags(self, target: Target) -> Answer:
        if target.request.method != "GET":
            raise target.wrong_method()
        wanted, last = target.request.from_query("n") or "", target.request.from_query("last") or ""
        most = min(number, MAX_PAGE) if (number := whole_number(wanted)) is not None else MAX_PAGE
        names = await self._db.peek(partial(_tags, org_id=target.caller.org_id, name=target.name))
        after = [name for name in names if name > last]
        page = after[:most]
        headers = [JSON]
        if page and len(after) > most:
            link = f'<{target.path}/tags/list?n={most}&last={page[-1]}>; rel="next"'
            headers += header_list({"link": link})
        return Answer(200, encode({"name": f"{target.owner}/{target.name}", "tags": page}), headers)

    async def read(self, part: Part) -> bytes:
        """Return the bytes of a stored manifest."""
        with tempfile.TemporaryDirectory(prefix="moorage-manifest-") as folder:
            path = Path(folder, "manifest")
            await self._artifacts.fetch(part.org_id, service.hex_of(part.digest), path)
            return await asyncio.to_thread(path.read_bytes)

    async def read_document(self, part: Part) -> Document:
        """Return a stored manifest; raises NotFound and Refused."""
        return await _read(documents.parse, await self.read(part), part.media_type)

    async def _put(self, target: Target, reference: str) -> Answer:
        body = await target.request.body(MAX_MANIFEST_BYTES)
        digest = await _read(_digest_of, body)
        if is_digest(reference) and reference != digest:
            raise bad_digest("the manifest does not match its digest")
        document = await _read(documents.parse, body, target.request.header(b"content-type") or "")
        org_id = target.caller.org_id
        check = partial(_check, org_id=org_id, name=target.name, document=document)
        repository = await self._db.write(check)
        if not is_digest(reference):
            await self._check_runs(repository, body, document)
        known: dict[str, Any] = {"org_id": org_id, "repository": repository, "digest": digest}
        await self._db.write(partial(service.begin_part, **known, size=len(body)))
        await self._artifacts.put_bytes(org_id, body, owner=service.owner_of(repository.id, digest))
        await self._db.write(partial(_finish, target=target, **known, document=document, reference=reference))
        return located(201, f"{target.path}/manifests/{digest}", docker_content_digest=digest)

    async def _check_runs(self, repository: Repository, body: bytes, document: Document) -> None:
        """Raise Refused unless a tag is an image that this machine can run."""
        try:
            parsed = await _read(manifests.parse_manifest, body, document.media_type)
            if isinstance(parsed, Index):
                chosen = parsed.choose(machine.architecture())
                find = partial(
                    service.find_manifest, org_id=repository.org_id, repository=repository, reference=chosen.digest
                )
                part = await self._db.peek(find)
                if part is None:
                    raise Refused(404, "MANIFEST_UNKNOWN", "push the image for this machine before its index")
                await _read(manifests.parse_manifest, await self.read(part), part.media_type)
        except BadImage as error:
            raise documents.invalid(str(error)) from None


async def _read(read: Callable[..., T], body: bytes, *options: str) -> T:
    """Call `read` with a manifest; a large one would delay all other requests of the event loop."""
    return await asyncio.to_thread(read, body, *options) if len(body) > LARGE_BODY_BYTES else read(body, *options)


def _digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _check(tx: Tx, org_id: int, name: str, document: Document) -> Repository:
    """Return the repository of a push; raises Refused unless it has the parts of the manifest."""
    deploying.check_may_push(tx, org_id, name)
    repository = service.ensure(tx, org_id, name)
    for digest, size in document.blobs.items():
        part = service.find_part(tx, org_id, repository, digest)
        if part is None:
            raise Refused(400, "MANIFEST_BLOB_UNKNOWN", "the manifest names a blob that was not pushed", digest)
        if part.size != size:
            raise documents.invalid(f"the manifest says that {digest} has {size} bytes; it has {part.size}")
    return repository


def _finish(
    tx: Tx, org_id: int, target: Target, repository: Repository, digest: str, document: Document, reference: str
) -> None:
    """Complete a manifest; a tag deploys its project in the same transaction."""
    service.finish_part(tx, org_id, repository, digest, document.media_type)
    service.use_parts(tx, org_id, repository, document.digests)
    if not is_digest(reference):
        is_new = service.set_tag(tx, org_id, repository, reference, digest)
        deploying.deploy(tx, org_id, target.caller.as_actor, repository, reference, is_new=is_new)


def _find(tx: Tx, org_id: int, name: str, reference: str) -> Part | None:
    repository = service.find(tx, org_id, name)
    return service.find_manifest(tx, org_id, repository, reference) if repository is not None else None


def _delete(tx: Tx, org_id: int, name: str, reference: str) -> None:
    repository = service.find(tx, org_id, name)
    if repository is None:
        raise unknown_manifest(reference)
    service.delete_manifest(tx, org_id, repository, reference)


def _tags(tx: Tx, org_id: int, name: str) -> list[str]:
    repository = service.find(tx, org_id, name)
    if repository is None:
        raise Refused(404, "NAME_UNKNOWN", "there is no such repository")
    return [tag.name for tag in service.tags(tx, org_id, repository)]
