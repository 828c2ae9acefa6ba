"""Rows of artifacts and their references.

Every function that adds or removes a reference, or marks a blob for deletion, locks the row of the blob first. Garbage
collection therefore sees either the reference or a row that it may delete.
"""

from __future__ import annotations

from moorage.core.artifacts import tables
from moorage.core.artifacts.objects import ArtifactsUnavailable, key_of, parse_key
from moorage.core.artifacts.states import ARTIFACT, ArtifactStatus
from moorage.core.artifacts.tables import Artifact
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.errors import NotFound

# A blob without references is kept this long, for a rollback or another upload of the same content.
GRACE_MS = DAY_MS
BATCH = 200


@dataclass(frozen=True, slots=True)
class Upload:
    """A stored and verified object that has no row yet."""

    digest: str
    size: int
    copy: str
    started_at: int


def get(tx: Tx, org_id: int, digest: str) -> Artifact:
    """Return an artifact that the organization has a reference to; raises NotFound."""
    artifact = tx.find(tables.FIND_MINE, org_id=org_id, digest=digest)
    if artifact is None:
        raise NotFound("There is no such artifact")
    return artifact


def refer(tx: Tx, org_id: int, digest: str, owner: str) -> None:
    """Add a reference to an artifact that the organization has. Safe to repeat.

    A digest alone is not enough: it would let an organization read the artifacts of another one.
    """
    _lock(tx, digest)
    get(tx, org_id, digest)
    _attach(tx, org_id, digest, owner)


def share(tx: Tx, org_id: int, from_owner: str, owner: str) -> None:
    """Add a reference to all artifacts of another owner, such as the layers of an image. Safe to repeat."""
    for digest in tx.all(tables.OWNED, org_id=org_id, owner=from_owner):
        refer(tx, org_id, digest, owner)


def unrefer(tx: Tx, org_id: int, owner: str) -> None:
    """Remove all references of an owner. Safe to repeat."""
    digests = tx.all(tables.OWNED, org_id=org_id, owner=owner)
    for digest in digests:
        _lock(tx, digest)
    tx.run(tables.DROP_REFS, org_id=org_id, owner=owner)
    for digest in digests:
        tx.run(tables.DISUSE, digest=digest, now=tx.now)


@across_organizations("content is stored once for everybody")
def find_intact(tx: Tx, digest: str) -> Artifact | None:
    artifact = tx.find(tables.FIND, digest=digest)
    return artifact if artifact is not None and artifact.status == ArtifactStatus.PRESENT else None


def refer_to_known(tx: Tx, org_id: int, known: Artifact, owner: str) -> Artifact | None:
    """Add a reference to an existing blob; None if its copy has changed."""
    stored = _lock(tx, known.digest)
    if stored is None or stored.copy != known.copy or stored.status != ArtifactStatus.PRESENT:
        return None
    _attach(tx, org_id, known.digest, owner)
    return stored


def record(tx: Tx, org_id: int, upload: Upload, owner: str) -> tuple[Artifact, str | None]:
    """Record an upload; return its artifact and the key of a redundant object.

    A row that is being deleted is reused for the new copy: the collection deletes the old object and keeps the row.
    """
    if tx.trusted_now - upload.started_at > GRACE_MS // 2:
        # After the grace period, garbage collection deletes objects without a row as leftovers of a crash.
        raise ArtifactsUnavailable("the upload took too long to be recorded")
    stored = _ensure(tx, upload)
    spare = None
    if stored.copy != upload.copy:
        if stored.status == ArtifactStatus.PRESENT:
            spare = key_of(upload.digest, upload.copy)  # A concurrent upload stored the same content.
        else:
            spare = stored.key if stored.status == ArtifactStatus.DAMAGED else None
            move(tx, ARTIFACT, stored, to=ArtifactStatus.PRESENT, copy=upload.copy)
    _attach(tx, org_id, upload.digest, owner)
    return get(tx, org_id, upload.digest), spare


@across_organizations("damage concerns everybody who stored the content")
def report_damage(tx: Tx, artifact: Artifact) -> None:
    """Mark a copy as damaged, so that the next put replaces it."""
    stored = _lock(tx, artifact.digest)
    if stored is not None and stored.copy == artifact.copy and stored.status == ArtifactStatus.PRESENT:
        move(tx, ARTIFACT, stored, to=ArtifactStatus.DAMAGED)


@across_organizations("collection looks at what no organization needs")
def next_collectable(tx: Tx, after: int) -> list[Artifact]:
    """Return the next blobs to delete, including interrupted deletions."""
    return tx.all(tables.COLLECTABLE, after=after, before=tx.trusted_now - GRACE_MS, most=BATCH)


@across_organizations("collection looks at what no organization needs")
def condemn(tx: Tx, candidate: Artifact) -> Artifact | None:
    """Mark a blob for deletion if it is still unreferenced; return its row."""
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
    """Remove the row of a blob after its object, unless a put has reused the row."""
    return tx.run(tables.DROP, id=condemned.id, copy=condemned.copy) > 0


@across_organizations("collection looks at what no organization needs")
def strays(tx: Tx, keys: list[str]) -> list[str]:
    """Return the keys of objects without a row."""
    return [key for key in keys if not _is_known(tx, key)]


@across_organizations("content is stored once for everybody")
def _is_known(tx: Tx, key: str) -> bool:
    parsed = parse_key(key)
    if parsed is None:
        return True  # a foreign object
    stored = tx.find(tables.FIND, digest=parsed[0])
    return stored is not None and stored.copy == parsed[1]


@across_organizations("content is stored once for everybody")
def _lock(tx: Tx, digest: str) -> Artifact | None:
    return tx.find(tables.LOCK, digest=digest)


@across_organizations("content is stored once for everybody")
def _ensure(tx: Tx, upload: Upload) -> Artifact:
    # Repeats only if garbage collection removes the row between the two statements.
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
