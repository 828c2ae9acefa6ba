"""What happens to artifacts inside a transaction: references come and go, blobs are recorded, condemned and forgotten.

Whoever gives or takes a reference, or condemns a blob, locks the blob's row first. Collection therefore sees either
the reference or a row it may condemn, never something in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.core.artifacts import tables
from moorage.core.artifacts.objects import ArtifactsUnavailable, key_of, parse_key
from moorage.core.artifacts.states import ARTIFACT, ArtifactStatus
from moorage.core.artifacts.tables import Artifact
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import DAY_MS
from moorage.errors import NotFound

# What lost its last reference stays this long: a rollback or a second upload of the same content finds it in place.
GRACE_MS = DAY_MS
BATCH = 200


@dataclass(frozen=True, slots=True)
class Upload:
    """An object that was stored and read back, and that no row knows yet."""

    digest: str
    size: int
    copy: str
    started_at: int


def get(tx: Tx, org_id: int, digest: str) -> Artifact:
    """Return an artifact that the organization has a reference to; to everybody else it does not exist."""
    found = tx.find(tables.FIND_MINE, org_id=org_id, digest=digest)
    if found is None:
        raise NotFound("There is no such artifact")
    return found


def refer(tx: Tx, org_id: int, digest: str, owner: str) -> None:
    """Give another owner a reference to an artifact that the organization already has one to. Safe to repeat.

    Knowing a digest is not enough: otherwise anybody could read what another organization stored.
    """
    _lock(tx, digest)
    get(tx, org_id, digest)
    _attach(tx, org_id, digest, owner)


def unrefer(tx: Tx, org_id: int, owner: str) -> None:
    """Take all references of an owner away; blobs without any are collected after the grace period. Safe to repeat."""
    digests = tx.all(tables.OWNED, org_id=org_id, owner=owner)
    for digest in digests:
        _lock(tx, digest)
    tx.run(tables.DROP_REFS, org_id=org_id, owner=owner)
    for digest in digests:
        tx.run(tables.DISUSE, digest=digest, now=tx.now)


@across_organizations("content is stored once for everybody")
def find_intact(tx: Tx, digest: str) -> Artifact | None:
    found = tx.find(tables.FIND, digest=digest)
    return found if found is not None and found.status == ArtifactStatus.PRESENT else None


def refer_to_known(tx: Tx, org_id: int, known: Artifact, owner: str) -> Artifact | None:
    """Give a reference to a blob that the organization has itself; None where the blob has changed hands since."""
    stored = _lock(tx, known.digest)
    if stored is None or stored.copy != known.copy or stored.status != ArtifactStatus.PRESENT:
        return None
    _attach(tx, org_id, known.digest, owner)
    return stored


def record(tx: Tx, org_id: int, upload: Upload, owner: str) -> tuple[Artifact, str | None]:
    """Record an upload and its first reference. Return the artifact, and the key of an object nobody needs any more.

    A blob that is being deleted is taken over: its collector deletes the old copy and finds nothing left to forget.
    """
    if tx.trusted_now - upload.started_at > GRACE_MS // 2:
        # By the end of the grace period, collection takes an object without a row for a crash's leftover.
        raise ArtifactsUnavailable("the upload took too long to be recorded")
    stored = _ensure(tx, upload)
    spare = None
    if stored.copy != upload.copy:
        if stored.status == ArtifactStatus.PRESENT:
            spare = key_of(upload.digest, upload.copy)  # Somebody stored the same content meanwhile.
        else:
            spare = stored.key if stored.status == ArtifactStatus.DAMAGED else None
            move(tx, ARTIFACT, stored, to=ArtifactStatus.PRESENT, copy=upload.copy)
    _attach(tx, org_id, upload.digest, owner)
    return get(tx, org_id, upload.digest), spare


@across_organizations("damage concerns everybody who stored the content")
def report_damage(tx: Tx, found: Artifact) -> None:
    """Note that a copy is not what was stored, so that the next put replaces it; nothing, if one already has."""
    stored = _lock(tx, found.digest)
    if stored is not None and stored.copy == found.copy and stored.status == ArtifactStatus.PRESENT:
        move(tx, ARTIFACT, stored, to=ArtifactStatus.DAMAGED)


@across_organizations("collection looks at what no organization needs")
def next_collectable(tx: Tx, after: int) -> list[Artifact]:
    """Return the next blobs that may be deleted, also those whose deletion was interrupted."""
    return tx.all(tables.COLLECTABLE, after=after, before=tx.trusted_now - GRACE_MS, most=BATCH)


@across_organizations("collection looks at what no organization needs")
def condemn(tx: Tx, candidate: Artifact) -> Artifact | None:
    """Mark a blob for deletion if still nothing refers to it, and return it as it is now."""
    stored = _lock(tx, candidate.digest)
    if stored is None or stored.status == ArtifactStatus.DELETING:
        return stored
    since = stored.unreferenced_since
    if since is None or since > tx.trusted_now - GRACE_MS or tx.find(tables.IS_USED, digest=stored.digest):
        return None
    move(tx, ARTIFACT, stored, to=ArtifactStatus.DELETING)
    return stored


@across_organizations("collection looks at what no organization needs")
def forget(tx: Tx, condemned: Artifact) -> bool:
    """Remove the row of a blob whose object is deleted, unless a put has taken it over."""
    return tx.run(tables.DROP, id=condemned.id, copy=condemned.copy) > 0


@across_organizations("collection looks at what no organization needs")
def strays(tx: Tx, keys: list[str]) -> list[str]:
    """Return those of the keys that no row knows."""
    return [key for key in keys if not _is_known(tx, key)]


@across_organizations("content is stored once for everybody")
def _is_known(tx: Tx, key: str) -> bool:
    parsed = parse_key(key)
    if parsed is None:
        return True  # Not one of ours.
    stored = tx.find(tables.FIND, digest=parsed[0])
    return stored is not None and stored.copy == parsed[1]


@across_organizations("content is stored once for everybody")
def _lock(tx: Tx, digest: str) -> Artifact | None:
    return tx.find(tables.LOCK, digest=digest)


@across_organizations("content is stored once for everybody")
def _ensure(tx: Tx, upload: Upload) -> Artifact:
    # More than one turn is taken only where collection removes the row between the two statements.
    while (stored := _lock(tx, upload.digest)) is None:
        tx.find(
            tables.ADD,
            digest=upload.digest,
            size=upload.size,
            copy=upload.copy,
            status=ArtifactStatus.PRESENT,
            created_at=tx.now,
        )
    return stored


def _attach(tx: Tx, org_id: int, digest: str, owner: str) -> None:
    tx.find(tables.ADD_REF, org_id=org_id, digest=digest, owner=owner)
    tx.run(tables.USE, digest=digest)
