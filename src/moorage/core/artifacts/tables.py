"""Tables of artifacts and of references to them.

All organizations that store the same content share one row. A reference lets an organization read the artifact and
protects it from garbage collection.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, UniqueConstraint, delete, literal, select, update

from moorage.core.artifacts.objects import key_of
from moorage.core.artifacts.states import ArtifactStatus
from moorage.core.db.query import Command, Query, arg, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, partial_index, table, text
from moorage.core.kit.records import dataclass

artifact = table(
    "artifact",
    id_column(),
    text("digest", unique=True),  # SHA-256 in lower-case hex
    Column("size", BigInteger, nullable=False),
    text("copy"),  # name of the object's copy: see `objects.key_of`
    text("status"),
    millis("created_at"),
    millis("unreferenced_since", nullable=True),
)
_unreferenced = artifact.c.unreferenced_since.is_not(None)
_deleting = artifact.c.status == ArtifactStatus.DELETING.value
# Partial indexes of rows for garbage collection, so that its cost does not grow with the store.
partial_index("ix_artifact_unreferenced", artifact.c.id, where=_unreferenced)
partial_index("ix_artifact_deleting", artifact.c.id, where=_deleting)

artifact_ref = table(
    "artifact_ref",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("digest", ForeignKey("artifact.digest")),
    text("owner"),  # such as `function:12:version:3`
    UniqueConstraint("org_id", "owner", "digest"),
)
Index("ix_artifact_ref_digest_org_id", artifact_ref.c.digest, artifact_ref.c.org_id)


@dataclass(frozen=True, slots=True)
class Artifact:
    id: int
    digest: str
    size: int
    copy: str
    status: str
    created_at: int
    unreferenced_since: int | None

    @property
    def key(self) -> str:
        return key_of(self.digest, self.copy)


_a = artifact.c
_r = artifact_ref.c
_all = (_a.id, _a.digest, _a.size, _a.copy, _a.status, _a.created_at, _a.unreferenced_since)
_row = select(*_all).where(_a.digest == arg("digest"))
_mine = select(literal(1)).where((_r.org_id == arg("org_id")) & (_r.digest == _a.digest)).exists()
_used = select(literal(1)).where(_r.digest == _a.digest).exists()

FIND = Query(_row, Artifact)
FIND_MINE = Query(_row.where(_mine), Artifact)
# Serialises references and garbage collection on PostgreSQL; SQLite has a single writer.
LOCK = Query(_row.with_for_update(), Artifact)
ADD: Query[int] = Query(insert_or_ignore(artifact), scalar, sets=("digest", "size", "copy", "status", "created_at"))
USE = Command(update(artifact).where(_a.digest == arg("digest")).values(unreferenced_since=None))
DISUSE = Command(update(artifact).where((_a.digest == arg("digest")) & ~_used).values(unreferenced_since=arg("now")))
COLLECTABLE = Query(
    select(*_all)
    .where((_a.id > arg("after")) & (_deleting | (_a.unreferenced_since <= arg("before"))))
    .order_by(_a.id)
    .limit(arg("most")),
    Artifact,
)
IS_USED = Query(select(literal(1)).where(_r.digest == arg("digest")).limit(1), scalar)
# Compares the copy, because a put may have reused the row for a new object.
DROP = Command(delete(artifact).where((_a.id == arg("id")) & (_a.copy == arg("copy")) & _deleting))

_owned = (_r.org_id == arg("org_id")) & (_r.owner == arg("owner"))
ADD_REF: Query[int] = Query(insert_or_ignore(artifact_ref), scalar, sets=("org_id", "digest", "owner"))
OWNED: Query[str] = Query(select(_r.digest).where(_owned).order_by(_r.digest), scalar)
DROP_REFS = Command(delete(artifact_ref).where(_owned))
