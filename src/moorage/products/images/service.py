"""Rows of pushed images. Each part has its own reference in the artifact store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.core.artifacts import service as artifacts
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.errors import QuotaExceeded
from moorage.products.images import tables
from moorage.products.images.documents import Document
from moorage.products.images.failures import unknown_manifest
from moorage.products.images.tables import BLOB, PENDING, Part, Repository, Tag
from moorage.runtime.images.references import is_digest

GB = 2**30
UNUSED_MS = DAY_MS  # how long parts stay that no tag needs: a push uploads them before the tag
MAX_TAGS = 100  # of a repository; the oldest are dropped


def owner_of(repository_id: int, digest: str) -> str:
    """Return the owner of a part in the artifact store."""
    return f"image:{repository_id}:{digest}"


def hex_of(digest: str) -> str:
    """Return the digest of the artifact store for one of an image."""
    return digest.removeprefix("sha256:")


def find(tx: Tx, org_id: int, name: str) -> Repository | None:
    return tx.find(tables.FIND, org_id=org_id, name=name)


def ensure(tx: Tx, org_id: int, name: str) -> Repository:
    tx.find(tables.ADD, org_id=org_id, name=name, project_id=None, created_at=tx.now, updated_at=tx.now)
    return tx.one(tables.FIND, org_id=org_id, name=name)


def set_project(tx: Tx, org_id: int, repository: Repository, project_id: int | None) -> None:
    tx.run(tables.TOUCH, org_id=org_id, id=repository.id, new_project_id=project_id, now=tx.now)


def find_part(tx: Tx, org_id: int, repository: Repository, digest: str) -> Part | None:
    """Return a stored part of a repository; None also while it is being stored."""
    part = tx.find(tables.FIND_PART, org_id=org_id, repository_id=repository.id, digest=digest)
    return part if part is not None and part.media_type != PENDING else None


def find_manifest(tx: Tx, org_id: int, repository: Repository, reference: str) -> Part | None:
    """Return the manifest of a tag or digest."""
    digest = reference
    if not is_digest(reference):
        tag = tx.find(tables.FIND_TAG, org_id=org_id, repository_id=repository.id, name=reference)
        digest = tag.digest if tag is not None else ""
    part = find_part(tx, org_id, repository, digest)
    return part if part is not None and part.is_manifest else None


def tags(tx: Tx, org_id: int, repository: Repository) -> list[Tag]:
    return tx.all(tables.TAGS, org_id=org_id, repository_id=repository.id)


def stored_bytes(tx: Tx, org_id: int) -> int:
    """Return the size of all pushed parts of an organization; each digest counts once."""
    return tx.one(tables.STORED_BYTES, org_id=org_id)


def check_quota(tx: Tx, org_id: int, more_bytes: int) -> None:
    most = tx.env.settings.images_gb * GB
    if stored_bytes(tx, org_id) + more_bytes > most:
        raise QuotaExceeded(
            f"The pushed images of this organization would take more than {tx.env.settings.images_gb} GB "
            "(MOORAGE_IMAGES_GB); delete tags that are not needed any more"
        )


def begin_part(tx: Tx, org_id: int, repository: Repository, digest: str, size: int) -> None:
    """Add the row of a part before its content is stored, so that a crash leaves nothing without a row."""
    check_quota(tx, org_id, size)
    tx.find(
        tables.ADD_PART,
        org_id=org_id,
        repository_id=repository.id,
        digest=digest,
        size=size,
        media_type=PENDING,
        used_at=tx.now,
    )


def finish_part(tx: Tx, org_id: int, repository: Repository, digest: str, media_type: str = BLOB) -> None:
    tx.run(
        tables.SET_PART,
        org_id=org_id,
        repository_id=repository.id,
        digest=digest,
        new_media_type=media_type,
        now=tx.now,
    )


def mount(tx: Tx, org_id: int, repository: Repository, digest: str) -> bool:
    """Add a blob that another repository of the organization has; False if none has it."""
    if find_part(tx, org_id, repository, digest) is not None:
        return True
    part = tx.find(tables.FIND_ANYWHERE, org_id=org_id, digest=digest)
    if part is None:
        return False
    artifacts.refer(tx, org_id, hex_of(digest), owner_of(repository.id, digest))
    begin_part(tx, org_id, repository, digest, part.size)
    finish_part(tx, org_id, repository, digest, part.media_type)
    return True


def use_parts(tx: Tx, org_id: int, repository: Repository, digests: Iterable[str]) -> None:
    """Keep the parts of a pushed manifest for another while."""
    for digest in digests:
        tx.run(tables.USE_PART, org_id=org_id, repository_id=repository.id, digest=digest, now=tx.now)


def set_tag(tx: Tx, org_id: int, repository: Repository, name: str, digest: str) -> bool:
    """Set a tag and drop the oldest beyond the limit; return whether it had another image before."""
    key: dict[str, Any] = {"org_id": org_id, "repository_id": repository.id, "name": name}
    before = tx.find(tables.FIND_TAG, **key)
    if tx.find(tables.ADD_TAG, **key, digest=digest, updated_at=tx.now) is None:
        tx.run(tables.SET_TAG, **key, new_digest=digest, now=tx.now)
    surplus = sorted(tags(tx, org_id, repository), key=lambda tag: -tag.updated_at)[MAX_TAGS:]
    for tag in surplus:
        tx.run(tables.DELETE_TAG, org_id=org_id, repository_id=repository.id, name=tag.name)
    return before is None or before.digest != digest


def delete_manifest(tx: Tx, org_id: int, repository: Repository, reference: str) -> None:
    """Delete a tag, or a manifest with all its tags; its blobs are collected later."""
    part = find_manifest(tx, org_id, repository, reference)
    if part is None:
        raise unknown_manifest(reference)
    for tag in tags(tx, org_id, repository):
        if tag.name == reference or (is_digest(reference) and tag.digest == part.digest):
            tx.run(tables.DELETE_TAG, org_id=org_id, repository_id=repository.id, name=tag.name)
    if is_digest(reference):
        drop_part(tx, org_id, part)


def drop_part(tx: Tx, org_id: int, part: Part) -> None:
    artifacts.unrefer(tx, org_id, owner_of(part.repository_id, part.digest))
    tx.run(tables.DELETE_PART, org_id=org_id, repository_id=part.repository_id, digest=part.digest)


def remove(tx: Tx, org_id: int, repository: Repository) -> None:
    """Delete a repository with all its tags and parts. Deployments keep the images that they use."""
    key: dict[str, Any] = {"org_id": org_id, "repository_id": repository.id}
    for part in tx.all(tables.PARTS, **key):
        artifacts.unrefer(tx, org_id, owner_of(repository.id, part.digest))
    tx.run(tables.DELETE_TAGS, **key)
    tx.run(tables.DELETE_PARTS, **key)
    tx.run(tables.DELETE, org_id=org_id, id=repository.id)


def leave_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Keep the images of a deleted project for a day: one that a push created gives way to a new one of its name."""
    for repository in tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id):
        set_project(tx, org_id, repository, None)


def remove_all(tx: Tx, org_id: int) -> None:
    for repository in tx.all(tables.OF_ORGANIZATION, org_id=org_id):
        remove(tx, org_id, repository)


@across_organizations("the collection covers all organizations")
def next_repositories(tx: Tx, after: int, most: int) -> list[Repository]:
    return tx.all(tables.PAGE, after=after, most=most)


def manifests_of(tx: Tx, org_id: int, repository: Repository) -> list[Part]:
    """Return the manifests of a repository that a tag names, or may name soon."""
    tagged = {tag.digest for tag in tags(tx, org_id, repository)}
    parts = tx.all(tables.PARTS, org_id=org_id, repository_id=repository.id)
    return [part for part in parts if part.is_manifest and (part.digest in tagged or _is_new(part, tx.trusted_now))]


def collect(tx: Tx, org_id: int, repository: Repository, documents: dict[str, Document]) -> int:
    """Drop the parts of a repository that no tag needs; return their number.

    `documents` has the manifests that were read before this transaction: a manifest that is not among them is new.
    """
    parts = tx.all(tables.PARTS, org_id=org_id, repository_id=repository.id)
    needed = {tag.digest for tag in tags(tx, org_id, repository)} | {
        part.digest for part in parts if _is_new(part, tx.trusted_now)
    }
    pending = list(needed)
    while pending:
        document = documents.get(pending.pop())
        for digest in document.digests if document is not None else ():
            if digest not in needed:
                needed.add(digest)
                pending.append(digest)
    unused = [part for part in parts if part.digest not in needed]
    for part in unused:
        drop_part(tx, org_id, part)
    is_empty = len(unused) == len(parts) and not tags(tx, org_id, repository)
    if is_empty and repository.updated_at <= tx.trusted_now - UNUSED_MS:
        tx.run(tables.DELETE, org_id=org_id, id=repository.id)
    return len(unused)


def _is_new(part: Part, now: int) -> bool:
    return part.used_at > now - UNUSED_MS
