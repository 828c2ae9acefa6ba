"""Tables of pushed images: repositories, their parts (blobs and manifests) and tags."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, UniqueConstraint, delete, func, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass

PENDING = "pending"  # as the media type: the content is being stored
BLOB = ""  # as the media type: a configuration or a layer

image_repository = table(
    "image_repository",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("name"),  # of the project that its pushes deploy, when the first push was made
    Column("project_id", Id, nullable=True),  # null until a tag was pushed
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("org_id", "name"),
)
Index("ix_image_repository_project_id", image_repository.c.project_id)

image_part = table(
    "image_part",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("repository_id", Id, ForeignKey("image_repository.id"), nullable=False),
    text("digest"),  # with `sha256:`
    Column("size", BigInteger, nullable=False),
    text("media_type"),  # of a manifest; PENDING; or BLOB
    millis("used_at"),  # pushed, or named by a pushed manifest
    UniqueConstraint("repository_id", "digest"),
)
Index("ix_image_part_org_id_digest", image_part.c.org_id, image_part.c.digest)

image_tag = table(
    "image_tag",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("repository_id", Id, ForeignKey("image_repository.id"), nullable=False),
    text("name"),
    text("digest"),
    millis("updated_at"),
    UniqueConstraint("repository_id", "name"),
)


@dataclass(frozen=True, slots=True)
class Repository:
    id: int
    org_id: int
    name: str
    project_id: int | None
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Part:
    id: int
    org_id: int
    repository_id: int
    digest: str
    size: int
    media_type: str
    used_at: int

    @property
    def is_manifest(self) -> bool:
        return self.media_type not in (BLOB, PENDING)


@dataclass(frozen=True, slots=True)
class Tag:
    id: int
    org_id: int
    repository_id: int
    name: str
    digest: str
    updated_at: int


_r, _p, _t = image_repository.c, image_part.c, image_tag.c
_mine = _r.org_id == arg("org_id")
_its_parts = (_p.org_id == arg("org_id")) & (_p.repository_id == arg("repository_id"))
_its_tags = (_t.org_id == arg("org_id")) & (_t.repository_id == arg("repository_id"))
_part = _its_parts & (_p.digest == arg("digest"))
_tag = _its_tags & (_t.name == arg("name"))

FIND = Query(select(*columns(image_repository)).where(_mine & (_r.name == arg("name"))), Repository)
OF_PROJECT = Query(select(*columns(image_repository)).where(_mine & (_r.project_id == arg("project_id"))), Repository)
OF_ORGANIZATION = Query(select(*columns(image_repository)).where(_mine).order_by(_r.id), Repository)
ADD: Query[int] = Query(insert_or_ignore(image_repository), scalar, sets=sets_of(image_repository))
TOUCH = Command(
    update(image_repository)
    .where(_mine & (_r.id == arg("id")))
    .values(project_id=arg("new_project_id", Id), updated_at=arg("now"))
)
DELETE = Command(delete(image_repository).where(_mine & (_r.id == arg("id"))))
PAGE = Query(
    select(*columns(image_repository)).where(_r.id > arg("after")).order_by(_r.id).limit(arg("most")), Repository
)

FIND_PART = Query(select(*columns(image_part)).where(_part), Part)
# In any repository of the organization: a client may mount it into another one.
FIND_ANYWHERE = Query(
    select(*columns(image_part))
    .where((_p.org_id == arg("org_id")) & (_p.digest == arg("digest")) & (_p.media_type != PENDING))
    .limit(1),
    Part,
)
PARTS = Query(select(*columns(image_part)).where(_its_parts).order_by(_p.id), Part)
ADD_PART: Query[int] = Query(insert_or_ignore(image_part), scalar, sets=sets_of(image_part))
SET_PART = Command(update(image_part).where(_part).values(media_type=arg("new_media_type"), used_at=arg("now")))
USE_PART = Command(update(image_part).where(_part).values(used_at=arg("now")))
DELETE_PART = Command(delete(image_part).where(_part))
DELETE_PARTS = Command(delete(image_part).where(_its_parts))
_sizes = select(func.max(_p.size).label("size")).where(_p.org_id == arg("org_id")).group_by(_p.digest).subquery("sizes")
STORED_BYTES: Query[int] = Query(select(func.coalesce(func.sum(_sizes.c.size), 0)), lambda total: int(total))

FIND_TAG = Query(select(*columns(image_tag)).where(_tag), Tag)
TAGS = Query(select(*columns(image_tag)).where(_its_tags).order_by(_t.name), Tag)
ADD_TAG: Query[int] = Query(insert_or_ignore(image_tag), scalar, sets=sets_of(image_tag))
SET_TAG = Command(update(image_tag).where(_tag).values(digest=arg("new_digest"), updated_at=arg("now")))
DELETE_TAG = Command(delete(image_tag).where(_tag))
DELETE_TAGS = Command(delete(image_tag).where(_its_tags))
